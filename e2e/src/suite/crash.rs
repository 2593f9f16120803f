//! whenever the process dies, and whichever answer it never gets, what comes out is the same.
//!
//! A first, undisturbed telling of each plot shows how many writes it takes and what the end state is. Then, for every n, it is
//! told again with the n-th write disturbed, while things are built and once more while they are removed; what stands in
//! the end must be the same to the byte, first built, then gone. No hand helps, but one: the Lease of a killed process is
//! emptied, which time alone would do as well, and X-4 waits for that.

use std::{
    fmt,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{scenario::Scenario, seed::Seed, snapshot::Snapshot, stage::Stage};
use crate::{
    controller::{Circumstances, Controller},
    faults::{Fault, Gate, Proxy, Select},
};

/// No telling takes longer to come to a write than it takes to come to its end.
const PATIENCE: Duration = Duration::from_mins(10);

/// How a write is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    /// The process is killed when the server has applied the write, before it hears of that.
    Kill,
    /// The answer is lost on the way.
    LoseAnswer,
    /// The write itself is lost on the way.
    LoseRequest,
}

/// Which of its two halves a telling is in.
#[derive(Debug, Clone, Copy)]
enum Half {
    Build,
    Remove,
}

impl fmt::Display for Blow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "killed after",
            Self::LoseAnswer => "without the answer to",
            Self::LoseRequest => "having lost",
        })
    }
}

/// A plot as it goes when nothing disturbs it.
struct Plot {
    number: usize,
    nothing: Snapshot,
    built: Snapshot,
    /// Writes to build, writes to remove.
    writes: [u64; 2],
}

impl Plot {
    fn end(&self, half: Half) -> (&Snapshot, &'static str) {
        match half {
            Half::Build => (&self.built, "what an undisturbed story builds"),
            Half::Remove => (&self.nothing, "what it was before"),
        }
    }
}

/// The process behind its proxy, in its world.
struct Play<S: Scenario> {
    process: Controller,
    proxy: Proxy,
    stage: Stage<S>,
    seed: Seed,
    hits: u64,
    misses: u64,
}

/// Of plot 0 the process is killed after every write; of all else the seed takes its share.
pub async fn x03<S: Scenario>(name: &str) -> Result<()> {
    let seed = Seed::of_this_run()?;
    let stage = Stage::<S>::set(name).await?;
    let proxy = Proxy::before(stage.cluster()).await?;
    let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
    let process = stage.replica(0, &circumstances).await?;
    process.ready(stage.cluster()).await?;
    let mut play = Play { process, proxy, stage, seed, hits: 0, misses: 0 };
    let plots = S::PLOTS + if play.seed.is_full() { S::MORE_PLOTS } else { 0 };
    for number in 0..plots {
        let plot = play.undisturbed(number).await?;
        eprintln!("suite: plot {number} takes {:?} writes to build and to remove", plot.writes);
        for blow in [Blow::Kill, Blow::LoseAnswer, Blow::LoseRequest] {
            play.disturbed(&plot, blow).await?;
        }
    }
    let Play { process, proxy, stage, hits, misses, .. } = play;
    eprintln!("suite: {hits} writes were disturbed, {misses} more were not made that time");
    ensure!(hits > 4 * misses, "too few writes were disturbed");
    drop(proxy);
    stage.finish(vec![process]).await
}

impl<S: Scenario> Play<S> {
    /// Tells a plot once as a person would see it, to know what it comes to.
    async fn undisturbed(&self, number: usize) -> Result<Plot> {
        let story = self.stage.story("story", number);
        let written = || self.proxy.count(&Select::useful_writes()) as u64;
        self.stage.calm().await?;
        let (nothing, start) = (self.stage.snapshot().await?, written());
        self.stage.scenario().begin(&story).await?;
        self.stage.scenario().done(&story).await?;
        self.stage.calm().await?;
        let (built, middle) = (self.stage.snapshot().await?, written());
        self.stage.scenario().remove(&story).await?;
        self.stage.becomes(&nothing, "what it was before").await?;
        self.stage.calm().await?;
        let writes = [middle - start, written() - middle];
        ensure!(nothing.difference(&built).is_some(), "plot {number} builds nothing that the end state has");
        ensure!(
            writes.iter().all(|writes| *writes > 0),
            "plot {number} wants nothing of the process: {writes:?}"
        );
        Ok(Plot { number, nothing, built, writes })
    }

    /// Tells a plot as often as it has writes to disturb, one of each half at a time.
    async fn disturbed(&mut self, plot: &Plot, blow: Blow) -> Result<()> {
        for nth in 1..=plot.writes[0].max(plot.writes[1]) {
            let case = format!("{} plot {} {blow:?} {nth}", S::PROCESS, plot.number);
            let all = plot.number == 0 && blow == Blow::Kill;
            if !(all || self.seed.takes(&case)) {
                continue;
            }
            for half in [Half::Build, Half::Remove] {
                let began = Instant::now();
                let told = self.tell(plot, half, blow, nth).await;
                let took = began.elapsed().as_secs_f32();
                eprintln!("suite: {half:?} {blow} write {nth}: {took:.1} s");
                let hit = told.with_context(|| {
                    let number = plot.number;
                    format!("plot {number}, {half:?}: {blow} write {nth}; {}", self.seed.told())
                })?;
                let expected = nth <= plot.writes[half as usize];
                self.hits += u64::from(hit);
                self.misses += u64::from(expected && !hit);
            }
        }
        Ok(())
    }

    /// Tells one half with its `nth` write disturbed, and waits for the end; whether there was such a write.
    async fn tell(&mut self, plot: &Plot, half: Half, blow: Blow, nth: u64) -> Result<bool> {
        let Self { process, proxy, stage, .. } = self;
        let story = stage.story("story", plot.number);
        let told = async {
            match half {
                Half::Build => {
                    stage.scenario().begin(&story).await?;
                    stage.scenario().done(&story).await?;
                }
                Half::Remove => stage.scenario().remove(&story).await?,
            }
            let (end, what) = plot.end(half);
            stage.becomes(end, what).await
        };
        let which = Select::useful_writes().nth(nth);
        let fault = match blow {
            Blow::LoseAnswer => Fault::drop_answer(),
            Blow::LoseRequest => Fault::drop_request(),
            Blow::Kill => return killed(process, proxy.hold_answer(which), stage, told).await,
        };
        let rule = proxy.fault(which, fault);
        told.await?;
        rule.lift();
        Ok(rule.struck() > 0)
    }
}

/// Kills the process when its write is at the gate, and starts it again; whether it came to that before `told` was over.
async fn killed<S: Scenario>(
    process: &mut Controller,
    gate: Gate,
    stage: &Stage<S>,
    told: impl Future<Output = Result<()>>,
) -> Result<bool> {
    let mut told = pin!(told);
    tokio::select! {
        biased;
        reached = gate.reached(PATIENCE) => reached?,
        told = &mut told => return told.map(|()| false),
    }
    process.kill()?;
    gate.abandon();
    stage.free_lease().await?;
    process.restart()?;
    told.await?;
    Ok(true)
}
