//! with nothing to do the process does nothing, also right after a start, and takes no more of the machine
//! than it did before it had something to do.
//!
//! These are the short forms, which can only find what is plainly wrong. How much is asked for in ten minutes, how a start
//! with thousands of objects compares with a bare list, and what 100,000 events leave behind, is measured.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    check::{leak, quiet},
    scenario::{Scenario, Story},
    stage::Stage,
};
use crate::{
    controller::{Circumstances, Controller},
    wait::eventually,
};

/// How many stories are told and then left alone.
const STORIES: usize = 10;
/// How many of them a person's script has under way.
const AT_ONCE: usize = 5;
/// For so long nothing happens.
const IDLE: Duration = Duration::from_mins(1);
/// Longer than any debounce, sweep or health check that might write.
const SILENCE: Duration = Duration::from_secs(20);
/// Idle connections are kept for a while; what is still there then has been forgotten.
const SETTLES: Duration = Duration::from_mins(1);
/// How often everything is built and removed between two looks at what the process takes.
const ROUNDS: usize = 2;
/// How long asking it to stop may take.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// in one world.
pub async fn x01_x02_x13<S: Scenario>(name: &str) -> Result<()> {
    let stage = Stage::<S>::set(name).await?;
    let mut process = stage.replica(0, &Circumstances::default()).await?;
    process.ready(stage.cluster()).await?;
    let stories = |prefix: &str| {
        (0..STORIES).map(|n| stage.story(&format!("{prefix}-{n}"), n % S::PLOTS)).collect::<Vec<_>>()
    };
    build(&stage, &stories("kept")).await?;
    stage.calm().await?;

    let mark = stage.cluster().audit().mark()?;
    tokio::time::sleep(IDLE).await;
    let faults = quiet::faults(&stage.asked(&mark)?, IDLE);
    ensure!(faults.is_empty(), "with nothing to do: {faults:#?}");

    let before = taken(&process).await?;
    for round in 0..ROUNDS {
        let stories = stories(&format!("passing-{round}"));
        let before_it = stage.snapshot().await?;
        build(&stage, &stories).await?;
        for story in &stories {
            stage.scenario().remove(story).await?;
        }
        stage.becomes(&before_it, "what it was before the round").await?;
    }
    stage.calm().await?;
    eventually("nothing of what passed is left in the process", SETTLES, async || {
        let faults = leak::faults(&before, &taken(&process).await?);
        ensure!(faults.is_empty(), "{STORIES} stories, {ROUNDS} times, left behind: {faults:#?}");
        Ok(Some(()))
    })
    .await?;

    let ended = process.terminate(STOPS_WITHIN).await?;
    ensure!(ended.success(), "asked to stop, it ended with {ended}:\n{}", process.child().log_tail(20));
    let mark = stage.cluster().audit().mark()?;
    process.restart()?;
    process.ready(stage.cluster()).await?;
    tokio::time::sleep(SILENCE).await;
    let written = quiet::writes(&stage.asked(&mark)?);
    ensure!(
        written.is_empty(),
        "a new start with {STORIES} stories in order: {} writes: {written:#?}",
        written.len()
    );
    stage.finish(vec![process]).await
}

async fn build<S: Scenario>(stage: &Stage<S>, stories: &[Story]) -> Result<()> {
    let begin = stream::iter(stories).map(async |story| stage.scenario().begin(story).await);
    begin.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    for story in stories {
        stage.scenario().done(story).await?;
    }
    Ok(())
}

async fn taken(process: &Controller) -> Result<leak::Taken> {
    Ok(leak::Taken { usage: process.child().usage()?, tasks: process.tasks().await? })
}
