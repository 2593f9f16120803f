//! claims of every kind are made, changed and deleted without end; after a hundred thousand such events our
//! process must use what it used after the first tenth. Bounded by time: the note says how many there were.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use kmetal_crds::networking::{EipClaim, SubnetClaim, VpcClaim};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    SOAK_FILES, SOAK_MEMORY, SOAK_THREADS,
    claims::{AT_ONCE, eip, subnet, vpc},
};
use crate::child::Usage;
use crate::measure::{
    Settings,
    bar::Bar,
    bare,
    bench::{Bench, LARGE, STAND_IN},
    figures::{count, mebibytes, median},
    record::Record,
};

const EVENTS: usize = 100_000;
/// Each worker has so many claims of a kind, one of which is replaced in each cycle.
const CLAIMS: usize = 10;
const ENVIRONMENT: &str = "tenant-a";
const LOOK: Duration = Duration::from_secs(1);
/// One cycle: of each kind one is made and one deleted, and a subnet is changed.
const EVENTS_IN_A_CYCLE: usize = 7;

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("soak").await?;
    bench.environment(ENVIRONMENT, ENVIRONMENT).await?;
    let (events, at_most) = settings.pick((EVENTS, Duration::from_hours(1)), (2000, Duration::from_mins(2)));
    let done = AtomicUsize::new(0);
    let began = Instant::now();
    let workers = try_join_all((0..AT_ONCE).map(|worker| {
        let (client, done) = (bench.client(), &done);
        async move {
            let mut cycle = 0;
            while done.load(Ordering::Relaxed) < events && began.elapsed() < at_most {
                one_cycle(&client, worker, cycle).await.with_context(|| format!("cycle {cycle}"))?;
                done.fetch_add(EVENTS_IN_A_CYCLE, Ordering::Relaxed);
                cycle += 1;
            }
            anyhow::Ok(())
        }
    }));
    let mut samples = Vec::new();
    let sampling = async {
        loop {
            match bench.controller().child().usage() {
                Ok(usage) => samples.push((done.load(Ordering::Relaxed), usage)),
                Err(error) => return error,
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        outcome = workers => drop(outcome?),
        error = sampling => return Err(error),
    }
    let total = done.load(Ordering::Relaxed);
    let note = format!("{STAND_IN}; {total} events in {:.0} s", began.elapsed().as_secs_f64());
    for (bar, of) in [
        (&SOAK_MEMORY, memory as fn(&Usage) -> f64),
        (&SOAK_FILES, |usage| whole(usage.descriptors)),
        (&SOAK_THREADS, |usage| whole(usage.threads)),
    ] {
        deviation(bar, &samples, total, of, &note, record)?;
    }
    bench.finish();
    Ok(())
}

fn memory(usage: &Usage) -> f64 {
    mebibytes(usage.resident)
}

fn whole(number: u64) -> f64 {
    usize::try_from(number).map_or(f64::NAN, count)
}

/// The level of the last tenth of all events against that of the second: the first is the start.
fn deviation(
    bar: &'static Bar,
    samples: &[(usize, Usage)],
    total: usize,
    of: impl Fn(&Usage) -> f64,
    note: &str,
    record: &mut Record,
) -> Result<()> {
    let level = |from: usize, to: usize| {
        let tenth = samples.iter().filter(|(done, _)| (total / 10 * from..=total / 10 * to).contains(done));
        median(&tenth.map(|(_, usage)| of(usage)).collect::<Vec<_>>())
    };
    let (early, late) = (level(1, 2), level(9, 11));
    ensure!(early.is_finite() && late.is_finite(), "too short a time to tell two tenths apart");
    let off = (late - early).abs() / early * 100.0;
    record.add(bar, off, format!("{note}; {early:.1}, then {late:.1}"));
    Ok(())
}

/// Makes the next claims of this worker, changes the one before and deletes the oldest.
async fn one_cycle(client: &Client, worker: usize, cycle: usize) -> Result<()> {
    let name = |cycle: usize| format!("w{worker}-{cycle}");
    let (now, before) = (name(cycle), cycle.checked_sub(1).map(name));
    let nth = worker * 4096 + cycle % 4096;
    bare::create(&within::<VpcClaim>(client), &vpc(ENVIRONMENT, &now)).await?;
    bare::create(&within::<SubnetClaim>(client), &subnet(ENVIRONMENT, &now, &now, nth)).await?;
    bare::create(&within::<EipClaim>(client), &eip(ENVIRONMENT, &now, LARGE.0, None)).await?;
    if let Some(before) = before {
        let patch = Patch::Merge(json!({"spec": {"dns": [format!("198.51.100.{}", cycle % 250 + 1)]}}));
        within::<SubnetClaim>(client).patch(&before, &PatchParams::default(), &patch).await?;
    }
    if let Some(oldest) = cycle.checked_sub(CLAIMS).map(name) {
        delete::<EipClaim>(client, &oldest).await?;
        delete::<SubnetClaim>(client, &oldest).await?;
        delete::<VpcClaim>(client, &oldest).await?;
        // Not faster than they go: what piles up would be measured, not what leaks.
        if let Some(older) = cycle.checked_sub(2 * CLAIMS).map(name) {
            while within::<VpcClaim>(client).get_opt(&older).await?.is_some() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    Ok(())
}

async fn delete<K>(client: &Client, name: &str) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    within::<K>(client).delete(name, &DeleteParams::default()).await?;
    Ok(())
}

fn within<K>(client: &Client) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    Api::namespaced(client.clone(), ENVIRONMENT)
}
