//! To which worker a port of a public address leads. Pure.
//!
//! Kube-OVN 1.16 has one backend per rule, and changing it is deleting and creating, which cuts every connection. So the
//! choice is sticky: it moves only when the present worker can no longer serve and another can. When Kube-OVN can
//! spread over many (RouterLBRule in 1.17), this is the place.
//!
//! A Node's status is the tenant's text, the address in it too. It counts only where it lies in a subnet of the
//! Cluster's own VPC and is a machine's: then the worst that a lie does is to lead a tenant's own address to a machine of
//! their own that they reach anyway.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Node;
use kmetal_crds::networking::service::{EXCLUDE_NODE, TO_BE_DELETED};
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::claim::is_deleting;

/// A subnet of the VPC in which workers may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its network.
    pub net: Ipv4Net,
    /// The router's address in it.
    pub gateway: Option<Ipv4Addr>,
}

impl Segment {
    fn has_machine(&self, address: Ipv4Addr) -> bool {
        self.net.contains(&address)
            && address != self.net.network()
            && address != self.net.broadcast()
            && Some(address) != self.gateway
    }
}

/// A worker as its Node shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// Name of the Node.
    pub name: String,
    /// What it says its internal addresses are.
    pub addresses: Vec<Ipv4Addr>,
    /// Whether its kubelet is Ready and it is not on its way out.
    pub ready: bool,
    /// Whether new Pods may go there.
    pub schedulable: bool,
    /// Whether its owner wants no load balancer's traffic there.
    pub excluded: bool,
}

impl From<&Node> for Worker {
    fn from(node: &Node) -> Self {
        let status = node.status.clone().unwrap_or_default();
        let spec = node.spec.clone().unwrap_or_default();
        let addresses = status.addresses.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let leaves = is_deleting(node)
            || spec.taints.unwrap_or_default().iter().any(|taint| taint.key == TO_BE_DELETED);
        Self {
            name: node.name_any(),
            addresses: addresses
                .iter()
                .filter(|address| address.type_ == "InternalIP")
                .filter_map(|address| address.address.parse().ok())
                .collect(),
            ready: !leaves && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
            schedulable: !spec.unschedulable.unwrap_or_default(),
            excluded: node.labels().contains_key(EXCLUDE_NODE),
        }
    }
}

impl Worker {
    /// Its address in the VPC; the first one, where it says several.
    fn address(&self, segments: &[Segment]) -> Option<Ipv4Addr> {
        let lies_in = |address: &&Ipv4Addr| segments.iter().any(|segment| segment.has_machine(**address));
        self.addresses.iter().find(lies_in).copied()
    }
}

/// What a choice is made from.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    /// All workers of the Cluster.
    pub workers: &'a [Worker],
    /// The subnets of its VPC.
    pub segments: &'a [Segment],
    /// The Nodes that run a ready endpoint, where only those will do.
    pub endpoints: Option<&'a BTreeSet<String>>,
    /// Where the port leads now.
    pub present: Option<Ipv4Addr>,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The worker with this address.
    Serving(Ipv4Addr),
    /// No worker serves; the port is left where it leads.
    Stranded(Ipv4Addr),
    /// No worker serves, and where the port leads, if anywhere, it must not lead any more.
    Nobody,
}

/// To which worker a port leads. `seed` spreads Services over the workers.
///
/// As Kubernetes' own service controller has it: a worker that is excluded or deleted serves no more; one that is not
/// Ready, is about to be deleted, or runs no endpoint serves only while nobody else can; one that is merely cordoned goes
/// on, and is no first choice.
pub fn choose(seed: &str, field: Field<'_>) -> Choice {
    let of = |worker: &Worker| worker.address(field.segments);
    let has_endpoint = |worker: &Worker| field.endpoints.is_none_or(|nodes| nodes.contains(&worker.name));
    let serves =
        |worker: &&Worker| worker.ready && !worker.excluded && has_endpoint(worker) && of(worker).is_some();
    let present = field.present.filter(|present| {
        field.workers.iter().any(|worker| !worker.excluded && of(worker) == Some(*present))
    });
    if let Some(present) = present
        && field.workers.iter().filter(serves).any(|worker| of(worker) == Some(present))
    {
        return Choice::Serving(present);
    }
    let best = field
        .workers
        .iter()
        .filter(serves)
        .max_by_key(|worker| (worker.schedulable, Sha256::digest(format!("{seed}/{}", worker.name))));
    match (best.and_then(of), present) {
        (Some(best), _) => Choice::Serving(best),
        (None, Some(present)) => Choice::Stranded(present),
        (None, None) => Choice::Nobody,
    }
}

#[cfg(test)]
mod tests;
