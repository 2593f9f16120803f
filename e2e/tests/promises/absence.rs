//! kmetal-networking without what it needs: it stays up, says what is missing, and goes on when that is back.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::{
    api::core::v1::Node, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kmetal_crds::{
    foreign::kube_ovn::{Subnet, Vpc},
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    cluster::Options,
    networking::{NAME, NAMESPACE, Networking, Offer, values},
    ovn::{
        provider_network::ProviderNetwork,
        under_cluster::{GATEWAY_LABEL, NODE, UnderCluster},
    },
    rig::Rig,
    wait::{READY, not_ready},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
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

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_not_served_for_a_while_are_not_taken_for_gone() -> Result<()> {
    let mut networking = Networking::start("unserved", &[]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    networking.claim_vpc(ENVIRONMENT, "net", None).await?;
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    networking.vpc_ready(ENVIRONMENT, "net").await?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    let before = uids(&networking).await?;

    serve(&networking, false).await?;
    let mark = networking.under().cluster().audit().mark()?;
    // A process that starts now has never seen the claims; each change of a Vpc makes it look for vanished ones.
    networking.controller().terminate(Duration::from_secs(30)).await?;
    networking.controller_mut().restart()?;
    for _ in 0..6 {
        touch(&networking).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let deleted = mark.writes_by(NAMESPACE, NAME)?.into_iter().find(|write| write.verb == "delete");
    ensure!(deleted.is_none(), "{}", deleted.map(|write| write.line()).unwrap_or_default());

    serve(&networking, true).await?;
    networking.vpc_ready(ENVIRONMENT, "net").await?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    let after = uids(&networking).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    networking.finish();
    Ok(())
}

/// The uids of our Vpc and Subnet.
async fn uids(networking: &Networking) -> Result<Vec<Option<String>>> {
    let client = networking.under().client().await?;
    let ours = ListParams::default().labels("kmetal.clastix.io/claim-uid");
    let vpcs = Api::<Vpc>::all(client.clone()).list(&ours).await?;
    let subnets = Api::<Subnet>::all(client).list(&ours).await?;
    Ok(vpcs.iter().map(ResourceExt::uid).chain(subnets.iter().map(ResourceExt::uid)).collect())
}

/// Changes something of our Vpc that nobody cares about.
async fn touch(networking: &Networking) -> Result<()> {
    let cluster = networking.under().cluster();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
    let note = format!("touched={now}");
    let all = ["annotate", "vpcs.kubeovn.io", "-l", "kmetal.clastix.io/claim-uid", "--overwrite", &note];
    cluster.kubectl(&all).await.map(drop)
}

/// Makes the API server serve the claims' kinds or not; what is stored stays.
async fn serve(networking: &Networking, served: bool) -> Result<()> {
    let cluster = networking.under().cluster();
    let patch = format!(r#"[{{"op": "replace", "path": "/spec/versions/0/served", "value": {served}}}]"#);
    for plural in ["vpcclaims", "subnetclaims"] {
        let name = format!("{plural}.networking.kmetal.clastix.io");
        cluster.kubectl(&["patch", "crd", &name, "--type=json", "-p", &patch]).await?;
    }
    Ok(())
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
