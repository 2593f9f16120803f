//! Tenants with equal and different networks, every question asked, and every rule taken away once.
//!
//! An IPv4 address of somebody else's network is, to a Vpc with egress, any address: such a packet leaves for the
//! segment's router (`leaves`), unless the sender has that network too (`home`). It never comes out at the other's port.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use kmetal_e2e::{
    ovn::under_cluster::UnderCluster,
    reach::{
        Reach,
        matrix::{Outside, Tenant},
    },
};

use super::{internet, machines, make_subnet, make_vpc, partner};

const TRUTH: &str = "
    tenant  family  own      sibling  other    provider  management  control  internet  forged   inbound
    acme    IPv4    reached  reached  leaves   dropped   dropped     -        leaves    dropped  dropped
    acme    IPv6    reached  reached  home     dropped   -           -        nowhere   dropped  dropped
    bolt    IPv4    -        -        leaves   dropped   dropped     -        leaves    dropped  dropped
    bolt    IPv6    -        -        home     dropped   -           -        nowhere   nowhere  dropped
    calm    IPv4    -        -        nowhere  dropped   dropped     -        nowhere   nowhere  -
    calm    IPv6    -        -        nowhere  dropped   -           -        nowhere   nowhere  -
";

#[tokio::test(flavor = "multi_thread")]
async fn what_tenants_reach_is_as_the_rules_say_and_no_rule_is_idle() -> Result<()> {
    let under = UnderCluster::start("isolation").await?;
    under.open_gateway().await?;
    let (internet, partner) = (internet(), partner());
    under.provider_networks(&[internet.clone(), partner.clone()]).await?;

    make_vpc(&under, "acme", Some(&internet)).await?;
    make_vpc(&under, "bolt", Some(&partner)).await?;
    make_vpc(&under, "calm", None).await?;
    make_subnet(&under, ("acme", "acme", "front", 1), Some(&internet)).await?;
    make_subnet(&under, ("acme", "acme", "back", 2), Some(&internet)).await?;
    make_subnet(&under, ("bolt", "bolt", "front", 1), Some(&partner)).await?;
    make_subnet(&under, ("calm", "calm", "front", 9), None).await?;
    let [acme, neighbour, sibling] =
        machines(&under, "acme", [("one", "front"), ("two", "front"), ("three", "back")]).await?;
    let [bolt] = machines(&under, "bolt", [("one", "front")]).await?;
    let [calm] = machines(&under, "calm", [("one", "front")]).await?;
    ensure!(acme.addresses == bolt.addresses, "the two have the same addresses");

    let tenants = [
        Tenant {
            name: "acme".into(),
            machine: acme.clone(),
            neighbour: Some(neighbour),
            sibling: Some(sibling),
            egress: Some(internet.clone()),
        },
        Tenant {
            name: "bolt".into(),
            machine: bolt,
            neighbour: None,
            sibling: None,
            egress: Some(partner.clone()),
        },
        Tenant { name: "calm".into(), machine: calm, neighbour: None, sibling: None, egress: None },
    ];
    let outside = Outside {
        segments: vec![internet.clone(), partner.clone()],
        management: vec!["192.0.2.10".parse()?],
        control_planes: vec![],
        internet: vec!["1.1.1.1".parse()?, "2606:4700::1111".parse()?],
    };
    let ask = async || Reach::of(under.ovn()).await?.matrix(&tenants, &outside).await;
    let matrix = ask().await?;
    println!("{matrix}");
    matrix.expect(TRUTH)?;

    // The segment's router still finds its neighbours.
    let reach = Reach::of(under.ovn()).await?;
    let solicited: IpAddr = "2001:db8:100::2".parse()?;
    ensure!(reach.solicitation_arrives(&partner, "bolt", solicited).await?, "a solicitation is lost");

    // Taken away one at a time behind Kube-OVN's back, each rule is missed.
    let asked = |truth: Result<()>| truth.err().map(|error| error.to_string()).unwrap_or_default();
    let gateway = internet.gateway.as_str();
    for (priority, rule, action, missed) in [
        ("32000", "ip4.dst == 203.0.113.0/24", vec!["drop"], "acme IPv4 provider: leaves"),
        ("32000", "ip4.dst == 198.51.100.0/24", vec!["drop"], "acme IPv4 provider: leaves"),
        ("32000", "ip4.dst == 192.0.2.0/24", vec!["drop"], "acme IPv4 management: leaves"),
        ("32000", "ip6.dst == 2001:db8:100::/64", vec!["drop"], "acme IPv6 provider: nowhere"),
        ("1000", "ip4", vec!["reroute", gateway], "acme IPv4 internet: nowhere"),
    ] {
        under.ovn().nbctl(&["lr-policy-del", "acme", priority, rule]).await?;
        let said = asked(ask().await?.expect(TRUTH));
        ensure!(said.contains(missed), "without {rule}: {said}");
        under.ovn().nbctl(&[&["lr-policy-add", "acme", priority, rule], &action[..]].concat()).await?;
    }
    ask().await?.expect(TRUTH)?;
    let acls = under.ovn().nbctl(&["acl-list", "internet"]).await?;
    ensure!(acls.lines().count() == 4, "one rule for each family and direction: {acls}");
    under.ovn().nbctl(&["acl-del", "internet"]).await?;
    let said = asked(ask().await?.expect(TRUTH));
    ensure!(said.contains("acme IPv4 inbound: reached"), "the hostile IPv4 packet does not come in: {said}");
    ensure!(said.contains("acme IPv6 inbound: reached"), "the hostile IPv6 packet does not come in: {said}");
    ensure!(said.contains("acme IPv4 forged: UNTRANSLATED"), "the forged packet does not go out: {said}");

    under.finish();
    Ok(())
}
