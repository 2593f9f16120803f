//! What becomes of a VPC whose objects an administrator's hand has torn or deleted, on facts written by hand.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kmetal_crds::{
    foreign::kube_ovn::OvnEipStatus,
    names::{KUBE_OVN_FINALIZER, ROUTER_ADDRESS},
};

use super::{tests::*, *};
use crate::change::Target;

/// A claim that has seen its Vpc built, and the Vpc.
fn settled(egress: Option<&str>) -> (VpcClaim, Seen) {
    let mut claim = claim(egress);
    let seen = built(&claim);
    claim.status = Some(plan(&claim, &seen, now()).status);
    (claim, seen)
}

fn vpc(seen: &mut Seen) -> &mut Vpc {
    seen.vpc.as_mut().unwrap()
}

fn updated(plan: &Plan) -> &Vpc {
    let [Change::UpdateVpc(vpc)] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    vpc
}

/// The address that is noted on a Vpc.
fn noted(vpc: &Vpc) -> Option<&str> {
    vpc.annotations().get(ROUTER_ADDRESS).map(String::as_str)
}

#[test]
fn torn_labels_come_back_and_nothing_else_is_said_or_done() {
    let (claim, mut seen) = settled(Some(""));
    let labels = vpc(&mut seen).metadata.labels.clone().unwrap();
    let mut changed = labels.clone();
    changed.insert(kmetal_crds::names::CLAIM_UID.into(), "uid-0".into());
    for torn in [None, Some(changed)] {
        vpc(&mut seen).metadata.labels = torn;
        let plan = plan(&claim, &seen, now());
        let target = Target::of(seen.vpc.as_ref().unwrap());
        assert_eq!(plan.changes, [Change::Relabel(Kind::Vpc, target, labels.clone())]);
        assert_eq!(Some(plan.status), claim.status);
    }
}

#[test]
fn a_vpc_that_somebody_deleted_works_on_while_something_lies_in_it_and_is_made_again_then() {
    let (claim, mut seen) = settled(Some(""));
    vpc(&mut seen).metadata.deletion_timestamp = Some(Time(now()));
    seen.subnets = vec![Some("front".into())];
    let kept = plan(&claim, &seen, now());
    assert_eq!((kept.changes.len(), reason_of(&kept)), (0, reason::READY));
    assert!(ready_of(&kept).message.contains("somebody has deleted that Vpc"));

    seen.subnets.clear();
    let going = plan(&claim, &seen, now());
    assert_eq!((going.changes.len(), reason_of(&going)), (0, reason::CREATING));

    seen.vpc = None;
    let [Change::CreateVpc(again)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    assert!(isolation::is_closed(&again.spec) && !again.spec.enable_external);
    assert_eq!(noted(again), Some("203.0.113.9"), "it is to have its address back");
}

#[test]
fn a_lost_address_is_held_while_the_vpc_is_detached_and_made_before_it_is_attached() {
    let (claim, mut seen) = settled(Some(""));
    let eip = seen.router_eips.pop().unwrap();
    let not_yet = plan(&claim, &seen, now());
    assert_eq!((not_yet.changes.len(), reason_of(&not_yet)), (0, reason::CREATING));
    assert_eq!(not_yet.status.egress, claim.status.as_ref().unwrap().egress, "nothing else remembers it");

    seen.address_lost = Some(Duration::ZERO);
    let early = plan(&claim, &seen, now());
    assert_eq!((early.changes.len(), reason_of(&early)), (0, reason::UPDATING));
    seen.address_lost = Some(mend::SETTLED);
    let lost = plan(&claim, &seen, now());
    let closed = updated(&lost).clone();
    assert_eq!(closed.spec, isolation::vpc_spec(&platform(), None));
    assert_eq!((noted(&closed), reason_of(&lost)), (Some("203.0.113.9"), reason::UPDATING));

    vpc(&mut seen).spec = closed.spec.clone();
    vpc(&mut seen).metadata.annotations = closed.metadata.annotations.clone();
    (seen.address_lost, seen.address_free) = (None, true);
    assert_eq!(plan(&claim, &seen, now()).changes, [], "Kube-OVN has not detached it yet");

    vpc(&mut seen).status.as_mut().unwrap().enable_external = false;
    let [Change::CreateEip(made)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    assert_eq!((made.name_any(), made.spec.type_.as_str()), (eip.name_any(), "lrp"));
    assert_eq!(made.spec.v4_ip.as_deref(), Some("203.0.113.9"));

    // Kube-OVN is about to allocate it; then it has.
    let mut fresh = OvnEip { status: None, ..eip.clone() };
    fresh.metadata.creation_timestamp = Some(Time(now()));
    seen.router_eips.push(fresh);
    assert_eq!(plan(&claim, &seen, now()).changes, []);
    seen.router_eips[0].status = Some(OvnEipStatus { ready: true, ..OvnEipStatus::default() });
    let [Change::GuardEip(_)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    seen.router_eips[0].metadata.finalizers = Some(vec![KUBE_OVN_FINALIZER.into()]);
    let open = plan(&claim, &seen, now());
    assert!(updated(&open).spec.enable_external && noted(updated(&open)).is_none());
}

#[test]
fn an_address_that_cannot_be_had_again_keeps_nobody_from_another() {
    let (claim, mut seen) = settled(Some(""));
    let eip = seen.router_eips.pop().unwrap();
    vpc(&mut seen).spec = isolation::vpc_spec(&platform(), None);
    vpc(&mut seen).status.as_mut().unwrap().enable_external = false;
    vpc(&mut seen).metadata.annotations = Some(mend::keeps("203.0.113.9".parse().ok()));
    // Somebody has it.
    assert!(updated(&plan(&claim, &seen, now())).spec.enable_external);

    // Kube-OVN does not give it.
    let mut stuck = OvnEip { status: None, ..eip };
    stuck.metadata.creation_timestamp = Some(Time(now()));
    seen.router_eips.push(stuck);
    let later = Timestamp::from_second(1_030).unwrap();
    let given_up = plan(&claim, &seen, later);
    let [Change::UpdateVpc(closed), Change::DeleteEip(_)] = &given_up.changes[..] else { panic!() };
    assert_eq!((closed.spec.enable_external, noted(closed)), (false, Some("")));
    vpc(&mut seen).metadata.annotations = closed.metadata.annotations.clone();
    seen.router_eips.clear();
    assert!(updated(&plan(&claim, &seen, later)).spec.enable_external);
}

#[test]
fn who_no_longer_wants_a_way_out_holds_no_address_for_it() {
    let (_, mut seen) = settled(Some(""));
    seen.router_eips.clear();
    vpc(&mut seen).spec = isolation::vpc_spec(&platform(), None);
    vpc(&mut seen).status.as_mut().unwrap().enable_external = false;
    vpc(&mut seen).metadata.annotations = Some(mend::keeps("203.0.113.9".parse().ok()));
    let dropped = plan(&claim(None), &seen, now());
    assert_eq!(noted(updated(&dropped)), None);
    assert!(!updated(&dropped).spec.enable_external);
}
