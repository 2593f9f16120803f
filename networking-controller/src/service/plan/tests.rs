//! Every row of what `docs/networking.md` promises of a Service, on facts written by hand.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kmetal_crds::networking::{Binding, BoundCluster, BoundService};
use serde_json::json;

use super::{
    world::{World, at, claim, naming, ports, service},
    *,
};

fn own() -> String {
    names::own_claim("s-1")
}

fn plain() -> Service {
    service("s-1", &json!({}))
}

/// Served by the EipClaim `shop`.
fn served(more: &serde_json::Value) -> World {
    let mut world = World::with(naming(service("s-1", more), "shop"), vec![claim("shop", 4)]);
    world.settle();
    assert_eq!(world.reason(), reason::READY, "{:#?}", world.log);
    world.log.clear();
    world
}

fn deleted(world: &mut World) {
    let time = Some(Time(at(world.now)));
    world.service().metadata.deletion_timestamp = time;
}

#[test]
fn a_service_that_names_a_claim_is_bound_led_and_told_last() {
    let mut world = World::with(naming(plain(), "shop"), vec![claim("shop", 4)]);
    world.settle();
    let [seen, hold, bind, lead, ready] = &world.log[..] else { panic!("{:#?}", world.log) };
    assert_eq!((&**seen, &**hold, &**bind), ("status Creating -", "hold", "bind shop"));
    assert!(lead.starts_with("lead 443 to 10.0.0.1"));
    assert_eq!(ready, "status Ready 203.0.113.4");
    assert!(world.message().contains("203.0.113.4 of EipClaim shop"));
    let plan = world.plan();
    assert_eq!((plan.changes, plan.warnings), (vec![], vec![]));
}

#[test]
fn a_service_that_names_none_gets_one_of_its_own_and_takes_it_along() {
    let mut world = World::with(service("s-1", &json!({ "loadBalancerIP": "203.0.113.99" })), vec![]);
    world.settle();
    assert_eq!(world.reason(), reason::READY, "{:#?}", world.log);
    let made = world.claim(&own());
    assert_eq!(made.spec.address.as_deref(), Some("203.0.113.99"));
    assert_eq!(made.spec.provider_network.as_deref(), Some("internet"));
    let owner = &made.owner_references()[0];
    assert_eq!((&*owner.kind, &*owner.uid, owner.controller), ("Cluster", "uid-blue", None));
    world.log.clear();
    deleted(&mut world);
    world.settle();
    let wanted = [
        "status Releasing -",
        "unlead 443",
        &format!("unbind {}", own()),
        &format!("delete claim {}", own()),
        "release",
    ];
    assert_eq!(world.log, wanted);
    assert!(world.rules.is_empty());
}

#[test]
fn services_of_others_are_untouched() {
    for (more, marked) in [
        (json!({ "loadBalancerClass": "metallb.io/metallb" }), false),
        (json!({ "type": "ClusterIP" }), false),
        (json!({ "type": "NodePort" }), false),
    ] {
        let mut service = service("s-1", &more);
        service.finalizers_mut().push(CLEANUP.into());
        let mut world = World::with(service, vec![claim("shop", 4)]);
        let plan = world.plan();
        assert_eq!(plan, Plan { changes: vec![], status: None, warnings: vec![] }, "{more} {marked}");
        deleted(&mut world);
        assert_eq!(world.plan().changes, [], "not even when it goes: the finalizer is not ours");
    }
}

#[test]
fn an_address_that_somebody_else_wrote_is_not_touched_before_there_is_another() {
    let mut service = naming(plain(), "nowhere");
    service.status =
        serde_json::from_value(json!({ "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } })).unwrap();
    let world = World::with(service, vec![]);
    assert_eq!(world.plan().status.unwrap().show, Show::Nothing);
}

#[test]
fn a_deleted_service_gives_all_back_in_order() {
    let mut world = served(&json!({ "ports": ports(&[80, 443]) }));
    deleted(&mut world);
    world.settle();
    let wanted = ["status Releasing -", "unlead 80", "unlead 443", "unbind shop", "release"];
    assert_eq!(world.log, wanted);
    assert_eq!(world.claims.len(), 1, "a claim that was named is its owner's");
}

#[test]
fn a_service_that_is_a_load_balancer_no_more_is_let_go() {
    let mut world = served(&json!({}));
    let spec = world.service().spec.as_mut().unwrap();
    (spec.type_, spec.load_balancer_class) = (Some("ClusterIP".into()), None);
    world.settle();
    let wanted = ["status Releasing -", "unlead 443", "unbind shop", "release", "status - -"];
    assert_eq!(world.log, wanted);
    assert!(!is_marked(world.service()) && world.service().finalizers().is_empty());
    assert_eq!(world.plan(), Plan { changes: vec![], status: None, warnings: vec![] });
}

#[test]
fn another_claim_is_taken_only_when_the_first_one_is_given_back() {
    let mut world = served(&json!({}));
    world.claims.push(claim("mail", 5));
    world
        .service()
        .annotations_mut()
        .insert(kmetal_crds::networking::service::EIP_CLAIM.into(), "mail".into());
    world.settle();
    let log: Vec<&str> = world.log.iter().map(|line| line.split(" to ").next().unwrap()).collect();
    let wanted = [
        "status Releasing -",
        "unlead 443",
        "unbind shop",
        "bind mail",
        "lead 443",
        "status Creating -",
        "status Ready 203.0.113.5",
    ];
    assert_eq!(log, wanted);
}

#[test]
fn from_its_own_address_to_a_named_one_and_back() {
    let mut world = World::with(plain(), vec![claim("shop", 4)]);
    world.settle();
    let name = kmetal_crds::networking::service::EIP_CLAIM;
    world.service().annotations_mut().insert(name.into(), "shop".into());
    world.settle();
    assert_eq!((world.shown(), world.claims.len()), (Some("203.0.113.4".parse().unwrap()), 1));
    world.service().annotations_mut().remove(name);
    world.settle();
    assert_eq!((world.shown(), world.claims.len()), (Some("203.0.113.99".parse().unwrap()), 2));
    assert_eq!(world.claim("shop").status.clone().unwrap().bound_to, None);
}

#[test]
fn a_claim_that_was_made_anew_under_its_name_is_bound_anew() {
    let mut world = served(&json!({}));
    // Its finalizer was torn out; the address may be anybody's soon.
    world.claims = vec![EipClaim { metadata: ObjectMeta::default(), ..claim("shop", 7) }];
    world.claims[0].metadata.name = Some("shop".into());
    world.claims[0].metadata.namespace = Some("acme".into());
    world.claims[0].metadata.uid = Some("uid-other".into());
    // The old address is still shown: that is what the first pass mends.
    world.pass();
    assert_eq!(world.log, ["status Releasing -"]);
    world.settle();
    assert_eq!(world.shown(), Some("203.0.113.7".parse().unwrap()));
    assert!(world.log.contains(&"unlead 443".to_owned()));
}

#[test]
fn what_cannot_be_had_is_said_and_nothing_is_bound() {
    let bound_to = |cluster: &str, name: &str| {
        let mut claim = claim("shop", 4);
        let service = BoundService { namespace: "shop".into(), name: name.into(), uid: "s-2".into() };
        let cluster = BoundCluster { name: "x".into(), uid: cluster.into() };
        claim.status.as_mut().unwrap().bound_to = Some(Binding { cluster, service });
        claim
    };
    let mut going = claim("shop", 4);
    going.metadata.deletion_timestamp = Some(Time(at(1)));
    let mut young = claim("shop", 4);
    young.status = None;
    let named = || naming(plain(), "shop");
    let refused = |reason| Err(Refused { reason, message: "no".into() });
    let with = |claims: Vec<EipClaim>| World::with(named(), claims);
    let cases = [
        (with(vec![]), reason::EIP_CLAIM_NOT_FOUND),
        (with(vec![bound_to("uid-blue", "other")]), reason::EIP_CLAIM_IN_USE),
        (with(vec![going]), reason::EIP_CLAIM_DELETING),
        (World { network: refused(reason::NO_EGRESS), ..with(vec![claim("shop", 4)]) }, reason::NO_EGRESS),
        (World { over_quota: true, ..World::with(plain(), vec![]) }, reason::QUOTA_EXCEEDED),
        (
            World { kube_ovn: KubeOvn::Missing("no CRD".into()), ..with(vec![claim("shop", 4)]) },
            reason::NETWORK_NOT_READY,
        ),
    ];
    for (mut world, wanted) in cases {
        for _ in 0..3 {
            world.pass();
        }
        assert_eq!(world.reason(), wanted, "{}", world.message());
        assert!(world.log.iter().all(|line| line.starts_with("status")), "{:#?}", world.log);
        assert_eq!(world.shown(), None);
    }
    let mut world = with(vec![young]);
    world.pass();
    world.pass();
    assert_eq!(world.reason(), reason::EIP_CLAIM_NOT_READY);
}

#[test]
fn the_service_that_has_the_address_is_named_in_its_own_cluster_only() {
    let said = |cluster: &str| {
        let mut taken = claim("shop", 4);
        let service = BoundService { namespace: "pay".into(), name: "secret".into(), uid: "s-2".into() };
        let cluster = BoundCluster { name: "red".into(), uid: cluster.into() };
        taken.status.as_mut().unwrap().bound_to = Some(Binding { cluster, service });
        let mut world = World::with(naming(plain(), "shop"), vec![taken]);
        world.pass();
        world.pass();
        world.message().to_owned()
    };
    assert!(said("uid-blue").contains("Service pay/secret"));
    let elsewhere = said("uid-red");
    assert!(!elsewhere.contains("secret") && !elsewhere.contains("red"), "{elsewhere}");
}

#[test]
fn an_address_of_another_network_is_refused_and_one_of_its_own_is_exchanged() {
    let mut world = World::with(naming(plain(), "shop"), vec![claim("shop", 4)]);
    world.network.as_mut().unwrap().external_subnet = "other".into();
    world.settle();
    assert_eq!(world.reason(), reason::WRONG_PROVIDER_NETWORK);
    assert!(world.log.iter().all(|line| line.starts_with("status")), "{:#?}", world.log);
}

#[test]
fn a_service_that_asks_for_what_there_is_not_is_closed_and_keeps_its_address() {
    let mut world = served(&json!({}));
    world.service().spec.as_mut().unwrap().load_balancer_source_ranges = Some(vec!["192.0.2.0/24".into()]);
    world.settle();
    assert_eq!(world.log, ["unlead 443", "status SourceRangesUnsupported -"]);
    assert!(world.claim("shop").status.as_ref().unwrap().bound_to.is_some());
    world.service().spec.as_mut().unwrap().load_balancer_source_ranges = None;
    world.settle();
    assert_eq!(world.reason(), reason::READY);
    deleted(&mut world);
    world.settle();
    assert!(world.service.is_none() && world.rules.is_empty());
}

#[test]
fn missing_facts_take_nothing_away() {
    type Harm = Box<dyn Fn(&mut World)>;
    let refused = || Err(Refused { reason: reason::NETWORK_NOT_READY, message: "no VpcClaim".into() });
    let harms: [(&str, Harm); 4] = [
        ("network", Box::new(move |world| world.network = refused())),
        ("nodes", Box::new(|world| world.workers = None)),
        ("kube-ovn", Box::new(|world| world.kube_ovn = KubeOvn::Missing("no CRD".into()))),
        (
            "endpoints",
            Box::new(|world| {
                world.service().spec.as_mut().unwrap().external_traffic_policy = Some("Local".into());
                world.endpoints = None;
            }),
        ),
    ];
    for (name, harm) in harms {
        let mut world = served(&json!({}));
        harm(&mut world);
        world.settle();
        assert!(world.log.iter().all(|line| line.ends_with(" 203.0.113.4")), "{name}: {:#?}", world.log);
        assert_eq!(world.shown(), Some("203.0.113.4".parse().unwrap()), "{name}");
        assert_ne!(world.reason(), reason::READY, "{name}");
    }
}

#[test]
fn the_address_is_shown_on_while_ports_and_workers_change() {
    let mut world = served(&json!({ "ports": ports(&[80]) }));
    world.service().spec.as_mut().unwrap().ports = serde_json::from_value(ports(&[80, 443])).unwrap();
    world.settle();
    assert_eq!(world.log[1..], ["status Updating 203.0.113.4", "status Ready 203.0.113.4"]);
    assert!(world.log[0].starts_with("lead 443"));

    world.log.clear();
    let leads_to = world.rules[0].spec.v4_ip.clone();
    let workers = world.workers.as_mut().unwrap();
    workers.iter_mut().find(|w| w.addresses[0].to_string() == leads_to).unwrap().ready = false;
    world.settle();
    assert!(world.rules.iter().all(|rule| rule.spec.v4_ip != leads_to));
    assert!(
        world.log.iter().filter(|line| line.starts_with("status")).all(|line| line.ends_with("203.0.113.4"))
    );

    world.log.clear();
    world.workers.as_mut().unwrap().iter_mut().for_each(|worker| worker.ready = false);
    world.settle();
    assert_eq!(world.log, ["status NoWorker 203.0.113.4"]);
}

#[test]
fn a_local_service_follows_its_endpoints_port_by_port() {
    let mut world = World::with(
        naming(
            service("s-1", &json!({ "ports": ports(&[80, 443]), "externalTrafficPolicy": "Local" })),
            "shop",
        ),
        vec![claim("shop", 4)],
    );
    let on = |nodes: &[(&str, &str)]| {
        let mut by_port = BTreeMap::<String, BTreeSet<String>>::new();
        for (port, node) in nodes {
            by_port.entry((*port).into()).or_default().insert((*node).into());
        }
        Some(by_port)
    };
    world.endpoints = on(&[("p80", "a")]);
    world.settle();
    assert_eq!(world.reason(), reason::NO_READY_ENDPOINT);
    assert_eq!((world.rules.len(), world.shown()), (1, None));
    world.endpoints = on(&[("p80", "a"), ("p443", "b")]);
    world.settle();
    let to = |world: &World| world.rules.iter().map(|rule| rule.spec.v4_ip.clone()).collect::<Vec<_>>();
    assert_eq!((world.reason(), to(&world)), (reason::READY, vec!["10.0.0.10".into(), "10.0.0.11".into()]));
    world.endpoints = on(&[("p80", "b"), ("p443", "b")]);
    world.settle();
    assert_eq!((world.reason(), to(&world)), (reason::READY, vec!["10.0.0.11".into(); 2]));
}

#[test]
fn warnings_come_with_what_is_served() {
    let mut world = served(&json!({ "sessionAffinity": "ClientIP", "loadBalancerIP": "203.0.113.200" }));
    let warned: Vec<&str> = world.plan().warnings.iter().map(|warning| warning.reason).collect();
    assert_eq!(warned, [reason::SESSION_AFFINITY_LIMITED, reason::LOAD_BALANCER_IP_IGNORED]);
    world.service().spec.as_mut().unwrap().ip_families = Some(vec!["IPv4".into(), "IPv6".into()]);
    world.settle();
    assert!(world.message().contains("in IPv4 only"));
}

#[test]
fn a_torn_finalizer_is_put_back_while_something_hangs_on_it() {
    let mut world = served(&json!({}));
    world.service().metadata.finalizers = None;
    world.settle();
    assert_eq!(world.log, ["hold"]);
}
