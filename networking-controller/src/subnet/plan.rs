//! What a SubnetClaim needs now. Pure: no client, no clock, no await.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kmetal_crds::{
    condition,
    foreign::kube_ovn::{OvnEip, Subnet, Vpc},
    networking::{Addresses, SubnetClaim, SubnetClaimStatus, VpcClaim, reason},
};
use kube::ResourceExt;

use super::{
    deletion::deletion,
    demand::{Demand, Refusal},
    objects::{Ground, changes, is_built, labels_put_back, own_objects},
    overlap::{Candidate, in_the_way},
};
use crate::{
    change::{Change, Outcome},
    claim::{ClaimRef, Owner, identity, is_deleting, owner},
    environment::Environment,
    kube_ovn::KubeOvn,
    names,
    platform::State,
    teardown::{self, Step, SubnetObjects},
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
    /// The VpcClaim that the claim names.
    pub vpc_claim: Option<VpcClaim>,
    /// Its Vpc; only if it is that claim's own.
    pub vpc: Option<Vpc>,
    /// The router's own address on the provider network.
    pub router_eip: Option<OvnEip>,
    /// The objects that carry our names, whoever owns them.
    pub objects: SubnetObjects,
    /// The other SubnetClaims of the VPC that ask for something servable, and Subnets in it whose claim is gone.
    pub others: Vec<Candidate>,
}

/// The plan of one pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// The whole status to be.
    pub status: SubnetClaimStatus,
}

/// Decides everything.
pub fn plan(claim: &SubnetClaim, seen: &Seen, now: Timestamp) -> Plan {
    let me = ClaimRef::of(claim);
    let ours = own_objects(claim, &seen.objects);
    let mut outcome = if is_deleting(claim) {
        deletion(claim, &ours, seen, now)
    } else {
        wanted(claim, &me, &ours, seen, now)
    };
    outcome.changes.splice(0..0, labels_put_back(&me, &ours, vpc_claim_of(seen)));
    let before: &[Condition] = claim.status.as_ref().map_or(&[], |status| &status.conditions);
    let generation = claim.metadata.generation;
    let subnet = ours.subnet.as_ref();
    Plan {
        status: SubnetClaimStatus {
            observed_generation: generation,
            subnet: subnet.map(ResourceExt::name_any),
            network_attachment: ours.attachment.as_ref().map(|_| format!("{}/{}", me.namespace, me.name)),
            gateway: subnet.map(|subnet| subnet.spec.gateway.clone()),
            addresses: subnet.and_then(addresses),
            identity: identity(
                claim,
                &[
                    subnet.map(|subnet| &subnet.metadata),
                    ours.snat.as_ref().map(|snat| &snat.metadata),
                    ours.attachment.as_ref().map(|attachment| &attachment.metadata),
                ],
            ),
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

/// The uid of the VpcClaim in whose own Vpc the subnet lies.
fn vpc_claim_of(seen: &Seen) -> Option<String> {
    seen.vpc_claim.as_ref().filter(|_| seen.vpc.is_some()).and_then(ResourceExt::uid)
}

fn wanted(claim: &SubnetClaim, me: &ClaimRef, ours: &SubnetObjects, seen: &Seen, now: Timestamp) -> Outcome {
    if let KubeOvn::Missing(why) = &seen.kube_ovn {
        return Outcome::waiting(reason::KUBE_OVN_MISSING, KubeOvn::missing_message(why));
    }
    if let Some(taken) = name_taken(claim, me, &seen.objects) {
        return taken;
    }
    if seen.vpc_claim.is_some()
        && let Some(going) = going(ours)
    {
        return Outcome::waiting(
            reason::CREATING,
            format!("{going} is being deleted by somebody else; it is made again as soon as it is gone"),
        )
        .with(let_go(ours, seen));
    }
    let demand = match Demand::check(&claim.spec) {
        Ok(demand) => demand,
        Err(Refusal { reason, message }) => return Outcome::stalled(reason, message),
    };
    if ours.subnet.is_none() && seen.environment.tenant.is_none() {
        return Outcome::stalled(
            reason::NOT_AN_ENVIRONMENT,
            format!(
                "namespace {} belongs to no Capsule Tenant; create the SubnetClaim in an Environment of a Tenant",
                me.namespace
            ),
        );
    }
    let platform = match &seen.platform {
        Ok(platform) => platform,
        Err(why) => {
            let message = format!(
                "the platform configuration of kmetal-networking is not usable, so nothing is made or changed; the platform's engineers must mend it: {why}"
            );
            return match confirmed(claim, ours, &seen.kube_ovn) {
                Some(waiting) if ours.subnet.is_some() => waiting,
                None => Outcome::ready(message),
                Some(_) => Outcome::stalled(reason::PLATFORM_NOT_CONFIGURED, message),
            };
        }
    };
    let reserved = platform.reserves(&demand.range).then(|| reserved(&demand));
    if let Some(refusal) = reserved.clone().filter(|_| ours.subnet.is_none()) {
        return refusal;
    }
    let (vpc_claim, vpc) = match place(claim, ours, seen, now) {
        Ok(place) => place,
        Err(outcome) => return outcome,
    };
    let mine = Candidate {
        name: Some(me.name.clone()),
        uid: me.uid.clone(),
        created: claim.metadata.creation_timestamp.as_ref().map(|time| time.0),
        range: demand.range.clone(),
        has_subnet: ours.subnet.is_some(),
    };
    if let Some(other) = in_the_way(&mine, &seen.others) {
        return overlap(claim, &demand, other);
    }
    let changes = changes(
        claim,
        me,
        ours,
        &Ground {
            vpc_claim,
            vpc,
            demand: &demand,
            router_eip: seen.router_eip.as_ref(),
            mtu: platform.mtu,
            now,
        },
    );
    let pending = !changes.is_empty() || (vpc_claim.spec.egress.is_some() && !vpc.spec.enable_external);
    let outcome = match confirmed(claim, ours, &seen.kube_ovn) {
        Some(outcome) => outcome,
        None if pending => Outcome::waiting(
            reason::UPDATING,
            format!(
                "Subnet {} is built; its way out is being brought in line with VPC {}",
                names::subnet(&me.namespace, &me.name),
                claim.spec.vpc
            ),
        ),
        None => Outcome::ready(built(claim, ours, &demand)),
    };
    // A range that the platform took over under a Subnet: it goes on, and says what is wrong with it.
    reserved.unwrap_or(outcome).with(changes)
}

/// What a claim is told whose range another one has.
fn overlap(claim: &SubnetClaim, demand: &Demand, other: &Candidate) -> Outcome {
    let overlaps = format!("spec.cidr {} overlaps {}", demand.range, other.range);
    let vpc = &claim.spec.vpc;
    match &other.name {
        Some(name) => Outcome::stalled(
            reason::CIDR_OVERLAP,
            format!(
                "{overlaps} of SubnetClaim {name} in VPC {vpc}; choose another range, or delete that claim first"
            ),
        ),
        None => Outcome::waiting(
            reason::CIDR_OVERLAP,
            format!(
                "{overlaps} of a deleted SubnetClaim in VPC {vpc}, which is still being removed; wait until it is gone, or choose another range"
            ),
        ),
    }
}

fn name_taken(claim: &SubnetClaim, me: &ClaimRef, objects: &SubnetObjects) -> Option<Outcome> {
    let all = [
        (owner(claim, objects.subnet.as_ref()), "Subnet", names::subnet(&me.namespace, &me.name)),
        (owner(claim, objects.snat.as_ref()), "OvnSnatRule", names::snat(&me.namespace, &me.name)),
        (owner(claim, objects.attachment.as_ref()), "NetworkAttachmentDefinition", me.name.clone()),
    ];
    all.into_iter().find_map(|(owner, kind, name)| match owner {
        Owner::Foreign => Some(Outcome::stalled(reason::NAME_TAKEN, format!("a {kind} {name} exists that is not this claim's; it is never adopted. Give the claim another name, or ask the platform's engineers to remove that {kind}"))),
        Owner::Previous => Some(Outcome::waiting(reason::PREVIOUS_CLAIM_STILL_DELETING, format!("{kind} {name} of an earlier SubnetClaim {} is still being removed; machines that hold its addresses must go first", me.name))),
        Owner::Absent | Owner::Ours => None,
    })
}

fn going(ours: &SubnetObjects) -> Option<String> {
    let subnet = ours
        .subnet
        .as_ref()
        .filter(|subnet| is_deleting(*subnet))
        .map(|subnet| format!("Subnet {}", subnet.name_any()));
    let attachment = ours
        .attachment
        .as_ref()
        .filter(|nad| is_deleting(*nad))
        .map(|nad| format!("NetworkAttachmentDefinition {}", nad.name_any()));
    subnet.or(attachment)
}

/// An attachment that somebody deletes is not held, only one in an Environment that goes: its machines go first.
fn let_go(ours: &SubnetObjects, seen: &Seen) -> Vec<Change> {
    let deleted = ours.attachment.as_ref().filter(|attachment| is_deleting(*attachment));
    deleted.filter(|_| !seen.environment.terminating).map(teardown::release).unwrap_or_default()
}

/// The VPC to lie in, or why there is none.
fn place<'a>(
    claim: &SubnetClaim,
    ours: &SubnetObjects,
    seen: &'a Seen,
    now: Timestamp,
) -> Result<(&'a VpcClaim, &'a Vpc), Outcome> {
    let name = &claim.spec.vpc;
    let Some(vpc_claim) = &seen.vpc_claim else {
        return Err(Outcome::stalled(
            reason::VPC_NOT_FOUND,
            format!(
                "VpcClaim {name} does not exist in this Environment; create it, or delete this SubnetClaim"
            ),
        )
        .with(without_vpc(ours, now)));
    };
    if is_deleting(vpc_claim) && ours.subnet.is_none() {
        return Err(Outcome::stalled(
            reason::VPC_DELETING,
            format!("VpcClaim {name} is being deleted; delete this SubnetClaim to let it finish"),
        ));
    }
    match &seen.vpc {
        Some(vpc) if ours.subnet.is_some() || vpc.status.as_ref().is_some_and(|status| status.standby) => {
            Ok((vpc_claim, vpc))
        }
        _ => Err(Outcome::waiting(
            reason::VPC_NOT_READY,
            format!("waiting for VpcClaim {name} to be built; its own conditions say what it lacks"),
        )),
    }
}

/// Which of the platform's networks it is stays untold: it may be reserved to another tenant.
fn reserved(demand: &Demand) -> Outcome {
    Outcome::stalled(
        reason::CIDR_RESERVED,
        format!(
            "spec.cidr {} overlaps a range that the platform keeps for itself; choose another, or ask the platform's engineers which are free",
            demand.range
        ),
    )
}

/// A VPC whose claim is gone is on its way down, and what lies in it goes with it; where machines still hold addresses,
/// only their way out.
fn without_vpc(ours: &SubnetObjects, now: Timestamp) -> Vec<Change> {
    let only_nat = SubnetObjects { snat: ours.snat.clone(), ..SubnetObjects::default() };
    match teardown::subnet(if ours.used() > 0 { &only_nat } else { ours }, now) {
        Step::Do(changes) => changes,
        Step::Done | Step::Wait(_) => Vec::new(),
    }
}

/// What Kube-OVN has not confirmed yet; none when it has confirmed all there is.
fn confirmed(claim: &SubnetClaim, ours: &SubnetObjects, kube_ovn: &KubeOvn) -> Option<Outcome> {
    let name = names::subnet(&claim.namespace().unwrap_or_default(), &claim.name_any());
    let waits = |what: String| kube_ovn.waiting(reason::CREATING, what);
    let written = || waits(format!("Subnet {name} is written; waiting for Kube-OVN to build it"));
    let Some(subnet) = &ours.subnet else { return Some(written()) };
    if !is_built(subnet) {
        let refused = subnet
            .status
            .iter()
            .flat_map(|status| &status.conditions)
            .find(|c| c.type_ == "Validated" && c.status == "False");
        return Some(match refused {
            Some(condition) => Outcome::stalled(
                reason::SUBNET_REFUSED,
                format!(
                    "Kube-OVN refuses Subnet {name}: {}; change the claim, or ask the platform's engineers",
                    bounded(&condition.message)
                ),
            ),
            None => written(),
        });
    }
    if ours.attachment.is_none() {
        return Some(written());
    }
    match &ours.snat {
        Some(snat) if !snat.status.as_ref().is_some_and(|status| status.ready) => Some(waits(format!(
            "OvnSnatRule {} is written; waiting for Kube-OVN to put it in place",
            snat.name_any()
        ))),
        _ => None,
    }
}

fn built(claim: &SubnetClaim, ours: &SubnetObjects, demand: &Demand) -> String {
    let out = match &ours.snat {
        Some(snat) if snat.spec.v6_ip_cidr.is_empty() && demand.range.v6.is_some() => {
            "its IPv4 addresses leave through the VPC's address, IPv6 stays inside the VPC"
        }
        Some(_) => "it leaves through the VPC's address",
        None => "it has no way out",
    };
    format!(
        "Subnet {} is built, machines attach to {}/{}; {out}",
        names::subnet(&claim.namespace().unwrap_or_default(), &claim.name_any()),
        claim.namespace().unwrap_or_default(),
        claim.name_any()
    )
}

fn addresses(subnet: &Subnet) -> Option<Addresses> {
    let status = subnet.status.as_ref()?;
    let (used, available) = if subnet.spec.protocol == "IPv6" {
        (status.v6_using, status.v6_available)
    } else {
        (status.v4_using, status.v4_available)
    };
    Some(Addresses { total: used.saturating_add(available), used, available })
}

fn bounded(text: &str) -> String {
    text.chars().take(512).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod torn;
