//! EipClaim: a public address of the tenant's own, to bind to a Service of one of their clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Identity;

/// A public address for this Environment.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "networking.kmetal.clastix.io",
    version = "v1alpha1",
    kind = "EipClaim",
    doc = "A public address for this Environment. It stays the tenant's until the claim is deleted, whatever it is bound to meanwhile.",
    namespaced,
    status = "EipClaimStatus",
    shortname = "eipc",
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
    printcolumn(name = "Address", type_ = "string", json_path = ".status.address"),
    printcolumn(name = "Network", type_ = "string", json_path = ".status.providerNetwork"),
    printcolumn(
        name = "Bound",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Bound\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Service", type_ = "string", json_path = ".status.boundTo.service.name", priority = 1),
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
    validation = Rule::new("has(self.providerNetwork) == has(oldSelf.providerNetwork) && (!has(self.providerNetwork) || self.providerNetwork == oldSelf.providerNetwork)").message("providerNetwork is immutable; delete the EipClaim and create it anew on the other network"),
    validation = Rule::new("has(self.address) == has(oldSelf.address) && (!has(self.address) || self.address == oldSelf.address)").message("address is immutable; delete the EipClaim and create it anew with the other address")
)]
pub struct EipClaimSpec {
    /// Name of the provider network to take the address from. Absent: the platform's default. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(
        validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("providerNetwork takes the name of a provider network: a-z, 0-9 and '-', for example internet; leave it out for the default")
    )]
    pub provider_network: Option<String>,
    /// The IPv4 address that is wanted. Absent: any that is free. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 7, max = 15))]
    #[x_kube(
        validation = Rule::new("isIP(self) && ip(self).family() == 4").message("address must be one IPv4 address, for example 203.0.113.10; leave it out to take any that is free")
    )]
    pub address: Option<String>,
}

/// What the tenant got.
#[derive(KubeSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EipClaimStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The provider network that the address belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub provider_network: Option<String>,
    /// The address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45))]
    pub address: Option<String>,
    /// The Service that the address is given to. Written by whoever binds it, never by who allocates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_to: Option<Binding>,
    /// How the platform tells the claim's own objects from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// `Ready` always; `Bound` once a Service has had it; `Reconciling` while the controller or Kube-OVN works;
    /// `Stalled` while somebody must act.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// Where an address is in use.
#[derive(JsonSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    /// The Cluster of this Environment.
    pub cluster: BoundCluster,
    /// The Service in that Cluster.
    pub service: BoundService,
}

/// A Cluster, this one and no later one of its name.
#[derive(JsonSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BoundCluster {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
}

/// A Service, this one and no later one of its name.
#[derive(JsonSchema, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BoundService {
    /// Its namespace in the tenant cluster.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Its uid.
    #[schemars(length(max = 64))]
    pub uid: String,
}
