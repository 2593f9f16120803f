//! SubnetClaim: a range of addresses in one of the tenant's VPCs, and the attachment that machines name.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Identity;

/// A subnet in one of this Environment's VPCs.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "networking.kmetal.clastix.io",
    version = "v1alpha1",
    kind = "SubnetClaim",
    doc = "A subnet in one of this Environment's VPCs. Machines attach to it through the NetworkAttachmentDefinition that carries the claim's name.",
    namespaced,
    status = "SubnetClaimStatus",
    shortname = "snc",
    category = "kmetal",
    derive = "PartialEq",
    derive = "Default",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Vpc", type_ = "string", json_path = ".spec.vpc"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.addresses.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.addresses.available"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Subnet", type_ = "string", json_path = ".status.subnet", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')").message("metadata.name must be a DNS label: at most 63 of a-z, 0-9 and '-', and no dots; choose another name")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.gateway) == has(oldSelf.gateway)").message("gateway cannot be added or removed after creation; delete the SubnetClaim and create it anew"),
    validation = Rule::new("!has(self.gateway) || self.gateway.split(',').size() == self.cidr.split(',').size()").message("gateway must give one address for each range of cidr: 'IPv4', 'IPv6' or 'IPv4,IPv6'"),
    validation = Rule::new("!has(self.gateway) || self.gateway.split(',').size() != self.cidr.split(',').size() || !self.gateway.split(',').all(a, isIP(a)) || !self.cidr.split(',').all(c, isCIDR(c)) || (cidr(self.cidr.split(',')[0]).containsIP(self.gateway.split(',')[0]) && !(cidr(self.cidr.split(',')[0]).ip() == ip(self.gateway.split(',')[0])) && cidr(self.cidr.split(',')[self.cidr.split(',').size() - 1]).containsIP(self.gateway.split(',')[self.gateway.split(',').size() - 1]) && !(cidr(self.cidr.split(',')[self.cidr.split(',').size() - 1]).ip() == ip(self.gateway.split(',')[self.gateway.split(',').size() - 1])))").message("gateway must be a host address inside cidr, in the same order: for 10.0.0.0/24 one of 10.0.0.1 to 10.0.0.254; or leave it out for the first"),
    validation = Rule::new("!has(self.excludeAddresses) || !self.cidr.split(',').all(c, isCIDR(c)) || self.excludeAddresses.all(e, [e.split('..')[0], e.split('..')[e.split('..').size() - 1]].all(a, !isIP(a) || cidr(self.cidr.split(',')[0]).containsIP(a) || cidr(self.cidr.split(',')[self.cidr.split(',').size() - 1]).containsIP(a)))").message("excludeAddresses must lie inside cidr; leave out what lies outside, it is never handed out")
)]
pub struct SubnetClaimSpec {
    /// Name of the VpcClaim in this Environment in which the subnet lies. Immutable.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("vpc takes the name of a VpcClaim in this Environment: a-z, 0-9 and '-', for example prod"),
        validation = Rule::new("self == oldSelf").message("vpc is immutable; delete the SubnetClaim and create it anew in the other VPC")
    )]
    pub vpc: String,
    /// Range of addresses as a network in CIDR form, `10.0.0.0/24`; for dual stack `10.0.0.0/24,fd00:1::/64`, IPv4
    /// first. At least a /30 or a /126. Another tenant may use the same range. Immutable.
    #[schemars(length(min = 4, max = 87))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("cidr is immutable; delete the SubnetClaim and create it anew"),
        validation = Rule::new("self.split(',').size() <= 2 && self.split(',').all(c, isCIDR(c))").message("cidr must be one CIDR, or 'IPv4,IPv6': for example 10.0.0.0/24 or 10.0.0.0/24,fd00:1::/64 (no spaces, no IPv4-mapped IPv6)"),
        validation = Rule::new("!self.split(',').all(c, isCIDR(c)) || self.split(',').all(c, cidr(c) == cidr(c).masked())").message("cidr has host bits set; write the network address, for example 10.0.0.0/24 instead of 10.0.0.7/24"),
        validation = Rule::new("!self.split(',').all(c, isCIDR(c)) || self.split(',').all(c, cidr(c).prefixLength() <= (cidr(c).ip().family() == 4 ? 30 : 126) && cidr(c).prefixLength() >= 8)").message("cidr is too small or too large; use /8 to /30 for IPv4 and /8 to /126 for IPv6"),
        validation = Rule::new("self.split(',').size() != 2 || !self.split(',').all(c, isCIDR(c)) || (cidr(self.split(',')[0]).ip().family() == 4 && cidr(self.split(',')[1]).ip().family() == 6)").message("a dual-stack cidr is one IPv4 range, a comma, and one IPv6 range, in this order"),
        validation = Rule::new("!self.split(',').all(c, isCIDR(c)) || self.split(',').all(c, ['0.0.0.0/8', '127.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '255.255.255.255/32', '::/8', 'fe80::/10', 'ff00::/8'].all(r, !cidr(r).containsCIDR(c) && !cidr(c).containsCIDR(r)))").message("cidr has addresses that no machine can have (loopback, link-local, multicast, broadcast or unspecified); use a private range, for example 10.0.0.0/24 or fd00:1::/64")
    )]
    pub cidr: String,
    /// Address of the subnet's router inside `cidr`, `IPv4,IPv6` for dual stack. Absent: the first address of each
    /// range. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 79))]
    #[x_kube(
        validation = Rule::new("self == oldSelf").message("gateway is immutable; delete the SubnetClaim and create it anew"),
        validation = Rule::new("self.split(',').size() <= 2 && self.split(',').all(a, isIP(a))").message("gateway must be an IP address, or 'IPv4,IPv6' for dual stack")
    )]
    pub gateway: Option<String>,
    /// Addresses that are never handed out: single ones, or ranges written `10.0.0.10..10.0.0.20`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 2, max = 80)))]
    #[x_kube(
        validation = Rule::new("self.all(e, e.split('..').size() <= 2 && e.split('..').all(a, isIP(a)))").message("excludeAddresses takes addresses, 10.0.0.10, and ranges, 10.0.0.10..10.0.0.20")
    )]
    pub exclude_addresses: Vec<String>,
    /// DNS servers that DHCP announces to machines in the subnet, each in its own family; those of a family that
    /// `cidr` lacks are left out. Absent: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), inner(length(min = 2, max = 39)))]
    #[x_kube(validation = Rule::new("self.all(a, isIP(a))").message("dns takes IP addresses, for example 9.9.9.9 or 2620:fe::fe"))]
    pub dns: Vec<String>,
}

/// What the tenant got.
#[derive(KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SubnetClaimStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Name of the Kube-OVN Subnet on the under cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub subnet: Option<String>,
    /// What a VirtualMachine names to attach: `<namespace>/<name>` of the NetworkAttachmentDefinition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 127))]
    pub network_attachment: Option<String>,
    /// Address of the subnet's router; for dual stack `IPv4,IPv6`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 87))]
    pub gateway: Option<String>,
    /// How many addresses there are; of the IPv4 range where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Addresses>,
    /// How the platform tells the claim's own objects from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// `Ready` always; `Reconciling` while the controller or Kube-OVN works; `Stalled` while somebody must act.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Counts of one address range, as Kube-OVN keeps them. A count beyond 2^63-1 (large IPv6 ranges) shows as that.
#[derive(JsonSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Addresses {
    /// Addresses that can be handed out at all.
    #[schemars(range(min = 0))]
    pub total: i64,
    /// Addresses that machines hold.
    #[schemars(range(min = 0))]
    pub used: i64,
    /// Addresses still to be had.
    #[schemars(range(min = 0))]
    pub available: i64,
}
