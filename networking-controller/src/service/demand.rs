//! What a Service of a tenant cluster asks for, and what it asks in vain. Pure.
//!
//! What we cannot do is refused with a reason instead of being left out in silence: who restricts the sources of their
//! Service and gets a Service open to the world has been lied to.

use std::net::Ipv4Addr;

use k8s_openapi::{
    api::core::v1::{Service, ServicePort},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kmetal_crds::networking::service::{CLASS, CONDITION, EIP_CLAIM, MOST_PORTS, reason};
use kube::ResourceExt;

/// A transport protocol that Kube-OVN translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Protocol {
    /// As Kube-OVN writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name, by which EndpointSlices know it; empty for the only one.
    pub name: String,
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the public address.
    pub external: u16,
    /// The same on every worker.
    pub node: u16,
}

/// Which address a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// That of this EipClaim of the Environment.
    Named(String),
    /// One of its own, this one if it says so.
    Own(Option<Ipv4Addr>),
}

/// Everything that a Service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Its ports, in its own order.
    pub ports: Vec<Port>,
    /// Only to a worker that runs an endpoint.
    pub local: bool,
    /// The address.
    pub wish: Wish,
    /// Whether it has an IPv6 side, which nobody outside reaches.
    pub dual_stack: bool,
    /// What it asks for in addition and gets only in part: reason and text of a Warning.
    pub warnings: Vec<Refused>,
}

/// Why a Service cannot be served as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// A word of `kmetal_crds::networking::service::reason`.
    pub reason: &'static str,
    /// What, why, and what to do.
    pub message: String,
}

/// Whether the Service asks for a load balancer, and for ours.
pub fn is_asked(service: &Service) -> bool {
    let Some(spec) = &service.spec else { return false };
    let class = spec.load_balancer_class.as_deref();
    spec.type_.as_deref() == Some("LoadBalancer") && class.is_none_or(|class| class == CLASS)
}

/// What we said on the Service last.
pub fn said(service: &Service) -> Option<&Condition> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == CONDITION)
}

/// Whether we have ever said something on the Service. Its class cannot tell: it vanishes with the type.
pub fn is_marked(service: &Service) -> bool {
    said(service).is_some()
}

/// Whether the Service waits for room in its Environment's quota.
pub fn is_over_quota(service: &Service) -> bool {
    said(service).is_some_and(|condition| condition.reason == reason::QUOTA_EXCEEDED)
}

impl Demand {
    /// What a Service that [`is_asked`] asks for.
    ///
    /// # Errors
    /// What it asks in vain.
    pub fn check(service: &Service) -> Result<Self, Refused> {
        let refused = |reason, message: String| Err(Refused { reason, message });
        let spec = service.spec.clone().unwrap_or_default();
        if spec.load_balancer_source_ranges.is_some_and(|ranges| !ranges.is_empty()) {
            return refused(
                reason::SOURCE_RANGES_UNSUPPORTED,
                "spec.loadBalancerSourceRanges cannot be kept, and the Service is not opened without; restrict the sources in the cluster (a NetworkPolicy, with externalTrafficPolicy Local) and remove the field".into(),
            );
        }
        if spec.allocate_load_balancer_node_ports == Some(false) {
            return refused(
                reason::NODE_PORTS_REQUIRED,
                "traffic comes in by node ports; remove spec.allocateLoadBalancerNodePorts or set it to true"
                    .into(),
            );
        }
        let families = spec.ip_families.unwrap_or_default();
        if !families.is_empty() && families.iter().all(|family| family == "IPv6") {
            return refused(
                reason::FAMILY_UNSUPPORTED,
                "public addresses are IPv4, and this Service is IPv6 only; set spec.ipFamilyPolicy to PreferDualStack, or spec.ipFamilies to IPv4".into(),
            );
        }
        let all = spec.ports.unwrap_or_default();
        if all.len() > MOST_PORTS {
            return refused(
                reason::TOO_MANY_PORTS,
                format!(
                    "a Service has at most {MOST_PORTS} ports here, this one {}; divide it into several",
                    all.len()
                ),
            );
        }
        let ports = all.iter().map(port).collect::<Result<Vec<_>, _>>()?;
        let named = service.annotations().get(EIP_CLAIM).filter(|name| !name.is_empty());
        // A wish in a deprecated field whose form Kubernetes does not check.
        let address = spec.load_balancer_ip.as_deref().and_then(|address| address.parse().ok());
        let mut warnings = Vec::new();
        if spec.session_affinity.as_deref() == Some("ClientIP") {
            warnings.push(Refused {
                reason: reason::SESSION_AFFINITY_LIMITED,
                message: "spec.sessionAffinity holds for clients inside the cluster; from outside all come by one worker, and with externalTrafficPolicy Cluster under that worker's address".into(),
            });
        }
        Ok(Self {
            ports,
            local: spec.external_traffic_policy.as_deref() == Some("Local"),
            dual_stack: families.iter().any(|family| family == "IPv6"),
            wish: named.map_or(Wish::Own(address), |name| Wish::Named(name.clone())),
            warnings,
        })
    }
}

fn port(port: &ServicePort) -> Result<Port, Refused> {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some(_) => {
            return Err(Refused {
                reason: reason::PROTOCOL_UNSUPPORTED,
                message: format!(
                    "port {} is neither TCP nor UDP, and nothing else is translated; take it out of the Service",
                    port.port
                ),
            });
        }
    };
    let node = port.node_port.and_then(|node| u16::try_from(node).ok()).filter(|node| *node != 0);
    let external = u16::try_from(port.port).ok().filter(|external| *external != 0);
    let (Some(external), Some(node)) = (external, node) else {
        return Err(Refused {
            reason: reason::NO_NODE_PORT,
            message: format!(
                "port {} has no node port; Kubernetes assigns one when the Service is saved again",
                port.port
            ),
        });
    };
    Ok(Port { name: port.name.clone().unwrap_or_default(), protocol, external, node })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: &Value) -> Service {
        serde_json::from_value(json!({ "metadata": { "name": "web", "namespace": "shop" }, "spec": spec }))
            .unwrap()
    }

    fn balancer(more: &Value) -> Service {
        let mut spec = json!({
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4"],
            "sessionAffinity": "None",
            "externalTrafficPolicy": "Cluster",
            "ports": [{ "port": 443, "nodePort": 30443, "protocol": "TCP" }],
        });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service(&spec)
    }

    #[test]
    fn a_load_balancer_without_class_or_of_ours_is_meant_and_nothing_else() {
        for (spec, asked) in [
            (json!({ "type": "LoadBalancer" }), true),
            (json!({ "type": "LoadBalancer", "loadBalancerClass": CLASS }), true),
            (json!({ "type": "LoadBalancer", "loadBalancerClass": "metallb.io/metallb" }), false),
            (json!({ "type": "LoadBalancer", "loadBalancerClass": "" }), false),
            (json!({ "type": "NodePort" }), false),
            (json!({ "type": "ClusterIP" }), false),
            (json!({}), false),
        ] {
            assert_eq!(is_asked(&service(&spec)), asked, "{spec}");
        }
        assert!(!is_asked(&Service::default()));
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_reason() {
        let port = |protocol: &str| json!([{ "port": 1, "nodePort": 30001, "protocol": protocol }]);
        let many: Vec<Value> =
            (1..=101).map(|port| json!({ "port": port, "nodePort": 30000 + port })).collect();
        for (more, wanted) in [
            (json!({ "loadBalancerSourceRanges": ["192.0.2.0/24"] }), reason::SOURCE_RANGES_UNSUPPORTED),
            (json!({ "allocateLoadBalancerNodePorts": false }), reason::NODE_PORTS_REQUIRED),
            (json!({ "ipFamilies": ["IPv6"] }), reason::FAMILY_UNSUPPORTED),
            (json!({ "ports": port("SCTP") }), reason::PROTOCOL_UNSUPPORTED),
            (json!({ "ports": many }), reason::TOO_MANY_PORTS),
            (json!({ "ports": [{ "port": 443 }] }), reason::NO_NODE_PORT),
            (json!({ "ports": [{ "port": 443, "nodePort": 0 }] }), reason::NO_NODE_PORT),
            (json!({ "ports": [{ "port": 443, "nodePort": 70000 }] }), reason::NO_NODE_PORT),
        ] {
            let refused = Demand::check(&balancer(&more)).unwrap_err();
            assert_eq!(refused.reason, wanted, "{more}");
        }
    }

    #[test]
    fn what_kubernetes_fills_in_is_not_refused() {
        for more in [
            json!({ "allocateLoadBalancerNodePorts": true }),
            json!({ "loadBalancerSourceRanges": [] }),
            json!({ "ipFamilies": ["IPv6", "IPv4"] }),
            json!({ "ipFamilies": null }),
            json!({ "ports": null }),
        ] {
            assert!(Demand::check(&balancer(&more)).is_ok(), "{more}");
        }
    }

    #[test]
    fn one_number_in_tcp_and_in_udp_is_two_ports() {
        let ports = json!([
            { "name": "dns-tcp", "port": 53, "nodePort": 30053, "protocol": "TCP" },
            { "name": "dns", "port": 53, "nodePort": 30054, "protocol": "UDP" },
        ]);
        let demand =
            Demand::check(&balancer(&json!({ "ports": ports, "externalTrafficPolicy": "Local" }))).unwrap();
        let port = |name: &str, protocol, node| Port { name: name.into(), protocol, external: 53, node };
        assert_eq!(demand.ports, [port("dns-tcp", Protocol::Tcp, 30053), port("dns", Protocol::Udp, 30054)]);
        assert!(demand.local);
    }

    #[test]
    fn the_annotation_names_a_claim_and_without_one_the_service_gets_its_own() {
        let mut service = balancer(&json!({ "loadBalancerIP": "203.0.113.9" }));
        let wish = |service: &Service| Demand::check(service).unwrap().wish;
        assert_eq!(wish(&service), Wish::Own(Some(Ipv4Addr::new(203, 0, 113, 9))));
        service.annotations_mut().insert(EIP_CLAIM.into(), String::new());
        assert_eq!(wish(&service), Wish::Own(Some(Ipv4Addr::new(203, 0, 113, 9))));
        service.annotations_mut().insert(EIP_CLAIM.into(), "shop".into());
        assert_eq!(wish(&service), Wish::Named("shop".into()));
        assert_eq!(wish(&balancer(&json!({ "loadBalancerIP": "2001:db8::1" }))), Wish::Own(None));
        assert_eq!(wish(&balancer(&json!({ "loadBalancerIP": "any" }))), Wish::Own(None));
    }

    #[test]
    fn affinity_is_served_with_a_warning() {
        let demand = Demand::check(&balancer(&json!({ "sessionAffinity": "ClientIP" }))).unwrap();
        assert_eq!(demand.warnings[0].reason, reason::SESSION_AFFINITY_LIMITED);
        assert!(Demand::check(&balancer(&json!({}))).unwrap().warnings.is_empty());
    }
}
