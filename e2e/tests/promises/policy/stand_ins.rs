//! Stand-ins for the kinds of KubeVirt and of CAPK: the right names, any field.

use anyhow::Result;
use kube::core::DynamicObject;
use serde_json::json;

/// Their groups.
pub(super) const GROUPS: [&str; 4] =
    ["kubevirt.io", "pool.kubevirt.io", "instancetype.kubevirt.io", "infrastructure.cluster.x-k8s.io"];

/// Group, version, kind.
const KINDS: [(&str, &str, &str); 8] = [
    ("kubevirt.io", "v1", "VirtualMachine"),
    ("kubevirt.io", "v1", "VirtualMachineInstance"),
    ("kubevirt.io", "v1", "VirtualMachineInstanceReplicaSet"),
    ("pool.kubevirt.io", "v1beta1", "VirtualMachinePool"),
    ("instancetype.kubevirt.io", "v1beta1", "VirtualMachineInstancetype"),
    ("instancetype.kubevirt.io", "v1beta1", "VirtualMachinePreference"),
    ("infrastructure.cluster.x-k8s.io", "v1alpha1", "KubevirtMachine"),
    ("infrastructure.cluster.x-k8s.io", "v1alpha1", "KubevirtMachineTemplate"),
];

pub(super) fn all() -> Result<Vec<DynamicObject>> {
    let crd = |&(group, version, kind): &(&str, &str, &str)| {
        let singular = kind.to_lowercase();
        let plural = format!("{singular}s");
        Ok(serde_json::from_value(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                // The group is protected; this is what the API server asks of a CRD in it that nobody approved.
                "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
            },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": singular},
                "versions": [{
                    "name": version, "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        }))?)
    };
    KINDS.iter().map(crd).collect()
}
