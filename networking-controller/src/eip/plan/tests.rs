//! Every row of what `docs/networking.md` promises of an EipClaim, on facts written by hand.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kmetal_crds::{
    condition::{READY, get},
    foreign::kube_ovn::OvnEipStatus,
    names::KUBE_OVN_FINALIZER,
    networking::{Binding, BoundService, EipClaimSpec, FINALIZER},
};

use super::*;
use crate::platform::Platform;

const PLATFORM: &str = "
providerNetworks:
- {name: internet, externalSubnet: ext, cidr: 203.0.113.0/29, gateway: 203.0.113.1, default: true}
- {name: theirs, externalSubnet: theirs, cidr: 198.51.100.0/24, gateway: 198.51.100.1, tenants: [globex]}
protectedCIDRs: [10.0.0.0/16]
";

fn now() -> Timestamp {
    Timestamp::from_second(1_000).unwrap()
}

fn claim(network: Option<&str>, address: Option<&str>) -> EipClaim {
    let spec = EipClaimSpec { provider_network: network.map(Into::into), address: address.map(Into::into) };
    let mut claim = EipClaim::new("web", spec);
    claim.metadata.namespace = Some("acme-a".into());
    claim.metadata.uid = Some("uid-1".into());
    claim.metadata.creation_timestamp = Some(Time(now()));
    claim.metadata.finalizers = Some(vec![FINALIZER.into()]);
    claim
}

fn pool() -> Pool {
    let gateway = "203.0.113.1".parse().unwrap();
    Pool {
        net: "203.0.113.0/29".parse().unwrap(),
        excluded: vec![(gateway, gateway)],
        taken: BTreeSet::new(),
        promised: 0,
    }
}

fn empty() -> Seen {
    Seen {
        platform: Ok(Arc::new(Platform::parse(PLATFORM).unwrap())),
        kube_ovn: KubeOvn::Running,
        environment: Environment { tenant: Some("acme".into()), terminating: false, workloads: true },
        eip: None,
        pool: Some(pool()),
        waiters: vec![],
        unsettled: vec![],
        rules: vec![],
    }
}

fn allocated(claim: &EipClaim) -> Seen {
    let created = plan(claim, &empty(), now()).changes.into_iter().find_map(|change| match change {
        Change::CreateEip(eip) => Some(*eip),
        _ => None,
    });
    let mut eip = created.unwrap();
    eip.metadata.uid = Some("eip-uid".into());
    eip.metadata.finalizers = Some(vec![KUBE_OVN_FINALIZER.into()]);
    eip.spec.v4_ip = Some("203.0.113.4".into());
    eip.status = Some(OvnEipStatus { ready: true, v4_ip: "203.0.113.4".into(), v6_ip: String::new() });
    Seen { eip: Some(eip), pool: None, ..empty() }
}

fn ready_of(plan: &Plan) -> &Condition {
    get(&plan.status.conditions, READY).unwrap()
}

fn reason_of(plan: &Plan) -> &str {
    &ready_of(plan).reason
}

#[test]
fn a_claim_whose_turn_it_is_gets_an_address_of_kube_ovns_choice() {
    let mut claim = claim(None, None);
    claim.metadata.finalizers = None;
    let plan = plan(&claim, &empty(), now());
    let [Change::Hold, Change::CreateEip(eip)] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    assert_eq!((eip.spec.external_subnet.as_str(), eip.spec.type_.as_str()), ("ext", "nat"));
    assert_eq!(eip.spec.v4_ip, None);
    assert_eq!(ClaimRef::from_labels(&eip.metadata), Some(ClaimRef::of(&claim)));
    assert_eq!(reason_of(&plan), reason::CREATING);
}

#[test]
fn an_allocated_address_is_ready_and_planning_again_changes_nothing() {
    let claim = claim(None, Some("203.0.113.4"));
    let plan = plan(&claim, &allocated(&claim), now());
    assert_eq!((plan.changes.len(), reason_of(&plan)), (0, reason::READY));
    assert_eq!(plan.status.address.as_deref(), Some("203.0.113.4"));
    assert_eq!(plan.status.provider_network.as_deref(), Some("internet"));
}

#[test]
fn an_address_that_kube_ovn_has_not_noted_is_made_anew_unless_something_hangs_on_it() {
    let claim = claim(None, None);
    let unnoted = |rules: &[&str]| {
        let mut seen = allocated(&claim);
        if let Some(status) = seen.eip.as_mut().and_then(|eip| eip.status.as_mut()) {
            status.v4_ip.clear();
        }
        seen.rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        plan(&claim, &seen, now())
    };
    let anew = unnoted(&[]);
    assert!(matches!(anew.changes[..], [Change::DeleteEip(_)]), "{:?}", anew.changes);
    assert_eq!(reason_of(&anew), reason::CREATING);
    assert_eq!(unnoted(&["dnat-x"]).changes.len(), 0);
}

#[test]
fn a_claim_that_gets_no_address_is_told_why_and_nothing_is_made() {
    let address: Ipv4Addr = "203.0.113.4".parse().unwrap();
    let taken = Seen { pool: Some(Pool { taken: [address].into(), ..pool() }), ..empty() };
    let full = Seen { pool: Some(Pool { promised: 5, ..pool() }), ..empty() };
    let cases = vec![
        (claim(Some("nowhere"), None), empty(), reason::PROVIDER_NETWORK_NOT_FOUND),
        (claim(None, Some("203.0.113.9")), empty(), reason::ADDRESS_OUT_OF_RANGE),
        (claim(None, Some("203.0.113.4")), taken, reason::ADDRESS_UNAVAILABLE),
        (claim(None, Some("203.0.113.1")), empty(), reason::ADDRESS_UNAVAILABLE),
        (claim(None, None), full, reason::POOL_EXHAUSTED),
        (claim(None, None), Seen { pool: None, ..empty() }, reason::PROVIDER_NETWORK_NOT_FOUND),
        (
            claim(None, None),
            Seen { unsettled: vec!["internet".into()], ..empty() },
            reason::PROVIDER_NETWORK_SETTLING,
        ),
        (
            claim(None, None),
            Seen { environment: Environment::default(), ..empty() },
            reason::NOT_AN_ENVIRONMENT,
        ),
        (
            claim(None, None),
            Seen { kube_ovn: KubeOvn::Missing("no CRD".into()), ..empty() },
            reason::KUBE_OVN_MISSING,
        ),
    ];
    for (claim, seen, wanted) in cases {
        let plan = plan(&claim, &seen, now());
        assert_eq!((reason_of(&plan), plan.changes.len()), (wanted, 0), "{}", ready_of(&plan).message);
    }
}

#[test]
fn nobody_learns_of_other_tenants() {
    let of = |name| plan(&claim(Some(name), None), &empty(), now());
    let message = |plan: &Plan, name: &str| ready_of(plan).message.replace(name, "X");
    assert_eq!(message(&of("theirs"), "theirs"), message(&of("nowhere"), "nowhere"));
    // An address that somebody has and one that the platform keeps.
    let address: Ipv4Addr = "203.0.113.4".parse().unwrap();
    let seen = Seen { pool: Some(Pool { taken: [address].into(), ..pool() }), ..empty() };
    let theirs = plan(&claim(None, Some("203.0.113.4")), &seen, now());
    let kept = plan(&claim(None, Some("203.0.113.1")), &seen, now());
    assert_eq!(ready_of(&theirs), ready_of(&kept));
}

#[test]
fn a_bound_claim_waits_for_its_service_and_names_it() {
    let kept = claim(None, None);
    let seen = allocated(&kept);
    let mut claim = kept;
    claim.metadata.deletion_timestamp = Some(Time(now()));
    let service = BoundService { namespace: "shop".into(), name: "front".into(), uid: "s".into() };
    let bound = Binding { service, ..Binding::default() };
    claim.status = Some(EipClaimStatus { bound_to: Some(bound), ..EipClaimStatus::default() });
    let waits = plan(&claim, &seen, now());
    assert_eq!((waits.changes.len(), reason_of(&waits)), (0, reason::IN_USE));
    assert!(ready_of(&waits).message.contains("Service shop/front"));
    claim.status = None;
    let translated = Seen { rules: vec!["dnat-x".into()], ..seen.clone() };
    let waits = plan(&claim, &translated, now());
    assert_eq!((waits.changes.len(), reason_of(&waits)), (0, reason::DELETING));
    assert!(ready_of(&waits).message.contains("OvnDnatRule dnat-x"));
    let [Change::DeleteEip(target)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    assert_eq!(target.uid, "eip-uid");
    assert_eq!(plan(&claim, &empty(), now()).changes, [Change::Release]);
}

#[test]
fn an_address_of_somebody_else_is_never_adopted() {
    let claim = claim(None, None);
    let mut seen = allocated(&claim);
    seen.eip.as_mut().unwrap().metadata.labels = None;
    let plan = plan(&claim, &seen, now());
    assert_eq!((reason_of(&plan), plan.changes.len()), (reason::NAME_TAKEN, 0));
    assert_eq!(plan.status.address, None);
}

#[test]
fn torn_labels_come_back_and_nothing_else_is_said_or_done() {
    let mut claim = claim(None, None);
    let mut seen = allocated(&claim);
    claim.status = Some(plan(&claim, &seen, now()).status);
    let eip = seen.eip.as_mut().unwrap();
    let labels = eip.metadata.labels.take().unwrap();
    let target = Target::of(eip);
    let plan = plan(&claim, &seen, now());
    assert_eq!(plan.changes, [Change::Relabel(Kind::OvnEip, target, labels)]);
    assert_eq!(Some(plan.status), claim.status);
}

#[test]
fn a_claim_whose_address_somebody_deleted_goes_before_all_and_gets_it_again_if_it_can_be_had() {
    let mut mine = claim(None, None);
    mine.status = Some(plan(&mine, &allocated(&mine), now()).status);
    let mut old = claim(None, None);
    (old.metadata.uid, old.metadata.creation_timestamp) = (Some("uid-0".into()), None);
    old.metadata.creation_timestamp = Some(Time(Timestamp::from_second(1).unwrap()));
    let network = empty().platform.unwrap().provider_networks[0].clone();
    let waiters = vec![waiter(&old, &network)];
    // One address is left.
    let seen = Seen { waiters, pool: Some(Pool { promised: 4, ..pool() }), ..empty() };
    let again = |seen: &Seen| match &plan(&mine, seen, now()).changes[..] {
        [Change::CreateEip(eip)] => eip.spec.v4_ip.clone(),
        changes => panic!("{changes:?}"),
    };
    assert_eq!(again(&seen).as_deref(), Some("203.0.113.4"));
    assert_eq!(
        plan(&old, &Seen { waiters: vec![waiter(&mine, &network)], ..seen.clone() }, now()).changes,
        []
    );
    let taken = Pool { taken: ["203.0.113.4".parse().unwrap()].into(), ..pool() };
    assert_eq!(again(&Seen { pool: Some(taken), ..seen }), None);
}

#[test]
fn an_address_that_kube_ovn_forgot_to_hold_is_held_for_it_once_it_is_allocated() {
    let claim = claim(None, Some("203.0.113.4"));
    let mut seen = allocated(&claim);
    seen.eip.as_mut().unwrap().metadata.finalizers = None;
    let [Change::GuardEip(_)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    seen.eip.as_mut().unwrap().status.as_mut().unwrap().ready = false;
    assert_eq!(plan(&claim, &seen, now()).changes, []);
}
