//! of two replicas one leads, and the other goes on in time, whatever becomes of the first.
//!
//! "In time" is told by the audit log, on the API server's clock: from the moment at which the leader was struck to the first
//! write that somebody waits for. The bars are about the Lease and not about how fast a machine is.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, sleep_until};

use super::{scenario::Scenario, stage::Stage};
use crate::{
    audit::Audit,
    clock::Clock,
    controller::{Circumstances, Controller},
};

/// Of the chart: a silent leader is replaced after so long.
const LEASE: Duration = Duration::from_secs(15);
/// What finding out, listing and writing may take on top of that, or by itself where the Lease was given back.
const GRACE: Duration = Duration::from_secs(2);
/// For so long the leader stands still: longer than its Lease lasts.
const STOPPED: Duration = Duration::from_secs(20);
/// Who has lost the Lease notices within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// How wrong a clock is.
const WRONG: SignedDuration = SignedDuration::from_hours(1);
/// A shorter Lease where its length is not what is tested.
const SHORT: Duration = Duration::from_secs(5);

///
pub async fn x04_x05_x06<S: Scenario>(name: &str) -> Result<()> {
    let stage = Stage::<S>::set(name).await?;
    let usual = Circumstances::default();
    let mut pair =
        Pair { leader: stage.replica(0, &usual).await?, standby: stage.replica(1, &usual).await?, stage };
    pair.leads().await?;
    ensure!(pair.standby.metrics().await?.contains("kmetal_"), "a standby tells no metrics");
    pair.stopped().await?;
    pair.killed(LEASE, "killed").await?;
    pair.asked_to_stop().await?;
    let Pair { leader, standby, stage } = pair;
    leader.terminate(ENDS_WITHIN).await?;
    standby.terminate(ENDS_WITHIN).await?;

    let lease = SHORT.as_secs().to_string();
    let environment = [("KMETAL_LEASE_SECONDS", lease.as_str())];
    let rig = stage.cluster().rig();
    let (ahead, behind) = (Clock::new(rig, "ahead", WRONG)?, Clock::new(rig, "behind", -WRONG)?);
    let with =
        |clock| Circumstances { environment: &environment, clock: Some(clock), ..Circumstances::default() };
    let mut pair = Pair {
        leader: stage.replica(2, &with(&ahead)).await?,
        standby: stage.replica(3, &with(&behind)).await?,
        stage,
    };
    pair.leads().await?;
    pair.clocks_jump(&ahead, &behind).await?;
    pair.killed(SHORT, "clocks").await?;
    let Pair { leader, standby, stage } = pair;
    stage.finish(vec![leader, standby]).await
}

/// Two replicas.
struct Pair<S: Scenario> {
    leader: Controller,
    standby: Controller,
    stage: Stage<S>,
}

impl<S: Scenario> Pair<S> {
    /// Both are ready, and the one that is meant to lead does.
    async fn leads(&mut self) -> Result<()> {
        self.leader.ready(self.stage.cluster()).await?;
        self.standby.ready(self.stage.cluster()).await?;
        let holder = self.stage.leader().await?.context("nobody leads")?;
        // Whoever was faster.
        if !self.leader.child().name().ends_with(holder.split('_').next().unwrap_or_default()) {
            std::mem::swap(&mut self.leader, &mut self.standby);
        }
        self.stage.calm().await.map(drop)
    }

    /// Somebody wants something, and gets it.
    async fn tell(&self, name: &str) -> Result<()> {
        let story = self.stage.story(name, 0);
        self.stage.scenario().begin(&story).await?;
        self.stage.scenario().done(&story).await
    }

    /// Stopped, it still believes that it leads; what it had in hand must not be written when it wakes up.
    async fn stopped(&mut self) -> Result<()> {
        let mark = self.stage.cluster().audit().mark()?;
        self.leader.child().pause()?;
        let until = Instant::now() + STOPPED;
        self.tell("stopped").await?;
        sleep_until(until).await;
        self.leader.child().resume()?;
        let ended = self.leader.child().wait(ENDS_WITHIN).await;
        ensure!(ended.is_some_and(|ended| !ended.success()), "without the Lease it goes on: {ended:?}");
        self.one_after_the_other(&mark)?;
        self.swap().await
    }

    /// Killed, it is replaced when its Lease has run out.
    async fn killed(&mut self, lease: Duration, name: &str) -> Result<()> {
        let mark = self.stage.cluster().audit().mark()?;
        let struck = Timestamp::now();
        self.leader.kill()?;
        self.tell(name).await?;
        self.goes_on_within(lease + GRACE, struck, &mark)?;
        self.one_after_the_other(&mark)?;
        self.swap().await
    }

    /// Asked to stop, it gives the Lease back.
    async fn asked_to_stop(&mut self) -> Result<()> {
        let mark = self.stage.cluster().audit().mark()?;
        let struck = Timestamp::now();
        let (ended, told) = tokio::join!(self.leader.terminate(ENDS_WITHIN), self.tell("asked"));
        told?;
        let ended = ended?;
        ensure!(
            ended.success(),
            "asked to stop, it ended with {ended}:\n{}",
            self.leader.child().log_tail(20)
        );
        self.goes_on_within(GRACE, struck, &mark)?;
        self.one_after_the_other(&mark)?;
        self.swap().await
    }

    /// Clocks that are wrong, and jump, change nothing: nobody takes over from a leader that is well.
    async fn clocks_jump(&mut self, ahead: &Clock, behind: &Clock) -> Result<()> {
        let mark = self.stage.cluster().audit().mark()?;
        let holder = self.stage.leader().await?;
        for (one, other) in [(-WRONG, WRONG), (WRONG, -WRONG)] {
            ahead.jump_to(one)?;
            behind.jump_to(other)?;
            self.tell(if one.is_negative() { "jumped" } else { "back" }).await?;
            tokio::time::sleep(SHORT + GRACE).await;
        }
        ensure!(self.stage.leader().await? == holder, "leadership changed hands over a clock");
        let by_standby = self.stage.cluster().audit().requests()?.useful_writes();
        let by_standby = by_standby.only(|entry| entry.credential() == Some(self.standby.credential()));
        ensure!(by_standby.is_empty(), "the standby writes: {:#?}", by_standby.told());
        self.one_after_the_other(&mark)
    }

    /// The one that has ended comes back as the standby.
    async fn swap(&mut self) -> Result<()> {
        std::mem::swap(&mut self.leader, &mut self.standby);
        self.standby.restart()?;
        self.standby.ready(self.stage.cluster()).await?;
        self.stage.calm().await.map(drop)
    }

    /// Nothing of the old leader's came, or was still under way, when the new one had begun to write.
    fn one_after_the_other(&self, mark: &Audit) -> Result<()> {
        let writes = mark.requests()?.useful_writes();
        let is_of = |replica: &Controller| {
            let credential = replica.credential().to_owned();
            move |entry: &crate::audit::Entry| entry.credential() == Some(credential.as_str())
        };
        let handover = writes.handover(is_of(&self.leader), is_of(&self.standby));
        let late: Vec<String> = handover.overlapping.iter().map(crate::audit::Entry::line).collect();
        ensure!(late.is_empty(), "written by a replica that had been replaced: {late:#?}");
        Ok(())
    }

    fn goes_on_within(&self, bar: Duration, struck: Timestamp, mark: &Audit) -> Result<()> {
        let writes = mark.requests()?.useful_writes();
        let first = writes.iter().find(|entry| entry.credential() == Some(self.standby.credential()));
        let first = first.context("the standby wrote nothing")?;
        let took = first.received()?.duration_since(struck);
        let told = format!("the next write came {:.1} s after the blow", took.as_secs_f32());
        eprintln!("suite: {told}; the bar is {bar:?}");
        ensure!(took <= SignedDuration::try_from(bar)?, "{told}, later than {bar:?}: {}", first.line());
        Ok(())
    }
}
