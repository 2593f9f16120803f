//! The rules that lead the ports of one address to workers, and the writes that bring what is there in line. Pure.
//!
//! Kube-OVN does not see to it that (address, port, protocol) is unique, and cannot change a rule that is ready. Both are
//! done here: a rule is made only when no other has its port, and moving one is deleting it, waiting until it is gone,
//! and making the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::kube_ovn::{OvnDnatRule, OvnDnatRuleSpec},
    names::{CLUSTER_UID, SERVICE_UID},
    networking::service::reason,
};
use kube::ResourceExt;

use super::{
    demand::{Port, Protocol, Refused},
    network::Network,
};
use crate::{
    bound::is_torn,
    change::Change,
    claim::{ClaimRef, is_deleting},
    names, teardown,
};

/// A port of an address, as nobody else may have it.
pub type Socket = (u16, Protocol);

/// What the rules tie together.
#[derive(Clone, Copy, Debug)]
pub struct Tie<'a> {
    /// The EipClaim.
    pub claim: &'a ClaimRef,
    /// Name of its OvnEip.
    pub eip: &'a str,
    /// The way in.
    pub network: &'a Network,
    /// Uid of the Cluster.
    pub cluster_uid: &'a str,
    /// Uid of the Service.
    pub service_uid: &'a str,
}

impl Tie<'_> {
    fn holds(&self, rule: &OvnDnatRule) -> bool {
        rule.spec.ovn_eip == self.eip
            && rule.spec.vpc == self.network.vpc
            && ClaimRef::from_labels(&rule.metadata).as_ref() == Some(self.claim)
            && is_of(rule, self.cluster_uid, self.service_uid)
    }

    fn rule(&self, port: &Port, worker: Ipv4Addr, now: Timestamp) -> OvnDnatRule {
        let nth = format!("{}/{}/{worker}/{}/{now}", port.external, port.protocol.as_str(), port.node);
        let spec = OvnDnatRuleSpec {
            ovn_eip: self.eip.to_owned(),
            vpc: self.network.vpc.clone(),
            v4_ip: worker.to_string(),
            external_port: port.external.to_string(),
            internal_port: port.node.to_string(),
            protocol: port.protocol.as_str().to_owned(),
        };
        let mut rule = OvnDnatRule::new(&names::dnat(&self.claim.namespace, &self.claim.name, &nth), spec);
        let mut labels = self.claim.labels(&self.network.vpc_claim_uid);
        labels.insert(CLUSTER_UID.into(), self.cluster_uid.into());
        labels.insert(SERVICE_UID.into(), self.service_uid.into());
        rule.metadata.labels = Some(labels);
        rule
    }
}

/// Whether a rule serves that Service of that Cluster.
pub fn is_of(rule: &OvnDnatRule, cluster_uid: &str, service_uid: &str) -> bool {
    let labels = rule.labels();
    labels.get(CLUSTER_UID).is_some_and(|uid| uid == cluster_uid)
        && labels.get(SERVICE_UID).is_some_and(|uid| uid == service_uid)
}

/// Where a port is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    /// To this worker; none: nowhere.
    pub worker: Option<Ipv4Addr>,
    /// Why that is not as it should be.
    pub lacking: Option<Refused>,
}

/// What is to be done about the rules, and where they stand.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// Where they stand.
    pub state: State,
}

/// Where the rules of a Service stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Each port leads to a worker.
    Ready,
    /// Some do not yet.
    Waiting,
    /// A port cannot be served now.
    Lacking(Refused),
}

/// Decides the rules of `ports`. `rules` are all that serve the Service or use its address, `pending` the ports for which
/// one was sent that is not among them yet. `lead` says where a port is to lead, given where it leads now.
pub fn rules(
    tie: &Tie<'_>,
    ports: &[Port],
    rules: &[OvnDnatRule],
    pending: &BTreeSet<Socket>,
    lead: impl Fn(&Port, Option<Ipv4Addr>) -> Lead,
    now: Timestamp,
) -> Rules {
    let (held, others): (Vec<&OvnDnatRule>, Vec<&OvnDnatRule>) =
        rules.iter().partition(|rule| tie.holds(rule));
    let (strayed, foreign): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|rule| is_of(rule, tie.cluster_uid, tie.service_uid));
    let on_address: BTreeMap<Socket, &OvnDnatRule> = strayed
        .iter()
        .chain(&foreign)
        .filter(|rule| rule.spec.ovn_eip == tie.eip)
        .filter_map(|rule| Some((socket(rule)?, *rule)))
        .collect();
    // A port that is added goes where the others go.
    let usual = held.iter().filter(|rule| !is_deleting(**rule)).find_map(|rule| rule.spec.v4_ip.parse().ok());

    let mut changes: Vec<Change> = strayed.iter().filter_map(|rule| teardown::dnat(rule, now)).collect();
    let wanted: BTreeSet<Socket> = ports.iter().map(|port| (port.external, port.protocol)).collect();
    let unwanted = held.iter().filter(|rule| socket(rule).is_none_or(|socket| !wanted.contains(&socket)));
    changes.extend(unwanted.filter_map(|rule| teardown::dnat(rule, now)));

    let mut is_waiting = false;
    let mut lacking = None;
    for port in ports {
        let here: Vec<&OvnDnatRule> = held
            .iter()
            .copied()
            .filter(|rule| socket(rule) == Some((port.external, port.protocol)))
            .collect();
        let present = here.iter().find_map(|rule| rule.spec.v4_ip.parse().ok()).or(usual);
        let Lead { worker, lacking: lack } = lead(port, present);
        let serves = lack.is_none();
        lacking = lacking.or(lack);
        let fits = |rule: &&OvnDnatRule| {
            !is_deleting(*rule)
                && rule.spec.internal_port == port.node.to_string()
                && worker.is_some_and(|worker| rule.spec.v4_ip == worker.to_string())
        };
        let kept = here.iter().copied().find(fits);
        let name_of_kept = kept.map(ResourceExt::name_any);
        let replaced = here.iter().filter(|rule| Some(rule.name_any()) != name_of_kept);
        changes.extend(replaced.filter_map(|rule| teardown::dnat(rule, now)));
        match (kept, worker, on_address.get(&(port.external, port.protocol))) {
            (Some(rule), ..) if rule.status.as_ref().is_some_and(|status| status.ready) => {}
            (None, None, _) => {}
            (None, Some(_), Some(other))
                if ClaimRef::from_labels(&other.metadata).is_none() && !is_torn(other) =>
            {
                lacking.get_or_insert_with(|| taken(port, &other.name_any()));
            }
            (None, Some(worker), None)
                if serves && here.is_empty() && !pending.contains(&(port.external, port.protocol)) =>
            {
                is_waiting = true;
                changes.push(Change::CreateDnat(Box::new(tie.rule(port, worker, now))));
            }
            _ => is_waiting = true,
        }
    }
    let state = match lacking {
        Some(refused) => State::Lacking(refused),
        None if is_waiting => State::Waiting,
        None => State::Ready,
    };
    Rules { changes, state }
}

/// The port of the address that a rule has; none for one that is not of our making.
pub fn socket(rule: &OvnDnatRule) -> Option<Socket> {
    let protocol = match rule.spec.protocol.as_str() {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return None,
    };
    Some((rule.spec.external_port.parse().ok()?, protocol))
}

fn taken(port: &Port, rule: &str) -> Refused {
    Refused {
        reason: reason::PORT_TAKEN,
        message: format!(
            "port {} of the address is translated by OvnDnatRule {rule}, which is not kMetal's; the platform's engineers must remove it",
            port.external
        ),
    }
}

#[cfg(test)]
mod tests;
