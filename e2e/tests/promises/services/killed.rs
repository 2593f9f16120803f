//! kmetal-networking is killed after its writes, in either API server, while a Service comes and while it goes.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kmetal_e2e::{
    audit::{Audit, Entry},
    networking::{NAME, NAMESPACE, Networking},
    services::{Services, ports},
    tenant_cluster::TenantCluster,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::{ENVIRONMENT, Stage, shown::Shown};
use crate::remains::Before;

/// A living process has something to do within this time, one that is done never has. Longer than a restart takes.
const QUIET: Duration = Duration::from_secs(8);

/// Starts the killed process again. Its Lease is emptied, which time alone would do as well: that wait is proven elsewhere.
async fn start_again(networking: &mut Networking) -> Result<()> {
    networking.controller().kill()?;
    let leases: Api<Lease> = Api::namespaced(networking.under().client().await?, NAMESPACE);
    let empty = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    leases.patch(NAME, &PatchParams::default(), &empty).await?;
    networking.controller_mut().restart()
}

/// Both audit logs from now on.
fn marks(stage: &Stage, tenant: &TenantCluster) -> Result<[Audit; 2]> {
    Ok([stage.under().cluster().audit().mark()?, tenant.cluster().audit().mark()?])
}

/// What a kill can fall between.
fn writes(since: &[Audit; 2]) -> Result<usize> {
    let counts = |entry: &Entry| {
        let about = entry.reference();
        entry.user_agent.starts_with(NAME)
            && (200..300).contains(&entry.code())
            && !["leases", "events"].contains(&about.resource.as_str())
    };
    let mut all = 0;
    for audit in since {
        all += audit.writes()?.iter().filter(|entry| counts(entry)).count();
    }
    Ok(all)
}

/// Kills the process after each of its writes until it has no more to do; how often that was.
async fn kills(stage: &mut Stage, tenant: &TenantCluster) -> Result<usize> {
    let mut kills = 0;
    let mut since = marks(stage, tenant)?;
    let mut last = Instant::now();
    while last.elapsed() < QUIET {
        if writes(&since)? > 0 {
            start_again(&mut stage.networking).await?;
            kills += 1;
            (since, last) = (marks(stage, tenant)?, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(kills)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_every_write_it_gives_and_takes_the_same() -> Result<()> {
    let mut stage = Stage::start("services-killed").await?;
    let blue = stage.cluster(ENVIRONMENT, "blue").await?;
    blue.worker(stage.under(), "front", "blue-1").await?;
    let services = Services::of(&blue).await?;
    let shown = Shown::record(&[&blue]).await?;
    let before = Before::claims(&stage.networking).await?;

    services.apply("web", None, json!({"ports": ports(&[(53, "TCP"), (53, "UDP")])})).await?;
    let giving = kills(&mut stage, &blue).await?;
    services.address("web").await?;
    ensure!(stage.rules().await?.len() == 2);

    services.delete("web").await?;
    let taking = kills(&mut stage, &blue).await?;
    services.gone("web").await?;
    stage.nothing_is_bound().await?;
    // How many writes slip in between a write and the kill is chance; that some are hit is not.
    ensure!(giving >= 4 && taking >= 3, "killed only {giving} and {taking} times");
    shown.each_once().await?;
    let wait = stage.under().cluster().wait_for("of the Service nothing is left").await?;
    let eips = stage.eips(ENVIRONMENT).await?;
    wait.within(Duration::from_mins(3))
        .until(async || {
            ensure!(eips.list(&kube::api::ListParams::default()).await?.items.is_empty());
            before.is_again(stage.under().ovn()).await.map(Some)
        })
        .await?;
    drop(blue);
    stage.finish();
    Ok(())
}
