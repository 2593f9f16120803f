//! B-P3, B-P5 and X-2: our process starts again among 2,000 and 4,000 claims that need nothing.
//!
//! Claims of every kind, most of them subnets, spread over Environments and VPCs as tenants' are. Two moments are
//! told apart: *ready*, when all is listed and the process says so, and *quiet*, when it has looked at every claim
//! and uses no more processor time.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node},
};
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    networking::{EipClaim, SubnetClaim, VpcClaim},
};
use kube::{Resource, core::ApiResource};

use super::{
    MEMORY, RESTART_LINEAR, RESTART_READY, RESTART_WRITES,
    claims::{Claims, Count, MIXED, PATIENCE},
};
use crate::{
    audit::Entry,
    child::Child,
    measure::{
        Settings, bare,
        bench::{Bench, STAND_IN, our_writes},
        figures::{count, mebibytes, median},
        record::Record,
    },
};

/// What the memory of a process may be: so many bytes at all, and for each claim.
const ALLOWED: (usize, usize) = (64 << 20, 8 << 10);
/// What was under way when the last claim became Ready.
const SETTLED: Duration = Duration::from_secs(5);
/// The gate that is open when all is listed.
const LISTED: &str = "[+] caches";
const LOOK: Duration = Duration::from_millis(2);
/// Who uses so little processor time for so long has nothing under way.
const QUIET: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// One restart.
struct Restart {
    ready: Duration,
    quiet: Duration,
    cpu: Duration,
    peak: u64,
    writes: Vec<String>,
}

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let mut bench = Bench::start("restart").await?;
    let claims = Claims::of(&bench).await?;
    let step = settings.pick(20, 2);

    populate(&bench, &claims, 0..step).await?;
    let few = claims_in(step);
    let mut small = Vec::new();
    for _ in 0..settings.runs {
        let bare = bare::list_all(bench.cluster().config().await?, &kinds()).await?;
        let restart = restart(&mut bench).await?;
        let note = format!("{few} claims: {:.2?}, bare LIST {bare:.2?}", restart.ready);
        record.add(&RESTART_READY, restart.ready.as_secs_f64() / bare.as_secs_f64(), note);
        small.push(restart);
    }

    populate(&bench, &claims, step..2 * step).await?;
    let many = claims_in(2 * step);
    let built = bench.controller().child().usage()?.resident_at_most;
    let typical = median(&small.iter().map(|restart| restart.quiet.as_secs_f64()).collect::<Vec<_>>());
    for before in &small {
        let restart = restart(&mut bench).await?;
        record.add(
            &RESTART_LINEAR,
            restart.quiet.as_secs_f64() / typical,
            format!(
                "{few} claims: {typical:.2} s, {many}: {:.2?}; processor {:.2?}, {:.2?}",
                restart.quiet, before.cpu, restart.cpu
            ),
        );
        let writes: Vec<&String> = before.writes.iter().chain(&restart.writes).collect();
        let first = writes.first().map(|line| line.as_str()).unwrap_or_default();
        record.add(&RESTART_WRITES, count(writes.len()), first);
        let peak = restart.peak.max(built);
        let (fixed, each) = ALLOWED;
        let allowed = count(fixed + each * many);
        let note = format!(
            "{STAND_IN}; {many} claims: {:.1} MiB after a restart, {:.1} MiB where they were built",
            mebibytes(restart.peak),
            mebibytes(built)
        );
        record.add(&MEMORY, count(usize::try_from(peak)?) / allowed, note);
    }
    drop(claims);
    bench.finish();
    Ok(())
}

fn claims_in(environments: usize) -> usize {
    environments * MIXED.all()
}

/// Fills these Environments, in turn.
async fn populate(bench: &Bench, claims: &Claims, environments: std::ops::Range<usize>) -> Result<()> {
    let end = environments.end;
    for environment in environments {
        claims.populate(bench, &format!("tenant-{environment}"), MIXED).await?;
    }
    let Count { vpcs, subnets, eips } = MIXED;
    claims.ready(Count { vpcs: vpcs * end, subnets: subnets * end, eips: eips * end }).await?;
    tokio::time::sleep(SETTLED).await;
    Ok(())
}

async fn restart(bench: &mut Bench) -> Result<Restart> {
    bench.stop().await?;
    let since = bench.mark()?;
    let began = Instant::now();
    bench.start_again()?;
    // Not `Controller::ready`: its pauses are longer than what is measured here, and until the process leads, being
    // ready means less.
    while !matches!(bench.controller().readyz().await, Ok((200, gates)) if gates.contains(LISTED)) {
        bench.controller().child().must_run()?;
        anyhow::ensure!(began.elapsed() < PATIENCE, "our process does not become ready");
        tokio::time::sleep(LOOK).await;
    }
    let ready = began.elapsed();
    let quiet = quiet_after(bench.controller().child(), began).await?;
    tokio::time::sleep(SETTLED).await;
    let usage = bench.controller().child().usage()?;
    let writes = our_writes(&since)?.iter().map(Entry::line).collect();
    Ok(Restart { ready, quiet, cpu: usage.cpu, peak: usage.resident_at_most, writes })
}

/// The kinds that our process lists.
fn kinds() -> Vec<ApiResource> {
    fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
        ApiResource::erase::<K>(&())
    }
    vec![
        of::<VpcClaim>(),
        of::<SubnetClaim>(),
        of::<EipClaim>(),
        of::<Vpc>(),
        of::<Subnet>(),
        of::<OvnEip>(),
        of::<OvnSnatRule>(),
        of::<NetworkAttachmentDefinition>(),
        of::<Namespace>(),
        of::<Node>(),
        of::<Lease>(),
    ]
}

/// Waits until a process has nothing under way; returns how long after `began` it last had.
async fn quiet_after(process: &Child, began: Instant) -> Result<Duration> {
    let mut busy = Instant::now();
    let mut used = process.usage()?.cpu;
    while busy.elapsed() < QUIET.1 {
        anyhow::ensure!(began.elapsed() < PATIENCE, "{} does not come to rest", process.name());
        tokio::time::sleep(QUIET.0).await;
        let now = process.usage()?.cpu;
        if now > used + QUIET.0 {
            (busy, used) = (Instant::now(), now);
        }
    }
    Ok(busy - began)
}
