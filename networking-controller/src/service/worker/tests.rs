//! Every row of what `docs/networking.md` promises of the choice of a worker.

use serde_json::{Value, json};

use super::*;

fn segments() -> Vec<Segment> {
    let gateway = Some(Ipv4Addr::new(10, 0, 0, 1));
    vec![
        Segment { net: "10.0.0.0/24".parse().unwrap(), gateway },
        Segment { net: "10.0.9.0/24".parse().unwrap(), gateway: None },
    ]
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn worker(name: &str, last: u8) -> Worker {
    Worker {
        name: name.into(),
        addresses: vec![address(last)],
        ready: true,
        schedulable: true,
        ..Worker::default()
    }
}

fn chosen(workers: &[Worker], endpoints: Option<&[&str]>, present: Option<u8>) -> Option<Ipv4Addr> {
    match choice(workers, endpoints, present) {
        Choice::Serving(address) | Choice::Stranded(address) => Some(address),
        Choice::Nobody => None,
    }
}

fn choice(workers: &[Worker], endpoints: Option<&[&str]>, present: Option<u8>) -> Choice {
    let segments = segments();
    let endpoints: Option<BTreeSet<String>> =
        endpoints.map(|nodes| nodes.iter().map(|node| (*node).to_owned()).collect());
    let present = present.map(address);
    choose("service", Field { workers, segments: &segments, endpoints: endpoints.as_ref(), present })
}

#[test]
fn the_choice_stays_while_it_serves() {
    let all: Vec<Worker> = (10..20).map(|n| worker(&format!("w{n}"), n)).collect();
    for n in 10..20 {
        assert_eq!(chosen(&all, None, Some(n)), Some(address(n)));
    }
    let mut cordoned = all.clone();
    cordoned[3].schedulable = false;
    assert_eq!(chosen(&cordoned, None, Some(13)), Some(address(13)));
}

#[test]
fn the_choice_moves_when_its_worker_no_longer_serves_and_another_does() {
    type Harm = fn(&mut Worker);
    let harms: [(&str, Harm); 4] = [
        ("not ready", |worker| worker.ready = false),
        ("excluded", |worker| worker.excluded = true),
        ("outside of the VPC", |worker| worker.addresses = vec![Ipv4Addr::new(192, 0, 2, 7)]),
        ("no address", |worker| worker.addresses.clear()),
    ];
    for (name, harm) in harms {
        let mut workers = [worker("a", 10), worker("b", 11)];
        harm(&mut workers[0]);
        assert_eq!(chosen(&workers, None, Some(10)), Some(address(11)), "{name}");
        assert_eq!(chosen(&workers[..1], None, None), None, "{name}");
    }
    assert_eq!(chosen(&[worker("b", 11)], None, Some(10)), Some(address(11)), "deleted");
}

#[test]
fn while_nobody_else_serves_the_present_worker_goes_on_unless_it_is_gone_or_unwanted() {
    let mut lone = [worker("a", 10)];
    lone[0].ready = false;
    assert_eq!(choice(&lone, None, Some(10)), Choice::Stranded(address(10)));
    assert_eq!(chosen(&[worker("a", 10)], Some(&[]), Some(10)), Some(address(10)));
    lone[0].excluded = true;
    assert_eq!(chosen(&lone, None, Some(10)), None);
    assert_eq!(chosen(&[], None, Some(10)), None);
    // Its Node says another address now.
    let mut moved = worker("a", 12);
    moved.ready = false;
    assert_eq!(chosen(&[moved], None, Some(10)), None);
}

#[test]
fn a_local_service_goes_where_it_has_an_endpoint() {
    let workers = [worker("a", 10), worker("b", 11), worker("c", 12)];
    assert_eq!(chosen(&workers, Some(&["b"]), None), Some(address(11)));
    assert_eq!(chosen(&workers, Some(&["b"]), Some(10)), Some(address(11)));
    assert_eq!(chosen(&workers, Some(&["a", "b"]), Some(10)), Some(address(10)));
    assert_eq!(chosen(&workers, Some(&["elsewhere"]), None), None);
}

#[test]
fn a_cordoned_worker_is_no_first_choice() {
    let mut workers = [worker("a", 10), worker("b", 11)];
    for (cordoned, other) in [(0, 11), (1, 10)] {
        workers[cordoned].schedulable = false;
        assert_eq!(chosen(&workers, None, None), Some(address(other)));
        workers[cordoned].schedulable = true;
    }
    for worker in &mut workers {
        worker.schedulable = false;
    }
    assert!(chosen(&workers, None, None).is_some());
}

#[test]
fn only_a_machines_address_in_a_subnet_of_the_vpc_counts() {
    for lie in [
        "127.0.0.1",
        "169.254.169.254",
        "203.0.113.7",
        "10.0.0.0",
        "10.0.0.1",
        "10.0.0.255",
        "10.0.1.7",
        "0.0.0.0",
    ] {
        let liar = Worker { addresses: vec![lie.parse().unwrap()], ..worker("liar", 0) };
        assert_eq!(chosen(&[liar], None, None), None, "{lie}");
    }
    // Also where it was led once; the router's own address is where a rule could do harm.
    let liar = Worker { addresses: vec![address(1)], ..worker("liar", 0) };
    assert_eq!(chosen(&[liar], None, Some(1)), None);
    // What it says besides does not matter.
    let two = Worker { addresses: vec!["192.0.2.1".parse().unwrap(), address(7)], ..worker("two", 0) };
    assert_eq!(chosen(&[two], None, None), Some(address(7)));
}

#[test]
fn services_spread_over_the_workers_and_each_chooses_the_same_again() {
    let workers: Vec<Worker> = (10..14).map(|n| worker(&format!("w{n}"), n)).collect();
    let segments = segments();
    let field = Field { workers: &workers, segments: &segments, endpoints: None, present: None };
    let mut turned = workers.clone();
    turned.reverse();
    let mut load = std::collections::BTreeMap::new();
    for n in 0..400 {
        let choice @ Choice::Serving(address) = choose(&n.to_string(), field) else { panic!("{n}") };
        assert_eq!(choose(&n.to_string(), Field { workers: &turned, ..field }), choice);
        *load.entry(address).or_insert(0) += 1;
    }
    assert!(load.len() == 4 && load.values().all(|n| *n > 50), "{load:?}");
}

#[test]
fn a_node_is_read_as_kubernetes_writes_it() {
    let node = |value: Value| Worker::from(&serde_json::from_value::<Node>(value).unwrap());
    let good = json!({
        "metadata": { "name": "w", "labels": {} },
        "spec": {},
        "status": {
            "addresses": [
                { "type": "Hostname", "address": "w" },
                { "type": "ExternalIP", "address": "10.0.0.9" },
                { "type": "InternalIP", "address": "fd00::7" },
                { "type": "InternalIP", "address": "10.0.0.7" },
                { "type": "InternalIP", "address": "no address" },
            ],
            "conditions": [
                { "type": "MemoryPressure", "status": "False" },
                { "type": "Ready", "status": "True" },
            ],
        },
    });
    assert_eq!(node(good.clone()), worker("w", 7));
    for (pointer, value, seen) in [
        ("/status/conditions/1/status", json!("Unknown"), Worker { ready: false, ..worker("w", 7) }),
        ("/spec", json!({ "unschedulable": true }), Worker { schedulable: false, ..worker("w", 7) }),
        (
            "/spec",
            json!({ "taints": [{ "key": TO_BE_DELETED, "effect": "NoSchedule" }] }),
            Worker { ready: false, ..worker("w", 7) },
        ),
        (
            "/metadata",
            json!({ "name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z" }),
            Worker { ready: false, ..worker("w", 7) },
        ),
        (
            "/metadata",
            json!({ "name": "w", "labels": { EXCLUDE_NODE: "" } }),
            Worker { excluded: true, ..worker("w", 7) },
        ),
    ] {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert_eq!(node(changed), seen, "{pointer}");
    }
    assert_eq!(
        node(json!({ "metadata": { "name": "w" } })),
        Worker { name: "w".into(), schedulable: true, ..Worker::default() }
    );
}
