//! Cluster API core (`cluster.x-k8s.io/v1beta2`): the Cluster, and the Secret through which one reaches it.
//!
//! Only read, never written. A Cluster lies in its tenant's Environment and is written by that tenant, so everything in
//! its spec is hostile input, and so may its kubeconfig Secret be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::null_is_default;

/// API group of Cluster API core.
pub const GROUP: &str = "cluster.x-k8s.io";

/// Type of every Secret that Cluster API or a provider of it writes.
pub const SECRET_TYPE: &str = "cluster.x-k8s.io/secret";

/// Label with the name of the Cluster that an object belongs to, on its Secrets too.
pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// Key of the kubeconfig in its Secret.
pub const KUBECONFIG_KEY: &str = "value";

/// End of the name of a kubeconfig Secret.
const KUBECONFIG_SUFFIX: &str = "-kubeconfig";

/// Condition of a Cluster: Cluster API itself reaches the API server.
pub const REMOTE_CONNECTION_PROBE: &str = "RemoteConnectionProbe";

/// Name of the Secret with the kubeconfig of the Cluster of that name, in the Cluster's namespace.
pub fn kubeconfig_secret(cluster: &str) -> String {
    format!("{cluster}{KUBECONFIG_SUFFIX}")
}

/// The Cluster whose kubeconfig a Secret of that name would hold; `None` when it is no kubeconfig Secret's name.
pub fn cluster_of_secret(secret: &str) -> Option<&str> {
    secret.strip_suffix(KUBECONFIG_SUFFIX).filter(|cluster| !cluster.is_empty())
}

/// A tenant cluster.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "cluster.x-k8s.io",
    version = "v1beta2",
    kind = "Cluster",
    plural = "clusters",
    namespaced,
    status = "ClusterStatus",
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Present when the Cluster is made from a ClusterClass. Absent, not empty, otherwise: Cluster API refuses `{}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

/// What a Cluster states of its ClusterClass.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Topology {
    /// Values of the class's variables.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
}

/// The value of one variable of a ClusterClass.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Variable {
    /// Name; Cluster API allows no dot in it.
    #[serde(default)]
    pub name: String,
    /// Any JSON that the class's schema of the variable admits.
    #[serde(default)]
    pub value: Value,
}

/// What Cluster API reports of a Cluster.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// How far the Cluster has come for the first time; nothing in it is ever taken back.
    #[serde(default, deserialize_with = "null_is_default")]
    pub initialization: Initialization,
    /// Conditions.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// See [`ClusterStatus::initialization`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// The API server has answered once.
    #[serde(default, deserialize_with = "null_is_default")]
    pub control_plane_initialized: bool,
}

impl ClusterSpec {
    /// The value of the topology variable of that name.
    pub fn variable(&self, name: &str) -> Option<&Value> {
        let variables = &self.topology.as_ref()?.variables;
        variables.iter().find(|variable| variable.name == name).map(|variable| &variable.value)
    }
}

impl Cluster {
    /// Whether the API server has answered once. It may be away again.
    pub fn is_initialized(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.initialization.control_plane_initialized)
    }

    /// Whether the Cluster is being deleted.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_as_cluster_api_writes_it_is_read() {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Cluster",
            "metadata": { "namespace": "acme", "name": "blue", "uid": "1" },
            "spec": {
                "controlPlaneEndpoint": { "host": "10.0.0.7", "port": 6443 },
                "topology": {
                    "classRef": { "name": "kmetal" },
                    "version": "v1.35.0",
                    "variables": [{ "name": "network", "value": { "subnet": "front" } }],
                },
            },
            "status": {
                "phase": "Provisioned",
                "initialization": { "infrastructureProvisioned": true, "controlPlaneInitialized": true },
                "conditions": [{
                    "type": REMOTE_CONNECTION_PROBE, "status": "True", "reason": "ProbeSucceeded", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .unwrap();
        assert!(cluster.is_initialized());
        assert!(!cluster.is_deleting());
        assert_eq!(cluster.spec.variable("network"), Some(&json!({ "subnet": "front" })));
        assert_eq!(cluster.spec.variable("other"), None);
        assert_eq!(cluster.status.unwrap().conditions[0].reason, "ProbeSucceeded");
    }

    #[test]
    fn a_cluster_that_nobody_has_looked_at_yet_is_read() {
        for cluster in [
            json!({ "metadata": { "name": "blue" }, "spec": {} }),
            json!({ "metadata": { "name": "blue" }, "spec": { "topology": { "variables": null } }, "status": null }),
            json!({ "metadata": { "name": "blue" }, "spec": {}, "status": { "initialization": null } }),
            json!({
                "metadata": { "name": "blue" }, "spec": {},
                "status": { "initialization": { "controlPlaneInitialized": null }, "conditions": null },
            }),
        ] {
            let cluster: Cluster = serde_json::from_value(cluster).unwrap();
            assert!(!cluster.is_initialized());
            assert_eq!(cluster.spec.variable("network"), None);
        }
    }

    #[test]
    fn the_name_of_a_kubeconfig_secret_leads_back_to_its_cluster() {
        assert_eq!(cluster_of_secret(&kubeconfig_secret("blue")), Some("blue"));
        assert_eq!(cluster_of_secret("blue-kubeconfig-kubeconfig"), Some("blue-kubeconfig"));
        assert_eq!(cluster_of_secret("-kubeconfig"), None);
        assert_eq!(cluster_of_secret("blue-ca"), None);
    }
}
