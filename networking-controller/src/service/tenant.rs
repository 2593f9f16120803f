//! What is watched in a tenant cluster, cut down to what a Service's passes read, and what in it makes a Service worth
//! another look. A tenant can make any number of objects of any size; what is cut here is not kept.

use std::collections::{BTreeMap, BTreeSet};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, NodeSpec, NodeStatus, Service, ServiceSpec},
    discovery::v1::{Endpoint, EndpointSlice},
};
use kmetal_crds::networking::service::{CONDITION, EIP_CLAIM, EXCLUDE_NODE, MOST_PORTS};
use kmetal_runtime::{
    TenantCluster, TenantClusters, Watched,
    tenant::{ClusterId, Link},
};
use kube::{
    Api, ResourceExt,
    runtime::{
        reflector::{ObjectRef, Store},
        watcher,
    },
};

use super::{
    demand::{is_asked, is_marked},
    worker::Worker,
};
use crate::trigger;

/// What is known of one tenant cluster.
#[derive(Debug)]
pub struct InTenant {
    /// Its Services, those of no concern as stubs.
    pub services: Watched<Service>,
    /// Its Nodes.
    pub nodes: Watched<Node>,
    /// Its EndpointSlices, as the Nodes with ready endpoints.
    pub slices: Watched<EndpointSlice>,
}

/// All tenant clusters.
pub type Tenants = TenantClusters<InTenant>;

/// One tenant cluster.
pub type Tenant = TenantCluster<InTenant>;

/// Label of an EndpointSlice: its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl InTenant {
    /// Begins to watch.
    pub fn watch(link: &Link) -> Self {
        let all = watcher::Config::default;
        let client = || link.client();
        Self {
            services: link.watch(Api::all(client()), all(), cut_service),
            nodes: link.watch(Api::all(client()), all(), cut_node),
            slices: link.watch(Api::all(client()), all(), cut_slice),
        }
    }

    /// The Services that we look after, or have to let go.
    pub fn ours(&self) -> Vec<ObjectRef<Service>> {
        self.which(|_| true)
    }

    /// Those of them.
    pub fn which(&self, wanted: impl Fn(&Service) -> bool) -> Vec<ObjectRef<Service>> {
        let found = self.services.state_filter(|service| is_ours(service) && wanted(service));
        found.iter().map(|service| ObjectRef::from_obj(&**service)).collect()
    }

    /// The workers; none while they are not known.
    pub fn workers(&self) -> Option<Vec<Worker>> {
        let nodes = self.nodes.read(Store::state).ok()?;
        Some(nodes.iter().map(|node| Worker::from(&**node)).collect())
    }

    /// By name of the port the Nodes that run a ready endpoint of a Service; none while that is not known.
    pub fn endpoints(&self, service: &Service) -> Option<BTreeMap<String, BTreeSet<String>>> {
        let (namespace, name) = (service.namespace(), service.name_any());
        let of_service = |slice: &EndpointSlice| {
            slice.metadata.namespace == namespace && slice.labels().get(SERVICE_NAME) == Some(&name)
        };
        let slices = self.slices.read(|slices| slices.state_filter(of_service)).ok()?;
        let mut by_port = BTreeMap::<String, BTreeSet<String>>::new();
        for slice in &slices {
            for port in slice.ports.iter().flatten() {
                let nodes = slice.endpoints.iter().filter_map(|endpoint| endpoint.node_name.clone());
                by_port.entry(port.name.clone().unwrap_or_default()).or_default().extend(nodes);
            }
        }
        Some(by_port)
    }

    /// What else than the Service itself makes it worth a look.
    pub fn triggers(&self) -> impl Stream<Item = ObjectRef<Service>> + Send + 'static + use<> {
        let (by_node, by_slice) = (self.services.clone(), self.services.clone());
        let nodes = trigger::distinct(&self.nodes, |node| Worker::from(node)).flat_map(move |_| {
            let ours = by_node.state_filter(is_ours);
            stream::iter(ours.into_iter().map(|service| ObjectRef::from_obj(&*service)))
        });
        let slices = trigger::distinct(&self.slices, |slice| (slice.endpoints.clone(), slice.ports.clone()))
            .filter_map(move |slice| {
                let of = slice.labels().get(SERVICE_NAME).and_then(|name| {
                    let service = by_slice.get_in(slice.metadata.namespace.as_deref()?, name)?;
                    is_ours(&service).then(|| ObjectRef::from_obj(&*service))
                });
                std::future::ready(of)
            });
        stream::select(nodes, slices)
    }
}

/// Whether we look after a Service, or have looked after it.
pub fn is_ours(service: &Service) -> bool {
    is_asked(service) || is_marked(service)
}

/// Whether a Cluster lies in this Environment.
pub fn is_in(id: &ClusterId, namespace: &str) -> bool {
    id.namespace == namespace
}

fn cut_service(service: &mut Service) {
    let meta = &mut service.metadata;
    (meta.labels, meta.owner_references) = (None, None);
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|key, _| key == EIP_CLAIM);
    }
    let mut spec = service.spec.take().unwrap_or_default();
    if let Some(ports) = &mut spec.ports {
        // One too many is enough to refuse them.
        ports.truncate(MOST_PORTS + 1);
        for port in ports {
            (port.target_port, port.app_protocol) = (None, None);
        }
    }
    let is_balancer = spec.type_.as_deref() == Some("LoadBalancer");
    service.spec = Some(if is_balancer {
        ServiceSpec {
            type_: spec.type_,
            ports: spec.ports,
            load_balancer_class: spec.load_balancer_class,
            load_balancer_ip: spec.load_balancer_ip,
            load_balancer_source_ranges: spec.load_balancer_source_ranges,
            allocate_load_balancer_node_ports: spec.allocate_load_balancer_node_ports,
            external_traffic_policy: spec.external_traffic_policy,
            ip_families: spec.ip_families,
            session_affinity: spec.session_affinity,
            ..ServiceSpec::default()
        }
    } else {
        ServiceSpec { type_: spec.type_, ..ServiceSpec::default() }
    });
    if let Some(conditions) = service.status.as_mut().and_then(|status| status.conditions.as_mut()) {
        conditions.retain(|condition| condition.type_ == CONDITION);
    }
}

fn cut_node(node: &mut Node) {
    let meta = &mut node.metadata;
    (meta.annotations, meta.owner_references) = (None, None);
    if let Some(labels) = &mut meta.labels {
        labels.retain(|key, _| key == EXCLUDE_NODE);
    }
    let spec = node.spec.take().unwrap_or_default();
    node.spec =
        Some(NodeSpec { taints: spec.taints, unschedulable: spec.unschedulable, ..NodeSpec::default() });
    let status = node.status.take().unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.retain(|condition| condition.type_ == "Ready");
    for condition in &mut conditions {
        // A heartbeat is no news.
        (condition.last_heartbeat_time, condition.message, condition.reason) = (None, None, None);
    }
    node.status = Some(NodeStatus {
        addresses: status.addresses,
        conditions: Some(conditions),
        ..NodeStatus::default()
    });
}

/// One endpoint for each Node with a ready one, in IPv4; ports by name only.
fn cut_slice(slice: &mut EndpointSlice) {
    let meta = &mut slice.metadata;
    (meta.annotations, meta.owner_references) = (None, None);
    if let Some(labels) = &mut meta.labels {
        labels.retain(|key, _| key == SERVICE_NAME);
    }
    let is_ready = |endpoint: &Endpoint| endpoint.conditions.as_ref().is_none_or(|c| c.ready != Some(false));
    let nodes: BTreeSet<String> = std::mem::take(&mut slice.endpoints)
        .into_iter()
        .filter(|endpoint| slice.address_type == "IPv4" && is_ready(endpoint))
        .filter_map(|endpoint| endpoint.node_name)
        .collect();
    slice.endpoints =
        nodes.into_iter().map(|node| Endpoint { node_name: Some(node), ..Endpoint::default() }).collect();
    for port in slice.ports.iter_mut().flatten() {
        (port.app_protocol, port.port, port.protocol) = (None, None, None);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_service_that_is_no_load_balancer_nothing_is_kept_but_its_type() {
        let mut service: Service = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7", "finalizers": ["f"],
                "labels": { "x": "y" },
                "annotations": { EIP_CLAIM: "shop", "kubectl.kubernetes.io/last-applied-configuration": "long" },
            },
            "spec": { "type": "ClusterIP", "ports": [{ "port": 1 }], "selector": { "app": "a" } },
            "status": {
                "conditions": [
                    { "type": CONDITION, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                    { "type": "Other", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" },
                ],
            },
        }))
        .unwrap();
        cut_service(&mut service);
        let kept = serde_json::to_value(&service).unwrap();
        assert_eq!(kept["spec"], json!({ "type": "ClusterIP" }));
        assert_eq!(kept["metadata"]["annotations"], json!({ EIP_CLAIM: "shop" }));
        assert_eq!(kept["metadata"]["finalizers"], json!(["f"]));
        assert_eq!(kept["status"]["conditions"].as_array().unwrap().len(), 1);
        assert!(is_ours(&service));
    }

    #[test]
    fn a_node_that_beats_its_heart_is_the_same_node() {
        let node = |beat: &str| {
            let mut node: Node = serde_json::from_value(json!({
                "metadata": { "name": "w", "labels": { EXCLUDE_NODE: "", "x": "y" }, "annotations": { "a": "b" } },
                "spec": { "podCIDR": "10.244.0.0/24", "unschedulable": true },
                "status": {
                    "addresses": [{ "type": "InternalIP", "address": "10.0.0.7" }],
                    "images": [{ "names": ["image"] }],
                    "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": beat }],
                },
            }))
            .unwrap();
            cut_node(&mut node);
            node
        };
        let cut = node("2026-01-01T00:00:00Z");
        assert_eq!(cut, node("2026-01-01T00:05:00Z"));
        assert_eq!(cut.status.as_ref().unwrap().images, None);
        let worker = Worker::from(&cut);
        assert!(worker.ready && worker.excluded && !worker.schedulable && worker.addresses.len() == 1);
    }

    #[test]
    fn of_endpoints_only_the_nodes_with_a_ready_one_are_kept() {
        let endpoint = |node: &str, ready: Option<bool>| json!({ "addresses": ["10.244.0.7"], "nodeName": node, "conditions": { "ready": ready } });
        let slice = |family: &str| {
            let mut slice: EndpointSlice = serde_json::from_value(json!({
                "metadata": { "name": "web-x", "namespace": "shop", "labels": { SERVICE_NAME: "web" } },
                "addressType": family,
                "ports": [{ "name": "https", "port": 8443, "protocol": "TCP" }],
                "endpoints": [
                    endpoint("a", Some(true)), endpoint("a", None), endpoint("b", Some(false)),
                    { "addresses": ["10.244.0.8"] }, { "addresses": ["10.244.0.9"], "nodeName": "c" },
                ],
            }))
            .unwrap();
            cut_slice(&mut slice);
            slice.endpoints.into_iter().filter_map(|endpoint| endpoint.node_name).collect::<Vec<_>>()
        };
        assert_eq!(slice("IPv4"), ["a", "c"]);
        assert_eq!(slice("IPv6"), [""; 0]);
    }
}
