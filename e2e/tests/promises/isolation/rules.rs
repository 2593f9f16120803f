//! Two tenants with equal networks on one provider network, and every injected rule taken away once.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use kmetal_crds::foreign::kube_ovn::Vpc;
use kmetal_e2e::{
    networking::Networking,
    reach::{
        Port, Reach, Verdict,
        liar::stranger,
        matrix::{Outside, Tenant},
    },
};
use kube::Api;

use super::{ask, internet, outside, partner, tenant};

/// To a machine the address of the other tenant's machine is its own, or its neighbour's: `home`.
const TRUTH: &str = "
    tenant  family  own      sibling  other  provider  management  control  internet  forged   inbound
    acme    IPv4    reached  reached  home   dropped   dropped     leaves   leaves    dropped  dropped
    acme    IPv6    reached  reached  home   dropped   dropped     -        nowhere   dropped  dropped
    globex  IPv4    reached  reached  home   dropped   dropped     leaves   leaves    dropped  dropped
    globex  IPv6    reached  reached  home   dropped   dropped     -        nowhere   dropped  dropped
";

/// Each policy route of a Vpc, and all that is wrong without it.
const WITHOUT_ROUTE: [(&str, &[&str]); 13] = [
    ("ip4.dst == 203.0.113.0/24", &["acme IPv4 provider: leaves instead of dropped"]),
    ("ip4.dst == 198.51.100.0/24", &["acme IPv4 provider: leaves instead of dropped"]),
    ("ip4.dst == 192.0.2.0/24", &["acme IPv4 management: leaves instead of dropped"]),
    ("ip4.dst == 10.96.0.0/16", &["acme IPv4 management: leaves instead of dropped"]),
    ("ip4.dst == 10.244.0.0/16", &["acme IPv4 management: leaves instead of dropped"]),
    ("ip4.dst == {169.254.0.0/16, 224.0.0.0/3}", &["acme IPv4 management: leaves instead of dropped"]),
    ("ip6.dst == 2001:db8:100::/64", &["acme IPv6 provider: nowhere instead of dropped"]),
    ("ip6.dst == 2001:db8:ff::/48", &["acme IPv6 management: nowhere instead of dropped"]),
    ("ip4.src == 203.0.113.0/24", &["acme IPv4 forged: UNTRANSLATED instead of dropped"]),
    ("ip4.src == 198.51.100.0/24", &["acme IPv4 forged: reached instead of dropped"]),
    ("ip6.src == 2001:db8:100::/64", &["acme IPv6 forged: reached instead of dropped"]),
    ("ip6.src == fe80::/10 && ip6.dst != fe80::/10", &["acme IPv6 inbound: reached instead of dropped"]),
    (
        "ip4",
        &["acme IPv4 control: nowhere instead of leaves", "acme IPv4 internet: nowhere instead of leaves"],
    ),
];

/// Each rule of the external Subnet, and all that is wrong without it.
const WITHOUT_ACL: [(&str, &str, &[&str]); 4] = [
    (
        "from-lport",
        r#"inport == "localnet.internet" && ip4 && ip4.dst != 203.0.113.0/24"#,
        &["acme IPv4 inbound: reached instead of dropped"],
    ),
    (
        "from-lport",
        r#"inport == "localnet.internet" && ip6 && ip6.dst != {fe80::/10, ff02::/16}"#,
        &["acme IPv6 inbound: reached instead of dropped"],
    ),
    (
        "to-lport",
        r#"outport == "localnet.internet" && ip4 && ip4.src != 203.0.113.0/24"#,
        &["acme IPv4 forged: UNTRANSLATED instead of dropped", "emitted IPv4"],
    ),
    // No IPv6 packet of a machine gets that far with Kube-OVN 1.16: its routers have no IPv6 route to the segment.
    ("to-lport", r#"outport == "localnet.internet" && ip6 && ip6.src != {fe80::/10, ::}"#, &["emitted IPv6"]),
];

/// The row of one tenant, asked again and again.
struct Case {
    networking: Networking,
    tenants: Vec<Tenant>,
    outside: Outside,
}

impl Case {
    fn me(&self) -> &Port {
        &self.tenants[0].machine
    }

    async fn nb(&self, args: &[&str]) -> Result<()> {
        self.networking.under().ovn().nbctl(args).await.map(drop)
    }

    /// All that is wrong with the first tenant now.
    async fn wrong(&self) -> Result<Vec<String>> {
        let reach = Reach::of(self.networking.under().ovn()).await?;
        let matrix = reach.rows_of(&self.tenants[..1], &self.tenants, &self.outside).await?;
        let mut wrong: Vec<String> = matrix.wrong(TRUTH).into_iter().map(|(what, _)| what).collect();
        for to in &self.outside.internet {
            let verdict = reach.emitted(&internet(), &self.me().router, stranger(*to), *to).await?;
            if !verdict.is_forbidden() {
                wrong.push(format!("emitted {}", if to.is_ipv4() { "IPv4" } else { "IPv6" }));
            }
        }
        Ok(wrong)
    }

    /// Takes a rule away, looks, puts it back. That it is back shows when the next one is taken away.
    async fn without(&self, rule: &str, away: &[&str], back: &[&str], expected: &[&str]) -> Result<()> {
        self.nb(away).await?;
        let wrong = self.wrong().await?;
        ensure!(wrong == expected, "without {rule} this is wrong: {wrong:#?}");
        self.nb(back).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_with_equal_networks_are_apart_and_each_injected_rule_is_needed() -> Result<()> {
    let networking = Networking::start("equal", &[internet().into(), partner().into()]).await?;
    let (acme, globex) = tokio::try_join!(
        tenant(&networking, "acme", internet(), 1),
        tenant(&networking, "globex", internet(), 1)
    )?;
    ensure!(acme.machine.addresses == globex.machine.addresses, "the two have the same addresses");
    let case = Case { networking, tenants: vec![acme, globex], outside: outside(&[internet(), partner()])? };
    let matrix = ask(&case.networking, &case.tenants, &case.outside).await?;
    println!("{matrix}");
    matrix.expect(TRUTH)?;
    what_a_router_needs_still_leaves(&case).await?;

    // From here on nobody repairs.
    case.networking.under().kube_ovn().stop().await?;
    each_policy_route_is_needed(&case).await?;
    each_rule_of_the_segment_is_needed(&case).await?;
    source_nat_is_needed(&case).await?;

    ask(&case.networking, &case.tenants, &case.outside).await?.expect(TRUTH)?;
    case.networking.finish();
    Ok(())
}

async fn each_policy_route_is_needed(case: &Case) -> Result<()> {
    let router = case.me().router.as_str();
    let vpcs: Api<Vpc> = Api::all(case.networking.under().client().await?);
    let policies = vpcs.get(router).await?.spec.policy_routes;
    for route in &policies {
        let rule = route.match_.as_str();
        let (_, expected) = WITHOUT_ROUTE
            .iter()
            .find(|(known, _)| *known == rule)
            .with_context(|| format!("what is wrong without {rule} is not written down"))?;
        let priority = route.priority.to_string();
        let mut back = vec!["lr-policy-add", router, &priority, rule, &route.action];
        back.extend(route.next_hop_ip.as_deref());
        case.without(rule, &["lr-policy-del", router, &priority, rule], &back, expected).await?;
    }
    ensure!(policies.len() == WITHOUT_ROUTE.len(), "{} policy routes", policies.len());
    Ok(())
}

async fn each_rule_of_the_segment_is_needed(case: &Case) -> Result<()> {
    let acls = case.networking.under().ovn().nbctl(&["acl-list", "internet"]).await?;
    ensure!(acls.lines().count() == WITHOUT_ACL.len(), "{acls}");
    for (direction, rule, expected) in WITHOUT_ACL {
        ensure!(acls.contains(rule), "{rule} is not among {acls}");
        let away = ["acl-del", "internet", direction, "2000", rule];
        let back = ["acl-add", "internet", direction, "2000", rule, "drop"];
        case.without(rule, &away, &back, expected).await?;
    }
    Ok(())
}

/// One for each subnet: without the first this machine has no way out, without the second its sibling.
async fn source_nat_is_needed(case: &Case) -> Result<()> {
    let router = case.me().router.as_str();
    let address = public_address(case).await?;
    let [front, back] = ["10.1.0.0/24", "10.2.0.0/24"];
    let away = ["lr-nat-del", router, "snat", front];
    let again = ["lr-nat-add", router, "snat", &address, front];
    let expected =
        ["acme IPv4 control: dropped instead of leaves", "acme IPv4 internet: dropped instead of leaves"];
    case.without("the source NAT", &away, &again, &expected).await?;

    let sibling = case.tenants[0].sibling.as_ref().context("a tenant without sibling")?;
    let out = async || {
        let reach = Reach::of(case.networking.under().ovn()).await?;
        reach.probe(sibling, "1.1.1.1".parse()?).await
    };
    ensure!(matches!(out().await?, Verdict::Leaves { source: Some(_), .. }));
    case.nb(&["lr-nat-del", router, "snat", back]).await?;
    let without = out().await?;
    ensure!(without.is_forbidden(), "the sibling without its source NAT: {without}");
    case.nb(&["lr-nat-add", router, "snat", &address, back]).await
}

async fn public_address(case: &Case) -> Result<String> {
    let claim = case.networking.vpc_ready("acme-prod", "net").await?;
    let egress = claim.status.and_then(|status| status.egress).context("no egress")?;
    egress.address.context("no address")
}

/// The rules of the segment stop neither translated packets nor ARP nor neighbour discovery.
async fn what_a_router_needs_still_leaves(case: &Case) -> Result<()> {
    let router = case.me().router.as_str();
    let address = public_address(case).await?;
    let ovn = case.networking.under().ovn();
    let reach = Reach::of(ovn).await?;
    for (source, to) in [(address.as_str(), "1.1.1.1"), ("fe80::1", "fe80::2"), ("::", "ff02::1:ff00:1")] {
        let (source, to): (IpAddr, IpAddr) = (source.parse()?, to.parse()?);
        let verdict = reach.emitted(&internet(), router, source, to).await?;
        ensure!(matches!(verdict, Verdict::Leaves { .. }), "from {source} to {to}: {verdict}");
    }
    let wire = internet().localnet();
    let question = format!(
        "inport == \"internet-{router}\" && eth.src == 02:00:00:00:00:02 && eth.dst == ff:ff:ff:ff:ff:ff && arp.op == 1 && arp.spa == {address} && arp.tpa == 203.0.113.1"
    );
    let asked = ovn.trace("internet", &question).await?;
    ensure!(asked.contains(&format!("/* output to \"{wire}\"")), "an ARP question is lost:\n{asked}");
    Ok(())
}
