//! Two tenants with different networks on separate provider networks, and a third network that comes later.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::Vpc,
    networking::{VpcClaim, reason},
};
use kmetal_e2e::{
    history::{History, Version},
    isolation::{always_closed, is_closed},
    networking::{self, Networking, Offer},
    ovn::provider_network::{GATEWAY_MAC, ProviderNetwork},
    reach::Reach,
};
use kube::{ResourceExt, core::ApiResource};
use serde_json::Value;

use super::{ask, internet, outside, partner, reserved, tenant};

/// An IPv4 address of the other tenant's is, to a VPC with egress, any address: it leaves for the segment's router.
const TRUTH: &str = "
    tenant  family  own      sibling  other    provider  management  control  internet  forged   inbound
    acme    IPv4    reached  reached  leaves   dropped   dropped     leaves   leaves    dropped  dropped
    acme    IPv6    reached  reached  nowhere  dropped   dropped     -        nowhere   dropped  dropped
    globex  IPv4    reached  reached  leaves   dropped   dropped     leaves   leaves    dropped  dropped
    globex  IPv6    reached  reached  nowhere  dropped   dropped     -        nowhere   dropped  dropped
";

fn metro() -> ProviderNetwork {
    ProviderNetwork::new("metro", "198.18.0.0/24,2001:db8:200::/64", "198.18.0.1,2001:db8:200::1")
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_on_separate_provider_networks_stay_apart_when_another_one_is_added() -> Result<()> {
    let mut offers: Vec<Offer> = vec![internet().into(), reserved(partner(), "globex")];
    let mut networking = Networking::start("separate", &offers).await?;
    let kinds = [ApiResource::erase::<Vpc>(&()), ApiResource::erase::<VpcClaim>(&())];
    let history = History::record(&networking.under().client().await?, &kinds).await?;
    let (acme, globex) = tokio::try_join!(
        tenant(&networking, "acme", internet(), 1),
        tenant(&networking, "globex", partner(), 3)
    )?;
    let tenants = [acme, globex];
    let matrix = ask(&networking, &tenants, &outside(&[internet(), partner()])?).await?;
    println!("{matrix}");
    matrix.expect(TRUTH)?;
    neighbours_on_the_segment_find_each_other(&networking, &tenants[1].machine.router).await?;
    networking.claim_vpc("acme-prod", "spy", Some("partner")).await?;
    networking.vpc_says("acme-prod", "spy", reason::PROVIDER_NETWORK_NOT_FOUND).await?;

    // The segment exists before kmetal-networking is told of it.
    networking.under().provider_networks(&[internet(), partner(), metro()]).await?;
    networking.claim_vpc("globex-prod", "late", Some("metro")).await?;
    networking.vpc_says("globex-prod", "late", reason::PROVIDER_NETWORK_NOT_FOUND).await?;
    let before = networking::values(&offers);
    offers.push(metro().into());
    let after = networking::values(&offers);
    networking.reconfigure(after.clone()).await?;
    networking.vpc_ready("globex-prod", "late").await?;

    history.caught_up().await?;
    let judged = always_closed(&history, &[before, after.clone()])?;
    println!("{judged} versions of Vpcs, all of them closed");
    let vpcs = history.versions::<Vpc>()?;
    nobody_was_on_the_new_network_before_all_were_closed_against_it(&vpcs, &after)?;
    for namespace in ["acme-prod", "globex-prod"] {
        stayed_ready(&history.versions::<VpcClaim>()?, namespace, "net")?;
    }
    only_waited(&history.versions::<VpcClaim>()?)?;

    let matrix = ask(&networking, &tenants, &outside(&[internet(), partner(), metro()])?).await?;
    println!("{matrix}");
    matrix.expect(TRUTH)?;
    networking.finish();
    Ok(())
}

/// On a segment with IPv6 the gateway's question who has an address gets to the VPC's router, asked of all and asked of
/// that router alone. That a packet to a machine behind it does not is in the matrix.
async fn neighbours_on_the_segment_find_each_other(networking: &Networking, router: &str) -> Result<()> {
    let ovn = networking.under().ovn();
    let reach = Reach::of(ovn).await?;
    for solicited in ["2001:db8:100::2", "fe80::2"] {
        let solicited: IpAddr = solicited.parse()?;
        ensure!(reach.solicitation_arrives(&partner(), router, solicited).await?, "{solicited} is not found");
    }
    let mac =
        ovn.nbctl(&["--bare", "get", "Logical_Router_Port", &partner().router_port(router), "mac"]).await?;
    for target in ["2001:db8:100::2", "fe80::2"] {
        let question = format!(
            "inport == \"{}\" && eth.src == {GATEWAY_MAC} && eth.dst == {} && ip6.src == fe80::1 && ip6.dst == {target} && ip.ttl == 255 && nd_ns && nd.target == {target}",
            partner().localnet(),
            mac.trim().trim_matches('"'),
        );
        let asked = ovn.trace("partner", &question).await?;
        ensure!(asked.contains(&format!("/* output to \"partner-{router}\"")), "{target}:\n{asked}");
    }
    Ok(())
}

fn nobody_was_on_the_new_network_before_all_were_closed_against_it(
    versions: &[Version],
    after: &Value,
) -> Result<()> {
    let attached = versions
        .iter()
        .position(|version| version.object.data["spec"]["extraExternalSubnets"][0] == "metro")
        .context("nobody is on the new network")?;
    for (at, version) in versions[..=attached].iter().enumerate() {
        let later = &versions[at + 1..=attached];
        let is_last = !later.iter().any(|other| other.object.uid() == version.object.uid());
        if is_last && version.object.labels().contains_key(kmetal_crds::names::VPC_CLAIM_UID) {
            ensure!(is_closed(version, after)?, "{} is still open", version.object.name_any());
        }
    }
    Ok(())
}

fn reasons(versions: &[Version], namespace: &str, name: &str) -> Vec<(String, String)> {
    let of = versions.iter().map(|version| &version.object);
    let of =
        of.filter(|object| object.namespace().as_deref() == Some(namespace) && object.name_any() == name);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    of.filter_map(|object| {
        let conditions = object.data["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        Some((text(ready, "status"), text(ready, "reason")))
    })
    .collect()
}

fn stayed_ready(claims: &[Version], namespace: &str, name: &str) -> Result<()> {
    let reasons = reasons(claims, namespace, name);
    let since = reasons.iter().skip_while(|(status, _)| status != "True");
    ensure!(since.clone().all(|(status, _)| status == "True"), "{namespace}/{name}: {reasons:?}");
    ensure!(since.count() > 0, "{namespace}/{name} was never ready");
    Ok(())
}

/// Nothing but these, in this order, happened to the claim for the new network.
fn only_waited(claims: &[Version]) -> Result<()> {
    let reasons = reasons(claims, "globex-prod", "late");
    let order = [
        reason::PROVIDER_NETWORK_NOT_FOUND,
        reason::PROVIDER_NETWORK_SETTLING,
        reason::CREATING,
        reason::READY,
    ];
    let steps: Vec<Option<usize>> =
        reasons.iter().map(|(_, reason)| order.iter().position(|known| known == reason)).collect();
    ensure!(steps.iter().all(Option::is_some) && steps.is_sorted(), "{reasons:?}");
    Ok(())
}
