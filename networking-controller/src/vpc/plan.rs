//! What a VpcClaim needs now. Pure: no client, no clock, no await.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kmetal_crds::{
    condition::{self, Progress},
    foreign::kube_ovn::{OvnEip, Vpc, VpcSpec},
    networking::{EgressStatus, VpcClaim, VpcClaimStatus, reason},
};
use kube::ResourceExt;

use super::{
    deletion::deletion,
    egress::{self, Refusal, Surroundings, WayOut},
    mend,
};
use crate::{
    change::{Change, Kind, Outcome, hold, relabel},
    claim::{ClaimRef, Owner, identity, is_deleting, owner},
    environment::Environment,
    isolation,
    kube_ovn::KubeOvn,
    names,
    platform::{Platform, ProviderNetwork, State},
    teardown,
};

/// Everything a pass has read. Absence is a fact, not an error.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The platform file.
    pub platform: State,
    /// The last platform file that could be used.
    pub last_good: Option<Arc<Platform>>,
    /// Whether Kube-OVN is installed and alive.
    pub kube_ovn: KubeOvn,
    /// The claim's namespace.
    pub environment: Environment,
    /// The object that carries the Vpc's name, whoever owns it.
    pub vpc: Option<Vpc>,
    /// The router's own addresses.
    pub router_eips: Vec<OvnEip>,
    /// Subnets in the VPC: the SubnetClaim's name, or none when that claim is gone.
    pub subnets: Vec<Option<String>>,
    /// NAT rules in the VPC.
    pub nat_rules: Vec<String>,
    /// EipClaims that are bound to Services behind the VPC.
    pub bound: Vec<String>,
    /// Provider networks that some other VPC is not closed against yet.
    pub unsettled: Vec<String>,
    /// Whether a node is a gateway.
    pub gateway_nodes: bool,
    /// For how long the Vpc has been attached without its router's address, which somebody has deleted, with no source
    /// NAT rule left that uses it.
    pub address_lost: Option<Duration>,
    /// Whether the address that the router is to have again is to be had.
    pub address_free: bool,
}

/// The plan of one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// The whole status to be.
    pub status: VpcClaimStatus,
}

/// Decides everything.
pub fn plan(claim: &VpcClaim, seen: &Seen, now: Timestamp) -> Plan {
    let me = ClaimRef::of(claim);
    let owner = owner(claim, seen.vpc.as_ref());
    let ours = seen.vpc.as_ref().filter(|_| owner == Owner::Ours);
    let mut outcome = if is_deleting(claim) {
        deletion(claim, ours, seen, now)
    } else {
        wanted(claim, &me, owner, ours, seen, now)
    };
    let labels = ours.and_then(|vpc| relabel(Kind::Vpc, vpc, &me.labels(&me.uid)));
    outcome.changes.splice(0..0, labels);
    let before: &[Condition] = claim.status.as_ref().map_or(&[], |status| &status.conditions);
    let generation = claim.metadata.generation;
    Plan {
        status: VpcClaimStatus {
            observed_generation: generation,
            vpc: ours.map(ResourceExt::name_any),
            egress: ours.and_then(|vpc| egress_status(claim, vpc, seen)),
            subnets: ours.map(|_| i32::try_from(seen.subnets.len()).unwrap_or(i32::MAX)),
            bound_addresses: ours.map(|_| i32::try_from(seen.bound.len()).unwrap_or(i32::MAX)),
            identity: identity(claim, &[ours.map(|vpc| &vpc.metadata)]),
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

fn wanted(
    claim: &VpcClaim,
    me: &ClaimRef,
    owner: Owner,
    ours: Option<&Vpc>,
    seen: &Seen,
    now: Timestamp,
) -> Outcome {
    let name = names::vpc(&me.namespace, &me.name);
    if let KubeOvn::Missing(why) = &seen.kube_ovn {
        return Outcome::waiting(reason::KUBE_OVN_MISSING, KubeOvn::missing_message(why));
    }
    match owner {
        Owner::Foreign => {
            return Outcome::stalled(
                reason::NAME_TAKEN,
                format!(
                    "a Vpc {name} exists that is not this claim's; it is never adopted. Give the claim another name, or ask the platform's engineers to remove that Vpc"
                ),
            );
        }
        Owner::Previous => {
            return Outcome::waiting(
                reason::PREVIOUS_CLAIM_STILL_DELETING,
                format!(
                    "Vpc {name} of an earlier VpcClaim {} is still being removed; SubnetClaims of that VPC must go first",
                    me.name
                ),
            );
        }
        Owner::Absent | Owner::Ours => {}
    }
    if ours.is_some_and(is_deleting) && seen.subnets.is_empty() {
        return Outcome::waiting(
            reason::CREATING,
            format!("Vpc {name} is being deleted by somebody else; it is made again as soon as it is gone"),
        );
    }
    let platform = match &seen.platform {
        Ok(platform) => platform,
        Err(why) => return without_platform(claim, ours, seen, why),
    };
    let Some(tenant) = &seen.environment.tenant else {
        if let Some(vpc) = ours {
            return confirmed(vpc, attached_network(vpc, platform), seen)
                .with(teardown::keep_closed(me, vpc, Some(platform)).into_iter().collect());
        }
        return Outcome::stalled(
            reason::NOT_AN_ENVIRONMENT,
            format!(
                "namespace {} belongs to no Capsule Tenant; create the VpcClaim in an Environment of a Tenant",
                me.namespace
            ),
        );
    };
    let around = Surroundings { tenant, platform, vpc: ours, nat_rules: &seen.nat_rules, bound: &seen.bound };
    let way_out = match egress::choose(&claim.spec, &around) {
        WayOut::Through(network)
            if egress::attached(ours).is_none() && seen.unsettled.contains(&network.name) =>
        {
            WayOut::AsIs(Refusal {
                progress: Progress::Waiting,
                reason: reason::PROVIDER_NETWORK_SETTLING,
                message: format!(
                    "provider network '{}' is new; wait: its addresses are handed out as soon as every VPC is closed against it",
                    network.name
                ),
            })
        }
        other => other,
    };
    match ours {
        None => creation(claim, me, &name, platform, way_out),
        Some(vpc) => mend::way_out(claim, vpc, platform, &way_out, (seen, now))
            .unwrap_or_else(|| update(claim, vpc, platform, way_out, (seen, now))),
    }
}

fn creation(
    claim: &VpcClaim,
    me: &ClaimRef,
    name: &str,
    platform: &Platform,
    way_out: WayOut<'_>,
) -> Outcome {
    let network = match way_out {
        WayOut::Closed => None,
        WayOut::Through(network) => Some(network),
        WayOut::AsIs(refusal) => return refused(refusal),
    };
    // One that somebody deleted gets the address back that it had.
    let address = network.and_then(|network| mend::remembered(claim, network));
    let mut vpc = Vpc::new(name, isolation::vpc_spec(platform, network.filter(|_| address.is_none())));
    vpc.metadata.labels = Some(me.labels(&me.uid));
    vpc.metadata.annotations = address.map(|address| mend::keeps(Some(address)));
    let message = format!("Vpc {name} is written; waiting for Kube-OVN to build it");
    Outcome::waiting(reason::CREATING, message).with(held(claim, Change::CreateVpc(Box::new(vpc))))
}

fn update(
    claim: &VpcClaim,
    vpc: &Vpc,
    platform: &Platform,
    way_out: WayOut<'_>,
    (seen, now): (&Seen, Timestamp),
) -> Outcome {
    let mut annotations = None;
    let (spec, network, refusal) = match way_out {
        WayOut::Closed => (isolation::vpc_spec(platform, None), None, None),
        WayOut::Through(network) => (isolation::vpc_spec(platform, Some(network)), Some(network), None),
        WayOut::AsIs(refusal) => {
            annotations = mend::kept(vpc);
            (isolation::keeping_egress(platform, &vpc.spec), attached_network(vpc, platform), Some(refusal))
        }
    };
    if let Some(eip) = mend::forgotten(claim, vpc, &spec, seen, now) {
        let message = format!(
            "Kube-OVN has kept {} of a way out that was withdrawn; Vpc {} is attached once more, so that it is given back",
            eip.name_any(),
            vpc.name_any()
        );
        return Outcome::waiting(reason::UPDATING, message)
            .with(held(claim, teardown::reattach(&ClaimRef::of(claim), vpc, eip)));
    }
    let rewrite = !isolation::same(&vpc.spec, &spec) || mend::kept(vpc) != annotations;
    let moves_egress = egress_of(&vpc.spec) != egress_of(&spec);
    let mut outcome = match refusal {
        Some(refusal) => refused(refusal),
        None if moves_egress => Outcome::waiting(
            reason::UPDATING,
            format!(
                "Vpc {} is rewritten; waiting for Kube-OVN to {} its way out",
                vpc.name_any(),
                if spec.enable_external { "attach" } else { "withdraw" }
            ),
        ),
        None => confirmed(vpc, network, seen),
    };
    let mut changes = held(claim, None);
    if rewrite {
        let next = isolation::next_write(&vpc.spec, spec);
        let mut object = teardown::rewritten(&ClaimRef::of(claim), vpc, next);
        object.metadata.annotations = annotations;
        changes.push(Change::UpdateVpc(Box::new(object)));
    }
    outcome.changes = changes;
    outcome
}

/// Whether Kube-OVN has confirmed what is written.
fn confirmed(vpc: &Vpc, network: Option<&ProviderNetwork>, seen: &Seen) -> Outcome {
    let name = vpc.name_any();
    let status = vpc.status.clone().unwrap_or_default();
    let waits = |what: String| seen.kube_ovn.waiting(reason::CREATING, what);
    if !status.standby {
        return waits(format!("Vpc {name} is written; waiting for Kube-OVN to build it"));
    }
    match network {
        Some(network) => {
            let attached =
                status.enable_external && status.extra_external_subnets.contains(&network.external_subnet);
            let address = seen.router_eips.iter().any(|eip| {
                eip.spec.external_subnet == network.external_subnet
                    && eip.status.as_ref().is_some_and(|s| s.ready)
            });
            if !attached || !address {
                if !seen.gateway_nodes {
                    return Outcome::stalled(
                        reason::NO_GATEWAY_NODE,
                        format!(
                            "no node of the under cluster carries provider network '{}'; the platform's engineers must label nodes {} or {}",
                            network.name,
                            kmetal_crds::names::ROLE_NETWORK,
                            kmetal_crds::names::ROLE_CONTROL_PLANE
                        ),
                    );
                }
                return waits(format!(
                    "Vpc {name} is written; waiting for Kube-OVN to attach it to provider network '{}'",
                    network.name
                ));
            }
        }
        None if status.enable_external || !seen.router_eips.is_empty() => {
            return waits(format!("Vpc {name} is written; waiting for Kube-OVN to withdraw its way out"));
        }
        None => {}
    }
    let out = network.map_or_else(
        || "it has no way out".to_owned(),
        |network| format!("it leaves through provider network '{}'", network.name),
    );
    // A fresh Vpc has generation 1 and Kube-OVN does not write into its spec, so a later one is a rewrite of ours.
    let isolation = if vpc.metadata.generation.unwrap_or(1) > 1 {
        "its isolation was rewritten since it was made, and Kube-OVN gives no confirmation of a rewrite"
    } else {
        "its isolation is in place"
    };
    Outcome::ready(format!("Vpc {name} is built: {out}, {isolation}{}", mend::marked(vpc, seen)))
}

fn without_platform(claim: &VpcClaim, ours: Option<&Vpc>, seen: &Seen, why: &str) -> Outcome {
    let made = ours.map_or_else(
        || "no Vpc is made".to_owned(),
        |vpc| format!("Vpc {} keeps the isolation that it has and is not changed", vpc.name_any()),
    );
    let message = format!(
        "{made}, because the platform configuration of kmetal-networking is not usable; the platform's engineers must mend it: {why}"
    );
    let me = ClaimRef::of(claim);
    let closed = ours.and_then(|vpc| teardown::keep_closed(&me, vpc, seen.last_good.as_deref()));
    // Ready says that the claim has what it asks for, and that nothing is open: without a file only a Vpc that has
    // drops at all, and needs none of the last file's again, can be believed.
    let as_asked = ours.is_some_and(|vpc| {
        vpc.status.as_ref().is_some_and(|status| status.standby)
            && vpc.spec.enable_external == claim.spec.egress.is_some()
            && isolation::is_closed(&vpc.spec)
            && closed.is_none()
    });
    let outcome = if as_asked {
        Outcome::ready(message)
    } else {
        Outcome::stalled(reason::PLATFORM_NOT_CONFIGURED, message)
    };
    outcome.with(closed.into_iter().collect())
}

fn egress_status(claim: &VpcClaim, vpc: &Vpc, seen: &Seen) -> Option<EgressStatus> {
    let subnet = egress::attached(Some(vpc))?;
    let network = seen.platform.as_ref().ok().and_then(|platform| platform.by_external_subnet(subnet));
    let eip = seen.router_eips.iter().find(|eip| eip.spec.external_subnet == subnet);
    let address = eip.and_then(|eip| eip.status.as_ref()).filter(|status| status.ready).map(|status| {
        let parts = [status.v4_ip.as_str(), status.v6_ip.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(",")
    });
    let provider_network = network.map_or_else(|| subnet.to_owned(), |network| network.name.clone());
    // Where the OvnEip has gone under an attached Vpc, this is all that remembers which address to ask for again.
    let had = || {
        let had = claim.status.as_ref()?.egress.as_ref()?;
        had.address.clone().filter(|_| eip.is_none() && had.provider_network == provider_network)
    };
    let address = address.filter(|address| !address.is_empty()).or_else(had);
    Some(EgressStatus { provider_network, address })
}

fn attached_network<'a>(vpc: &Vpc, platform: &'a Platform) -> Option<&'a ProviderNetwork> {
    platform.by_external_subnet(egress::attached(Some(vpc))?)
}

fn egress_of(spec: &VpcSpec) -> (bool, &[String]) {
    (spec.enable_external, &spec.extra_external_subnets)
}

fn refused(refusal: Refusal) -> Outcome {
    match refusal.progress {
        Progress::Stalled => Outcome::stalled(refusal.reason, refusal.message),
        Progress::Waiting | Progress::Ready => Outcome::waiting(refusal.reason, refusal.message),
    }
}

/// Our finalizer before the first side effect, then the write.
fn held(claim: &VpcClaim, write: impl Into<Option<Change>>) -> Vec<Change> {
    hold(claim).into_iter().chain(write.into()).collect()
}

#[cfg(test)]
mod bound;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod mended;
#[cfg(test)]
mod tests;
