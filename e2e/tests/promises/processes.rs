//! Our binaries run as their chart says, wherever they are started.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kmetal_e2e::{cluster::Cluster, node_actor::NodeActor};
use kube::{Api, api::DeleteParams};

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
