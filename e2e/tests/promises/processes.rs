//! Our binaries run as their chart says, wherever they are started.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kmetal_e2e::{chart::Chart, cluster::Cluster, controller::Controller, node_actor::NodeActor};
use kube::{Api, api::DeleteParams};
use serde_json::json;

const NAMESPACE: &str = "kmetal-system";
const NAME: &str = "kmetal-networking";

async fn holder(leases: &Api<Lease>) -> Result<Option<String>> {
    let lease = leases.get_opt(NAME).await?;
    Ok(lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_asked_to_stop_hands_over_and_one_that_is_killed_is_replaced() -> Result<()> {
    let cluster = Cluster::start("processes").await?;
    let platform = json!({"protectedCIDRs": ["192.0.2.0/24"]});
    let chart = Chart::ours(NAME, NAMESPACE, json!({"platform": platform}));
    chart.install(&cluster).await?;
    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, NAMESPACE);
    let led_by = async |pod: &str| {
        let wait = cluster.wait_for(format!("{pod} leads")).await?.showing_all::<Lease>(Some(NAMESPACE));
        wait.until(async || Ok(holder(&leases).await?.filter(|holder| holder.starts_with(pod)).map(drop)))
            .await
    };

    let first = Controller::start(&cluster, &chart, NAME, 0).await?;
    led_by("kmetal-networking-0").await?;
    let mut second = Controller::start(&cluster, &chart, NAME, 1).await?;
    cluster
        .wait_for("a standby tells its metrics")
        .await?
        .until(async || Ok(second.metrics().await?.contains("kmetal_").then_some(())))
        .await?;
    let ended = first.terminate(Duration::from_secs(30)).await?;
    ensure!(ended.success(), "asked to stop, it ended with {ended}:\n{}", first.child().log_tail(20));
    led_by("kmetal-networking-1").await?;

    let killed = holder(&leases).await?;
    second.kill()?;
    ensure!(!second.child().is_running());
    second.restart()?;
    let wait = cluster.wait_for("the pod leads again, as another process").await?;
    wait.showing_all::<Lease>(Some(NAMESPACE))
        .until(async || Ok(holder(&leases).await?.filter(|holder| Some(holder) != killed.as_ref())))
        .await?;
    cluster
        .wait_for("/readyz tells that Kube-OVN is absent")
        .await?
        .until(async || {
            let (code, gates) = second.readyz().await?;
            ensure!(code == 503 && gates.contains("Kube-OVN"), "/readyz says {code}: {gates}");
            Ok(Some(()))
        })
        .await?;
    cluster.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_hand_made_nodes_end_when_asked() -> Result<()> {
    let cluster = Cluster::start("nodes").await?;
    let actor = NodeActor::start(&cluster).await?;
    actor.node("one", "192.0.2.1", &[("role", "network")], &[("example.com/chassis", "one")]).await?;
    cluster
        .apply_yaml(
            "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default},
spec: {containers: [{name: c, image: none}]}}",
        )
        .await?;
    let pods: Api<Pod> = Api::namespaced(cluster.client().await?, "default");
    cluster
        .wait_for("the scheduler binds the pod to the node")
        .await?
        .showing::<Pod>(Some("default"), "p")
        .until(async || Ok(pods.get("p").await?.spec.and_then(|spec| spec.node_name)))
        .await?;
    pods.delete("p", &DeleteParams::default()).await?;
    cluster.wait_gone::<Pod>(Some("default"), "p").await?;
    cluster.finish();
    Ok(())
}
