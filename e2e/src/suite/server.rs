//! the API server dies, its store dies, and what happened meanwhile is forgotten. The process catches up, and makes
//! nothing twice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    check::children,
    kind::Role,
    scenario::{Scenario, Story},
    seed::Seed,
    stage::Stage,
};
use crate::{
    audit::Audit,
    controller::{Circumstances, Controller},
    faults::{Proxy, Select},
    wait::eventually,
};

/// From when the API server is ready again.
const CAUGHT_UP: Duration = Duration::from_secs(10);
/// How often the API server dies; with `--full`, and otherwise.
const SERVER: [usize; 2] = [20, 2];
/// How often the store does.
const STORE: [usize; 2] = [5, 1];
/// So far a story has come when the blow falls.
const BEGUN: Duration = Duration::from_millis(300);
/// How long what a person applies may be refused for want of a server.
const AWAY: Duration = Duration::from_mins(1);

///
pub async fn x07<S: Scenario>(name: &str) -> Result<()> {
    let seed = Seed::of_this_run()?;
    let often = usize::from(!seed.is_full());
    let stage = Stage::<S>::set(name).await?;
    let proxy = Proxy::before(stage.cluster()).await?;
    let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
    let mut process = stage.replica(0, &circumstances).await?;
    process.ready(stage.cluster()).await?;
    for round in 0..SERVER[often] {
        let blow = async || {
            stage.cluster().kill_apiserver()?;
            stage.cluster().start_apiserver().await
        };
        through(&stage, &mut process, &stage.story(&format!("server-{round}"), 0), blow).await?;
    }
    for round in 0..STORE[often] {
        let blow = async || stage.cluster().restart_etcd().await;
        through(&stage, &mut process, &stage.story(&format!("store-{round}"), 0), blow).await?;
    }
    nothing_twice(&stage).await?;

    // While its watches say nothing, things are made and changed; then nobody can tell any more what came after what it
    // saw last.
    let stage = stage.record_anew().await?;
    let blow = async || {
        proxy.silence(&Select::watches());
        stage.cluster().kubectl(&["annotate", "namespace", "default", "before=compaction"]).await?;
        stage.cluster().compact().await?;
        stage.cluster().kill_apiserver()?;
        stage.cluster().start_apiserver().await?;
        // Only now it hears that its connections are gone, and asks for what came after the last that it heard.
        proxy.clear();
        Ok(())
    };
    through(&stage, &mut process, &stage.story("compacted", 0), blow).await?;
    drop(proxy);
    stage.finish(vec![process]).await
}

/// Tells a story, with the blow in the middle of it.
async fn through<S: Scenario>(
    stage: &Stage<S>,
    process: &mut Controller,
    story: &Story,
    blow: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let mark = stage.calm().await?;
    let told =
        eventually("the story can be told", AWAY, async || stage.scenario().begin(story).await.map(Some));
    let struck = async {
        tokio::time::sleep(BEGUN).await;
        blow().await?;
        anyhow::Ok(Timestamp::now())
    };
    let all = async {
        let (told, ready) = tokio::join!(told, struck);
        told?;
        stage.scenario().done(story).await?;
        ready
    };
    let ready = tokio::select! {
        ready = all => ready?,
        error = keep_running(process) => return error,
    };
    caught_up(stage, &mark, ready)
}

/// Plays the kubelet: away from the API server for longer than its Lease allows, the process ends, and is started again.
async fn keep_running(process: &mut Controller) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if !process.child().is_running() {
            let log = process.child().log_tail(3);
            ensure!(log.contains("the lease is lost"), "it ended for another reason than its Lease:\n{log}");
            process.restart()?;
        }
    }
}

/// Something of use was written soon after the server was ready.
fn caught_up<S: Scenario>(stage: &Stage<S>, mark: &Audit, ready: Timestamp) -> Result<()> {
    let mut first = None;
    for entry in stage.asked(mark)?.useful_writes().iter().filter(|entry| entry.is_accepted()) {
        if entry.received()? >= ready {
            first = Some(entry.received()?.duration_since(ready));
            break;
        }
    }
    let first = first.context("it was done before the server was away")?;
    eprintln!(
        "suite: it went on {:.1} s after the server was ready; the bar is {CAUGHT_UP:?}",
        first.as_secs_f32()
    );
    ensure!(first <= SignedDuration::try_from(CAUGHT_UP)?, "it went on only after {first:?}");
    Ok(())
}

async fn nothing_twice<S: Scenario>(stage: &Stage<S>) -> Result<()> {
    stage.history().caught_up().await?;
    for kind in stage.kinds().iter().filter(|kind| kind.role == Role::Child) {
        let versions = stage.history().versions_of(&kind.resource).context(kind.resource.kind.clone())?;
        let (most, last) = children::most_and_last(&versions);
        ensure!(most == last, "there were {most} {}s at once, and {last} are needed", kind.resource.kind);
    }
    Ok(())
}
