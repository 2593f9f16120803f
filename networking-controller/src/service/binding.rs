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

#[cfg(test)]
mod tests {
    use kmetal_crds::{
        foreign::kube_ovn::{OvnDnatRuleSpec, OvnDnatRuleStatus},
        networking::{BoundCluster, BoundService, EipClaimSpec, EipClaimStatus},
    };

    use super::*;
    use crate::{change::Change::DeleteDnat, names};

    fn binding(service_uid: &str) -> Binding {
        let service = BoundService { uid: service_uid.into(), ..BoundService::default() };
        Binding { cluster: BoundCluster { uid: "blue".into(), ..BoundCluster::default() }, service }
    }

    fn claim(bound: Option<&str>) -> EipClaim {
        let mut claim = EipClaim::new("shop", EipClaimSpec::default());
        claim.metadata.uid = Some("uid-shop".into());
        claim.status = Some(EipClaimStatus { bound_to: bound.map(binding), ..EipClaimStatus::default() });
        claim
    }

    fn own_of(service_uid: &str, bound: bool) -> EipClaim {
        let mut own = claim(bound.then_some(service_uid));
        own.metadata.name = Some(names::own_claim(service_uid));
        own.labels_mut().insert(CLUSTER_UID.into(), "blue".into());
        own.labels_mut().insert(SERVICE_UID.into(), service_uid.into());
        own
    }

    fn rule(name: &str, service_uid: &str) -> OvnDnatRule {
        let mut rule = OvnDnatRule::new(name, OvnDnatRuleSpec::default());
        rule.status = Some(OvnDnatRuleStatus { ready: true });
        rule.labels_mut().insert(CLUSTER_UID.into(), "blue".into());
        rule.labels_mut().insert(SERVICE_UID.into(), service_uid.into());
        rule
    }

    fn seen(keeper: Keeper, rules: Vec<(OvnDnatRule, Keeper)>) -> Seen {
        Seen { bound: keeper, made_for: keeper, rules, pending: false }
    }

    fn words(claim: &EipClaim, seen: &Seen) -> Vec<String> {
        let word = |change: &Change| match change {
            Change::Under(DeleteDnat(target)) => format!("unlead {}", target.name),
            Change::Unbind(_) => "unbind".into(),
            Change::DeleteClaim(_) => "delete".into(),
            other => panic!("{other:?}"),
        };
        plan(claim, seen, Timestamp::from_second(1_000).unwrap()).iter().map(word).collect()
    }

    #[test]
    fn what_a_service_left_goes_rules_first() {
        let rules = || vec![(rule("a", "1"), Keeper::Nobody), (rule("b", "1"), Keeper::Nobody)];
        let named = claim(Some("1"));
        assert_eq!(words(&named, &seen(Keeper::Nobody, rules())), ["unlead a", "unlead b"]);
        assert_eq!(words(&named, &seen(Keeper::Nobody, vec![])), ["unbind"]);
        assert_eq!(words(&own_of("1", true), &seen(Keeper::Nobody, vec![])), ["unbind", "delete"]);
        assert_eq!(words(&own_of("1", false), &seen(Keeper::Nobody, vec![])), ["delete"]);
    }

    #[test]
    fn a_rule_that_may_be_under_way_keeps_the_binding() {
        let seen = Seen { pending: true, ..seen(Keeper::Nobody, vec![]) };
        assert_eq!(words(&claim(Some("1")), &seen), [""; 0]);
    }

    #[test]
    fn nothing_is_done_for_a_service_that_is_there_or_may_be() {
        for keeper in [Keeper::Service, Keeper::Unknown] {
            let rules = vec![(rule("a", "1"), keeper)];
            for claim in [claim(Some("1")), own_of("1", true), own_of("1", false)] {
                assert_eq!(words(&claim, &seen(keeper, rules.clone())), [""; 0], "{keeper:?}");
                assert_eq!(words(&claim, &seen(keeper, vec![])), [""; 0], "{keeper:?}");
            }
        }
    }

    #[test]
    fn a_rule_that_was_left_goes_beside_one_that_serves() {
        let rules = vec![(rule("old", "1"), Keeper::Nobody), (rule("new", "2"), Keeper::Service)];
        assert_eq!(words(&claim(Some("2")), &seen(Keeper::Service, rules)), ["unlead old"]);
    }

    #[test]
    fn a_claim_that_its_owner_labelled_is_not_one_that_was_made() {
        let mut named = claim(None);
        named.labels_mut().insert(CLUSTER_UID.into(), "blue".into());
        named.labels_mut().insert(SERVICE_UID.into(), "1".into());
        assert_eq!(words(&named, &seen(Keeper::Nobody, vec![])), [""; 0]);
    }
}
