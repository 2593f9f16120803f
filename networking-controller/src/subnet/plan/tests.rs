//! Every row of what `docs/networking.md` promises of a SubnetClaim, on facts written by hand.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kmetal_crds::{
    condition::{READY, STALLED, get},
    foreign::kube_ovn::{
        OvnEipSpec, OvnEipStatus, OvnSnatRuleStatus, SubnetCondition, SubnetStatus, VpcStatus,
    },
    networking::{ATTACHMENT_FINALIZER, Egress, FINALIZER, SubnetClaimSpec, VpcClaimSpec},
};

use super::*;
use crate::{isolation, platform::Platform, range::Range};

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_000).unwrap()
}

fn platform() -> Platform {
    Platform::parse(
        "
providerNetworks:
- {name: internet, externalSubnet: ext, cidr: 203.0.113.0/24, gateway: 203.0.113.1, default: true}
protectedCIDRs: [192.168.0.0/16]
tenantControlPlanePools: [100.100.0.0/24]
",
    )
    .unwrap()
}

pub(super) fn claim(cidr: &str) -> SubnetClaim {
    let spec = SubnetClaimSpec { vpc: "net".into(), cidr: cidr.into(), ..SubnetClaimSpec::default() };
    let mut claim = SubnetClaim::new("front", spec);
    claim.metadata.namespace = Some("acme-a".into());
    claim.metadata.uid = Some("uid-s".into());
    claim.metadata.finalizers = Some(vec![FINALIZER.into()]);
    claim
}

fn deleted(mut claim: SubnetClaim) -> SubnetClaim {
    claim.metadata.deletion_timestamp = Some(Time(now()));
    claim
}

/// A VPC that is built, with or without a way out, and nothing of the claim's yet.
fn empty(egress: bool) -> Seen {
    let spec = VpcClaimSpec { egress: egress.then(Egress::default) };
    let mut vpc_claim = VpcClaim::new("net", spec);
    vpc_claim.metadata.namespace = Some("acme-a".into());
    vpc_claim.metadata.uid = Some("uid-v".into());
    let network = platform().provider_networks.first().cloned();
    let mut vpc = Vpc::new("vpc-x", isolation::vpc_spec(&platform(), network.as_ref().filter(|_| egress)));
    vpc.status = Some(VpcStatus { standby: true, enable_external: egress, ..VpcStatus::default() });
    let router_eip = egress.then(|| {
        let mut eip = OvnEip::new(
            "vpc-x-ext",
            OvnEipSpec { external_subnet: "ext".into(), type_: "lrp".into(), v4_ip: None },
        );
        eip.status = Some(OvnEipStatus { ready: true, v4_ip: "203.0.113.9".into(), v6_ip: String::new() });
        eip
    });
    Seen {
        platform: Ok(Arc::new(platform())),
        kube_ovn: KubeOvn::Running,
        environment: Environment { tenant: Some("acme".into()), terminating: false, workloads: true },
        vpc_claim: Some(vpc_claim),
        vpc: Some(vpc),
        router_eip,
        objects: SubnetObjects::default(),
        others: vec![],
    }
}

/// The claim's objects as the plan writes them, each confirmed by Kube-OVN.
pub(super) fn built(claim: &SubnetClaim, egress: bool) -> Seen {
    let mut seen = empty(egress);
    for _ in 0..2 {
        for change in plan(claim, &seen, now()).changes {
            match change {
                Change::CreateSubnet(mut subnet) => {
                    subnet.metadata.uid = Some("subnet-uid".into());
                    let ready = SubnetCondition {
                        type_: "Ready".into(),
                        status: "True".into(),
                        ..SubnetCondition::default()
                    };
                    subnet.status = Some(SubnetStatus {
                        conditions: vec![ready],
                        v4_available: 253,
                        ..SubnetStatus::default()
                    });
                    seen.objects.subnet = Some(*subnet);
                }
                Change::CreateAttachment(attachment) => seen.objects.attachment = Some(*attachment),
                Change::CreateSnat(mut snat) => {
                    snat.status = Some(OvnSnatRuleStatus { ready: true });
                    seen.objects.snat = Some(*snat);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    seen
}

fn use_addresses(seen: &mut Seen, count: i64) {
    seen.objects.subnet.as_mut().unwrap().status.as_mut().unwrap().v4_using = count;
}

fn ready_of(plan: &Plan) -> &Condition {
    get(&plan.status.conditions, READY).unwrap()
}

fn reason_of(plan: &Plan) -> &str {
    &ready_of(plan).reason
}

#[test]
fn a_new_claim_gets_a_subnet_and_an_attachment_in_one_pass() {
    let mut claim = claim("10.1.0.0/24");
    claim.metadata.finalizers = None;
    let plan = plan(&claim, &empty(true), now());
    let [Change::Hold, Change::CreateSubnet(subnet), Change::CreateAttachment(attachment)] =
        &plan.changes[..]
    else {
        panic!("{:?}", plan.changes)
    };
    assert_eq!(subnet.spec.provider, "front.acme-a.ovn");
    assert_eq!((subnet.spec.vpc.as_str(), subnet.spec.gateway.as_str()), ("vpc-x", "10.1.0.1"));
    assert!(attachment.spec.config.contains("front.acme-a.ovn"));
    assert_eq!(attachment.metadata.finalizers.as_deref(), Some(&[ATTACHMENT_FINALIZER.to_owned()][..]));
    assert_eq!(reason_of(&plan), reason::CREATING);
}

#[test]
fn a_built_subnet_is_ready_and_planning_again_changes_nothing() {
    for (cidr, egress) in
        [("10.1.0.0/24", false), ("10.1.0.0/24", true), ("10.1.0.0/24,fd00::/64", true), ("fd00::/64", true)]
    {
        let claim = claim(cidr);
        let seen = built(&claim, egress);
        let plan = plan(&claim, &seen, now());
        assert_eq!(
            (plan.changes.len(), reason_of(&plan)),
            (0, reason::READY),
            "{cidr}: {}",
            ready_of(&plan).message
        );
        assert_eq!(seen.objects.snat.is_some(), egress && cidr != "fd00::/64", "{cidr}");
        assert_eq!(plan.status.network_attachment.as_deref(), Some("acme-a/front"));
    }
}

#[test]
fn source_nat_takes_the_routers_own_address_and_goes_when_the_way_out_goes() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, true);
    assert_eq!(seen.objects.snat.as_ref().unwrap().spec.ovn_eip, "vpc-x-ext");
    seen.vpc_claim.as_mut().unwrap().spec.egress = None;
    let [Change::DeleteSnat(_)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
}

#[test]
fn a_claim_that_cannot_be_served_is_told_why_and_nothing_is_made() {
    let with = |change: fn(&mut Seen)| {
        let mut seen = empty(false);
        change(&mut seen);
        seen
    };
    let cases = vec![
        ("10.1.0.0/24", with(|seen| seen.vpc_claim = None), reason::VPC_NOT_FOUND),
        (
            "10.1.0.0/24",
            with(|seen| seen.vpc_claim.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(now()))),
            reason::VPC_DELETING,
        ),
        ("10.1.0.0/24", with(|seen| seen.vpc.as_mut().unwrap().status = None), reason::VPC_NOT_READY),
        ("10.1.0.0/24", with(|seen| seen.vpc = None), reason::VPC_NOT_READY),
        ("10.1.0.0/24", with(|seen| seen.environment.tenant = None), reason::NOT_AN_ENVIRONMENT),
        ("10.1.0.0/24", with(|seen| seen.platform = Err("broken".into())), reason::PLATFORM_NOT_CONFIGURED),
        (
            "10.1.0.0/24",
            with(|seen| seen.kube_ovn = KubeOvn::Missing("no CRD".into())),
            reason::KUBE_OVN_MISSING,
        ),
        ("203.0.113.0/25", empty(false), reason::CIDR_RESERVED),
        ("192.168.7.0/24", empty(false), reason::CIDR_RESERVED),
        ("100.100.0.0/25", empty(false), reason::CIDR_RESERVED),
        ("10.1.0.7/24", empty(false), reason::HOST_BITS_SET),
        ("10.1.0.0/31", empty(false), reason::CIDR_TOO_SMALL),
    ];
    for (cidr, seen, wanted) in cases {
        let plan = plan(&claim(cidr), &seen, now());
        assert_eq!(
            (reason_of(&plan), plan.changes.len()),
            (wanted, 0),
            "{cidr}: {}",
            ready_of(&plan).message
        );
    }
}

#[test]
fn an_overlap_names_the_claim_that_has_the_range() {
    let mut seen = empty(false);
    seen.others.push(Candidate {
        name: Some("back".into()),
        uid: "uid-b".into(),
        created: None,
        range: Range::parse("10.1.0.0/25").unwrap(),
        has_subnet: true,
    });
    let plan = plan(&claim("10.1.0.0/24"), &seen, now());
    assert_eq!((reason_of(&plan), plan.changes.len()), (reason::CIDR_OVERLAP, 0));
    assert!(ready_of(&plan).message.contains("SubnetClaim back"));
    assert!(get(&plan.status.conditions, STALLED).is_some());
    seen.others[0].name = None;
    let plan = super::plan(&claim("10.1.0.0/24"), &seen, now());
    assert!(ready_of(&plan).message.contains("wait until it is gone"), "{}", ready_of(&plan).message);
    assert!(get(&plan.status.conditions, STALLED).is_none(), "nobody need act on what is going already");
}

#[test]
fn an_attachment_or_subnet_of_somebody_else_is_never_adopted() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, false);
    seen.objects.attachment.as_mut().unwrap().metadata.labels = None;
    let taken = plan(&claim, &seen, now());
    assert_eq!((reason_of(&taken), taken.changes.len()), (reason::NAME_TAKEN, 0));
    let gone = plan(&deleted(claim), &seen, now());
    assert!(
        gone.changes
            .iter()
            .all(|change| !matches!(change, Change::DeleteAttachment(_) | Change::ReleaseAttachment(_)))
    );
}

#[test]
fn what_kube_ovn_refuses_is_passed_on_in_its_words() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, false);
    let refused = SubnetCondition {
        type_: "Validated".into(),
        status: "False".into(),
        message: "conflict".into(),
        ..SubnetCondition::default()
    };
    seen.objects.subnet.as_mut().unwrap().status.as_mut().unwrap().conditions = vec![refused];
    let plan = plan(&claim, &seen, now());
    assert_eq!(reason_of(&plan), reason::SUBNET_REFUSED);
    assert!(ready_of(&plan).message.contains("conflict"));
}

#[test]
fn other_excluded_addresses_rewrite_the_subnet() {
    let mut claim = claim("10.1.0.0/24");
    let seen = built(&claim, false);
    claim.spec.exclude_addresses = vec!["10.1.0.9".into()];
    let [Change::UpdateSubnet(subnet)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    assert_eq!(subnet.spec.exclude_ips, ["10.1.0.1", "10.1.0.9"]);
    assert_eq!(subnet.metadata.uid.as_deref(), Some("subnet-uid"));
}

#[test]
fn a_subnet_with_addresses_in_use_waits_and_says_how_many() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, false);
    use_addresses(&mut seen, 3);
    let plan = plan(&deleted(claim), &seen, now());
    assert_eq!((plan.changes.len(), reason_of(&plan)), (0, reason::IN_USE));
    assert!(ready_of(&plan).message.contains("hold 3 of its addresses"));
}

#[test]
fn the_way_down_is_nat_then_subnet_then_attachment_then_let_go() {
    let kept = claim("10.1.0.0/24");
    let mut seen = built(&kept, true);
    let claim = deleted(kept);
    let [Change::DeleteSnat(_)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    seen.objects.snat = None;
    let [Change::DeleteSubnet(_)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    seen.objects.subnet = None;
    let [Change::DeleteAttachment(_), Change::ReleaseAttachment(_)] = &plan(&claim, &seen, now()).changes[..]
    else {
        panic!()
    };
    seen.objects.attachment = None;
    assert_eq!(plan(&claim, &seen, now()).changes, [Change::Release]);
}

#[test]
fn an_environment_that_goes_is_kept_only_for_addresses_and_only_so_long() {
    let kept = claim("10.1.0.0/24");
    let mut seen = built(&kept, false);
    let claim = deleted(kept);
    seen.environment.terminating = true;
    use_addresses(&mut seen, 1);
    assert_eq!(plan(&claim, &seen, now()).changes, [], "its machines still run");
    seen.environment.workloads = false;
    assert_eq!(plan(&claim, &seen, now()).changes, [], "Kube-OVN has not given the addresses back yet");
    let later = Timestamp::from_second(1_030).unwrap();
    assert!(plan(&claim, &seen, later).changes.contains(&Change::Release));
    use_addresses(&mut seen, 0);
    assert!(plan(&claim, &seen, now()).changes.contains(&Change::Release));
}

#[test]
fn nat_that_is_not_let_go_is_nudged_now_and_then() {
    let kept = claim("10.1.0.0/24");
    let mut seen = built(&kept, true);
    let snat = seen.objects.snat.as_mut().unwrap();
    snat.metadata.deletion_timestamp = Some(Time(now()));
    let at = |seconds: i64| Timestamp::from_second(1_000 + seconds).unwrap();
    for claim in [kept.clone(), deleted(kept)] {
        assert_eq!(plan(&claim, &seen, at(9)).changes, [], "a living Kube-OVN needs less");
        let [Change::NudgeSnat(_, text)] = &plan(&claim, &seen, at(10)).changes[..] else { panic!() };
        let mut nudged = seen.clone();
        let annotations = [(kmetal_crds::names::NUDGED.to_owned(), text.clone())];
        nudged.objects.snat.as_mut().unwrap().metadata.annotations = Some(annotations.into());
        assert_eq!(plan(&claim, &nudged, at(19)).changes, [], "once is enough for a while");
        assert_eq!(plan(&claim, &nudged, at(20)).changes.len(), 1);
    }
}

#[test]
fn an_attachment_that_somebody_deletes_is_let_go_unless_the_environment_goes() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, false);
    seen.objects.attachment.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(now()));
    let [Change::ReleaseAttachment(_)] = &plan(&claim, &seen, now()).changes[..] else { panic!() };
    seen.environment.terminating = true;
    assert_eq!(plan(&claim, &seen, now()).changes, [], "its machines go first");
}

#[test]
fn a_subnet_whose_vpc_claim_is_gone_goes_with_it_and_machines_lose_only_their_way_out() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, true);
    seen.vpc_claim = None;
    seen.vpc = None;
    use_addresses(&mut seen, 1);
    let held = plan(&claim, &seen, now());
    assert!(matches!(&held.changes[..], [Change::DeleteSnat(_)]), "{:?}", held.changes);
    assert_eq!(reason_of(&held), reason::VPC_NOT_FOUND);
    seen.objects.snat = None;
    assert_eq!(plan(&claim, &seen, now()).changes, []);
    use_addresses(&mut seen, 0);
    let free = plan(&claim, &seen, now());
    assert!(matches!(&free.changes[..], [Change::DeleteSubnet(_)]), "{:?}", free.changes);
}

#[test]
fn a_range_that_the_platform_takes_over_is_told_and_what_has_to_go_still_goes() {
    let claim = claim("10.1.0.0/24");
    let mut seen = built(&claim, true);
    let text = "{protectedCIDRs: [10.1.0.0/16], providerNetworks: [{name: internet, externalSubnet: ext, cidr: 203.0.113.0/24, gateway: 203.0.113.1}]}";
    seen.platform = Ok(Arc::new(Platform::parse(text).unwrap()));
    let told = plan(&claim, &seen, now());
    assert_eq!((told.changes.len(), reason_of(&told)), (0, reason::CIDR_RESERVED));
    seen.vpc_claim.as_mut().unwrap().spec.egress = None;
    assert!(matches!(&plan(&claim, &seen, now()).changes[..], [Change::DeleteSnat(_)]));
}
