//! An administrator's hand in what stands for claims: torn labels come back, what was deleted is made good again, and
//! nothing that others put there is lost.

mod deleted;
mod labels;

use anyhow::{Context, Result};
use kmetal_crds::networking::{EipClaim, EipClaimSpec, SubnetClaim, VpcClaim};
use kmetal_e2e::{
    networking::{Networking, Offer},
    ovn::provider_network::ProviderNetwork,
    wait::READY,
};
use kube::{Api, api::PostParams};

const ENVIRONMENT: &str = "acme-prod";

fn internet() -> Offer {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1").into()
}

async fn claim_address(networking: &Networking, name: &str) -> Result<String> {
    let claims: Api<EipClaim> = Api::namespaced(networking.under().client().await?, ENVIRONMENT);
    claims.create(&PostParams::default(), &EipClaim::new(name, EipClaimSpec::default())).await?;
    address(networking, name).await
}

/// The address of an EipClaim, once it is Ready.
async fn address(networking: &Networking, name: &str) -> Result<String> {
    let cluster = networking.under().cluster();
    let claim: EipClaim = cluster.wait_condition(Some(ENVIRONMENT), name, READY).await?;
    claim.status.and_then(|status| status.address).context("Ready without an address")
}

/// The Vpc of a VpcClaim and the address it leaves with, once it is Ready.
async fn way_out(networking: &Networking, name: &str) -> Result<(String, String)> {
    let claim: VpcClaim = networking.vpc_ready(ENVIRONMENT, name).await?;
    let status = claim.status.context("no status")?;
    let address = status.egress.and_then(|egress| egress.address).context("Ready without an address")?;
    Ok((status.vpc.context("no Vpc")?, address))
}

/// The Subnet of a SubnetClaim, once it is Ready.
async fn subnet(networking: &Networking, name: &str) -> Result<String> {
    let claim: SubnetClaim = networking.subnet_ready(ENVIRONMENT, name).await?;
    claim.status.and_then(|status| status.subnet).context("no Subnet")
}
