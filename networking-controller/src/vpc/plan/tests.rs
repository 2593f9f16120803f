//! Every row of what `docs/networking.md` promises of a VpcClaim, on facts written by hand.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kmetal_crds::{
    condition::{READY, RECONCILING, STALLED, get, is_true},
    foreign::kube_ovn::{OvnEipSpec, OvnEipStatus, VpcStatus},
    networking::{Egress, FINALIZER},
};

use super::*;

const PLATFORM: &str = "
providerNetworks:
- {name: internet, externalSubnet: ext, cidr: 203.0.113.0/24, gateway: 203.0.113.1, default: true}
- {name: theirs, externalSubnet: theirs, cidr: 198.51.100.0/24, gateway: 198.51.100.1, tenants: [globex]}
protectedCIDRs: [10.0.0.0/16]
";

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_000).unwrap()
}

pub(super) fn platform() -> Platform {
    Platform::parse(PLATFORM).unwrap()
}

/// `""` asks for the platform's default.
pub(super) fn claim(egress: Option<&str>) -> VpcClaim {
    let egress = egress.map(|name| Egress { provider_network: (!name.is_empty()).then(|| name.into()) });
    let mut claim = VpcClaim::new("net", kmetal_crds::networking::VpcClaimSpec { egress });
    claim.metadata.namespace = Some("acme-a".into());
    claim.metadata.uid = Some("uid-1".into());
    claim.metadata.generation = Some(1);
    claim.metadata.finalizers = Some(vec![FINALIZER.into()]);
    claim
}

pub(super) fn deleted(mut claim: VpcClaim) -> VpcClaim {
    claim.metadata.deletion_timestamp = Some(Time(now()));
    claim
}

/// Nothing there yet, in a healthy Environment.
pub(super) fn empty() -> Seen {
    Seen {
        address_lost: None,
        address_free: false,
        platform: Ok(Arc::new(platform())),
        last_good: None,
        kube_ovn: KubeOvn::Running,
        environment: Environment { tenant: Some("acme".into()), terminating: false, workloads: true },
        vpc: None,
        router_eips: vec![],
        subnets: vec![],
        nat_rules: vec![],
        bound: vec![],
        unsettled: vec![],
        gateway_nodes: true,
    }
}

/// The claim's Vpc as this plan writes it, built by Kube-OVN.
pub(super) fn built(claim: &VpcClaim) -> Seen {
    let mut seen = empty();
    let created = plan(claim, &seen, now()).changes.into_iter().find_map(|change| match change {
        Change::CreateVpc(vpc) => Some(*vpc),
        _ => None,
    });
    let mut vpc = created.unwrap();
    vpc.metadata.uid = Some("vpc-uid".into());
    vpc.metadata.generation = Some(1);
    vpc.status = Some(VpcStatus {
        standby: true,
        router: vpc.name_any(),
        enable_external: vpc.spec.enable_external,
        extra_external_subnets: vpc.spec.extra_external_subnets.clone(),
        ..VpcStatus::default()
    });
    if vpc.spec.enable_external {
        let mut eip = OvnEip::new(
            &names::router_eip(&vpc.name_any(), "ext"),
            OvnEipSpec { external_subnet: "ext".into(), type_: "lrp".into(), v4_ip: None },
        );
        eip.status = Some(OvnEipStatus { ready: true, v4_ip: "203.0.113.9".into(), v6_ip: String::new() });
        seen.router_eips.push(eip);
    }
    seen.vpc = Some(vpc);
    seen
}

pub(super) fn ready_of(plan: &Plan) -> &Condition {
    get(&plan.status.conditions, READY).unwrap()
}

pub(super) fn reason_of(plan: &Plan) -> &str {
    &ready_of(plan).reason
}

#[test]
fn a_new_claim_is_held_and_its_vpc_is_created_complete() {
    let mut claim = claim(Some(""));
    claim.metadata.finalizers = None;
    let plan = plan(&claim, &empty(), now());
    let [Change::Hold, Change::CreateVpc(vpc)] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    assert_eq!(vpc.spec, isolation::vpc_spec(&platform(), platform().provider_networks.first()));
    assert_eq!(ClaimRef::from_labels(&vpc.metadata), Some(ClaimRef::of(&claim)));
    assert_eq!(reason_of(&plan), reason::CREATING);
    assert!(is_true(&plan.status.conditions, RECONCILING));
}

#[test]
fn a_built_vpc_is_ready_and_planning_again_changes_nothing() {
    for wish in [None, Some(""), Some("internet")] {
        let claim = claim(wish);
        let plan = plan(&claim, &built(&claim), now());
        assert_eq!(plan.changes, [], "{wish:?}");
        assert_eq!(reason_of(&plan), reason::READY, "{wish:?}: {}", ready_of(&plan).message);
        let address = plan.status.egress.as_ref().and_then(|egress| egress.address.as_deref());
        assert_eq!(address, wish.map(|_| "203.0.113.9"));
    }
}

#[test]
fn a_network_that_is_not_open_to_the_tenant_is_refused_like_one_that_does_not_exist() {
    let of = |name| plan(&claim(Some(name)), &empty(), now());
    let (theirs, unknown) = (of("theirs"), of("nowhere"));
    assert_eq!(theirs.changes, []);
    assert_eq!(reason_of(&theirs), reason::PROVIDER_NETWORK_NOT_FOUND);
    assert!(is_true(&theirs.status.conditions, STALLED));
    assert_eq!(ready_of(&theirs).message.replace("theirs", "nowhere"), ready_of(&unknown).message);
}

#[test]
fn without_a_usable_platform_file_no_vpc_is_made_and_an_old_one_is_left_alone() {
    let claim = claim(None);
    let broken = |seen: Seen| Seen { platform: Err("protectedCIDRs is empty".into()), ..seen };
    let fresh = plan(&claim, &broken(empty()), now());
    assert_eq!(fresh.changes, []);
    assert_eq!(reason_of(&fresh), reason::PLATFORM_NOT_CONFIGURED);
    assert!(ready_of(&fresh).message.contains("protectedCIDRs is empty"));
    let old = plan(&claim, &broken(built(&claim)), now());
    assert_eq!((old.changes.len(), reason_of(&old)), (0, reason::READY));
}

#[test]
fn what_is_missing_around_the_claim_is_named() {
    let claim = claim(Some(""));
    let mut silent = built(&claim);
    silent.kube_ovn = KubeOvn::Silent("no lease".into());
    if let Some(status) = silent.vpc.as_mut().and_then(|vpc| vpc.status.as_mut()) {
        status.standby = false;
    }
    let mut no_gateway = built(&claim);
    no_gateway.gateway_nodes = false;
    no_gateway.router_eips.clear();
    let cases = [
        (Seen { kube_ovn: KubeOvn::Missing("no CRD".into()), ..empty() }, reason::KUBE_OVN_MISSING),
        (Seen { environment: Environment::default(), ..empty() }, reason::NOT_AN_ENVIRONMENT),
        (Seen { unsettled: vec!["internet".into()], ..empty() }, reason::PROVIDER_NETWORK_SETTLING),
        (silent, reason::KUBE_OVN_NOT_RUNNING),
        (no_gateway, reason::NO_GATEWAY_NODE),
    ];
    for (seen, wanted) in cases {
        let plan = plan(&claim, &seen, now());
        assert_eq!((reason_of(&plan), plan.changes.len()), (wanted, 0), "{}", ready_of(&plan).message);
    }
}

#[test]
fn a_vpc_of_another_claim_is_never_adopted() {
    let claim = claim(None);
    let mut seen = built(&claim);
    let labels = seen.vpc.as_mut().unwrap().metadata.labels.as_mut().unwrap();
    labels.insert(kmetal_crds::names::CLAIM_UID.into(), "uid-0".into());
    let previous = plan(&claim, &seen, now());
    assert_eq!((reason_of(&previous), previous.changes.len()), (reason::PREVIOUS_CLAIM_STILL_DELETING, 0));
    seen.vpc.as_mut().unwrap().metadata.labels = None;
    let foreign = plan(&claim, &seen, now());
    assert_eq!((reason_of(&foreign), foreign.changes.len()), (reason::NAME_TAKEN, 0));
    assert_eq!(foreign.status.vpc, None);
    let gone = plan(&deleted(claim), &seen, now());
    assert_eq!(gone.changes, [Change::Release]);
}

#[test]
fn a_new_protected_range_is_written_and_the_claim_stays_ready() {
    let claim = claim(None);
    let mut seen = built(&claim);
    let text = PLATFORM.replace("10.0.0.0/16", "10.0.0.0/16, 172.16.0.0/12");
    seen.platform = Ok(Arc::new(Platform::parse(&text).unwrap()));
    let plan = plan(&claim, &seen, now());
    let [Change::UpdateVpc(vpc)] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    assert!(vpc.spec.policy_routes.iter().any(|route| route.match_ == "ip4.dst == 172.16.0.0/12"));
    assert_eq!(vpc.metadata.labels, seen.vpc.as_ref().unwrap().metadata.labels);
    assert_eq!(reason_of(&plan), reason::READY);
}

#[test]
fn a_range_that_is_exchanged_is_never_open_in_between() {
    let claim = claim(None);
    let mut seen = built(&claim);
    seen.platform = Ok(Arc::new(Platform::parse(&PLATFORM.replace("10.0.0.0/16", "10.9.0.0/16")).unwrap()));
    let drops = |spec: &VpcSpec, net: &str| spec.policy_routes.iter().any(|route| route.match_.contains(net));
    let first = plan(&claim, &seen, now());
    let [Change::UpdateVpc(vpc)] = &first.changes[..] else { panic!("{:?}", first.changes) };
    assert!(drops(&vpc.spec, "10.0.0.0/16") && drops(&vpc.spec, "10.9.0.0/16"));
    seen.vpc.as_mut().unwrap().spec = vpc.spec.clone();
    let second = plan(&claim, &seen, now());
    let [Change::UpdateVpc(vpc)] = &second.changes[..] else { panic!("{:?}", second.changes) };
    assert!(!drops(&vpc.spec, "10.0.0.0/16") && drops(&vpc.spec, "10.9.0.0/16"));
}

#[test]
fn egress_is_added_to_a_closed_vpc_and_withdrawn_only_after_its_nat_rules() {
    let open = plan(&claim(Some("")), &built(&claim(None)), now());
    let [Change::UpdateVpc(vpc)] = &open.changes[..] else { panic!("{:?}", open.changes) };
    assert!(vpc.spec.enable_external);
    assert_eq!(reason_of(&open), reason::UPDATING);

    let attached = built(&claim(Some("")));
    let waits = plan(&claim(None), &Seen { nat_rules: vec!["snat-x".into()], ..attached.clone() }, now());
    assert_eq!((waits.changes.len(), reason_of(&waits)), (0, reason::UPDATING));
    let closes = plan(&claim(None), &attached, now());
    let [Change::UpdateVpc(vpc)] = &closes.changes[..] else { panic!("{:?}", closes.changes) };
    assert_eq!(vpc.spec, isolation::vpc_spec(&platform(), None));
}

#[test]
fn the_network_in_use_outlives_a_change_of_the_default_and_its_removal_from_the_file() {
    let claim = claim(Some(""));
    let mut seen = built(&claim);
    let other_default = "
providerNetworks:
- {name: internet, externalSubnet: ext, cidr: 203.0.113.0/24, gateway: 203.0.113.1}
- {name: new, externalSubnet: new, cidr: 192.0.2.0/24, gateway: 192.0.2.1, default: true}
- {name: theirs, externalSubnet: theirs, cidr: 198.51.100.0/24, gateway: 198.51.100.1, tenants: [globex]}
protectedCIDRs: [10.0.0.0/16]
";
    seen.platform = Ok(Arc::new(Platform::parse(other_default).unwrap()));
    let kept = plan(&claim, &seen, now());
    assert_eq!(kept.status.egress.unwrap().provider_network, "internet");
    let reserved = other_default.replace("gateway: 203.0.113.1}", "gateway: 203.0.113.1, tenants: [globex]}");
    for file in [reserved.as_str(), "protectedCIDRs: [10.0.0.0/16]"] {
        seen.platform = Ok(Arc::new(Platform::parse(file).unwrap()));
        let removed = plan(&claim, &seen, now());
        assert_eq!(reason_of(&removed), reason::PROVIDER_NETWORK_REMOVED);
        for change in &removed.changes {
            let Change::UpdateVpc(vpc) = change else { panic!("{change:?}") };
            assert!(vpc.spec.enable_external, "a network in use is never detached by a change of the file");
        }
    }
}

#[test]
fn a_claim_with_subnets_in_it_waits_and_names_them() {
    let claim = deleted(claim(None));
    let mut seen = built(&self::claim(None));
    seen.subnets = vec![Some("front".into()), Some("back".into())];
    let waits = plan(&claim, &seen, now());
    assert_eq!((waits.changes.len(), reason_of(&waits)), (0, reason::IN_USE));
    assert!(ready_of(&waits).message.contains("front, back"));
    seen.subnets = vec![None];
    assert_eq!(reason_of(&plan(&claim, &seen, now())), reason::DELETING);
}

#[test]
fn the_way_down_is_delete_then_let_go() {
    let claim = deleted(claim(Some("")));
    let mut seen = built(&self::claim(Some("")));
    let [Change::DeleteVpc(target)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    assert_eq!(target.uid, "vpc-uid");
    seen.vpc = None;
    assert_eq!(plan(&claim, &seen, now()).changes, [Change::Release]);
}

#[test]
fn an_address_that_kube_ovn_forgot_is_recovered_by_attaching_again() {
    let mut seen = built(&self::claim(Some("")));
    let vpc = seen.vpc.as_mut().unwrap();
    vpc.spec = isolation::vpc_spec(&platform(), None);
    vpc.status.as_mut().unwrap().enable_external = false;
    let reattaches =
        |changes: &[Change]| matches!(changes, [Change::UpdateVpc(vpc)] if vpc.spec.enable_external);
    let later = Timestamp::from_second(1_020).unwrap();

    let gone = deleted(claim(None));
    assert_eq!(plan(&gone, &seen, now()).changes, [], "the caches may merely be of different ages");
    assert!(reattaches(&plan(&gone, &seen, later).changes));

    let mut living = claim(None);
    living.status = Some(plan(&living, &seen, now()).status);
    assert_eq!(plan(&living, &seen, now()).changes, []);
    assert!(reattaches(&plan(&living, &seen, later).changes));
}

#[test]
fn a_way_out_is_not_withdrawn_before_it_is_attached() {
    let mut seen = built(&claim(Some("")));
    seen.vpc.as_mut().unwrap().status.as_mut().unwrap().enable_external = false;
    assert_eq!(plan(&claim(None), &seen, now()).changes, []);
}

#[test]
fn an_environment_that_goes_is_not_kept_once_its_workloads_are_gone() {
    let claim = deleted(claim(None));
    let mut seen = built(&self::claim(None));
    seen.subnets = vec![Some("front".into())];
    seen.environment.terminating = true;
    assert_eq!(plan(&claim, &seen, now()).changes, []);
    seen.environment.workloads = false;
    assert_eq!(plan(&claim, &seen, now()).changes, [Change::Release]);
}

#[test]
fn a_vpc_that_waits_to_go_is_still_closed_against_what_the_platform_adds() {
    let claim = deleted(claim(Some("")));
    let mut seen = built(&self::claim(Some("")));
    seen.subnets = vec![Some("front".into())];
    seen.platform = Ok(Arc::new(
        Platform::parse(&PLATFORM.replace("10.0.0.0/16", "10.0.0.0/16, 172.16.0.0/12")).unwrap(),
    ));
    seen.last_good = seen.platform.clone().ok();
    let plan = plan(&claim, &seen, now());
    let [Change::UpdateVpc(vpc)] = &plan.changes[..] else { panic!("{:?}", plan.changes) };
    assert!(vpc.spec.policy_routes.iter().any(|route| route.match_ == "ip4.dst == 172.16.0.0/12"));
    assert!(vpc.spec.enable_external, "its machines keep their way out");
    assert_eq!(reason_of(&plan), reason::IN_USE);
}

#[test]
fn a_vpc_stays_closed_when_its_namespace_loses_the_tenant_or_the_platform_file_is_bad() {
    let claim = claim(None);
    let mut open = built(&claim);
    open.vpc.as_mut().unwrap().spec.policy_routes.clear();
    let closes = |seen: &Seen| matches!(&plan(&claim, seen, now()).changes[..], [Change::UpdateVpc(_)]);
    assert!(closes(&Seen {
        environment: Environment { tenant: None, ..open.environment.clone() },
        ..open.clone()
    }));
    let bad = Seen { platform: Err("protectedCIDRs is empty".into()), ..open };
    assert_eq!(reason_of(&plan(&claim, &bad, now())), reason::PLATFORM_NOT_CONFIGURED);
    assert!(closes(&Seen { last_good: Some(Arc::new(platform())), ..bad }));
}

#[test]
fn a_bad_platform_file_does_not_make_an_unmet_wish_look_met() {
    let seen = Seen { platform: Err("protectedCIDRs is empty".into()), ..built(&claim(Some(""))) };
    assert_eq!(reason_of(&plan(&claim(Some("")), &seen, now())), reason::READY);
    assert_eq!(reason_of(&plan(&claim(None), &seen, now())), reason::PLATFORM_NOT_CONFIGURED);
}
