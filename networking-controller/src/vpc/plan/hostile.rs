//! Whatever a tenant writes into their claims, what reaches OVN has one of the known forms (bar B-3).

use std::{
    net::IpAddr,
    sync::{Arc, LazyLock},
};

use ipnet::IpNet;
use kmetal_crds::networking::{Egress, VpcClaimSpec};
use proptest::prelude::*;

use super::*;

const CASES: u32 = 100_000;

/// Letters, digits and everything that means something in an OVN match or in YAML.
fn nasty() -> impl Strategy<Value = String> {
    const ALPHABET: &[char] = &[
        'a', 'Z', '0', '9', '.', ':', '/', ' ', '"', '\'', '\\', '=', '!', '&', '|', '{', '}', '(', ')', '$',
        ',', '\n', '\u{202e}', '🦀',
    ];
    let known = prop_oneof![
        Just("internet".to_owned()),
        Just("ip4.dst == 0.0.0.0/0".to_owned()),
        Just("1 || 1".to_owned())
    ];
    prop_oneof![1 => known, 4 => prop::collection::vec(prop::sample::select(ALPHABET), 0..24).prop_map(|chars| chars.into_iter().collect())]
}

fn seen(tenant: Option<String>) -> Seen {
    static PLATFORM: LazyLock<Arc<Platform>> = LazyLock::new(|| {
        let text = "{protectedCIDRs: [10.0.0.0/16, 'fd00::/48'], providerNetworks: [{name: internet, externalSubnet: ext, cidr: 203.0.113.0/24, gateway: 203.0.113.1, default: true}]}";
        Arc::new(Platform::parse(text).unwrap())
    });
    Seen {
        address_lost: None,
        address_free: false,
        platform: Ok(PLATFORM.clone()),
        last_good: None,
        kube_ovn: KubeOvn::Running,
        environment: Environment { tenant, terminating: false, workloads: true },
        vpc: None,
        router_eips: vec![],
        subnets: vec![],
        bound: vec![],
        nat_rules: vec![],
        unsettled: vec![],
        gateway_nodes: true,
    }
}

/// The whole grammar that we emit: two constants, or `<ip4|ip6>.<dst|src> == <network>`.
fn is_known_match(text: &str) -> bool {
    if ["ip4", "ip4.dst == {169.254.0.0/16, 224.0.0.0/3}", "ip6.src == fe80::/10 && ip6.dst != fe80::/10"]
        .contains(&text)
    {
        return true;
    }
    let Some((left, right)) = text.split_once(" == ") else { return false };
    let Ok(net) = right.parse::<IpNet>() else { return false };
    let family = if net.addr().is_ipv4() { "ip4" } else { "ip6" };
    net.network() == net.addr()
        && right == net.to_string()
        && [format!("{family}.dst"), format!("{family}.src")].contains(&left.to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn no_field_of_a_claim_reaches_a_match_a_priority_or_a_next_hop(
        namespace in nasty(),
        name in nasty(),
        uid in nasty(),
        tenant in prop::option::of(nasty()),
        egress in prop::option::of(prop::option::of(nasty())),
    ) {
        let mut claim = VpcClaim::new(&name, VpcClaimSpec { egress: egress.map(|provider_network| Egress { provider_network }) });
        claim.metadata.namespace = Some(namespace);
        claim.metadata.uid = Some(uid);
        for change in plan(&claim, &seen(tenant), Timestamp::UNIX_EPOCH).changes {
            let Change::CreateVpc(vpc) = change else { continue };
            prop_assert!(vpc.metadata.name.as_ref().is_some_and(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')));
            for route in &vpc.spec.policy_routes {
                prop_assert!(is_known_match(&route.match_), "{}", route.match_);
                prop_assert!(matches!((route.priority, route.action.as_str(), route.next_hop_ip.as_deref()), (32_000, "drop", None) | (1_000, "reroute", Some("203.0.113.1"))));
            }
            for route in &vpc.spec.static_routes {
                prop_assert!(route.next_hop_ip.parse::<IpAddr>().is_ok_and(|hop| hop.to_string() == "203.0.113.1"));
            }
        }
    }
}

#[test]
fn the_check_itself_refuses_what_it_should() {
    for text in [
        "ip6",
        "ip4.dst == 10.0.0.1/8",
        "ip4.dst == 10.0.0.0/8 || 1",
        "ip6.dst == 10.0.0.0/8",
        "1",
        "ip4.dst != 10.0.0.0/8",
    ] {
        assert!(!is_known_match(text), "{text}");
    }
}
