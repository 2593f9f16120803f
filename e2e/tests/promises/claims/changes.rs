//! A claim is changed: what may change is carried out in Kube-OVN, what may not is refused when it is applied.

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::{Subnet, Vpc},
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    audit::{Audit, Entry},
    networking::{NAME, NAMESPACE, Networking},
    wait::READY,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{ENVIRONMENT, internet, partner};
use crate::remains::Before;

/// Kube-OVN 1.16 forgets now and then to take an address back: often enough to meet it, whatever the moment.
const ROUNDS: usize = 5;

async fn patch_subnet(networking: &Networking, spec: Value) -> Result<()> {
    let claims: Api<SubnetClaim> = Api::namespaced(networking.under().client().await?, ENVIRONMENT);
    let patch = Patch::Merge(json!({"spec": spec}));
    claims.patch("front", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The error must be the API server's, in the words of the rule.
fn refused(outcome: Result<()>, rule: &str) -> Result<()> {
    let error = outcome.err().with_context(|| format!("not refused: {rule}"))?;
    ensure!(format!("{error:#}").contains(rule), "refused otherwise: {error:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_change_is_carried_out_and_what_may_not_is_refused_at_apply() -> Result<()> {
    let networking = Networking::start("changes", &[internet(), partner()]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let nothing = Before::claims(&networking).await?;
    networking.claim_vpc(ENVIRONMENT, "net", None).await?;
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    let claim = networking.vpc_ready(ENVIRONMENT, "net").await?;
    let told = serde_json::to_string(&claim.status)?;
    ensure!(told.contains("its isolation is in place"), "Kube-OVN has rewritten a fresh Vpc: {told}");
    let claim = networking.subnet_ready(ENVIRONMENT, "front").await?;
    let name = claim.status.and_then(|status| status.subnet).context("no Subnet")?;
    let subnets: Api<Subnet> = Api::all(networking.under().client().await?);

    let made = subnets.get(&name).await?;
    refused(patch_subnet(&networking, json!({"cidr": "10.2.0.0/24"})).await, "cidr is immutable; delete")?;
    refused(patch_subnet(&networking, json!({"vpc": "other"})).await, "vpc is immutable; delete")?;
    let gateway = json!({"gateway": "10.1.0.9"});
    refused(patch_subnet(&networking, gateway).await, "gateway cannot be added or removed after creation")?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    ensure!(subnets.get(&name).await?.spec == made.spec, "half applied");

    patch_subnet(&networking, json!({"excludeAddresses": ["10.1.0.2..10.1.0.9"], "dns": ["9.9.9.9"]}))
        .await?;
    let cluster = networking.under().cluster();
    cluster
        .wait_for("Kube-OVN hands out neither the excluded addresses nor another name server")
        .await?
        .showing::<Subnet>(None, &name)
        .until(async || {
            let spec = subnets.get(&name).await?.spec;
            ensure!(spec.exclude_ips == ["10.1.0.1", "10.1.0.2..10.1.0.9"], "{:?}", spec.exclude_ips);
            let options = networking.under().ovn().nbctl(&["list", "DHCP_Options"]).await?;
            ensure!(options.contains("9.9.9.9"), "{options}");
            Ok(Some(()))
        })
        .await?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    let machine = networking.under().workload(ENVIRONMENT, "machine", "front").await?;
    ensure!(machine.addresses == ["10.1.0.10".parse::<std::net::IpAddr>()?], "{:?}", machine.addresses);
    networking.under().stop_workload(ENVIRONMENT, "machine").await?;

    way_out(&networking).await?;
    let delete = DeleteParams::default();
    let client = networking.under().client().await?;
    Api::<VpcClaim>::namespaced(client.clone(), ENVIRONMENT).delete("net", &delete).await?;
    Api::<SubnetClaim>::namespaced(client, ENVIRONMENT).delete("front", &delete).await?;
    nothing.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}

/// The way out of a Ready VPC comes and goes, and each time everything of it.
async fn way_out(networking: &Networking) -> Result<()> {
    let ovn = networking.under().ovn();
    let cluster = networking.under().cluster();
    let claims: Api<VpcClaim> = Api::namespaced(networking.under().client().await?, ENVIRONMENT);
    let closed = Before::claims(networking).await?;
    for round in 1..=ROUNDS {
        networking.claim_vpc(ENVIRONMENT, "net", Some("internet")).await?;
        let claim: VpcClaim = networking.vpc_ready(ENVIRONMENT, "net").await?;
        let status = claim.status.unwrap_or_default();
        let address = status.egress.and_then(|egress| egress.address).context("Ready without an address")?;
        let vpc = status.vpc.context("no Vpc")?;
        cluster
            .wait_for("the subnet leaves by the router's address")
            .await?
            .showing::<SubnetClaim>(Some(ENVIRONMENT), "front")
            .until(async || {
                let nat = ovn.nbctl(&["lr-nat-list", &vpc]).await?;
                ensure!(nat.contains(&address) && nat.contains("10.1.0.0/24"), "{nat}");
                Ok(Some(()))
            })
            .await?;
        networking.subnet_ready(ENVIRONMENT, "front").await?;
        let rule = "egress.providerNetwork cannot change while the VPC is attached";
        refused(networking.claim_vpc(ENVIRONMENT, "net", Some("partner")).await, rule)?;
        let default = Patch::Merge(json!({"spec": {"egress": {"providerNetwork": null}}}));
        let to_default = claims.patch("net", &PatchParams::default(), &default).await;
        refused(to_default.map(drop).map_err(Into::into), rule)?;

        let mark = cluster.audit().mark()?;
        networking.claim_vpc(ENVIRONMENT, "net", None).await?;
        cluster
            .wait_for(format!("round {round}: of the way out nothing is left in OVN"))
            .await?
            .showing::<VpcClaim>(Some(ENVIRONMENT), "net")
            .showing::<SubnetClaim>(Some(ENVIRONMENT), "front")
            .showing::<Vpc>(None, &vpc)
            .until(async || closed.is_again(ovn).await.map(Some))
            .await?;
        let claim: VpcClaim = cluster.wait_condition(Some(ENVIRONMENT), "net", READY).await?;
        ensure!(claim.status.is_some_and(|status| status.egress.is_none()), "told as if it were there");
        networking.subnet_ready(ENVIRONMENT, "front").await?;
        nat_first(&mark)?;
    }
    Ok(())
}

/// Source NAT is taken down before the Vpc is touched.
fn nat_first(since: &Audit) -> Result<()> {
    let written = since.writes_by(NAMESPACE, NAME)?;
    let at = |verb: &str, resource: &str| {
        let is = |entry: &Entry| entry.verb == verb && entry.reference().resource == resource;
        written.iter().position(is).with_context(|| format!("no {verb} of {resource}"))
    };
    let (nat, vpc) = (at("delete", "ovn-snat-rules")?, at("patch", "vpcs")?);
    ensure!(nat < vpc, "{:#?}", written.iter().map(Entry::line).collect::<Vec<_>>());
    Ok(())
}
