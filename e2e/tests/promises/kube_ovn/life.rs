//! Kube-OVN comes, goes, and lives beside others of its kind.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kmetal_crds::foreign::kube_ovn::Vpc;
use kmetal_e2e::ovn::{
    kube_ovn::{LEASE, NAMESPACE},
    under_cluster::{GATEWAY_LABEL, NODE, UnderCluster},
};
use kube::{Api, ResourceExt};

use super::make_vpc;

#[tokio::test(flavor = "multi_thread")]
async fn two_of_them_live_side_by_side() -> Result<()> {
    let (one, two) = tokio::join!(UnderCluster::start("one"), UnderCluster::start("two"));
    let (one, two) = (one?, two?);
    make_vpc(&one, "same-name", None).await?;
    make_vpc(&two, "same-name", None).await?;
    make_vpc(&two, "only-there", None).await?;
    let here = one.ovn().nbctl(&["lr-list"]).await?;
    let there = two.ovn().nbctl(&["lr-list"]).await?;
    ensure!(here.contains("(same-name)") && !here.contains("(only-there)"), "{here}");
    ensure!(there.contains("(same-name)") && there.contains("(only-there)"), "{there}");
    one.finish();
    two.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_can_be_restarted_killed_and_stripped_of_its_crds() -> Result<()> {
    let under = UnderCluster::start("life").await?;
    let client = under.client().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let label = async || anyhow::Ok(nodes.get(NODE).await?.labels().get(GATEWAY_LABEL).cloned());
    make_vpc(&under, "before", None).await?;

    under.open_gateway().await?;
    ensure!(label().await?.as_deref() == Some("true"));
    under.kube_ovn().restart().await?;
    ensure!(label().await?.as_deref() == Some("false"), "a restart takes the gateways away");
    under.kube_ovn().kill()?;
    ensure!(!under.kube_ovn().is_running());
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let lease = leases.get(LEASE).await?.spec.context("a Lease without spec")?;
    ensure!(lease.holder_identity.is_some_and(|holder| !holder.is_empty()), "a killed one keeps its Lease");
    under.kube_ovn().start_again().await?;
    make_vpc(&under, "after-kill", None).await?;

    under.kube_ovn().remove_crds().await?;
    ensure!(under.kube_ovn().is_running(), "it does not end for want of CRDs");
    let routers = under.ovn().nbctl(&["lr-list"]).await?;
    ensure!(
        !routers.contains("before"),
        "the objects went with their CRDs, and the routers with them: {routers}"
    );
    under.kube_ovn().install_crds().await?;
    under.kube_ovn().restart().await?;
    make_vpc(&under, "after-crds", None).await?;
    let vpcs: Api<Vpc> = Api::all(client);
    ensure!(vpcs.get_opt("before").await?.is_none());

    under.kube_ovn().stop().await?;
    under.kube_ovn().remove_crds().await?;
    under.finish();
    Ok(())
}
