//! An Environment that is deleted takes its networks with it, and waits for nobody who is not there.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kmetal_crds::networking::{SubnetClaim, VpcClaim};
use kmetal_e2e::{
    environment::Environment,
    networking::Networking,
    wait::{PATIENCE, READY},
};
use kube::{Api, api::ListParams};

use super::internet;
use crate::remains::{Before, objects};

/// Two VPCs with a way out, three subnets in them, a machine in each.
async fn busy(networking: &Networking, name: &str) -> Result<Environment> {
    let environment = networking.environment("acme", name).await?;
    let subnets =
        [("front", "one", "10.1.0.0/24"), ("back", "one", "10.2.0.0/24"), ("other", "two", "10.1.0.0/24")];
    for vpc in ["one", "two"] {
        networking.claim_vpc(name, vpc, Some("")).await?;
    }
    for (subnet, vpc, cidr) in subnets {
        networking.claim_subnet(name, subnet, vpc, cidr).await?;
    }
    let cluster = networking.under().cluster();
    for (subnet, vpc, _) in subnets {
        cluster.wait_condition::<VpcClaim>(Some(name), vpc, READY).await?;
        cluster.wait_condition::<SubnetClaim>(Some(name), subnet, READY).await?;
        networking.under().workload(name, &format!("in-{subnet}"), subnet).await?;
    }
    Ok(environment)
}

/// Waits for the end of the pods, and from then on for that of the namespace.
async fn goes(networking: &Networking, name: &str) -> Result<()> {
    let client = networking.under().client().await?;
    let pods: Api<Pod> = Api::namespaced(client, name);
    let cluster = networking.under().cluster();
    cluster
        .wait_for(format!("the machines in {name} are gone"))
        .await?
        .until(async || Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(())))
        .await?;
    let namespaces: Api<Namespace> = Api::all(networking.under().client().await?);
    cluster
        .wait_for(format!("namespace {name} does not stay Terminating"))
        .await?
        .within(PATIENCE)
        .showing::<Namespace>(None, name)
        .showing_all::<VpcClaim>(Some(name))
        .showing_all::<SubnetClaim>(Some(name))
        .until(async || Ok(namespaces.get_opt(name).await?.is_none().then_some(())))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_deleted_at_once_leaves_nothing_and_waits_for_nobody() -> Result<()> {
    let networking = Networking::start("namespaces", &[internet()]).await?;
    let before = Before::claims(&networking).await?;

    let environment = busy(&networking, "acme-prod").await?;
    environment.delete().await?;
    goes(&networking, "acme-prod").await?;
    before.nothing_is_left(&networking).await?;

    // The same without Kube-OVN, which comes back when the Environment has been forgotten.
    let environment = busy(&networking, "acme-dev").await?;
    networking.under().kube_ovn().stop().await?;
    environment.delete().await?;
    goes(&networking, "acme-dev").await?;
    let left = objects(&networking).await?;
    ensure!(left.iter().any(|object| object.starts_with("Vpc ")), "who removed the routers? {left:?}");
    networking.under().kube_ovn().start_again().await?;
    before.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}
