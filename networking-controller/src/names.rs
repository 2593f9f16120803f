//! Names of the objects that stand for a claim on the under cluster.
//!
//! Deterministic, so that a crash between two writes finds its own work again; readable, so that
//! `kubectl get vpcs` tells whose they are; collision-free, because two claims must never share an object: 64 bits
//! of SHA-256 over (kind, namespace, name) decide, the readable part only helps.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Longest readable part. Kube-OVN derives further names from ours (`<vpc>-<external subnet>`) and uses some as
/// label values, so there must be room left under 63.
const READABLE: usize = 24;

/// Name of the Vpc of a VpcClaim.
pub fn vpc(namespace: &str, claim: &str) -> String {
    name("vpc", namespace, claim)
}

/// Name of the Subnet of a SubnetClaim.
pub fn subnet(namespace: &str, claim: &str) -> String {
    name("snet", namespace, claim)
}

/// Name of the OvnSnatRule of a SubnetClaim.
pub fn snat(namespace: &str, claim: &str) -> String {
    name("snat", namespace, claim)
}

/// Name of the OvnEip of an EipClaim.
pub fn eip(namespace: &str, claim: &str) -> String {
    name("eip", namespace, claim)
}

/// Name of the `nth` OvnDnatRule of an EipClaim.
///
/// Never the same twice: Kube-OVN 1.16 handles a deletion by name, a moment after the object is gone, and when there is
/// another of that name by then, takes the translation of that one out of OVN.
pub fn dnat(namespace: &str, claim: &str, nth: &str) -> String {
    named("dnat", namespace, claim, &format!("dnat/{namespace}/{claim}/{nth}"))
}

/// Whether [`dnat`] makes such names.
pub fn is_dnat_of_ours(name: &str) -> bool {
    is_of_ours("dnat", name)
}

/// Name of the EipClaim that is made for a Service that names none.
pub fn own_claim(service_uid: &str) -> String {
    let uid = service_uid.chars().map(|c| c.to_ascii_lowercase());
    let uid: String = uid.map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(50).collect();
    format!("service-{}", uid.trim_end_matches('-'))
}

/// Name of the OvnEip that Kube-OVN makes for a router on an external subnet. The rule is Kube-OVN's.
pub fn router_eip(vpc: &str, external_subnet: &str) -> String {
    format!("{vpc}-{external_subnet}")
}

/// The Vpc of ours whose router has this OvnEip; none when it is not a router's, or no router of ours.
pub fn vpc_of_router_eip<'a>(eip: &'a str, external_subnet: &str) -> Option<&'a str> {
    eip.strip_suffix(external_subnet)?.strip_suffix('-').filter(|vpc| is_vpc_of_ours(vpc))
}

/// Whether [`vpc`] makes such names.
pub fn is_vpc_of_ours(name: &str) -> bool {
    is_of_ours("vpc", name)
}

/// What a pod's network is called between Multus and Kube-OVN.
pub fn provider(namespace: &str, attachment: &str) -> String {
    format!("{attachment}.{namespace}.ovn")
}

/// Whether a name is the prefix of a kind, something, and a hash.
fn is_of_ours(kind: &str, name: &str) -> bool {
    let rest = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    let hash = rest.and_then(|rest| rest.rsplit_once('-')).map_or("", |(_, hash)| hash);
    hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn name(kind: &str, namespace: &str, claim: &str) -> String {
    // '/' occurs in none of the three, so no two triples give the same text.
    named(kind, namespace, claim, &format!("{kind}/{namespace}/{claim}"))
}

fn named(kind: &str, namespace: &str, claim: &str, identity: &str) -> String {
    let readable: String = format!("{namespace}-{claim}")
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(READABLE)
        .collect();
    let digest = Sha256::digest(identity);
    let mut name = format!("{kind}-{}-", readable.trim_end_matches('-'));
    for byte in digest.iter().take(8) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_million_pairs_give_a_million_names() {
        let mut seen = HashSet::new();
        for namespace in 0..1_000 {
            for claim in 0..1_000 {
                // Long, alike prefixes and shifting dashes: the readable part is nearly always the same.
                let name = vpc(&format!("a-rather-long-environment-{namespace}"), &format!("{claim}-net"));
                assert!(seen.insert(name));
            }
        }
    }

    #[test]
    fn moving_the_dash_between_namespace_and_name_gives_another_name() {
        assert_ne!(vpc("a-b", "c"), vpc("a", "b-c"));
        assert_ne!(vpc("a", "b"), subnet("a", "b"));
        assert_ne!(dnat("a", "b", "1"), dnat("a", "b", "2"));
        assert!(is_dnat_of_ours(&dnat("a", "b", "1")));
        assert!(!is_dnat_of_ours("dnat-by-hand") && !is_dnat_of_ours(&snat("a", "b")));
    }

    #[test]
    fn a_routers_address_leads_back_to_its_vpc() {
        let vpc = vpc("acme-a", "net");
        assert_eq!(vpc_of_router_eip(&router_eip(&vpc, "ext-1"), "ext-1"), Some(&*vpc));
        for (eip, subnet) in
            [("vpc-mine-ext", "ext"), (&*eip("acme-a", "net"), "ext"), (&*vpc, "ext"), (&*vpc, "")]
        {
            assert_eq!(vpc_of_router_eip(eip, subnet), None, "{eip}");
        }
    }

    #[test]
    fn names_are_dns_labels_with_room_for_what_kube_ovn_appends() {
        for (namespace, claim) in [("a", "b"), (&*"n".repeat(63), &*"c".repeat(63)), ("x", "ends.with-.dots")]
        {
            let dnat = dnat(namespace, claim, &"n".repeat(99));
            for name in [vpc(namespace, claim), subnet(namespace, claim), snat(namespace, claim), dnat] {
                assert!(name.len() <= 46, "{name}");
                assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                assert!(name.starts_with(|c: char| c.is_ascii_lowercase()));
            }
        }
    }
}
