//! Keeps Kube-OVN's gateway label on the nodes through which VPCs leave. kube-ovn-controller sets it to `false` on
//! every node whenever it starts; without it no new VPC gets a way out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kmetal_crds::names::{EXTERNAL_GATEWAY, ROLE_CONTROL_PLANE, ROLE_NETWORK, manager::NETWORKING};
use kmetal_runtime::{Result, repeat};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::{context::Context, platform::Platform, trigger};

/// Without any change the labels are looked at so often.
const INTERVAL: Duration = Duration::from_mins(1);

/// Keeps the labels until the process stops.
pub async fn run(context: Arc<Context>) {
    let triggers = trigger::platform(&context).boxed();
    let process = context.process.clone();
    repeat(&process, "gateway-nodes", triggers, INTERVAL, async || keep(&context).await).await;
}

async fn keep(context: &Context) -> Result<()> {
    // Without a platform file nothing is known of the selectors: leave every label alone.
    let Ok(platform) = context.platform.now() else { return Ok(()) };
    let nodes: Vec<ObjectMeta> =
        context.caches.nodes.all().iter().map(|node| node.metadata.clone()).collect();
    let api = Api::<Node>::all(context.process.client.clone());
    for (name, labelled) in plan(&platform, &nodes) {
        let labels = if labelled { json!({ EXTERNAL_GATEWAY: "true" }) } else { json!({}) };
        let node =
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
        api.patch(&name, &PatchParams::apply(NETWORKING).force(), &Patch::Apply(&node)).await?;
        tracing::info!(node = name, gateway = labelled, "gateway label set");
    }
    Ok(())
}

/// The nodes whose label must change, and to what: `true` sets it, `false` gives up what we had set.
fn plan(platform: &Platform, nodes: &[ObjectMeta]) -> BTreeMap<String, bool> {
    let selected = selected(platform, nodes);
    nodes
        .iter()
        .filter(|node| node.deletion_timestamp.is_none())
        .filter_map(|node| {
            let name = node.name.clone()?;
            let is_set = label(node, EXTERNAL_GATEWAY) == Some("true");
            match (selected.contains(&name), is_set) {
                (true, false) => Some((name, true)),
                // Somebody else's gateway stays one.
                (false, true) if set_by_us(node) => Some((name, false)),
                _ => None,
            }
        })
        .collect()
}

/// Nodes that carry a provider network: those of its selector, or by default the network nodes, or, where there are
/// none, the control-plane nodes.
fn selected(platform: &Platform, nodes: &[ObjectMeta]) -> BTreeSet<String> {
    let with = |wanted: &dyn Fn(&ObjectMeta) -> bool| -> BTreeSet<String> {
        nodes.iter().filter(|node| wanted(node)).filter_map(|node| node.name.clone()).collect()
    };
    let network = with(&|node| label(node, ROLE_NETWORK).is_some());
    let default =
        if network.is_empty() { with(&|node| label(node, ROLE_CONTROL_PLANE).is_some()) } else { network };
    platform
        .provider_networks
        .iter()
        .flat_map(|network| {
            let selector = &network.gateway_node_selector;
            if selector.is_empty() {
                default.clone()
            } else {
                with(&|node| selector.iter().all(|(key, value)| label(node, key) == Some(value)))
            }
        })
        .collect()
}

fn label<'a>(node: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    node.labels.as_ref()?.get(key).map(String::as_str)
}

fn set_by_us(node: &ObjectMeta) -> bool {
    let owned = format!("f:{EXTERNAL_GATEWAY}");
    node.managed_fields.iter().flatten().filter(|entry| entry.manager.as_deref() == Some(NETWORKING)).any(
        |entry| {
            entry
                .fields_v1
                .as_ref()
                .is_some_and(|fields| fields.0["f:metadata"]["f:labels"].get(&owned).is_some())
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, labels: &[(&str, &str)]) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.into()),
            labels: Some(labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()),
            ..ObjectMeta::default()
        }
    }

    fn platform(selector: &str) -> Platform {
        Platform::parse(&format!(
            "{{protectedCIDRs: [10.0.0.0/16], providerNetworks: [{{name: a, externalSubnet: a, cidr: 192.0.2.0/24, gateway: 192.0.2.1{selector}}}]}}"
        ))
        .unwrap()
    }

    fn planned(selector: &str, nodes: &[ObjectMeta]) -> Vec<(String, bool)> {
        plan(&platform(selector), nodes).into_iter().collect()
    }

    #[test]
    fn network_nodes_are_gateways_and_without_them_the_control_plane() {
        let network = node("n", &[(ROLE_NETWORK, "")]);
        let control = node("c", &[(ROLE_CONTROL_PLANE, "")]);
        let worker = node("w", &[]);
        let with_network = planned("", &[network, control.clone(), worker.clone()]);
        assert_eq!(with_network, [("n".to_owned(), true)]);
        assert_eq!(planned("", &[control, worker]), [("c".to_owned(), true)]);
    }

    #[test]
    fn a_selector_of_the_provider_network_decides_alone() {
        let nodes = [node("a", &[("rack", "1")]), node("c", &[(ROLE_CONTROL_PLANE, "")])];
        assert_eq!(planned(", gatewayNodeSelector: {rack: '1'}", &nodes), [("a".to_owned(), true)]);
    }

    #[test]
    fn a_label_that_kube_ovn_reset_is_set_again_and_one_in_place_is_left_alone() {
        let reset = node("c", &[(ROLE_CONTROL_PLANE, ""), (EXTERNAL_GATEWAY, "false")]);
        let set = node("c", &[(ROLE_CONTROL_PLANE, ""), (EXTERNAL_GATEWAY, "true")]);
        assert_eq!(planned("", &[reset]), [("c".to_owned(), true)]);
        assert_eq!(planned("", &[set]), []);
    }

    #[test]
    fn only_a_label_that_we_set_is_given_up() {
        let theirs = node("w", &[(EXTERNAL_GATEWAY, "true")]);
        assert_eq!(planned("", std::slice::from_ref(&theirs)), []);
        let entry = serde_json::from_value(json!({
            "manager": NETWORKING, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {format!("f:{EXTERNAL_GATEWAY}"): {}}}}
        }))
        .unwrap();
        let ours = ObjectMeta { managed_fields: Some(vec![entry]), ..theirs };
        assert_eq!(planned("", &[ours]), [("w".to_owned(), false)]);
    }
}
