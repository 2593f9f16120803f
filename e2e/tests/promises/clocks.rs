//! A replica whose wall clock is wrong, and jumps, keeps its Lease: only its monotonic clock counts.

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    jiff::{SignedDuration, Timestamp},
};
use kmetal_e2e::{
    chart::Chart,
    clock::Clock,
    cluster::Cluster,
    controller::{Circumstances, Controller},
};
use kube::Api;
use serde_json::json;

const NAMESPACE: &str = "kmetal-system";
const NAME: &str = "kmetal-networking";
const HOUR: SignedDuration = SignedDuration::from_hours(1);
/// What waiting may take of an hour.
const ABOUT: SignedDuration = SignedDuration::from_mins(5);

/// Waits until the Lease is renewed at a time that is off by this, and returns it.
async fn renewed(cluster: &Cluster, off: SignedDuration) -> Result<LeaseSpec> {
    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, NAMESPACE);
    let wait = cluster.wait_for(format!("the Lease is renewed {off:#} from now")).await?;
    wait.showing_all::<Lease>(Some(NAMESPACE))
        .until(async || {
            let spec = leases.get_opt(NAME).await?.and_then(|lease| lease.spec).context("no Lease")?;
            let at = spec.renew_time.as_ref().context("not renewed")?.0;
            let error = at.duration_since(Timestamp::now()) - off;
            Ok((error.abs() < ABOUT).then_some(spec))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_whose_clock_jumps_keeps_its_lease() -> Result<()> {
    let cluster = Cluster::start("clocks").await?;
    let chart = Chart::ours(NAME, NAMESPACE, json!({"platform": {"protectedCIDRs": ["192.0.2.0/24"]}}));
    chart.install(&cluster).await?;
    let clock = Clock::new(cluster.rig(), "replica", HOUR)?;
    let circumstances = Circumstances { clock: Some(&clock), ..Circumstances::default() };
    let replica = Controller::start_in(&cluster, &chart, NAME, 0, &circumstances).await?;
    let ahead = renewed(&cluster, HOUR).await?;

    // Were the monotonic clock to follow, it would see no time to renew for two hours …
    clock.jump_to(-HOUR)?;
    let behind = renewed(&cluster, -HOUR).await?;
    // … and here it would have missed its deadline.
    clock.jump_to(HOUR)?;
    let again = renewed(&cluster, HOUR).await?;
    let held = |spec: &LeaseSpec| (spec.holder_identity.clone(), spec.lease_transitions);
    ensure!(held(&ahead) == held(&behind) && held(&ahead) == held(&again), "{ahead:?} {behind:?} {again:?}");
    replica.child().must_run()?;
    ensure!(replica.tasks().await? > 0, "a process without a task");
    drop(replica);
    cluster.finish();
    Ok(())
}
