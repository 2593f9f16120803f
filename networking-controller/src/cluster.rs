//! Which network a tenant cluster's machines are on: Cluster → SubnetClaim → VpcClaim, all in one Environment. Pure.
//!
//! A Cluster made from the platform's ClusterClass says it in a variable; a plain one, which has no variables, in an
//! annotation. Both are the tenant's text: a name and nothing more, looked up in the Cluster's own namespace only.

use kmetal_crds::{
    foreign::capi::Cluster,
    networking::{CLUSTER_NETWORK, CLUSTER_NETWORK_SUBNET, SUBNET_CLAIM},
};
use kube::ResourceExt;

/// Name of the SubnetClaim that the Cluster's machines are on; none when the Cluster does not say.
pub fn subnet_claim(cluster: &Cluster) -> Option<&str> {
    let variable = cluster.spec.variable(CLUSTER_NETWORK).and_then(|value| value.get(CLUSTER_NETWORK_SUBNET));
    let annotation = || cluster.annotations().get(SUBNET_CLAIM).map(String::as_str);
    variable.and_then(|name| name.as_str()).or_else(annotation).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use kmetal_crds::foreign::capi::{ClusterSpec, Topology, Variable};
    use serde_json::{Value, json};

    use super::*;

    fn cluster(variable: Option<Value>, annotation: Option<&str>) -> Cluster {
        let topology = variable.map(|value| Topology {
            variables: vec![
                Variable { name: "other".into(), value: json!({ "subnet": "wrong" }) },
                Variable { name: "network".into(), value },
            ],
        });
        let mut cluster = Cluster::new("blue", ClusterSpec { topology });
        if let Some(name) = annotation {
            cluster.annotations_mut().insert(SUBNET_CLAIM.into(), name.into());
        }
        cluster
    }

    #[test]
    fn the_variable_says_it_or_else_the_annotation() {
        for (variable, annotation, wanted) in [
            (None, None, None),
            (None, Some("front"), Some("front")),
            (None, Some(""), None),
            (Some(json!({ "subnet": "back" })), None, Some("back")),
            (Some(json!({ "subnet": "back" })), Some("front"), Some("back")),
            (Some(json!({ "mtu": 1400 })), Some("front"), Some("front")),
            // Whatever a tenant's class lets through.
            (Some(json!({ "subnet": 7 })), None, None),
            (Some(json!({ "subnet": "" })), None, None),
            (Some(json!("back")), None, None),
            (Some(json!(null)), None, None),
        ] {
            let cluster = cluster(variable.clone(), annotation);
            assert_eq!(subnet_claim(&cluster), wanted, "{variable:?} {annotation:?}");
        }
    }
}
