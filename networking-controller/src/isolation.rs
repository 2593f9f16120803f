//! What the platform injects into every Vpc, and the tenant can neither state nor see: the policy routes that keep
//! it apart, and the way out. Pure; its output is the only source of `policyRoutes` and `staticRoutes`.
//!
//! OVN drops a rule that it cannot parse without telling anybody, so a match is built from parsed ranges only: no
//! text of a claim ever gets into one.
//!
//! Priorities (Kube-OVN keeps 29000 to 31000): drops at 32000 stand above Kube-OVN's own `allow` for each subnet at
//! 31000, so a tenant's subnet laid over a provider network would not open it; the way out at 1000 stands below it,
//! so sibling subnets stay reachable.

use std::collections::BTreeSet;

use ipnet::IpNet;
use kmetal_crds::foreign::kube_ovn::{PolicyRoute, StaticRoute, VpcSpec};

use crate::platform::{Platform, ProviderNetwork};

const DROP_PRIORITY: i32 = 32_000;
const EGRESS_PRIORITY: i32 = 1_000;

/// What has a link-local source is for its own link. No ACL keeps such a packet from coming in from a provider segment:
/// OVN lets every multicast listener query pass, whatever it is addressed to. The router's own answers stay.
const STRAYED: &str = "ip6.src == fe80::/10 && ip6.dst != fe80::/10";

/// What no router may forward: link-local addresses, where metadata services live, multicast, reserved, broadcast.
const NOT_ROUTED: &str = "ip4.dst == {169.254.0.0/16, 224.0.0.0/3}";

/// The one form in which a Vpc is written: closed off, and attached to `egress` if there is one.
///
/// IPv4 only on the way out: Kube-OVN 1.16 cannot attach a router to an external subnet that has an IPv6 range
/// (kubeovn/kube-ovn#6643), so IPv6 in a VPC stays inside it. The drops cover both families.
pub fn vpc_spec(platform: &Platform, egress: Option<&ProviderNetwork>) -> VpcSpec {
    let mut policy_routes: Vec<PolicyRoute> =
        platform.dropped().iter().map(|net| drop_route("dst", net)).collect();
    // No machine may pose as an address of a provider network: only SNAT, after these policies, gives it one.
    let forged = platform.provider_networks.iter().flat_map(|network| network.range.nets());
    policy_routes.extend(forged.map(|net| drop_route("src", &net)));
    policy_routes.extend([NOT_ROUTED, STRAYED].map(|rule| drop_of(rule.into())));
    let mut static_routes = Vec::new();
    if let Some(network) = egress {
        let gateway = network.gateway.to_string();
        // The automatic route of a subnet (source, /24) beats a default route by destination on unpatched OVN, so
        // the way out is a policy as well.
        policy_routes.push(PolicyRoute {
            priority: EGRESS_PRIORITY,
            match_: "ip4".into(),
            action: "reroute".into(),
            next_hop_ip: Some(gateway.clone()),
        });
        static_routes.push(StaticRoute {
            policy: "policyDst".into(),
            cidr: "0.0.0.0/0".into(),
            next_hop_ip: gateway,
            ..StaticRoute::default()
        });
    }
    VpcSpec {
        enable_external: egress.is_some(),
        extra_external_subnets: egress.iter().map(|network| network.external_subnet.clone()).collect(),
        static_routes,
        policy_routes,
    }
}

/// The drops of the platform file over the way out that a Vpc has now, whatever that is.
pub fn keeping_egress(platform: &Platform, seen: &VpcSpec) -> VpcSpec {
    let mut spec = vpc_spec(platform, None);
    spec.policy_routes
        .extend(seen.policy_routes.iter().filter(|route| route.priority == EGRESS_PRIORITY).cloned());
    VpcSpec { policy_routes: spec.policy_routes, ..seen.clone() }
}

/// The same Vpc attached to an external subnet, without a route to it: nothing leaves, everything stays dropped.
pub fn reattached(spec: &VpcSpec, external_subnet: &str) -> VpcSpec {
    VpcSpec {
        enable_external: true,
        extra_external_subnets: vec![external_subnet.into()],
        policy_routes: drops(spec).cloned().collect(),
        ..VpcSpec::default()
    }
}

/// The wanted spec as the next one to write over `seen`: drops are added in one write and removed in the next, so
/// that Kube-OVN, which deletes before it adds, never has fewer than it needs.
pub fn next_write(seen: &VpcSpec, wanted: VpcSpec) -> VpcSpec {
    let had: BTreeSet<&PolicyRoute> = drops(seen).collect();
    let wants: BTreeSet<&PolicyRoute> = drops(&wanted).collect();
    if wants.is_subset(&had) || had.is_subset(&wants) {
        return wanted;
    }
    let union: Vec<PolicyRoute> = had.union(&wants).map(|route| (*route).clone()).collect();
    let rest = wanted.policy_routes.iter().filter(|route| route.priority != DROP_PRIORITY).cloned();
    let policy_routes = union.into_iter().chain(rest).collect();
    VpcSpec { policy_routes, ..wanted }
}

/// Whether two specs ask OVN for the same: lists are sets to it.
pub fn same(a: &VpcSpec, b: &VpcSpec) -> bool {
    let sets = |spec: &VpcSpec| {
        (
            spec.enable_external,
            spec.extra_external_subnets.iter().cloned().collect::<BTreeSet<_>>(),
            spec.static_routes.iter().cloned().collect::<BTreeSet<_>>(),
            spec.policy_routes.iter().cloned().collect::<BTreeSet<_>>(),
        )
    };
    sets(a) == sets(b)
}

/// Whether a Vpc drops every range of a provider network.
pub fn closes_off(spec: &VpcSpec, network: &ProviderNetwork) -> bool {
    network.range.nets().all(|net| spec.policy_routes.contains(&drop_route("dst", &net)))
}

/// Whether a Vpc drops anything at all.
pub fn is_closed(spec: &VpcSpec) -> bool {
    drops(spec).next().is_some()
}

fn drops(spec: &VpcSpec) -> impl Iterator<Item = &PolicyRoute> {
    spec.policy_routes.iter().filter(|route| route.priority == DROP_PRIORITY && route.action == "drop")
}

fn drop_route(side: &str, net: &IpNet) -> PolicyRoute {
    let family = if net.addr().is_ipv4() { "ip4" } else { "ip6" };
    drop_of(format!("{family}.{side} == {net}"))
}

fn drop_of(match_: String) -> PolicyRoute {
    PolicyRoute { priority: DROP_PRIORITY, match_, action: "drop".into(), next_hop_ip: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(protected: &str) -> Platform {
        Platform::parse(&format!(
            "
providerNetworks:
- {{name: internet, externalSubnet: ext, cidr: '203.0.113.0/24,2001:db8::/64', gateway: 203.0.113.1}}
protectedCIDRs: [{protected}]
"
        ))
        .unwrap()
    }

    fn text(spec: &VpcSpec) -> Vec<String> {
        spec.policy_routes.iter().map(|r| format!("{} {} {}", r.priority, r.match_, r.action)).collect()
    }

    #[test]
    fn every_vpc_drops_provider_networks_and_protected_ranges_and_forged_sources() {
        let spec = vpc_spec(&platform("10.0.0.0/16, 'fd00::/48'"), None);
        assert_eq!(
            text(&spec),
            [
                "32000 ip4.dst == 10.0.0.0/16 drop",
                "32000 ip4.dst == 203.0.113.0/24 drop",
                "32000 ip6.dst == 2001:db8::/64 drop",
                "32000 ip6.dst == fd00::/48 drop",
                "32000 ip4.src == 203.0.113.0/24 drop",
                "32000 ip6.src == 2001:db8::/64 drop",
                "32000 ip4.dst == {169.254.0.0/16, 224.0.0.0/3} drop",
                "32000 ip6.src == fe80::/10 && ip6.dst != fe80::/10 drop"
            ]
        );
        assert!(!spec.enable_external && spec.static_routes.is_empty());
    }

    #[test]
    fn a_way_out_adds_a_reroute_below_the_subnets_and_a_default_route() {
        let platform = platform("10.0.0.0/16");
        let spec = vpc_spec(&platform, platform.provider_networks.first());
        assert_eq!(text(&spec).last().unwrap(), "1000 ip4 reroute");
        assert_eq!(spec.extra_external_subnets, ["ext"]);
        assert_eq!(spec.static_routes[0].next_hop_ip, "203.0.113.1");
        let reattached = reattached(&spec, "ext");
        assert_eq!(text(&reattached), text(&vpc_spec(&platform, None)));
        assert!(reattached.enable_external && reattached.static_routes.is_empty());
    }

    #[test]
    fn what_kube_ovn_leaves_out_of_a_closed_vpc_is_not_stated() {
        // It writes the Vpc once, to put its finalizer on, and would take these away: a rewrite of nobody's making.
        let text = serde_json::to_value(vpc_spec(&platform("10.0.0.0/16"), None)).unwrap();
        assert_eq!(text.as_object().unwrap().keys().collect::<Vec<_>>(), ["policyRoutes"]);
    }

    #[test]
    fn a_range_named_twice_is_dropped_once() {
        assert_eq!(
            vpc_spec(&platform("10.0.0.0/16, 10.0.0.0/16, 203.0.113.0/24"), None).policy_routes.len(),
            7
        );
    }

    #[test]
    fn a_change_of_ranges_adds_in_one_write_and_removes_in_the_next() {
        let before = vpc_spec(&platform("10.0.0.0/16"), None);
        let wanted = vpc_spec(&platform("10.9.0.0/16"), None);
        let first = next_write(&before, wanted.clone());
        assert!(text(&first).iter().any(|r| r.contains("10.0.0.0/16")));
        assert!(text(&first).iter().any(|r| r.contains("10.9.0.0/16")));
        assert!(same(&next_write(&first, wanted.clone()), &wanted));
    }

    #[test]
    fn only_adding_or_only_removing_takes_one_write() {
        let few = vpc_spec(&platform("10.0.0.0/16"), None);
        let many = vpc_spec(&platform("10.0.0.0/16, 10.9.0.0/16"), None);
        assert!(same(&next_write(&few, many.clone()), &many));
        assert!(same(&next_write(&many, few.clone()), &few));
    }

    #[test]
    fn the_order_of_lists_means_nothing() {
        let spec = vpc_spec(&platform("10.0.0.0/16, 10.9.0.0/16"), None);
        let mut turned = spec.clone();
        turned.policy_routes.reverse();
        assert!(same(&spec, &turned));
    }

    #[test]
    fn a_network_is_closed_off_when_each_of_its_ranges_is_dropped() {
        let platform = platform("10.0.0.0/16");
        let network = &platform.provider_networks[0];
        let mut spec = vpc_spec(&platform, None);
        assert!(closes_off(&spec, network));
        spec.policy_routes.retain(|route| !route.match_.contains("ip6.dst == 2001:db8"));
        assert!(!closes_off(&spec, network));
    }
}
