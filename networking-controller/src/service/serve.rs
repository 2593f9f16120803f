//! A Service that asks for an address and may have one: its EipClaim, the binding, the rules. Pure.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kmetal_crds::{
    condition::{self, READY},
    foreign::{capi::Cluster, kube_ovn::OvnEip},
    names::{CLUSTER_UID, SERVICE, SERVICE_UID},
    networking::{
        Binding, BoundCluster, BoundService, EipClaim, EipClaimSpec,
        service::{EXCLUDE_NODE, reason},
    },
};
use kube::{Resource, ResourceExt};

use super::{
    change::{Change, Outcome},
    demand::{Demand, Port, Refused, Wish},
    network::{Network, shown},
    plan::{Ours, address, remove},
    rules::{self, Lead, Rules, State, Tie},
    worker::{Choice, Field, choose},
};
use crate::{
    claim::{ClaimRef, is_deleting},
    kube_ovn::KubeOvn,
    names,
};

/// What is said as long as nothing is amiss: the same words, so that each step is not a write.
pub(super) const ON_ITS_WAY: &str = "an address is on its way to the Service";

/// EipClaims that are made for the Services of one Cluster while so many of its others have no address yet: the rest
/// wait without one, so that a Cluster cannot queue thousands.
pub(super) const MOST_WAITING: usize = 16;

/// Decides what the Service gets.
pub(super) fn serve(ours: &Ours<'_>, demand: &Demand) -> Outcome {
    let not = |reason, message: String| Outcome::waiting(reason, message).showing(ours.kept());
    let network = match &ours.seen.network {
        Ok(network) => network,
        Err(missing) => return not(missing.reason, missing.message.clone()),
    };
    let Some(claim) = &ours.seen.claim else { return without_claim(ours, demand) };
    let name = claim.name_any();
    if !ours.has(claim) {
        if let Some(bound) = claim.status.as_ref().and_then(|status| status.bound_to.as_ref()) {
            return not(reason::EIP_CLAIM_IN_USE, in_use(ours, &name, bound));
        }
        if is_deleting(claim) {
            return not(
                reason::EIP_CLAIM_DELETING,
                format!("EipClaim {name} is being deleted; name another, or create it anew when it is gone"),
            );
        }
    }
    let eip = ours.seen.eip.as_ref();
    if eip.is_some_and(is_deleting) {
        // Whoever deletes it has it wait for the rules; they are of no use any more.
        let message = format!("the address of EipClaim {name} is being taken back by the platform");
        return closed(ours, reason::EIP_CLAIM_NOT_READY, message);
    }
    let (Some(eip), Some(address)) = (eip, address(claim).filter(|_| is_ready(claim))) else {
        return not(reason::EIP_CLAIM_NOT_READY, no_address(claim));
    };
    if eip.spec.external_subnet != network.external_subnet {
        let message = format!(
            "the address of EipClaim {name} is of another provider network than the one by which the Cluster's VPC leaves; name an EipClaim of that network"
        );
        return closed(ours, reason::WRONG_PROVIDER_NETWORK, message);
    }
    bound(ours, demand, claim, (eip, address, network))
}

/// The Service has the address, or can have it now.
fn bound(
    ours: &Ours<'_>,
    demand: &Demand,
    claim: &EipClaim,
    (eip, address, network): (&OvnEip, Ipv4Addr, &Network),
) -> Outcome {
    let seen = ours.seen;
    let uid = ours.uid();
    let tie = Tie {
        claim: &ClaimRef::of(claim),
        eip: &eip.name_any(),
        network,
        cluster_uid: &seen.cluster.uid,
        service_uid: &uid,
    };
    let lead = |port: &Port, present| lead(ours, demand, network, port, present);
    let Rules { changes, state } =
        rules::rules(&tie, &demand.ports, &seen.rules, &seen.pending, lead, ours.now);
    let bind = (!ours.has(claim)).then(|| Change::Bind(Box::new(claim.clone()), binding(ours)));
    let is_bound = bind.is_none();
    let changes = bind.into_iter().chain(changes.into_iter().map(Change::Under)).collect();
    let is_shown = is_bound && ours.shown().contains(&address);
    let progress = if is_shown { reason::UPDATING } else { reason::CREATING };
    let outcome = match state {
        State::Ready if is_bound => Outcome::ready(reason::READY, leads(demand, claim, address)),
        State::Waiting if matches!(seen.kube_ovn, KubeOvn::Silent(_)) => Outcome::waiting(
            progress,
            "the platform's network is not running; the platform's engineers must start it",
        ),
        State::Waiting if is_shown => {
            Outcome::waiting(progress, format!("not every port of {address} leads to a worker yet"))
        }
        State::Ready | State::Waiting => Outcome::waiting(progress, ON_ITS_WAY),
        State::Lacking(lack) => Outcome::waiting(lack.reason, lack.message),
    };
    let show = if is_shown || outcome.ready { super::change::Show::Address(address) } else { ours.wiped() };
    outcome.showing(show).with(changes)
}

fn lead(ours: &Ours<'_>, demand: &Demand, network: &Network, port: &Port, present: Option<Ipv4Addr>) -> Lead {
    let seen = ours.seen;
    let unknown = |what: &str| Lead {
        worker: present,
        lacking: Some(Refused {
            reason: reason::NO_WORKER,
            message: format!("the {what} of the Cluster cannot be read now; what is there stays as it is"),
        }),
    };
    let Some(workers) = &seen.workers else { return unknown("Nodes") };
    let nowhere = std::collections::BTreeSet::new();
    let endpoints = match &seen.endpoints {
        _ if !demand.local => None,
        None => return unknown("EndpointSlices"),
        Some(by_port) => Some(by_port.get(&port.name).unwrap_or(&nowhere)),
    };
    let spread = ours.uid();
    let field = Field { workers, segments: &network.segments, endpoints, present };
    let lack = || {
        let elsewhere = choose(&spread, Field { endpoints: None, ..field });
        if endpoints.is_some() && matches!(elsewhere, Choice::Serving(_)) {
            Refused {
                reason: reason::NO_READY_ENDPOINT,
                message: format!(
                    "externalTrafficPolicy is Local, and no worker that may take port {} runs a ready endpoint of the Service",
                    port.external
                ),
            }
        } else {
            Refused {
                reason: reason::NO_WORKER,
                message: format!(
                    "no worker can take port {}: none is Ready, with an internal IPv4 address in a subnet of the Cluster's VPC, and without the label {EXCLUDE_NODE}; see the Nodes",
                    port.external
                ),
            }
        }
    };
    match choose(&spread, field) {
        Choice::Serving(worker) => Lead { worker: Some(worker), lacking: None },
        Choice::Stranded(worker) => Lead { worker: Some(worker), lacking: Some(lack()) },
        Choice::Nobody => Lead { worker: None, lacking: Some(lack()) },
    }
}

fn without_claim(ours: &Ours<'_>, demand: &Demand) -> Outcome {
    let seen = ours.seen;
    let wish = match &demand.wish {
        Wish::Named(name) => {
            let message = format!(
                "there is no EipClaim '{}' in the Environment of Cluster {}; create it there, name another, or remove the annotation to get one made",
                shown(name),
                seen.cluster.name
            );
            return Outcome::waiting(reason::EIP_CLAIM_NOT_FOUND, message).showing(ours.kept());
        }
        Wish::Own(wish) => wish,
    };
    let not = |reason, message: String| Outcome::waiting(reason, message).showing(ours.wiped());
    let Some(provider_network) = &seen.provider_network else {
        return not(
            reason::NETWORK_NOT_READY,
            "the platform's configuration does not have the provider network of the Cluster's VPC; the platform's engineers must mend it".into(),
        );
    };
    if seen.over_quota {
        return not(
            reason::QUOTA_EXCEEDED,
            "the quota of the Cluster's Environment allows no further EipClaim; delete one there, name one that is free, or ask the platform's engineers for more".into(),
        );
    }
    if seen.own_waiting >= MOST_WAITING {
        return not(
            reason::EIP_CLAIM_NOT_READY,
            format!(
                "{} other Services of the Cluster wait for an address; wait until they have one",
                seen.own_waiting
            ),
        );
    }
    let spec = EipClaimSpec {
        provider_network: Some(provider_network.clone()),
        address: wish.map(|address| address.to_string()),
    };
    let mut claim = EipClaim::new(&names::own_claim(&ours.uid()), spec);
    claim.metadata.namespace = Some(seen.cluster.namespace.clone());
    claim.metadata.labels = Some(BTreeMap::from([
        (CLUSTER_UID.into(), seen.cluster.uid.clone()),
        (SERVICE_UID.into(), ours.uid()),
    ]));
    let service = format!("{}/{}", ours.service.namespace().unwrap_or_default(), ours.service.name_any());
    claim.metadata.annotations = Some(BTreeMap::from([(SERVICE.into(), service)]));
    claim.metadata.owner_references = Some(vec![OwnerReference {
        api_version: Cluster::api_version(&()).into_owned(),
        kind: Cluster::kind(&()).into_owned(),
        name: seen.cluster.name.clone(),
        uid: seen.cluster.uid.clone(),
        ..OwnerReference::default()
    }]);
    not(reason::CREATING, ON_ITS_WAY.into()).with(vec![Change::CreateClaim(Box::new(claim))])
}

/// The address leads nowhere any more, and nobody is told of it.
fn closed(ours: &Ours<'_>, reason: &'static str, message: String) -> Outcome {
    let changes = ours.of_service().filter_map(|rule| remove(rule, ours.now)).collect();
    Outcome::waiting(reason, message).showing(ours.wiped()).with(changes)
}

fn binding(ours: &Ours<'_>) -> Binding {
    let cluster = &ours.seen.cluster;
    Binding {
        cluster: BoundCluster { name: cluster.name.clone(), uid: cluster.uid.clone() },
        service: BoundService {
            namespace: ours.service.namespace().unwrap_or_default(),
            name: ours.service.name_any(),
            uid: ours.uid(),
        },
    }
}

fn is_ready(claim: &EipClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| {
        // A claim that is being deleted and waits for its Service is not Ready, and its address still is the Service's.
        condition::is_true(&status.conditions, READY) || is_deleting(claim)
    })
}

/// Services of other Clusters are not named: who sees this Service need not see theirs.
fn in_use(ours: &Ours<'_>, claim: &str, bound: &Binding) -> String {
    let who = if bound.cluster.uid == ours.seen.cluster.uid {
        format!("Service {}/{}", bound.service.namespace, bound.service.name)
    } else {
        "a Service of another Cluster of the Environment".to_owned()
    };
    format!(
        "the address of EipClaim {claim} belongs to {who}; name another EipClaim, or remove the annotation to get one made"
    )
}

fn no_address(claim: &EipClaim) -> String {
    let conditions = claim.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    let why = condition::get(conditions, READY)
        .map_or("it has not been looked at yet", |ready| ready.message.as_str());
    format!("EipClaim {} has no address yet: {why}", claim.name_any())
}

fn leads(demand: &Demand, claim: &EipClaim, address: Ipv4Addr) -> String {
    let family = if demand.dual_stack { ", in IPv4 only" } else { "" };
    let ports = demand.ports.len();
    let plural = if ports == 1 { "" } else { "s" };
    format!("{address} of EipClaim {} leads to the Service: {ports} port{plural}{family}", claim.name_any())
}
