//! The promise that the product is for: a tenant's network reaches what it may and nothing else, and nothing reaches it.
//!
//! Everything is claimed through kmetal-networking and built by the real Kube-OVN; what is true is a table written by
//! hand. How the words of a cell come about is told in [`kmetal_e2e::reach::matrix`].

mod gap;
mod later;
mod rules;

use anyhow::{Context, Result};
use kmetal_e2e::{
    networking::{Networking, Offer},
    ovn::provider_network::ProviderNetwork,
    reach::{
        Reach,
        matrix::{Matrix, Outside, Tenant},
    },
};

fn internet() -> ProviderNetwork {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1")
}

/// Dual-stack, so that there is something to drop in IPv6 too.
fn partner() -> ProviderNetwork {
    ProviderNetwork::new("partner", "198.51.100.0/24,2001:db8:100::/64", "198.51.100.1,2001:db8:100::1")
}

/// What a tenant gets here: `<tenant>-prod`, a VPC `net` that leaves through `egress`, two dual-stack subnets `front`
/// (`10.<number>.0.0/24,fd00:<number>::/64`) and `back` (the next number), two machines on the first, one on the other.
async fn tenant(networking: &Networking, name: &str, egress: ProviderNetwork, number: u8) -> Result<Tenant> {
    let namespace = format!("{name}-prod");
    networking.environment(name, &namespace).await?;
    networking.claim_vpc(&namespace, "net", Some(&egress.name)).await?;
    for (subnet, number) in [("front", number), ("back", number + 1)] {
        let cidr = format!("10.{number}.0.0/24,fd00:{number}::/64");
        networking.claim_subnet(&namespace, subnet, "net", &cidr).await?;
    }
    let claim = networking.vpc_ready(&namespace, "net").await?;
    for subnet in ["front", "back"] {
        networking.subnet_ready(&namespace, subnet).await?;
    }
    let under = networking.under();
    let vpc = claim.status.and_then(|status| status.vpc).context("a VpcClaim without its Vpc")?;
    under.play_gateway(&egress, &vpc).await?;
    Ok(Tenant {
        name: name.to_owned(),
        machine: under.workload(&namespace, "one", "front").await?,
        neighbour: Some(under.workload(&namespace, "two", "front").await?),
        sibling: Some(under.workload(&namespace, "three", "back").await?),
        egress: Some(egress),
    })
}

/// An address in everything that [`kmetal_e2e::networking`] protects, in the tenants' control planes, and beyond.
fn outside(segments: &[ProviderNetwork]) -> Result<Outside> {
    let parsed = |addresses: &[&str]| addresses.iter().map(|text| text.parse()).collect::<Result<_, _>>();
    Ok(Outside {
        segments: segments.to_vec(),
        management: parsed(&["192.0.2.10", "10.96.0.1", "10.244.1.1", "169.254.169.254", "2001:db8:ff::10"])?,
        control_planes: parsed(&["100.100.0.10"])?,
        internet: parsed(&["1.1.1.1", "2606:4700::1111"])?,
    })
}

async fn ask(networking: &Networking, tenants: &[Tenant], outside: &Outside) -> Result<Matrix> {
    Reach::of(networking.under().ovn()).await?.matrix(tenants, outside).await
}

fn reserved(network: ProviderNetwork, tenant: &str) -> Offer {
    Offer { network, tenants: vec![tenant.to_owned()] }
}
