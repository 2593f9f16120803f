//! NetworkAttachmentDefinition of the Kubernetes Network Plumbing Working Group, as Multus reads it.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Names a network that a pod may attach to. It has no status.
#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[kube(
    group = "k8s.cni.cncf.io",
    version = "v1",
    kind = "NetworkAttachmentDefinition",
    plural = "network-attachment-definitions",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
pub struct NetworkAttachmentDefinitionSpec {
    /// CNI configuration as JSON text.
    #[serde(default)]
    pub config: String,
}
