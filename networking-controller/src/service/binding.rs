//! What becomes of an EipClaim, and of what it is used for, when nobody looks after its Service any more: the Service
//! was deleted past its finalizer, or its Cluster is gone, and the tenant's API server with it. Pure.
//!
//! Where the Service is there, its own passes do all of this, and in the same order; here nothing is done then. Where it
//! cannot be known, nothing is done either: what a Service has, it keeps for as long as its Cluster lives.

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::kube_ovn::OvnDnatRule,
    names::{CLUSTER_UID, SERVICE_UID},
    networking::{Binding, EipClaim},
};
use kube::ResourceExt;

use super::{
    change::Change,
    plan::{is_own, remove, untie},
    rules::is_of,
};

/// Whether somebody looks after a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// The Service is there, and its own passes do.
    Service,
    /// Nobody: the Service or its Cluster is gone for good.
    Nobody,
    /// The Cluster is there, and whether the Service is cannot be told now.
    Unknown,
}

/// A Service by what its traces say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Uid of its Cluster.
    pub cluster_uid: String,
    /// Its uid.
    pub service_uid: String,
    /// Namespace and name, where that is known.
    pub name: Option<(String, String)>,
}

impl Trace {
    /// The Service that an EipClaim is bound to.
    pub fn of_binding(bound: &Binding) -> Self {
        Self {
            cluster_uid: bound.cluster.uid.clone(),
            service_uid: bound.service.uid.clone(),
            name: Some((bound.service.namespace.clone(), bound.service.name.clone())),
        }
    }

    /// The Service that a rule serves, or that an EipClaim was made for.
    pub fn of_labels<K: ResourceExt>(object: &K) -> Option<Self> {
        let label = |key| object.labels().get(key).cloned();
        Some(Self { cluster_uid: label(CLUSTER_UID)?, service_uid: label(SERVICE_UID)?, name: None })
    }
}

/// Everything a pass has read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Who looks after the Service that the EipClaim is bound to; of no meaning for one that is not.
    pub bound: Keeper,
    /// Who looks after the Service that it was made for; of no meaning for one that was made by hand.
    pub made_for: Keeper,
    /// The rules that translate its address, and who looks after the Service that each serves.
    pub rules: Vec<(OvnDnatRule, Keeper)>,
    /// Whether a rule was sent that is not among those.
    pub pending: bool,
}

/// Decides what is done for want of somebody else.
pub fn plan(claim: &EipClaim, seen: &Seen, now: Timestamp) -> Vec<Change> {
    let unkept = seen.rules.iter().filter(|(_, keeper)| *keeper == Keeper::Nobody);
    let changes: Vec<Change> = unkept.filter_map(|(rule, _)| remove(rule, now)).collect();
    let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
    let own = own(claim);
    match (bound, own) {
        (Some(bound), own) if seen.bound == Keeper::Nobody => {
            let serves = |rule: &OvnDnatRule| is_of(rule, &bound.cluster.uid, &bound.service.uid);
            if seen.pending || seen.rules.iter().any(|(rule, _)| serves(rule)) {
                return changes;
            }
            let own = own.is_some_and(|own| own.service_uid == bound.service.uid);
            changes.into_iter().chain(untie(claim, true, own)).collect()
        }
        (None, Some(_)) if seen.made_for == Keeper::Nobody && seen.rules.is_empty() => {
            changes.into_iter().chain(untie(claim, false, true)).collect()
        }
        _ => changes,
    }
}

/// The Service that an EipClaim was made for.
pub fn own(claim: &EipClaim) -> Option<Trace> {
    Trace::of_labels(claim).filter(|own| is_own(claim, &own.cluster_uid, &own.service_uid))
}
