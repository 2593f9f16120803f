//! VpcClaim: a private network of the tenant's own, with or without a way out.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Identity;

/// A private network (VPC) for the tenant of this Environment.
///
/// The platform makes one Kube-OVN Vpc from it, closed against every other tenant and against the platform's own
/// networks; nothing in the spec can change that.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "networking.kmetal.clastix.io",
    version = "v1alpha1",
    kind = "VpcClaim",
    doc = "A private network (VPC) for the tenant of this Environment, isolated from every other tenant and from the platform's own networks.",
    namespaced,
    status = "VpcClaimStatus",
    shortname = "vpcc",
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
    printcolumn(name = "Egress", type_ = "string", json_path = ".status.egress.providerNetwork"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.egress.address"),
    printcolumn(name = "Subnets", type_ = "integer", json_path = ".status.subnets"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Bound", type_ = "integer", json_path = ".status.boundAddresses", priority = 1),
    printcolumn(name = "Vpc", type_ = "string", json_path = ".status.vpc", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        priority = 1
    ),
    validation = Rule::new("self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')").message("metadata.name must be a DNS label: at most 63 of a-z, 0-9 and '-', and no dots; choose another name")
)]
#[serde(rename_all = "camelCase")]
pub struct VpcClaimSpec {
    /// The way out of the VPC. Absent: machines in it reach only their own subnets. May be added or removed
    /// later; while present its provider network cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("has(self.providerNetwork) == has(oldSelf.providerNetwork) && (!has(self.providerNetwork) || self.providerNetwork == oldSelf.providerNetwork)").message("egress.providerNetwork cannot change while the VPC is attached; remove spec.egress, wait until status.egress is gone, then add it with the other network")
    )]
    pub egress: Option<Egress>,
}

/// How a VPC leaves to the outside.
#[derive(KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Egress {
    /// Name of the provider network to leave through, as the platform's engineers published it. Absent: the
    /// platform's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("egress.providerNetwork takes the name of a provider network: a-z, 0-9 and '-', for example internet; leave it out for the default")
    )]
    pub provider_network: Option<String>,
}

/// What the tenant got.
#[derive(KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VpcClaimStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Name of the Kube-OVN Vpc on the under cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub vpc: Option<String>,
    /// The way out, once it is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress: Option<EgressStatus>,
    /// Number of SubnetClaims that have a subnet in this VPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub subnets: Option<i32>,
    /// Number of EipClaims whose address a Service behind this VPC has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub bound_addresses: Option<i32>,
    /// How the platform tells the claim's own objects from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// `Ready` always; `Reconciling` while the controller or Kube-OVN works; `Stalled` while somebody must act.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// The attached way out.
#[derive(JsonSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EgressStatus {
    /// The provider network in use.
    #[schemars(length(max = 63))]
    pub provider_network: String,
    /// Public address that machines of this VPC are seen with; for dual stack `IPv4,IPv6`. It belongs to the VPC,
    /// and no EipClaim counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 87))]
    pub address: Option<String>,
}
