//! The way down on Kube-OVN's side, one step a pass: source NAT, then the Subnet, then its attachment; detach, then
//! the Vpc. Pure, and the same for a claim that is being deleted and for what a vanished claim left behind.
//!
//! Each step waits until the one before is gone, because Kube-OVN does not cope with another order: a NAT rule whose
//! router went first stays for ever (kubeovn/kube-ovn#6717). So does one that is deleted while kube-ovn-controller is
//! away: 1.16 takes what it finds at its start for new, and looks at a deletion only when the object changes. Such a
//! rule is changed ([`nudge`]) until it goes.

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnDnatRule, OvnEip, OvnSnatRule, Subnet, Vpc, VpcSpec},
        multus::NetworkAttachmentDefinition,
    },
    names::NUDGED,
    networking::ATTACHMENT_FINALIZER,
};
use kube::ResourceExt;

use crate::{
    change::{Change, Target},
    claim::{ClaimRef, is_deleting},
    isolation,
    platform::Platform,
};

/// The next step down.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing of it is left.
    Done,
    /// Do this now.
    Do(Vec<Change>),
    /// Kube-OVN has to finish with this object first.
    Wait(String),
}

/// What stands for a SubnetClaim.
#[derive(Clone, Debug, Default)]
pub struct SubnetObjects {
    /// The Subnet.
    pub subnet: Option<Subnet>,
    /// Source NAT of it.
    pub snat: Option<OvnSnatRule>,
    /// Its attachment.
    pub attachment: Option<NetworkAttachmentDefinition>,
}

impl SubnetObjects {
    /// Addresses that machines hold, of the family that has more.
    pub fn used(&self) -> i64 {
        self.subnet.as_ref().map_or(0, used)
    }
}

/// Addresses of a Subnet that machines hold, of the family that has more.
pub fn used(subnet: &Subnet) -> i64 {
    subnet.status.as_ref().map_or(0, |status| status.v4_using.max(status.v6_using))
}

/// Seconds between two nudges. Whatever is alive finishes in less.
const NUDGE: i64 = 10;

/// The change that brings a NAT rule on its way out before Kube-OVN once more, when it is time for one.
pub fn nudge(snat: &OvnSnatRule, now: Timestamp) -> Option<Change> {
    nth_nudge(snat, now).map(|nth| Change::NudgeSnat(Target::of(snat), nth))
}

/// The same for an address.
pub fn nudge_eip(eip: &OvnEip, now: Timestamp) -> Option<Change> {
    nth_nudge(eip, now).map(|nth| Change::NudgeEip(Target::of(eip), nth))
}

/// Seconds for which Kube-OVN is left to finish making a destination NAT rule before the rule is deleted.
const UNFINISHED_DNAT: i64 = 30;

/// The change that brings a destination NAT rule down, when it is time for one.
///
/// A rule goes only once it is ready: Kube-OVN 1.16 writes it to OVN first and only then takes hold of the object, so
/// one that vanishes in between stays in OVN, and the router goes on answering for an address that somebody else may
/// have by then. One that does not get ready was not written to any router.
pub fn dnat(rule: &OvnDnatRule, now: Timestamp) -> Option<Change> {
    if is_deleting(rule) {
        return nth_nudge(rule, now).map(|nth| Change::NudgeDnat(Target::of(rule), nth));
    }
    let made = rule.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let may_go = rule.status.as_ref().is_some_and(|status| status.ready)
        || now.as_second() - made.as_second() >= UNFINISHED_DNAT;
    may_go.then(|| Change::DeleteDnat(Target::of(rule)))
}

/// What the annotation has to say now, if it does not say so.
fn nth_nudge<K: kube::Resource>(object: &K, now: Timestamp) -> Option<String> {
    let since = object.meta().deletion_timestamp.as_ref()?.0;
    let nth = (now.as_second() - since.as_second()) / NUDGE;
    let text = nth.to_string();
    (nth > 0 && object.annotations().get(NUDGED) != Some(&text)).then_some(text)
}

/// Next step for what stands for a SubnetClaim.
pub fn subnet(objects: &SubnetObjects, now: Timestamp) -> Step {
    if let Some(snat) = &objects.snat {
        if let Some(nudge) = nudge(snat, now) {
            return Step::Do(vec![nudge]);
        }
        return remove(snat, "OvnSnatRule", Change::DeleteSnat);
    }
    if let Some(subnet) = &objects.subnet {
        return remove(subnet, "Subnet", Change::DeleteSubnet);
    }
    match &objects.attachment {
        Some(attachment) => Step::Do(release(attachment)),
        None => Step::Done,
    }
}

/// Lets an attachment go: nothing needs it any more.
pub fn release(attachment: &NetworkAttachmentDefinition) -> Vec<Change> {
    let mut changes = Vec::new();
    if !is_deleting(attachment) {
        changes.push(Change::DeleteAttachment(Target::of(attachment)));
    }
    if attachment.finalizers().iter().any(|finalizer| finalizer == ATTACHMENT_FINALIZER) {
        changes.push(Change::ReleaseAttachment(Box::new(attachment.clone())));
    }
    changes
}

/// Seconds after which a router's address that Kube-OVN has forgotten is taken for forgotten.
pub const LOST_DETACH: i64 = 15;
/// Seconds after which an attachment that Kube-OVN does not finish no longer keeps a Vpc.
const LOST_ATTACH: i64 = 60;

/// Next step for a Vpc in which nothing is left. `router_eips` are the router's own addresses, `waited` is for how
/// many seconds it has been on its way down.
///
/// An attached Vpc is deleted as it is: Kube-OVN then takes patch port, address and router down in one go, by the
/// Vpc's status. Detaching first is not safe in 1.16: a pass that began before the change writes
/// `status.enableExternal` back from the changed spec without having detached, and nothing remembers the address.
/// Where that has happened, the Vpc is attached again, so that its status tells the truth.
pub fn vpc(claim: &ClaimRef, vpc: &Vpc, router_eips: &[OvnEip], waited: i64) -> Step {
    let name = vpc.name_any();
    if is_deleting(vpc) {
        return Step::Wait(format!("Vpc {name}"));
    }
    let is_attached = vpc.status.as_ref().is_some_and(|status| status.enable_external);
    match (vpc.spec.enable_external, is_attached, router_eips.first()) {
        (true, true, _) | (false, false, None) => remove(vpc, "Vpc", Change::DeleteVpc),
        (false, false, Some(eip)) if waited >= LOST_DETACH => Step::Do(vec![reattach(claim, vpc, eip)]),
        (false, false, Some(eip)) => Step::Wait(format!("OvnEip {}", eip.name_any())),
        _ if waited >= LOST_ATTACH => remove(vpc, "Vpc", Change::DeleteVpc),
        _ => Step::Wait(format!("the unfinished change of the way out of Vpc {name}")),
    }
}

/// Keeps a Vpc closed for as long as it stands, whatever becomes of its claim: a claim that waits to go, or went and
/// left machines behind, must not keep a Vpc open against a network that the platform adds meanwhile.
///
/// One that somebody has deleted is no exception: it stands for as long as a Subnet lies in it.
pub fn keep_closed(claim: &ClaimRef, vpc: &Vpc, platform: Option<&Platform>) -> Option<Change> {
    let platform = platform?;
    let wanted = isolation::keeping_egress(platform, &vpc.spec);
    let rewrite = !isolation::same(&vpc.spec, &wanted);
    rewrite
        .then(|| Change::UpdateVpc(Box::new(rewritten(claim, vpc, isolation::next_write(&vpc.spec, wanted)))))
}

/// Takes its way out from a Vpc whose claim is gone while something in it still stands: nobody's quota counts the
/// address any more. NAT rules are gone already; Kube-OVN must have finished attaching.
pub fn withdraw(
    claim: &ClaimRef,
    vpc: &Vpc,
    router_eips: &[OvnEip],
    waited: i64,
    platform: &Platform,
) -> Option<Change> {
    let is_attached = vpc.status.as_ref().is_some_and(|status| status.enable_external);
    match (vpc.spec.enable_external, is_attached, router_eips.first()) {
        (true, true, _) => {
            let closed = isolation::next_write(&vpc.spec, isolation::vpc_spec(platform, None));
            Some(Change::UpdateVpc(Box::new(rewritten(claim, vpc, closed))))
        }
        // Forgotten, as below.
        (false, false, Some(eip)) if waited >= LOST_DETACH => Some(reattach(claim, vpc, eip)),
        _ => None,
    }
}

/// Attaches a Vpc to the external subnet of an address that Kube-OVN has forgotten to take from it.
pub fn reattach(claim: &ClaimRef, vpc: &Vpc, eip: &OvnEip) -> Change {
    let spec = isolation::reattached(&vpc.spec, &eip.spec.external_subnet);
    Change::UpdateVpc(Box::new(rewritten(claim, vpc, spec)))
}

/// The Vpc of a claim with another spec, as it is sent: our labels again, since a field left out would be taken away.
pub fn rewritten(claim: &ClaimRef, vpc: &Vpc, spec: VpcSpec) -> Vpc {
    let mut object = Vpc::new(&vpc.name_any(), spec);
    object.metadata.uid = vpc.uid();
    object.metadata.labels = Some(claim.labels(&claim.uid));
    object
}

fn remove<K: kube::Resource>(object: &K, kind: &str, delete: impl Fn(Target) -> Change) -> Step {
    if is_deleting(object) {
        return Step::Wait(format!("{kind} {}", object.name_any()));
    }
    Step::Do(vec![delete(Target::of(object))])
}
