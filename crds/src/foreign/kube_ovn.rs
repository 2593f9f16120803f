//! Kube-OVN v1.16 (`kubeovn.io/v1`). Plurals carry dashes and cannot be derived from the kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize};

use super::null_is_default;

/// API group of Kube-OVN.
pub const GROUP: &str = "kubeovn.io";

/// A virtual private cloud: one OVN logical router.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "kubeovn.io",
    version = "v1",
    kind = "Vpc",
    plural = "vpcs",
    status = "VpcStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct VpcSpec {
    /// Attach the router to the external subnets below.
    #[serde(default, skip_serializing_if = "is_false")]
    pub enable_external: bool,
    /// External subnets to attach; with an entry here the default one is left out.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub extra_external_subnets: Vec<String>,
    /// Static routes of the router.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub static_routes: Vec<StaticRoute>,
    /// Policy routes of the router. For a custom VPC this list is the whole truth.
    #[serde(default, deserialize_with = "null_is_default")]
    pub policy_routes: Vec<PolicyRoute>,
}

/// One static route.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct StaticRoute {
    /// `policyDst` or `policySrc`.
    #[serde(default)]
    pub policy: String,
    /// Destination (or source) of the route.
    #[serde(default)]
    pub cidr: String,
    /// A single next hop.
    #[serde(default, rename = "nextHopIP")]
    pub next_hop_ip: String,
    /// Always empty with us. Stated, because Kube-OVN writes these three when they are absent, and then owns the list.
    #[serde(default)]
    pub bfd_id: String,
    /// Always empty with us.
    #[serde(default)]
    pub ecmp_mode: String,
    /// Always empty with us.
    #[serde(default)]
    pub route_table: String,
}

/// One policy route; (priority, match) is its identity in OVN.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRoute {
    /// 0 to 32767, the highest wins.
    #[serde(default)]
    pub priority: i32,
    /// OVN match expression, passed on verbatim. One that OVN cannot parse is silently absent.
    #[serde(default, rename = "match")]
    pub match_: String,
    /// `allow`, `drop` or `reroute`.
    #[serde(default)]
    pub action: String,
    /// Next hop of `reroute`; absent otherwise, since Kube-OVN clears it.
    #[serde(default, rename = "nextHopIP", skip_serializing_if = "Option::is_none")]
    pub next_hop_ip: Option<String>,
}

/// What Kube-OVN reports of a Vpc. Its `conditions` exist but are never filled.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct VpcStatus {
    /// The router exists and the policies that the Vpc was created with are in OVN.
    #[serde(default)]
    pub standby: bool,
    /// Name of the logical router.
    #[serde(default)]
    pub router: String,
    /// OVN subnets in the VPC that are not being deleted.
    #[serde(default, deserialize_with = "null_is_default")]
    pub subnets: Vec<String>,
    /// Echo of the spec once the external attachment is made.
    #[serde(default)]
    pub enable_external: bool,
    /// Echo of the spec once the external attachment is made.
    #[serde(default, deserialize_with = "null_is_default")]
    pub extra_external_subnets: Vec<String>,
}

/// A range of addresses: one OVN logical switch.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "kubeovn.io",
    version = "v1",
    kind = "Subnet",
    plural = "subnets",
    status = "SubnetStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSpec {
    /// The Vpc that the subnet lies in.
    #[serde(default)]
    pub vpc: String,
    /// `IPv4`, `IPv6` or `IPv4,IPv6`, network addresses only.
    #[serde(default)]
    pub cidr_block: String,
    /// Router address, one for each range.
    #[serde(default)]
    pub gateway: String,
    /// Never handed out; Kube-OVN wants the gateway in it, ranges merged, the list sorted as text.
    #[serde(default, deserialize_with = "null_is_default")]
    pub exclude_ips: Vec<String>,
    /// `IPv4`, `IPv6` or `Dual`.
    #[serde(default)]
    pub protocol: String,
    /// `<attachment>.<namespace>.ovn`.
    #[serde(default)]
    pub provider: String,
    /// Load balancing of cluster Services inside the subnet.
    #[serde(default)]
    pub enable_lb: bool,
    /// OVN answers DHCP in this subnet.
    #[serde(default, rename = "enableDHCP")]
    pub enable_dhcp: bool,
    /// `key=value` pairs for DHCPv4, joined by commas; servers within `dns_server` by semicolons.
    #[serde(default, rename = "dhcpV4Options")]
    pub dhcp_v4_options: String,
    /// The same for DHCPv6.
    #[serde(default, rename = "dhcpV6Options")]
    pub dhcp_v6_options: String,
    /// OVN sends router advertisements in this subnet.
    #[serde(default, rename = "enableIPv6RA")]
    pub enable_ipv6_ra: bool,
    /// What they say, as `key=value` pairs joined by commas; empty for Kube-OVN's own choice.
    #[serde(default, rename = "ipv6RAConfigs", skip_serializing_if = "String::is_empty")]
    pub ipv6_ra_configs: String,
    /// Largest packet in bytes; 0 for Kube-OVN's own choice.
    #[serde(default)]
    pub mtu: i32,
}

/// What Kube-OVN reports of a Subnet.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubnetStatus {
    /// `Validated`, `Ready`, `Error`. `Error` is not cleared on recovery: judge by `Ready`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub conditions: Vec<SubnetCondition>,
    /// Free IPv4 addresses.
    #[serde(default, rename = "v4availableIPs", deserialize_with = "count")]
    pub v4_available: i64,
    /// IPv4 addresses in use.
    #[serde(default, rename = "v4usingIPs", deserialize_with = "count")]
    pub v4_using: i64,
    /// Free IPv6 addresses.
    #[serde(default, rename = "v6availableIPs", deserialize_with = "count")]
    pub v6_available: i64,
    /// IPv6 addresses in use.
    #[serde(default, rename = "v6usingIPs", deserialize_with = "count")]
    pub v6_using: i64,
}

/// Kube-OVN's own form of a condition.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SubnetCondition {
    /// `Validated`, `Ready`, `Error`.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// `True`, `False`, `Unknown`.
    #[serde(default)]
    pub status: String,
    /// CamelCase word.
    #[serde(default)]
    pub reason: String,
    /// Free text.
    #[serde(default)]
    pub message: String,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
}

/// An address of an external Subnet.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "kubeovn.io",
    version = "v1",
    kind = "OvnEip",
    plural = "ovn-eips",
    status = "OvnEipStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct OvnEipSpec {
    /// The Subnet that the address is taken from.
    #[serde(default)]
    pub external_subnet: String,
    /// `nat`, `lrp` (a router's own) or `lsp`.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// IPv4 address: the one that is wanted, or the one that Kube-OVN chose. Sent only when one is wanted: an empty
    /// one would be a change that Kube-OVN refuses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v4_ip: Option<String>,
}

/// What Kube-OVN reports of an OvnEip.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OvnEipStatus {
    /// The address is allocated and in place.
    #[serde(default)]
    pub ready: bool,
    /// IPv4 address, empty without one.
    #[serde(default)]
    pub v4_ip: String,
    /// IPv6 address, empty without one.
    #[serde(default)]
    pub v6_ip: String,
}

/// Source NAT of a range to an OvnEip. Immutable once ready: replacing is deleting and creating.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "kubeovn.io",
    version = "v1",
    kind = "OvnSnatRule",
    plural = "ovn-snat-rules",
    status = "OvnSnatRuleStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct OvnSnatRuleSpec {
    /// Name of the OvnEip to translate to.
    #[serde(default)]
    pub ovn_eip: String,
    /// Name of the Vpc.
    #[serde(default)]
    pub vpc: String,
    /// IPv4 range to translate, empty for none.
    #[serde(default)]
    pub v4_ip_cidr: String,
    /// IPv6 range to translate, empty for none.
    #[serde(default)]
    pub v6_ip_cidr: String,
}

/// What Kube-OVN reports of an OvnSnatRule.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OvnSnatRuleStatus {
    /// The translation is in OVN.
    #[serde(default)]
    pub ready: bool,
}

/// Destination NAT from one port of an OvnEip to one port of one machine. Immutable once ready: replacing is deleting
/// and creating. Kube-OVN does not see to it that no two rules have the same port of the same address.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "kubeovn.io",
    version = "v1",
    kind = "OvnDnatRule",
    plural = "ovn-dnat-rules",
    status = "OvnDnatRuleStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct OvnDnatRuleSpec {
    /// Name of the OvnEip to translate from.
    #[serde(default)]
    pub ovn_eip: String,
    /// Name of the Vpc.
    #[serde(default)]
    pub vpc: String,
    /// IPv4 address of the machine.
    #[serde(default)]
    pub v4_ip: String,
    /// Port of the OvnEip, in decimal.
    #[serde(default)]
    pub external_port: String,
    /// Port of the machine, in decimal.
    #[serde(default)]
    pub internal_port: String,
    /// `tcp` or `udp`.
    #[serde(default)]
    pub protocol: String,
}

/// What Kube-OVN reports of an OvnDnatRule.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OvnDnatRuleStatus {
    /// The translation is in OVN.
    #[serde(default)]
    pub ready: bool,
}

/// Kube-OVN leaves `false` out, and takes away what it would leave out.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands out a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Kube-OVN writes counts as bare JSON numbers of any size. One beyond `i64` becomes the largest `i64`.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Number {
        Small(i64),
        Large(f64),
    }
    #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates, which is what is wanted")]
    Option::<Number>::deserialize(deserializer).map(|number| match number {
        None => 0,
        Some(Number::Small(value)) => value,
        Some(Number::Large(value)) => value as i64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_larger_than_any_integer_is_read() {
        let text = r#"{"v6availableIPs": 340282366920938463463374607431768211453, "v4usingIPs": 2, "v4availableIPs": null}"#;
        let status: SubnetStatus = serde_json::from_str(text).unwrap();
        assert_eq!(status.v6_available, i64::MAX);
        assert_eq!(status.v4_using, 2);
        assert_eq!(status.v4_available, 0);
    }

    #[test]
    fn lists_that_go_wrote_as_null_are_empty() {
        let spec: SubnetSpec = serde_json::from_str(r#"{"excludeIps": null}"#).unwrap();
        assert!(spec.exclude_ips.is_empty());
    }
}
