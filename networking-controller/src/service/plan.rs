//! What a Service of a tenant cluster needs now. Pure: no client, no clock, no await.
//!
//! What is taken away goes in one order, and each step only when the one before is known to be done: the address out of
//! the Service's status, then the rules, then the binding, then the EipClaim if it was the Service's own. So an address
//! is free for another only when nobody shows it and nothing leads to where it led.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use k8s_openapi::{
    api::core::v1::Service,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kmetal_crds::{
    foreign::kube_ovn::{OvnDnatRule, OvnEip},
    networking::{
        EipClaim,
        service::{CLEANUP, CONDITION, reason},
    },
};
use kube::ResourceExt;

use super::{
    change::{Change, Outcome, Show},
    demand::{Demand, Refused, Wish, is_asked, is_marked, said},
    network::Network,
    rules::Socket,
    serve::{ON_ITS_WAY, serve},
    worker::Worker,
};
use crate::{
    change::{self, Target},
    claim::{ClaimRef, is_deleting},
    kube_ovn::KubeOvn,
    names, teardown,
};

/// The Cluster of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InCluster {
    /// Its Environment.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Everything a pass has read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The Cluster.
    pub cluster: InCluster,
    /// Whether Kube-OVN is installed and alive.
    pub kube_ovn: KubeOvn,
    /// The way in, or what is missing of it.
    pub network: Result<Network, Refused>,
    /// Name of the provider network of that way in; none when the platform file does not have it.
    pub provider_network: Option<String>,
    /// The EipClaim that the Service asks for.
    pub claim: Option<EipClaim>,
    /// Its OvnEip.
    pub eip: Option<OvnEip>,
    /// The EipClaims that are bound to the Service or were made for it.
    pub ties: Vec<EipClaim>,
    /// The rules that serve the Service or use that OvnEip.
    pub rules: Vec<OvnDnatRule>,
    /// Ports of the OvnEip for which a rule was sent that is not among those.
    pub pending: BTreeSet<Socket>,
    /// The workers of the Cluster; none while they are not known.
    pub workers: Option<Vec<Worker>>,
    /// By name of the port the Nodes that run a ready endpoint; none while they are not known.
    pub endpoints: Option<BTreeMap<String, BTreeSet<String>>>,
    /// Whether an EipClaim was refused by quota a moment ago.
    pub over_quota: bool,
    /// How many EipClaims that were made for Services of the Cluster have no address yet.
    pub own_waiting: usize,
}

/// The plan of one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Writes, in order, before the status.
    pub changes: Vec<Change>,
    /// The status to be; none when the Service is none of ours and nothing of it is ours.
    pub status: Option<Status>,
    /// Warnings besides.
    pub warnings: Vec<Refused>,
}

/// What of a Service's status is ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The address.
    pub show: Show,
    /// Our condition; none when the Service is ours no more.
    pub condition: Option<Condition>,
}

/// Decides everything.
pub fn plan(service: &Service, seen: &Seen, now: Timestamp) -> Plan {
    let ours = Ours { service, seen, now };
    if !is_asked(service) || is_deleting(service) {
        return ours.taken_away();
    }
    let demand = match Demand::check(service) {
        Ok(demand) => demand,
        Err(refused) => return ours.refused(refused),
    };
    if !is_marked(service) {
        // Said before anything is done: it is how a Service that has been ours is known later.
        return ours.says(Outcome::waiting(reason::CREATING, ON_ITS_WAY), Vec::new());
    }
    if let KubeOvn::Missing(_) = &seen.kube_ovn {
        let outcome = Outcome::waiting(
            reason::NETWORK_NOT_READY,
            "the platform's network is not installed; nothing can be built before the platform's engineers install it",
        );
        return ours.says(outcome.showing(ours.kept()), Vec::new());
    }
    if let Some(step) = ours.release_strays(&demand) {
        return ours.says(step, Vec::new());
    }
    let mut outcome = serve(&ours, &demand);
    let is_served =
        !outcome.changes.is_empty() || !seen.ties.is_empty() || ours.of_service().next().is_some();
    if is_served && !is_held(service) {
        outcome.changes.insert(0, Change::Hold);
    }
    let mut warnings = demand.warnings.clone();
    warnings.extend(ours.wish_ignored(&demand));
    ours.says(outcome, warnings)
}

/// One Service, with what was read for it.
pub(super) struct Ours<'a> {
    /// The Service.
    pub(super) service: &'a Service,
    /// What was read.
    pub(super) seen: &'a Seen,
    /// The clock.
    pub(super) now: Timestamp,
}

impl Ours<'_> {
    /// Its uid.
    pub(super) fn uid(&self) -> String {
        self.service.uid().unwrap_or_default()
    }

    /// Whether the EipClaim is bound to it.
    pub(super) fn has(&self, claim: &EipClaim) -> bool {
        let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
        bound.is_some_and(|bound| {
            bound.cluster.uid == self.seen.cluster.uid && bound.service.uid == self.uid()
        })
    }

    /// Whether the EipClaim was made for it.
    pub(super) fn made(&self, claim: &EipClaim) -> bool {
        is_own(claim, &self.seen.cluster.uid, &self.uid())
    }

    /// The addresses in its status.
    pub(super) fn shown(&self) -> BTreeSet<Ipv4Addr> {
        let balancer = self.service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
        ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.as_ref()?.parse().ok()).collect()
    }

    /// The address that it shows and has, for a pass that decides nothing about it.
    pub(super) fn kept(&self) -> Show {
        let shown = self.shown();
        let held = self.seen.ties.iter().filter(|claim| self.has(claim)).filter_map(address);
        held.filter(|address| shown.contains(address)).map(Show::Address).next().unwrap_or(self.wiped())
    }

    /// No address. On a Service that we have not said anything on yet, what stands there is not ours.
    pub(super) fn wiped(&self) -> Show {
        let ingress =
            self.service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
        let shows = ingress.is_some_and(|ingress| !ingress.is_empty());
        if shows && is_marked(self.service) { Show::Wipe } else { Show::Nothing }
    }

    /// The Service is deleted, or no load balancer of ours any more.
    fn taken_away(&self) -> Plan {
        if let Some(step) = self.release(|_| true, |_| true) {
            return self.says(step, Vec::new());
        }
        if !is_marked(self.service) {
            return Plan { changes: Vec::new(), status: None, warnings: Vec::new() };
        }
        let changes: Vec<Change> = is_held(self.service).then_some(Change::Release).into_iter().collect();
        // The mark goes last. A Service that is being deleted goes with its finalizer, mark and all.
        let status = (!is_deleting(self.service)).then_some(Status { show: self.wiped(), condition: None });
        Plan { changes, status, warnings: Vec::new() }
    }

    /// It asks for what there is not: it is closed, and keeps its address for when it asks for less.
    fn refused(&self, refused: Refused) -> Plan {
        let outcome = Outcome::waiting(refused.reason, refused.message)
            .showing(self.wiped())
            .with(self.of_service().filter_map(|rule| remove(rule, self.now)).collect());
        self.says(outcome, Vec::new())
    }

    /// What it has and does not ask for, or asks for no more.
    fn release_strays(&self, demand: &Demand) -> Option<Outcome> {
        let wanted = self.seen.claim.as_ref().map(ClaimRef::of);
        let is_wanted = |claim: &EipClaim| {
            let misplaced = matches!(demand.wish, Wish::Own(_)) && self.is_misplaced(claim);
            Some(ClaimRef::of(claim)) == wanted && !misplaced
        };
        let leads_elsewhere = |rule: &OvnDnatRule| ClaimRef::from_labels(&rule.metadata) != wanted;
        self.release(|claim| !is_wanted(claim), leads_elsewhere)
    }

    /// Whether an EipClaim that was made for it is of another provider network than the way in.
    fn is_misplaced(&self, claim: &EipClaim) -> bool {
        let (Some(status), Some(network)) = (&claim.status, &self.seen.provider_network) else {
            return false;
        };
        self.seen.network.is_ok() && status.provider_network.as_ref().is_some_and(|has| has != network)
    }

    /// The next step of taking these EipClaims and rules from it; none when it has none of them.
    fn release(
        &self,
        claims: impl Fn(&EipClaim) -> bool,
        rules: impl Fn(&OvnDnatRule) -> bool,
    ) -> Option<Outcome> {
        let ties: Vec<&EipClaim> = self
            .seen
            .ties
            .iter()
            .filter(|claim| claims(claim) && (self.has(claim) || (self.made(claim) && !is_deleting(*claim))))
            .collect();
        let rules: Vec<&OvnDnatRule> = self.of_service().filter(|rule| rules(rule)).collect();
        if ties.is_empty() && rules.is_empty() {
            return None;
        }
        let outcome = Outcome::waiting(reason::RELEASING, "the address is being taken from the Service");
        let is_said = said(self.service).is_some_and(|condition| condition.reason == reason::RELEASING);
        if !is_said || self.wiped() == Show::Wipe {
            // Nothing else before the Service itself says so: its status is written after the changes.
            return Some(outcome.showing(self.wiped()));
        }
        let changes = if rules.is_empty() {
            ties.into_iter().flat_map(|claim| untie(claim, self.has(claim), self.made(claim))).collect()
        } else {
            rules.into_iter().filter_map(|rule| remove(rule, self.now)).collect()
        };
        Some(outcome.with(changes))
    }

    /// The rules that serve it.
    pub(super) fn of_service(&self) -> impl Iterator<Item = &OvnDnatRule> {
        let uid = self.uid();
        self.seen.rules.iter().filter(move |rule| super::rules::is_of(rule, &self.seen.cluster.uid, &uid))
    }

    /// `spec.loadBalancerIP`, where the Service has another address.
    fn wish_ignored(&self, demand: &Demand) -> Option<Refused> {
        let spec = self.service.spec.as_ref()?;
        let wish: Ipv4Addr = spec.load_balancer_ip.as_deref()?.parse().ok()?;
        let has = self.seen.claim.as_ref().and_then(address)?;
        let remedy = match demand.wish {
            Wish::Named(_) => "the EipClaim that the Service names decides; remove the field",
            Wish::Own(_) => {
                "it counts only when the Service gets its address; delete the Service and create it anew"
            }
        };
        (wish != has).then(|| Refused {
            reason: reason::LOAD_BALANCER_IP_IGNORED,
            message: format!("spec.loadBalancerIP says {wish}, the Service has {has}: {remedy}"),
        })
    }

    fn says(&self, outcome: Outcome, warnings: Vec<Refused>) -> Plan {
        let Outcome { changes, show, ready, reason, message } = outcome;
        let status = if ready { "True" } else { "False" };
        let before = said(self.service).filter(|before| before.status == status);
        let whole = Timestamp::from_second(self.now.as_second()).unwrap_or(self.now);
        let condition = Condition {
            type_: CONDITION.into(),
            status: status.into(),
            reason: reason.into(),
            message,
            observed_generation: None,
            last_transition_time: before.map_or(Time(whole), |before| before.last_transition_time.clone()),
        };
        Plan { changes, status: Some(Status { show, condition: Some(condition) }), warnings }
    }
}

/// Whether the EipClaim was made for that Service. By name as well: its owner can write labels.
pub fn is_own(claim: &EipClaim, cluster_uid: &str, service_uid: &str) -> bool {
    let labels = claim.labels();
    claim.name_any() == names::own_claim(service_uid)
        && labels.get(kmetal_crds::names::CLUSTER_UID).is_some_and(|uid| uid == cluster_uid)
        && labels.get(kmetal_crds::names::SERVICE_UID).is_some_and(|uid| uid == service_uid)
}

/// The writes that let an EipClaim go: the binding first, then the claim if it was made for the Service.
pub fn untie(claim: &EipClaim, bound: bool, own: bool) -> Vec<Change> {
    let unbind = bound.then(|| Change::Unbind(Box::new(claim.clone())));
    let delete = (own && !is_deleting(claim)).then(|| Change::DeleteClaim(Target::of(claim)));
    unbind.into_iter().chain(delete).collect()
}

/// The address of an EipClaim.
pub fn address(claim: &EipClaim) -> Option<Ipv4Addr> {
    claim.status.as_ref()?.address.as_ref()?.parse().ok()
}

/// The write that brings a rule down, when it is time for one.
pub(super) fn remove(rule: &OvnDnatRule, now: Timestamp) -> Option<Change> {
    teardown::dnat(rule, now).map(Change::Under)
}

fn is_held(service: &Service) -> bool {
    service.finalizers().iter().any(|finalizer| finalizer == CLEANUP)
}

/// A change of an object of the under cluster.
impl From<change::Change> for Change {
    fn from(change: change::Change) -> Self {
        Self::Under(change)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
