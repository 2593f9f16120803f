//! The platform file: what the platform's engineers state about the networks outside the tenants' VPCs.
//!
//! Rendered by the chart, re-read while running. Everything in it is checked here once, so the rest of the process
//! works with ranges that are canonical and complete. Protected CIDRs are required and never guessed: a VPC that
//! could reach the management network because nobody had named it would be the worst failure of this product.

mod file;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use ipnet::{IpNet, Ipv4Net};
use serde::Deserialize;

pub use file::{PlatformFile, State};

use crate::range::{Address, Range, touch};

/// The checked content of the platform file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// Segments on which VPCs leave, in the file's order.
    pub provider_networks: Vec<ProviderNetwork>,
    /// Ranges that no VPC may reach: management, nodes, pods, services, join and overlay networks.
    pub protected: Vec<IpNet>,
    /// Ranges of the tenants' API servers: never dropped, and no SubnetClaim may lie over them.
    pub control_plane_pools: Vec<IpNet>,
    /// Largest packet in a tenant's subnet, in bytes.
    pub mtu: i32,
}

/// A segment on which VPCs leave and public addresses live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderNetwork {
    /// What tenants write.
    pub name: String,
    /// Kube-OVN's Subnet on the segment.
    pub external_subnet: String,
    /// The segment's range. There is always an IPv4 side.
    pub range: Range,
    /// The segment's IPv4 router.
    pub gateway: Ipv4Addr,
    /// Taken by claims that name none.
    pub default: bool,
    /// Tenants that it is reserved to; empty: everybody.
    pub tenants: BTreeSet<String>,
    /// Labels of the nodes that carry it; empty: the platform's default.
    pub gateway_node_selector: BTreeMap<String, String>,
}

/// What is wrong with a platform file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Fault {
    /// For claims, which every tenant reads: where it is, without any name or range of the platform.
    pub told: &'static str,
    /// For the platform's engineer: what, where, what to write.
    pub detail: String,
}

impl ProviderNetwork {
    /// Whether a tenant may know of it.
    pub fn is_open_to(&self, tenant: &str) -> bool {
        self.tenants.is_empty() || self.tenants.contains(tenant)
    }
}

impl Platform {
    /// Reads and checks a platform file.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let raw: Raw = serde_saphyr::from_str(text).map_err(|error| {
            let detail = format!("the platform file is not valid YAML of the known form: {error}");
            Fault { told: "it is not valid YAML of the known form", detail }
        })?;
        let in_field = |told: &'static str| move |detail: String| Fault { told, detail };
        let platform = Self {
            provider_networks: provider_networks(raw.provider_networks)
                .map_err(in_field("providerNetworks is not valid"))?,
            protected: nets("protectedCIDRs", &raw.protected_cidrs)
                .map_err(in_field("protectedCIDRs is not valid"))?,
            control_plane_pools: nets("tenantControlPlanePools", &raw.tenant_control_plane_pools)
                .map_err(in_field("tenantControlPlanePools is not valid"))?,
            mtu: raw.subnet.mtu,
        };
        if platform.protected.is_empty() {
            return Err(in_field("protectedCIDRs is empty")("protectedCIDRs is empty; name the management, node, pod, service, join and overlay networks, which no VPC may reach".into()));
        }
        if let Some((pool, dropped)) = platform.pool_that_is_dropped() {
            return Err(in_field("tenantControlPlanePools is not valid")(format!(
                "tenantControlPlanePools {pool} overlaps {dropped}, which every VPC drops; workers could not reach their API server"
            )));
        }
        if !(1280..=9000).contains(&platform.mtu) {
            let detail = format!("subnet.mtu is {}; use 1280 to 9000 bytes", platform.mtu);
            return Err(in_field("subnet.mtu is not valid")(detail));
        }
        Ok(platform)
    }

    /// The networks that a tenant may know of.
    pub fn open_to<'a>(&'a self, tenant: &'a str) -> impl Iterator<Item = &'a ProviderNetwork> {
        self.provider_networks.iter().filter(move |network| network.is_open_to(tenant))
    }

    /// The network whose external subnet has that name.
    pub fn by_external_subnet(&self, subnet: &str) -> Option<&ProviderNetwork> {
        self.provider_networks.iter().find(|network| network.external_subnet == subnet)
    }

    /// Every range that a VPC drops: all provider networks, its own too, and all protected CIDRs; each once.
    pub fn dropped(&self) -> BTreeSet<IpNet> {
        let providers = self.provider_networks.iter().flat_map(|network| network.range.nets());
        providers.chain(self.protected.iter().copied()).collect()
    }

    /// Whether a range has an address that the platform keeps for itself.
    pub fn reserves(&self, range: &Range) -> bool {
        let dropped = self.dropped();
        let kept = dropped.iter().chain(&self.control_plane_pools);
        kept.into_iter().any(|kept| range.nets().any(|net| touch(&net, kept)))
    }

    fn pool_that_is_dropped(&self) -> Option<(IpNet, IpNet)> {
        let dropped = self.dropped();
        self.control_plane_pools
            .iter()
            .find_map(|pool| dropped.iter().find(|net| touch(net, pool)).map(|net| (*pool, *net)))
    }
}

/// The segments, each in order, no two in each other's way.
fn provider_networks(raw: Vec<RawNetwork>) -> Result<Vec<ProviderNetwork>, String> {
    let networks = raw.into_iter().map(RawNetwork::checked).collect::<Result<Vec<_>, _>>()?;
    for (index, network) in networks.iter().enumerate() {
        for other in &networks[..index] {
            if other.name == network.name {
                return Err(format!("providerNetworks has '{}' twice; names must differ", network.name));
            }
            if other.external_subnet == network.external_subnet {
                return Err(format!(
                    "provider networks '{}' and '{}' name one externalSubnet; give each its own",
                    other.name, network.name
                ));
            }
            if other.range.overlaps(&network.range) {
                return Err(format!(
                    "provider networks '{}' and '{}' overlap; give each its own range",
                    other.name, network.name
                ));
            }
        }
    }
    if networks.iter().filter(|network| network.default).count() > 1 {
        return Err("more than one provider network is the default; leave 'default: true' on one".into());
    }
    Ok(networks)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    provider_networks: Vec<RawNetwork>,
    #[serde(default, rename = "protectedCIDRs")]
    protected_cidrs: Vec<String>,
    #[serde(default)]
    tenant_control_plane_pools: Vec<String>,
    #[serde(default)]
    subnet: RawSubnet,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawNetwork {
    name: String,
    external_subnet: String,
    cidr: String,
    gateway: String,
    #[serde(default)]
    default: bool,
    #[serde(default)]
    tenants: BTreeSet<String>,
    #[serde(default)]
    gateway_node_selector: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSubnet {
    mtu: i32,
}

impl Default for RawSubnet {
    /// An Ethernet frame less what Geneve adds.
    fn default() -> Self {
        Self { mtu: 1400 }
    }
}

impl RawNetwork {
    fn checked(self) -> Result<ProviderNetwork, String> {
        let what = format!("provider network '{}'", self.name);
        for (field, value) in [("name", &self.name), ("externalSubnet", &self.external_subnet)] {
            if !is_dns_label(value) {
                return Err(format!(
                    "{what}: {field} '{value}' must be a DNS label of at most 63 characters"
                ));
            }
        }
        let range = Range::parse(&self.cidr).map_err(|error| format!("{what}: cidr {error}"))?;
        let Some(v4) = range.v4 else {
            return Err(format!(
                "{what}: cidr {range} has no IPv4 range; Kube-OVN 1.16 attaches a VPC only over IPv4"
            ));
        };
        let gateway = Address::parse(&self.gateway).map_err(|error| format!("{what}: gateway {error}"))?;
        let outside = gateway.ips().any(|ip| !range.nets().any(|net| net.contains(&ip)));
        match gateway.v4 {
            Some(address) if !outside && is_host(v4, address) => Ok(ProviderNetwork {
                name: self.name,
                external_subnet: self.external_subnet,
                range,
                gateway: address,
                default: self.default,
                tenants: self.tenants,
                gateway_node_selector: self.gateway_node_selector,
            }),
            _ => Err(format!("{what}: gateway {gateway} must be a host address of {range}, IPv4 included")),
        }
    }
}

fn is_host(net: Ipv4Net, address: Ipv4Addr) -> bool {
    net.contains(&address)
        && (net.prefix_len() >= 31 || (address != net.network() && address != net.broadcast()))
}

fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Reads a list whose entries may be dual-stack pairs.
fn nets(field: &str, texts: &[String]) -> Result<Vec<IpNet>, String> {
    let mut nets = Vec::new();
    for text in texts {
        let range = Range::parse(text).map_err(|error| format!("{field}: {error}"))?;
        nets.extend(range.nets());
    }
    Ok(nets)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
providerNetworks:
- {name: internet, externalSubnet: ext, cidr: '203.0.113.0/24,2001:db8::/64', gateway: '203.0.113.1,2001:db8::1', default: true}
- {name: private, externalSubnet: priv, cidr: 198.51.100.0/24, gateway: 198.51.100.1, tenants: [acme]}
protectedCIDRs: [10.0.0.0/16, '192.168.0.0/24,fd00::/64']
tenantControlPlanePools: [100.100.0.0/24]
";

    #[test]
    fn a_full_file_is_read() {
        let platform = Platform::parse(GOOD).unwrap();
        assert_eq!(platform.provider_networks.len(), 2);
        assert_eq!(platform.mtu, 1400);
        assert_eq!(platform.protected.len(), 3);
        assert_eq!(platform.dropped().len(), 6);
        assert_eq!(platform.open_to("acme").count(), 2);
        assert_eq!(platform.open_to("globex").count(), 1);
    }

    #[test]
    fn a_file_that_isolation_cannot_stand_on_is_refused_with_the_cure() {
        let cases = [
            ("protectedCIDRs: []", "protectedCIDRs is empty; name the management"),
            ("", "protectedCIDRs is empty"),
            ("protectedCidrs: [10.0.0.0/16]", "protectedCidrs"),
            ("protectedCIDRs: [10.0.0.1/16]", "host bits"),
            (
                "protectedCIDRs: [0.0.0.0/0]\ntenantControlPlanePools: [10.0.0.0/24]",
                "could not reach their API server",
            ),
            ("protectedCIDRs: [10.0.0.0/16]\nsubnet: {mtu: 100}", "mtu"),
            (
                "protectedCIDRs: [10.0.0.0/16]\nproviderNetworks: [{name: a, externalSubnet: a, cidr: 'fd00::/64', gateway: 'fd00::1'}]",
                "no IPv4 range",
            ),
            (
                "protectedCIDRs: [10.0.0.0/16]\nproviderNetworks: [{name: a, externalSubnet: a, cidr: 192.0.2.0/24, gateway: 10.0.0.1}]",
                "must be a host address",
            ),
            (
                "protectedCIDRs: [10.0.0.0/16]\nproviderNetworks: [{name: a, externalSubnet: a, cidr: 192.0.2.0/24, gateway: 192.0.2.255}]",
                "must be a host address",
            ),
            (
                "protectedCIDRs: [10.0.0.0/16]\nproviderNetworks: [{name: A, externalSubnet: a, cidr: 192.0.2.0/24, gateway: 192.0.2.1}]",
                "DNS label",
            ),
        ];
        for (text, says) in cases {
            let fault = Platform::parse(text).unwrap_err();
            assert!(fault.detail.contains(says), "{text}: {fault}");
        }
    }

    #[test]
    fn networks_must_differ_and_one_may_be_the_default() {
        let two =
            |a: &str, b: &str| format!("protectedCIDRs: [10.0.0.0/16]\nproviderNetworks: [{{{a}}}, {{{b}}}]");
        let a = "name: a, externalSubnet: a, cidr: 192.0.2.0/24, gateway: 192.0.2.1, default: true";
        for (b, says) in [
            ("name: a, externalSubnet: b, cidr: 198.51.100.0/24, gateway: 198.51.100.1", "twice"),
            (
                "name: b, externalSubnet: a, cidr: 198.51.100.0/24, gateway: 198.51.100.1",
                "one externalSubnet",
            ),
            ("name: b, externalSubnet: b, cidr: 192.0.2.128/25, gateway: 192.0.2.129", "overlap"),
            (
                "name: b, externalSubnet: b, cidr: 198.51.100.0/24, gateway: 198.51.100.1, default: true",
                "default",
            ),
        ] {
            let fault = Platform::parse(&two(a, b)).unwrap_err();
            assert!(fault.detail.contains(says), "{b}: {fault}");
        }
    }

    #[test]
    fn tenants_are_told_of_a_fault_without_names_or_ranges() {
        for bad in [
            GOOD.replace("name: private", "name: internet"),
            GOOD.replace("externalSubnet: priv", "externalSubnet: ext"),
            GOOD.replace(
                "cidr: 198.51.100.0/24, gateway: 198.51.100.1",
                "cidr: 203.0.113.0/25, gateway: 203.0.113.1",
            ),
            GOOD.replace("gateway: 198.51.100.1", "gateway: 198.51.100.0"),
            GOOD.replace("tenants: [acme]", "tenants: acme"),
            GOOD.replace("10.0.0.0/16", "10.0.0.1/16"),
            GOOD.replace("100.100.0.0/24", "10.0.3.0/24"),
            format!("{GOOD}subnet: {{mtu: 7}}"),
        ] {
            let fault = Platform::parse(&bad).unwrap_err();
            for secret in ["private", "internet", "priv", "acme", "198", "203", "10.", "100."] {
                assert!(!fault.told.contains(secret), "{}", fault.told);
            }
        }
    }

    #[test]
    fn a_range_over_anything_the_platform_keeps_is_reserved() {
        let platform = Platform::parse(GOOD).unwrap();
        for (range, reserved) in [
            ("10.0.3.0/24", true),
            ("10.0.0.0/8", true),
            ("203.0.113.0/28", true),
            ("100.100.0.0/28", true),
            ("10.1.0.0/24", false),
            ("10.1.0.0/24,fd00::/80", true),
            ("fd01::/64", false),
        ] {
            assert_eq!(platform.reserves(&Range::parse(range).unwrap()), reserved, "{range}");
        }
    }
}
