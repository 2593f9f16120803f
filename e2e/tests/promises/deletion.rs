//! How claims end: in any order, with machines still attached, with their Environment, against their finalizers, and
//! with kmetal-networking killed in between. The end is always the same: nothing is left, in the API and in OVN.

pub mod killed;
pub mod namespaces;
mod tenants;
mod vanished;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kmetal_crds::networking::{SubnetClaim, VpcClaim};
use kmetal_e2e::{
    networking::{Networking, Offer},
    ovn::provider_network::ProviderNetwork,
};
use kube::{Api, api::DeleteParams};

fn internet() -> Offer {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1").into()
}

/// A VPC `net<n>` with a way out, its subnet `front<n>` and a machine `machine<n>` in it, all working.
async fn machine_in_vpc(networking: &Networking, namespace: &str, number: u8) -> Result<()> {
    let (net, front) = (format!("net{number}"), format!("front{number}"));
    networking.claim_vpc(namespace, &net, Some("")).await?;
    networking.claim_subnet(namespace, &front, &net, "10.1.0.0/24").await?;
    networking.vpc_ready(namespace, &net).await?;
    networking.subnet_ready(namespace, &front).await?;
    networking.under().workload(namespace, &format!("machine{number}"), &front).await?;
    Ok(())
}

async fn delete_vpc(networking: &Networking, namespace: &str, name: &str) -> Result<()> {
    let claims: Api<VpcClaim> = Api::namespaced(networking.under().client().await?, namespace);
    claims.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

async fn delete_subnet(networking: &Networking, namespace: &str, name: &str) -> Result<()> {
    let claims: Api<SubnetClaim> = Api::namespaced(networking.under().client().await?, namespace);
    claims.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

async fn stop_machine(networking: &Networking, namespace: &str, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(networking.under().client().await?, namespace);
    pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
    Ok(())
}
