//! The kit's own promise: one of our processes lives behind the fault proxy, and dies where the test says.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kmetal_e2e::{
    chart::Chart,
    cluster::Cluster,
    controller::{Circumstances, Controller},
    faults::{Proxy, Select},
    wait::PATIENCE,
};
use kube::Api;
use serde_json::json;

const NAMESPACE: &str = "kmetal-system";
const NAME: &str = "kmetal-networking";

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_killed_between_its_write_and_the_answer() -> Result<()> {
    let cluster = Cluster::start("faults").await?;
    let chart = Chart::ours(NAME, NAMESPACE, json!({"platform": {"protectedCIDRs": ["192.0.2.0/24"]}}));
    chart.install(&cluster).await?;
    let proxy = Proxy::before(&cluster).await?;
    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, NAMESPACE);
    let holder =
        async || anyhow::Ok(leases.get_opt(NAME).await?.and_then(|lease| lease.spec?.holder_identity));

    let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
    let write = Select::resource("leases").and(&Select::writes());
    let gate = proxy.hold_answer(write.clone().nth(1));
    let mut replica = Controller::start_in(&cluster, &chart, NAME, 0, &circumstances).await?;
    gate.reached(PATIENCE).await?;
    replica.kill()?;
    gate.abandon();
    let killed = holder().await?.context("the write that it did not hear of was not applied")?;

    // It starts again behind the same proxy, where its lists are held: asked to stop meanwhile, it hands over at once.
    let before = proxy.log().len();
    let lists = proxy.hold_request(Select::resource("vpcclaims"));
    replica.restart()?;
    cluster
        .wait_for("the pod leads again, as another process")
        .await?
        .showing_all::<Lease>(Some(NAMESPACE))
        .until(async || Ok(holder().await?.filter(|holder| *holder != killed)))
        .await?;
    lists.reached(PATIENCE).await?;
    let ended = replica.terminate(Duration::from_secs(10)).await?;
    ensure!(ended.success(), "asked to stop, it ended with {ended}:\n{}", replica.child().log_tail(20));
    ensure!(holder().await?.is_none_or(|holder| holder.is_empty()), "the Lease is not given back");

    let log = proxy.log();
    ensure!(log[..before].iter().filter(|passed| write.takes(&passed.asked)).count() == 1, "{log:#?}");
    ensure!(log.len() > before, "restarted, it does not come through the proxy");
    ensure!(log.iter().all(|passed| passed.asked.agent.starts_with(NAME)), "{log:#?}");
    drop(lists);

    let asked = cluster.audit().requests()?.by(NAMESPACE, NAME);
    ensure!(!asked.is_empty(), "the audit log does not know it");
    let stranger = asked.iter().find(|entry| entry.credential() != Some(replica.credential()));
    ensure!(stranger.is_none(), "another identity than {}: {stranger:?}", replica.credential());
    cluster.finish();
    Ok(())
}
