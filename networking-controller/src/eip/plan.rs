//! What an EipClaim needs now. Pure: no client, no clock, no await.

use std::net::Ipv4Addr;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kmetal_crds::{
    condition,
    foreign::kube_ovn::{OvnEip, OvnEipSpec},
    networking::{EipClaim, EipClaimStatus, reason},
};
use kube::ResourceExt;

use super::pool::{Pool, Turn, Waiter};
use crate::{
    change::{Change, Kind, Outcome, Target, guard_eip, hold, relabel, release},
    claim::{ClaimRef, Owner, identity, is_deleting, owner},
    environment::Environment,
    kube_ovn::KubeOvn,
    names,
    platform::{ProviderNetwork, State},
    teardown,
};

/// Everything a pass has read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The platform file.
    pub platform: State,
    /// Whether Kube-OVN is installed and alive.
    pub kube_ovn: KubeOvn,
    /// The claim's namespace.
    pub environment: Environment,
    /// The object that carries the OvnEip's name, whoever owns it.
    pub eip: Option<OvnEip>,
    /// The pool of the network that the claim would get an address of; none while its Subnet is not there.
    pub pool: Option<Pool>,
    /// The other claims that wait on that network.
    pub waiters: Vec<Waiter>,
    /// Provider networks that some VPC is not closed against yet.
    pub unsettled: Vec<String>,
    /// The rules that translate the address.
    pub rules: Vec<String>,
}

/// The plan of one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// The status to be, without what the binder writes.
    pub status: EipClaimStatus,
}

/// Decides everything.
pub fn plan(claim: &EipClaim, seen: &Seen, now: Timestamp) -> Plan {
    let me = ClaimRef::of(claim);
    let owner = owner(claim, seen.eip.as_ref());
    let ours = seen.eip.as_ref().filter(|_| owner == Owner::Ours);
    let mut outcome = if is_deleting(claim) {
        deletion(claim, ours, seen, now)
    } else {
        wanted(claim, &me, owner, ours, seen)
    };
    outcome.changes.splice(0..0, ours.and_then(|eip| relabel(Kind::OvnEip, eip, &me.labels(""))));
    let before: &[Condition] = claim.status.as_ref().map_or(&[], |status| &status.conditions);
    let generation = claim.metadata.generation;
    let network = ours.and_then(|eip| {
        let platform = seen.platform.as_ref().ok()?;
        Some(platform.by_external_subnet(&eip.spec.external_subnet)?.name.clone())
    });
    Plan {
        status: EipClaimStatus {
            observed_generation: generation,
            provider_network: network,
            address: ours.and_then(address).map(|address| address.to_string()),
            bound_to: None,
            identity: identity(claim, &[ours.map(|eip| &eip.metadata)]),
            conditions: condition::conditions(
                before,
                outcome.progress,
                outcome.reason,
                &outcome.message,
                generation,
                now,
            ),
        },
        changes: outcome.changes,
    }
}

/// The provider network that a claim without an OvnEip would get an address of.
pub fn network<'a>(
    claim: &EipClaim,
    tenant: Option<&'a str>,
    platform: &'a crate::platform::Platform,
) -> Option<&'a ProviderNetwork> {
    let mut open = platform.open_to(tenant?);
    match &claim.spec.provider_network {
        Some(name) => open.find(|network| network.name == *name),
        None => open.find(|network| network.default),
    }
}

fn wanted(claim: &EipClaim, me: &ClaimRef, owner: Owner, ours: Option<&OvnEip>, seen: &Seen) -> Outcome {
    let name = names::eip(&me.namespace, &me.name);
    if let KubeOvn::Missing(why) = &seen.kube_ovn {
        return Outcome::waiting(reason::KUBE_OVN_MISSING, KubeOvn::missing_message(why));
    }
    match owner {
        Owner::Foreign => {
            return Outcome::stalled(
                reason::NAME_TAKEN,
                format!(
                    "an OvnEip {name} exists that is not this claim's; it is never adopted. Give the claim another name, or ask the platform's engineers to remove that OvnEip"
                ),
            );
        }
        Owner::Previous => {
            return Outcome::waiting(
                reason::PREVIOUS_CLAIM_STILL_DELETING,
                format!("OvnEip {name} of an earlier EipClaim {} is still being removed", me.name),
            );
        }
        Owner::Absent | Owner::Ours => {}
    }
    if let Some(eip) = ours {
        return allocated(claim, eip, seen);
    }
    let Some(tenant) = &seen.environment.tenant else {
        return Outcome::stalled(
            reason::NOT_AN_ENVIRONMENT,
            format!(
                "namespace {} belongs to no Capsule Tenant; create the EipClaim in an Environment of a Tenant",
                me.namespace
            ),
        );
    };
    let platform = match &seen.platform {
        Ok(platform) => platform,
        Err(why) => {
            return Outcome::stalled(
                reason::PLATFORM_NOT_CONFIGURED,
                format!(
                    "no address is handed out, because the platform configuration of kmetal-networking is not usable; the platform's engineers must mend it: {why}"
                ),
            );
        }
    };
    let Some(network) = network(claim, Some(tenant), platform) else {
        return match &claim.spec.provider_network {
            // The same words for a network that does not exist and for one that is reserved to others.
            Some(name) => Outcome::stalled(
                reason::PROVIDER_NETWORK_NOT_FOUND,
                format!(
                    "there is no provider network '{name}' for this Tenant; ask the platform's engineers for the names, or leave providerNetwork out to take the default"
                ),
            ),
            None => Outcome::stalled(
                reason::NO_DEFAULT_PROVIDER_NETWORK,
                "the platform has no default provider network for this Tenant; set spec.providerNetwork to a name that the platform's engineers give you",
            ),
        };
    };
    if seen.unsettled.contains(&network.name) {
        return Outcome::waiting(
            reason::PROVIDER_NETWORK_SETTLING,
            format!(
                "provider network '{}' is new; its addresses are handed out as soon as every VPC is closed against it",
                network.name
            ),
        );
    }
    let Some(pool) = &seen.pool else {
        return Outcome::stalled(
            reason::PROVIDER_NETWORK_NOT_FOUND,
            format!(
                "provider network '{}' is not built: its Kube-OVN Subnet is missing; the platform's engineers must install the chart kmetal-provider-networks",
                network.name
            ),
        );
    };
    served(claim, me, &name, network, pool, seen)
}

/// A claim without an OvnEip as it waits for an address. One that had one already, before somebody deleted its OvnEip,
/// goes before all others and wants the same again: the address was promised to it until it is deleted.
pub fn waiter(claim: &EipClaim, network: &ProviderNetwork) -> Waiter {
    let asked = claim.spec.address.as_deref().and_then(|address| address.parse().ok());
    let had: Option<Ipv4Addr> = claim
        .status
        .as_ref()
        .filter(|status| status.provider_network.as_ref() == Some(&network.name))
        .and_then(|status| status.address.as_ref()?.parse().ok());
    let created = claim.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Waiter {
        created: created.filter(|_| had.is_none()),
        uid: claim.uid().unwrap_or_default(),
        wants: asked.or(had),
    }
}

fn served(
    claim: &EipClaim,
    me: &ClaimRef,
    name: &str,
    network: &ProviderNetwork,
    pool: &Pool,
    seen: &Seen,
) -> Outcome {
    let Ok(wants) = claim.spec.address.as_deref().map(str::parse::<Ipv4Addr>).transpose() else {
        return Outcome::stalled(
            reason::ADDRESS_UNAVAILABLE,
            "spec.address is not an IPv4 address; create the EipClaim anew, without to take any that is free",
        );
    };
    let mut me_waiting = waiter(claim, network);
    if wants.is_none() && me_waiting.wants.is_some_and(|had| !pool.has(had) || !pool.is_available(had)) {
        me_waiting.wants = None;
    }
    match pool.turn(&me_waiting, &seen.waiters) {
        Turn::Served => {
            let spec = OvnEipSpec {
                external_subnet: network.external_subnet.clone(),
                type_: "nat".into(),
                v4_ip: me_waiting.wants.map(|address| address.to_string()),
            };
            let mut eip = OvnEip::new(name, spec);
            eip.metadata.labels = Some(me.labels(""));
            let changes = hold(claim).into_iter().chain([Change::CreateEip(Box::new(eip))]).collect();
            Outcome::waiting(
                reason::CREATING,
                format!("OvnEip {name} is written; waiting for Kube-OVN to allocate it"),
            )
            .with(changes)
        }
        Turn::OutOfRange => Outcome::stalled(
            reason::ADDRESS_OUT_OF_RANGE,
            format!(
                "spec.address is no host address of provider network '{}' ({}); create the EipClaim anew with one that is, or without",
                network.name, pool.net
            ),
        ),
        // Whether the platform keeps it or another tenant has it is nobody's business.
        Turn::Unavailable => Outcome::stalled(
            reason::ADDRESS_UNAVAILABLE,
            "spec.address is not to be had; create the EipClaim anew with another, or without to take any that is free",
        ),
        Turn::Behind(_) => Outcome::waiting(
            reason::POOL_EXHAUSTED,
            format!(
                "provider network '{}' has no free address for this claim; it gets one as soon as enough are given back, the oldest claim first",
                network.name
            ),
        ),
    }
}

fn allocated(claim: &EipClaim, eip: &OvnEip, seen: &Seen) -> Outcome {
    let name = eip.name_any();
    if is_deleting(eip) {
        return Outcome::waiting(
            reason::CREATING,
            format!("OvnEip {name} is being removed; the claim gets another as soon as it is gone"),
        );
    }
    let ready = eip.status.as_ref().is_some_and(|status| status.ready);
    if ready && is_unnoted(eip) && seen.rules.is_empty() {
        return Outcome::waiting(
            reason::CREATING,
            format!("Kube-OVN has not noted the address of OvnEip {name}, which is made anew as soon as it is gone"),
        )
        .with(vec![Change::DeleteEip(Target::of(eip))]);
    }
    match address(eip).filter(|_| ready) {
        Some(address) => Outcome::ready(format!("{address} is this claim's until it is deleted")),
        None => seen.kube_ovn.waiting(
            reason::CREATING,
            format!("OvnEip {name} is written; waiting for Kube-OVN to allocate it"),
        ),
    }
    .with(hold(claim).into_iter().chain(guard_eip(eip)).collect())
}

fn deletion(claim: &EipClaim, ours: Option<&OvnEip>, seen: &Seen, now: Timestamp) -> Outcome {
    let gone = || {
        let message =
            format!("the address of EipClaim {} is given back; the claim is being let go", claim.name_any());
        Outcome::waiting(reason::DELETING, message).with(release(claim).into_iter().collect())
    };
    let Some(eip) = ours.filter(|_| !matches!(seen.kube_ovn, KubeOvn::Missing(_))) else { return gone() };
    if seen.environment.is_finishing() {
        return gone();
    }
    if let Some(bound) = claim.status.as_ref().and_then(|status| status.bound_to.as_ref()) {
        return Outcome::waiting(
            reason::IN_USE,
            format!(
                "EipClaim {} is kept while Service {}/{} of Cluster {} has its address; delete that Service, or make it ask for another",
                claim.name_any(),
                bound.service.namespace,
                bound.service.name,
                bound.cluster.name
            ),
        );
    }
    if let Some(rule) = seen.rules.first() {
        let what = format!("waiting for Kube-OVN to remove OvnDnatRule {rule}");
        return seen.kube_ovn.waiting(reason::DELETING, what);
    }
    if is_deleting(eip) {
        let what = format!("waiting for Kube-OVN to give back OvnEip {}", eip.name_any());
        return seen
            .kube_ovn
            .waiting(reason::DELETING, what)
            .with(teardown::nudge_eip(eip, now).into_iter().collect());
    }
    let message = format!("OvnEip {} is being removed, so that its address is free again", eip.name_any());
    Outcome::waiting(reason::DELETING, message).with(vec![Change::DeleteEip(Target::of(eip))])
}

/// Whether it is said to be ready without an address, though it has one.
///
/// Kube-OVN 1.16 writes this when it has just allocated the address and reads its own object from a cache that has not heard
/// of that yet. It never looks at it again, and no NAT rule can use such an address.
fn is_unnoted(eip: &OvnEip) -> bool {
    let noted = eip.status.as_ref().is_some_and(|status| !status.v4_ip.is_empty());
    eip.spec.v4_ip.is_some() && !noted
}

/// The address that Kube-OVN has allocated.
pub fn address(eip: &OvnEip) -> Option<Ipv4Addr> {
    let of_status = eip.status.as_ref().map(|status| status.v4_ip.as_str());
    [of_status, eip.spec.v4_ip.as_deref()].into_iter().flatten().find_map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests;
