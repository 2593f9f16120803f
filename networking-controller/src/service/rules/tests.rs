//! Every row of what `docs/networking.md` promises of the rules of an address.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kmetal_crds::foreign::kube_ovn::OvnDnatRuleStatus;
use proptest::prelude::*;

use super::*;

fn now() -> Timestamp {
    Timestamp::from_second(1_000).unwrap()
}

fn worker(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn port(external: u16, protocol: Protocol) -> Port {
    Port { name: String::new(), protocol, external, node: 30_000 + external }
}

fn network(vpc: &str) -> Network {
    Network {
        vpc: vpc.into(),
        vpc_claim_uid: "uid-prod".into(),
        external_subnet: "ext".into(),
        segments: Vec::new(),
    }
}

fn claim(uid: &str) -> ClaimRef {
    ClaimRef { kind: "EipClaim".into(), namespace: "acme".into(), name: "shop".into(), uid: uid.into() }
}

/// One pass; `to` is the worker that serves now.
fn pass(ports: &[Port], present: &[OvnDnatRule], pending: &[Socket], to: Option<u8>) -> Rules {
    let lead = |port: &Port, _| Lead {
        worker: to.map(worker),
        lacking: to
            .is_none()
            .then(|| Refused { reason: reason::NO_WORKER, message: port.external.to_string() }),
    };
    of("1", "vpc", ports, present, pending, lead)
}

fn of(
    service_uid: &str,
    vpc: &str,
    ports: &[Port],
    present: &[OvnDnatRule],
    pending: &[Socket],
    lead: impl Fn(&Port, Option<Ipv4Addr>) -> Lead,
) -> Rules {
    let (claim, network) = (claim("uid-shop"), network(vpc));
    let tie = Tie { claim: &claim, eip: "eip", network: &network, cluster_uid: "blue", service_uid };
    rules(&tie, ports, present, &pending.iter().copied().collect(), lead, now())
}

fn created(rules: &Rules) -> Vec<OvnDnatRule> {
    let made = rules.changes.iter().filter_map(|change| match change {
        Change::CreateDnat(rule) => Some((**rule).clone()),
        _ => None,
    });
    made.collect()
}

fn deleted(rules: &Rules) -> Vec<&str> {
    let gone = rules.changes.iter().filter_map(|change| match change {
        Change::DeleteDnat(target) => Some(target.name.as_str()),
        _ => None,
    });
    gone.collect()
}

/// As Kube-OVN has it a moment later.
fn ready(mut rule: OvnDnatRule) -> OvnDnatRule {
    rule.metadata.uid = Some(format!("uid-{}", rule.name_any()));
    rule.metadata.creation_timestamp = Some(Time(now()));
    rule.status = Some(OvnDnatRuleStatus { ready: true });
    rule
}

fn built(ports: &[Port], to: u8) -> Vec<OvnDnatRule> {
    created(&pass(ports, &[], &[], Some(to))).into_iter().map(ready).collect()
}

fn deleting(mut rule: OvnDnatRule) -> OvnDnatRule {
    rule.metadata.deletion_timestamp = Some(Time(now()));
    rule
}

#[test]
fn each_port_becomes_one_rule_to_the_worker_and_then_nothing_changes() {
    let ports = [port(53, Protocol::Tcp), port(53, Protocol::Udp), port(443, Protocol::Tcp)];
    let first = pass(&ports, &[], &[], Some(7));
    assert_eq!(first.state, State::Waiting);
    let made = created(&first);
    let seen: Vec<(&str, &str, &str, &str)> = made
        .iter()
        .map(|rule| &rule.spec)
        .map(|spec| (&*spec.external_port, &*spec.protocol, &*spec.internal_port, &*spec.v4_ip))
        .collect();
    let wanted = [
        ("53", "tcp", "30053", "10.0.0.7"),
        ("53", "udp", "30053", "10.0.0.7"),
        ("443", "tcp", "30443", "10.0.0.7"),
    ];
    assert_eq!(seen, wanted);
    assert!(made.iter().all(|rule| rule.spec.ovn_eip == "eip" && rule.spec.vpc == "vpc"));
    assert!(made.iter().all(|rule| ClaimRef::from_labels(&rule.metadata) == Some(claim("uid-shop"))));
    assert!(
        made.iter()
            .all(|rule| is_of(rule, "blue", "1") && !is_of(rule, "blue", "2") && !is_of(rule, "red", "1"))
    );
    let names: BTreeSet<String> = made.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names.len(), 3);

    let again = pass(&ports, &built(&ports, 7), &[], Some(7));
    assert_eq!(again, Rules { changes: vec![], state: State::Ready });
}

#[test]
fn forty_ports_are_forty_rules() {
    let ports: Vec<Port> = (1..=40).map(|n| port(n, Protocol::Tcp)).collect();
    let mut all = built(&ports, 7);
    assert_eq!(all.len(), 40);
    all[39].status = None;
    assert_eq!(pass(&ports, &all, &[], Some(7)), Rules { changes: vec![], state: State::Waiting });
}

#[test]
fn a_rule_that_moves_is_deleted_gone_and_only_then_made_again_under_another_name() {
    let ports = [port(80, Protocol::Tcp)];
    let old = built(&ports, 7);
    let away = pass(&ports, &old, &[], Some(8));
    assert_eq!((deleted(&away).len(), created(&away).len(), away.changes.len()), (1, 0, 1));
    let going = [deleting(old[0].clone())];
    assert_eq!(pass(&ports, &going, &[], Some(8)), Rules { changes: vec![], state: State::Waiting });
    let anew = created(&pass(&ports, &[], &[], Some(8)));
    assert_eq!(anew[0].spec.v4_ip, "10.0.0.8");
    assert_ne!(anew[0].name_any(), old[0].name_any());
    // The same wish a moment later is another name, too.
    let (claim, network) = (claim("uid-shop"), network("vpc"));
    let tie = Tie { claim: &claim, eip: "eip", network: &network, cluster_uid: "blue", service_uid: "1" };
    let later = Timestamp::from_millisecond(1_000_001).unwrap();
    assert_ne!(
        tie.rule(&ports[0], worker(7), now()).name_any(),
        tie.rule(&ports[0], worker(7), later).name_any()
    );
}

#[test]
fn ports_that_come_go_and_change_touch_no_other() {
    let old = built(&[port(80, Protocol::Tcp), port(443, Protocol::Tcp)], 7);
    let changed = pass(&[port(443, Protocol::Tcp), port(8080, Protocol::Tcp)], &old, &[], Some(7));
    assert_eq!(deleted(&changed), [old[0].name_any()]);
    assert_eq!(created(&changed)[0].spec.external_port, "8080");
    assert_eq!(changed.changes.len(), 2);

    let other_node_port = [Port { node: 31_000, ..port(80, Protocol::Tcp) }, port(443, Protocol::Tcp)];
    let changed = pass(&other_node_port, &old, &[], Some(7));
    assert_eq!((deleted(&changed), created(&changed).len()), (vec![&*old[0].name_any()], 0));
}

#[test]
fn kube_ovn_is_left_to_finish_a_rule_before_it_is_deleted() {
    let mut young = built(&[port(80, Protocol::Tcp)], 7);
    young[0].status = None;
    assert_eq!(pass(&[], &young, &[], Some(7)).changes, []);
    young[0].metadata.creation_timestamp = Some(Time(Timestamp::from_second(960).unwrap()));
    assert_eq!(deleted(&pass(&[], &young, &[], Some(7))).len(), 1);
}

#[test]
fn a_rule_that_was_sent_a_moment_ago_is_not_sent_again() {
    let ports = [port(80, Protocol::Tcp), port(80, Protocol::Udp)];
    let second = pass(&ports, &[], &[(80, Protocol::Tcp)], Some(7));
    let made = created(&second);
    assert_eq!((made.len(), made[0].spec.protocol.as_str()), (1, "udp"));
    assert_eq!(second.state, State::Waiting);
}

#[test]
fn a_port_that_another_rule_has_is_left_to_it() {
    let ports = [port(80, Protocol::Tcp), port(443, Protocol::Tcp)];
    // Of a Service that the address was taken from a moment ago.
    let lead = |_: &Port, _| Lead { worker: Some(worker(7)), lacking: None };
    let theirs: Vec<OvnDnatRule> =
        created(&of("2", "vpc", &ports[..1], &[], &[], lead)).into_iter().map(ready).collect();
    let waits = pass(&ports, &theirs, &[], Some(7));
    assert_eq!((deleted(&waits).len(), created(&waits).len()), (0, 1));
    assert_eq!(waits.state, State::Waiting);
    // By hand.
    let mut by_hand = theirs[0].clone();
    by_hand.metadata.labels = None;
    // One of ours whose labels were torn off goes by itself: nobody is to be told.
    let torn = pass(&ports, std::slice::from_ref(&by_hand), &[], Some(7));
    assert_eq!((torn.state, deleted(&waits).len(), created(&waits).len()), (State::Waiting, 0, 1));
    by_hand.metadata.name = Some("by-hand".into());
    let taken = pass(&ports, std::slice::from_ref(&by_hand), &[], Some(7));
    let State::Lacking(lack) = &taken.state else { panic!("{:?}", taken.state) };
    assert!(lack.reason == reason::PORT_TAKEN && lack.message.contains(&by_hand.name_any()));
    assert_eq!((deleted(&taken).len(), created(&taken).len()), (0, 1));
}

#[test]
fn what_serves_the_service_by_another_address_or_vpc_goes() {
    let ports = [port(80, Protocol::Tcp)];
    let lead = |_: &Port, _| Lead { worker: Some(worker(7)), lacking: None };
    let elsewhere: Vec<OvnDnatRule> =
        created(&of("1", "old-vpc", &ports, &[], &[], lead)).into_iter().map(ready).collect();
    let moves = pass(&ports, &elsewhere, &[], Some(7));
    assert_eq!((deleted(&moves).len(), created(&moves).len()), (1, 0), "its port is still taken");
    let mut of_other_claim = built(&ports, 7);
    of_other_claim[0]
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(kmetal_crds::names::CLAIM_UID.into(), "other".into());
    of_other_claim[0].spec.ovn_eip = "other".into();
    let moves = pass(&ports, &of_other_claim, &[], Some(7));
    assert_eq!((deleted(&moves).len(), created(&moves).len()), (1, 1));
}

#[test]
fn of_two_rules_for_one_port_one_stays() {
    let ports = [port(80, Protocol::Tcp)];
    let mut twice = built(&ports, 7);
    twice.push(OvnDnatRule { metadata: twice[0].metadata.clone(), ..twice[0].clone() });
    twice[1].metadata.name = Some("dnat-twin".into());
    let changed = pass(&ports, &twice, &[], Some(7));
    assert_eq!((deleted(&changed), created(&changed).len()), (vec!["dnat-twin"], 0));
}

#[test]
fn a_new_port_goes_where_the_others_go_and_each_is_told_of_its_own_place() {
    let ports = [port(80, Protocol::Tcp), port(443, Protocol::Tcp)];
    let lead = |port: &Port, present: Option<Ipv4Addr>| {
        assert_eq!(present, Some(worker(7)), "{}", port.external);
        Lead { worker: present, lacking: None }
    };
    let added = of("1", "vpc", &ports, &built(&ports[..1], 7), &[], lead);
    assert_eq!(created(&added)[0].spec.v4_ip, "10.0.0.7");
}

#[test]
fn without_a_worker_what_leads_nowhere_goes_and_nothing_is_made() {
    let ports = [port(80, Protocol::Tcp), port(443, Protocol::Tcp)];
    let gone = pass(&ports, &built(&ports, 7), &[], None);
    assert_eq!((deleted(&gone).len(), created(&gone).len()), (2, 0));
    assert!(matches!(&gone.state, State::Lacking(lack) if lack.message == "80"));
    // Nobody else serves, and what is there stays: it is said all the same.
    let stranded = |_: &Port, present| Lead {
        worker: present,
        lacking: Some(Refused { reason: reason::NO_WORKER, message: String::new() }),
    };
    let stays = of("1", "vpc", &ports, &built(&ports, 7), &[], stranded);
    assert!(stays.changes.is_empty() && matches!(stays.state, State::Lacking(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happens in whatever order, no two rules have one port of the address, and in the end all is as wanted.
    #[test]
    fn no_port_is_ever_led_to_two_places(steps in prop::collection::vec((0_u8..4, 1_u16..4, 0_u8..8), 1..40)) {
        let mut there: Vec<OvnDnatRule> = Vec::new();
        let mut ports = vec![port(1, Protocol::Tcp)];
        let mut to = 7;
        let settle = |there: &mut Vec<OvnDnatRule>, ports: &[Port], to: u8, how: u8| {
            // Kube-OVN finishes some of what it has to do.
            if how & 1 == 0 { there.retain(|rule| !is_deleting(rule)); }
            if how & 2 == 0 { *there = there.drain(..).map(|r| if is_deleting(&r) { r } else { ready(r) }).collect(); }
            let done = pass(ports, there, &[], Some(to));
            for change in &done.changes {
                match change {
                    Change::CreateDnat(rule) => {
                        let mut rule = (**rule).clone();
                        rule.metadata.creation_timestamp = Some(Time(now()));
                        there.push(rule);
                    }
                    Change::DeleteDnat(target) => for rule in there.iter_mut().filter(|r| r.name_any() == target.name) {
                        rule.metadata.deletion_timestamp = Some(Time(now()));
                    },
                    other => panic!("{other:?}"),
                }
                let sockets: BTreeSet<_> = there.iter().filter_map(socket).collect();
                assert_eq!(sockets.len(), there.len());
            }
            done.state
        };
        for (what, n, how) in steps {
            match what {
                0 => to = 7 + u8::try_from(n).unwrap(),
                1 => ports.retain(|port| port.external != n),
                2 if !ports.iter().any(|port| port.external == n) => ports.push(port(n, Protocol::Tcp)),
                _ => if let Some(port) = ports.iter_mut().find(|port| port.external == n) { port.node += 1 },
            }
            settle(&mut there, &ports, to, how);
        }
        let mut state = State::Waiting;
        for _ in 0..5 { state = settle(&mut there, &ports, to, 0); }
        prop_assert_eq!(state, State::Ready);
        prop_assert_eq!(there.len(), ports.len());
    }
}
