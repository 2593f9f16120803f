//! what is between the process and its API server: silence, a server that has too much to do, and credentials
//! that are replaced.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::{check::throttled, scenario::Scenario, seed::Seed, stage::Stage};
use crate::{
    controller::{Circumstances, Controller},
    faults::{Fault, Proxy, Select},
};

/// A watch that has fallen silent is noticed within this time,
const WATCH_BACK: Duration = Duration::from_mins(1);
/// and an ordinary request within this.
const REQUEST_BACK: Duration = Duration::from_secs(30);
/// A token file is read anew within a minute.
const TAKEN_UP: Duration = Duration::from_secs(65);
/// An API server believes in a token for so long after it is void.
const NOTICED: Duration = Duration::from_secs(11);
/// How many writes are swallowed.
const SWALLOWED: u64 = 2;
/// For so long the server has too much to do; with `--full`, and otherwise.
const BUSY: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(8)];
/// How many stories begin while it has.
const STORIES: usize = 4;

/// in one world: half of it is waiting.
pub async fn x08_x09_x11<S: Scenario>(name: &str) -> Result<()> {
    let seed = Seed::of_this_run()?;
    let stage = Stage::<S>::set(name).await?;
    let proxy = Proxy::before(stage.cluster()).await?;
    let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
    let mut process = stage.replica(0, &circumstances).await?;
    process.ready(stage.cluster()).await?;
    let line = Line { proxy, stage };
    line.tell("before").await?;

    // As a kubelet does, long before the old one is void.
    let old = process.renew_token(line.stage.cluster()).await?;
    let taken_up = Instant::now() + TAKEN_UP;
    let certificate =
        line.stage.cluster().authority().server("kube-apiserver", &["127.0.0.1", "localhost"])?;
    line.proxy.serve_as(&certificate)?;

    line.watches_fall_silent().await?;
    line.requests_fall_silent().await?;
    line.the_server_is_busy(if seed.is_full() { BUSY[0] } else { BUSY[1] }).await?;

    let mark = line.stage.cluster().audit().mark()?;
    sleep_until(taken_up).await;
    old.void().await?;
    tokio::time::sleep(NOTICED).await;
    line.tell("renewed").await?;
    let refused = mark.requests()?.only(|entry| entry.code() == 401);
    ensure!(refused.is_empty(), "it still comes with the old token: {:#?}", refused.told());
    process.child().must_run()?;
    never_restarted(&process)?;
    let Line { proxy, stage } = line;
    drop(proxy);
    stage.finish(vec![process]).await
}

struct Line<S: Scenario> {
    proxy: Proxy,
    stage: Stage<S>,
}

impl<S: Scenario> Line<S> {
    /// Somebody wants something, and gets it.
    async fn tell(&self, name: &str) -> Result<()> {
        let story = self.stage.story(name, 0);
        self.stage.scenario().begin(&story).await?;
        self.stage.scenario().done(&story).await?;
        self.stage.calm().await.map(drop)
    }

    /// no event comes any more, and no end of the connection either.
    async fn watches_fall_silent(&self) -> Result<()> {
        let silent = self.proxy.silence(&Select::watches());
        ensure!(silent > 0, "the process watches nothing");
        let struck = SystemTime::now();
        self.tell("silent-watch").await?;
        self.goes_on_within(WATCH_BACK, struck, "its watches fell silent")
    }

    /// a write is taken, and nothing comes back.
    async fn requests_fall_silent(&self) -> Result<()> {
        let rule = self.proxy.fault(Select::useful_writes().first(SWALLOWED), Fault::blackhole());
        let struck = SystemTime::now();
        self.tell("silent-request").await?;
        ensure!(rule.struck() == SWALLOWED, "only {} writes were swallowed", rule.struck());
        rule.lift();
        let swallowed = self.log_since(struck).into_iter().filter(|passed| !passed.faults.is_empty());
        for lost in swallowed.collect::<Vec<_>>() {
            let again = self.log_since(lost.at).into_iter().find(|passed| {
                passed.at > lost.at && passed.asked.path == lost.asked.path && passed.is_applied()
            });
            let again = again.with_context(|| format!("never written again: {}", lost.asked))?;
            let took = again.at.duration_since(lost.at)?;
            eprintln!("suite: a swallowed write came again after {took:.1?}; the bar is {REQUEST_BACK:?}");
            ensure!(took <= REQUEST_BACK, "it came again only after {took:?}: {}", lost.asked);
        }
        Ok(())
    }

    /// 429 to everything but the Lease, which a real API server handles apart from the rest.
    async fn the_server_is_busy(&self, busy: Duration) -> Result<()> {
        let all = Select::all().but_not(&Select::resource("leases"));
        let rule = self.proxy.fault(all, Fault::throttled(1));
        let struck = SystemTime::now();
        let stories: Vec<_> = (0..STORIES).map(|n| self.stage.story(&format!("busy-{n}"), 0)).collect();
        let told = stream::iter(&stories).map(async |story| {
            self.stage.scenario().begin(story).await?;
            self.stage.scenario().done(story).await
        });
        let told = told.buffer_unordered(STORIES).try_collect::<Vec<()>>();
        let (told, ()) = tokio::join!(told, async {
            tokio::time::sleep(busy).await;
            rule.lift();
        });
        told?;
        let refused: Vec<_> =
            self.log_since(struck).into_iter().filter(|passed| passed.client == Some(429)).collect();
        eprintln!("suite: {} requests were refused in {busy:?}", refused.len());
        ensure!(!refused.is_empty(), "nothing was refused");
        let faults = throttled::faults(&refused);
        ensure!(faults.is_empty(), "asked to wait, it does not: {faults:#?}");
        self.stage.calm().await.map(drop)
    }

    fn log_since(&self, moment: SystemTime) -> Vec<crate::faults::Passed> {
        self.proxy.log().into_iter().filter(|passed| passed.at >= moment).collect()
    }

    fn goes_on_within(&self, bar: Duration, struck: SystemTime, what: &str) -> Result<()> {
        let useful = Select::useful_writes();
        let first = self.log_since(struck).into_iter().find(|passed| useful.takes(&passed.asked));
        let first = first.with_context(|| format!("nothing was written since {what}"))?;
        let took = first.at.duration_since(struck)?;
        eprintln!("suite: it went on {took:.1?} after {what}; the bar is {bar:?}");
        ensure!(took <= bar, "it went on only {took:?} after {what}: {}", first.asked);
        Ok(())
    }
}

fn never_restarted(process: &Controller) -> Result<()> {
    let log = std::fs::read(process.child().log())?;
    let starts = String::from_utf8_lossy(&log).matches("\"message\":\"started\"").count();
    ensure!(starts == 1, "it was started {starts} times");
    Ok(())
}
