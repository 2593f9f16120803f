//! Two runs that ended alike, and the ways in which they may not have.

use k8s_openapi::api::core::v1::{ConfigMap, Service};

use super::*;

const OWNER: &str = "11111111-1111-4111-8111-111111111111";
const CHILD: &str = "22222222-2222-4222-8222-222222222222";

/// A run's end state: the first digit of its uids, the address that the server gave.
fn run(digit: char, address: &str, change: impl Fn(&mut Value, &mut Value)) -> Snapshot {
    let (own, child) = (Kind::own::<ConfigMap>(), Kind::child::<Service>().assigned(&["/spec/address"]));
    let uid = |uid: &str| uid.replacen(&uid[..1], &digit.to_string(), 1);
    let mut one = json!({
        "metadata": {"name": "one", "namespace": "n", "uid": uid(OWNER), "resourceVersion": address, "generation": 3,
            "creationTimestamp": "2026-11-30T10:00:00Z", "managedFields": [{"manager": address}]},
        "status": {"observedGeneration": 3, "message": format!("it has {address}."), "address": address},
    });
    let mut two = json!({
        "metadata": {"name": "two", "uid": uid(CHILD), "labels": {"owner": uid(OWNER)},
            "ownerReferences": [{"uid": uid(OWNER)}]},
        "spec": {"address": address, "more": "10.0.0.10"},
    });
    change(&mut one, &mut two);
    let object = |value: Value| serde_json::from_value::<DynamicObject>(value).unwrap();
    Snapshot::of(&[(&own, object(one)), (&child, object(two))], &[format!("NAT {address}")])
}

fn first() -> Snapshot {
    run('1', "10.0.0.1", |_, _| ())
}

/// What the second run differs in.
fn difference(change: impl Fn(&mut Value, &mut Value)) -> String {
    let found = first().difference(&run('7', "10.0.0.2", change));
    found.map(|difference| difference.to_string()).unwrap_or_default()
}

#[test]
fn runs_that_ended_alike_are_the_same() {
    assert_eq!(difference(|_, _| ()), "");
    assert_eq!(first().len(), 3);
}

#[test]
fn a_planted_difference_is_found() {
    type Change = fn(&mut Value, &mut Value);
    let planted: [(&str, Change); 8] = [
        ("another name", |_, two| two["metadata"]["name"] = json!("three")),
        ("a reference to an object that is gone", |_, two| {
            two["metadata"]["ownerReferences"][0]["uid"] = json!("33333333-3333-4333-8333-333333333333");
        }),
        ("a label that lies", |_, two| two["metadata"]["labels"]["owner"] = json!("nobody")),
        ("an address that is not the one given", |one, _| one["status"]["address"] = json!("10.0.0.9")),
        ("a message that speaks of another", |one, _| one["status"]["message"] = json!("it has 10.0.0.20.")),
        ("an outdated answer", |one, _| one["status"]["observedGeneration"] = json!(2)),
        ("a finalizer left", |one, _| one["metadata"]["finalizers"] = json!(["f"])),
        ("an end that was asked for", |one, _| {
            one["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        }),
    ];
    for (what, change) in planted {
        assert_ne!(difference(change), "", "{what} is not found");
    }
}

#[test]
fn a_leaked_object_and_a_row_too_many_are_found() {
    let none = Snapshot::of(&[], &[]);
    let told = none.difference(&first()).unwrap().to_string();
    assert!(told.contains("+ Service two: ") && told.contains("+ elsewhere 0000: NAT "), "{told}");
    let row = || "row".to_owned();
    assert!(Snapshot::of(&[], &[row()]).difference(&Snapshot::of(&[], &[row(), row()])).is_some());
}

#[test]
fn noise_is_left_out() {
    let kind = Kind::child::<Service>().noise(&["/status/count", "/metadata/annotations/a.io~1b"]);
    let of = |count: u8| {
        let object = json!({"metadata": {"name": "s", "annotations": {"a.io/b": count.to_string()}},
            "status": {"count": count}});
        Snapshot::of(&[(&kind, serde_json::from_value(object).unwrap())], &[])
    };
    assert!(of(1).difference(&of(2)).is_none());
}

#[test]
fn a_value_is_replaced_only_where_it_is_a_word() {
    let names = Names([("10.0.0.1".to_owned(), "<A>".to_owned())].into());
    assert_eq!(names.apply("10.0.0.1, 10.0.0.10 (10.0.0.1)."), "<A>, 10.0.0.10 (<A>).");
    assert_eq!(names.apply("é 10.0.0.1: -- ."), "é <A>: -- .");
    assert_eq!(names.apply(OWNER), "<unknown uid>");
}
