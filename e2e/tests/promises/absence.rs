//! kmetal-networking without what it needs: it stays up, says what is missing, and goes on when that is back.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::core::v1::Node, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kmetal_crds::networking::{SubnetClaim, VpcClaim};
use kmetal_e2e::{
    cluster::Options,
    networking::{Networking, Offer, values},
    ovn::{
        provider_network::ProviderNetwork,
        under_cluster::{GATEWAY_LABEL, NODE, UnderCluster},
    },
    rig::Rig,
    wait::{READY, not_ready},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use crate::remains::Before;

const ENVIRONMENT: &str = "acme-prod";
const ATTACHMENTS: &str = "network-attachment-definitions.k8s.cni.cncf.io";
/// A dead kube-ovn-controller is found out within 40 s, and what hangs on it somewhat later.
const PATIENCE: Duration = Duration::from_mins(2);

fn internet() -> ProviderNetwork {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1")
}

/// Waits until `/readyz` refuses with this text and the process still runs.
async fn unready(networking: &Networking, why: &str) -> Result<()> {
    let cluster = networking.under().cluster();
    cluster
        .wait_for(format!("/readyz refuses: {why}"))
        .await?
        .within(PATIENCE)
        .until(async || {
            networking.controller().child().must_run()?;
            let (code, text) = networking.controller().readyz().await?;
            ensure!(code == 503 && text.contains(why), "/readyz says {code}: {text}");
            Ok(Some(()))
        })
        .await
}

/// Claims a VPC with a way out and a subnet in it, and waits for neither.
async fn claim(networking: &Networking, number: u8) -> Result<()> {
    networking.claim_vpc(ENVIRONMENT, &format!("net{number}"), Some("")).await?;
    let (front, net) = (format!("front{number}"), format!("net{number}"));
    networking.claim_subnet(ENVIRONMENT, &front, &net, "10.1.0.0/24").await
}

/// Waits until these are built, however long Kube-OVN hesitates.
async fn built(networking: &Networking, number: u8) -> Result<()> {
    let cluster = networking.under().cluster();
    let net: VpcClaim = cluster.wait_condition(Some(ENVIRONMENT), &format!("net{number}"), READY).await?;
    ensure!(net.status.is_some_and(|status| status.egress.is_some_and(|egress| egress.address.is_some())));
    cluster.wait_condition::<SubnetClaim>(Some(ENVIRONMENT), &format!("front{number}"), READY).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kube_ovn_may_come_late_and_go_and_come_back() -> Result<()> {
    let rig = Rig::new("absence")?;
    let under = UnderCluster::start_without_kube_ovn(&rig, "absence", Options::default()).await?;
    let networking = Networking::install(under, values(&[internet().into()])).await?;
    let kube_ovn = || networking.under().kube_ovn();
    networking.environment("acme", ENVIRONMENT).await?;

    // Nothing of it is there.
    unready(&networking, "Kube-OVN is not installed: ").await?;
    claim(&networking, 1).await?;
    let told = networking.vpc_says(ENVIRONMENT, "net1", "KubeOvnMissing").await?;
    ensure!(told.contains("kubeovn.io") && told.contains("engineers install it"), "{told}");
    networking.subnet_says(ENVIRONMENT, "front1", "KubeOvnMissing").await?;

    // Half of it: the kinds, and nobody who serves them.
    kube_ovn().install_crds().await?;
    unready(&networking, "kube-ovn-controller is not running: ").await?;
    let told = networking.vpc_says(ENVIRONMENT, "net1", "KubeOvnNotRunning").await?;
    ensure!(told.contains("engineers must start it"), "{told}");

    // All of it.
    kube_ovn().start_again().await?;
    networking.under().provider_networks(&[internet()]).await?;
    networking.controller().ready(networking.under().cluster()).await?;
    built(&networking, 1).await?;

    // Multus' kind goes, and with it every attachment.
    let crds: Api<CustomResourceDefinition> = Api::all(networking.under().client().await?);
    crds.delete(ATTACHMENTS, &DeleteParams::default()).await?;
    unready(&networking, ATTACHMENTS).await?;
    networking.subnet_says(ENVIRONMENT, "front1", "KubeOvnMissing").await?;
    kube_ovn().install_crds().await?;
    built(&networking, 1).await?;

    // Kube-OVN's own kinds go while all of it runs, and with them every network.
    kube_ovn().remove_crds().await?;
    unready(&networking, "Kube-OVN is not installed: ").await?;
    networking.vpc_says(ENVIRONMENT, "net1", "KubeOvnMissing").await?;
    kube_ovn().install_crds().await?;
    kube_ovn().restart().await?;
    networking.under().provider_networks(&[internet()]).await?;
    networking.controller().ready(networking.under().cluster()).await?;
    built(&networking, 1).await?;
    networking.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_kube_ovn_gets_its_gateways_back_and_networks_are_built_at_any_moment() -> Result<()> {
    let networking = Networking::start("gateways", &[Offer::from(internet())]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;
    let cluster = networking.under().cluster();
    let nodes: Api<Node> = Api::all(networking.under().client().await?);
    claim(&networking, 1).await?;
    built(&networking, 1).await?;

    // Claimed while it is away, and with the label as it leaves it at its start: the worst moment.
    networking.under().kube_ovn().stop().await?;
    let reset = Patch::Merge(json!({"metadata": {"labels": {GATEWAY_LABEL: "false"}}}));
    nodes.patch(NODE, &PatchParams::default(), &reset).await?;
    claim(&networking, 2).await?;
    cluster.wait_condition::<VpcClaim>(Some(ENVIRONMENT), "net2", not_ready("KubeOvnNotRunning")).await?;
    networking.under().kube_ovn().start_without_waiting()?;
    claim(&networking, 3).await?;
    built(&networking, 2).await?;
    built(&networking, 3).await?;
    claim(&networking, 4).await?;
    built(&networking, 4).await?;
    let label = nodes.get(NODE).await?.labels().get(GATEWAY_LABEL).cloned();
    ensure!(label.as_deref() == Some("true"), "the gateway label is {label:?}");
    built(&networking, 1).await?;

    for number in 1..=4 {
        let client = networking.under().client().await?;
        let delete = DeleteParams::default();
        Api::<VpcClaim>::namespaced(client.clone(), ENVIRONMENT)
            .delete(&format!("net{number}"), &delete)
            .await?;
        Api::<SubnetClaim>::namespaced(client, ENVIRONMENT)
            .delete(&format!("front{number}"), &delete)
            .await?;
    }
    before.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}
