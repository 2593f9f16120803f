//! What a claim becomes, and what is left when it goes.

use anyhow::Result;
use kmetal_crds::{
    foreign::kube_ovn::{OvnSnatRule, Subnet, Vpc},
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    networking::{Networking, Offer},
    ovn::provider_network::ProviderNetwork,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};

fn internet() -> Offer {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1").into()
}

#[tokio::test]
async fn a_claimed_network_is_built_and_leaves_nothing_behind() -> Result<()> {
    let networking = Networking::start("claims", &[internet()]).await?;
    networking.environment("acme", "acme-prod").await?;
    networking.claim_vpc("acme-prod", "net", Some("")).await?;
    networking.claim_subnet("acme-prod", "front", "net", "10.1.0.0/24").await?;

    let vpc = networking.vpc_ready("acme-prod", "net").await?.status.unwrap_or_default();
    assert_eq!(vpc.egress.map(|egress| egress.provider_network), Some("internet".into()));
    let subnet = networking.subnet_ready("acme-prod", "front").await?.status.unwrap_or_default();
    assert_eq!(subnet.gateway.as_deref(), Some("10.1.0.1"));

    let client = networking.under().client().await?;
    let delete = DeleteParams::default();
    Api::<VpcClaim>::namespaced(client.clone(), "acme-prod").delete("net", &delete).await?;
    networking.vpc_says("acme-prod", "net", "InUse").await?;
    Api::<SubnetClaim>::namespaced(client, "acme-prod").delete("front", &delete).await?;
    let cluster = networking.under().cluster();
    cluster.wait_gone::<SubnetClaim>(Some("acme-prod"), "front").await?;
    cluster.wait_gone::<VpcClaim>(Some("acme-prod"), "net").await?;
    cluster.wait_gone::<Vpc>(None, &vpc.vpc.unwrap_or_default()).await?;
    cluster.wait_gone::<Subnet>(None, &subnet.subnet.unwrap_or_default()).await?;
    let rules =
        Api::<OvnSnatRule>::all(networking.under().client().await?).list(&ListParams::default()).await?;
    assert_eq!(rules.items.len(), 0);
    networking.finish();
    Ok(())
}
