//! Planted logs: each has one fault that the oracle must find, and the same without it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Audit, Entry, Requests, parse, permissions};
use crate::{apply, rig::Rig};

const OLD: &str = "JTI=old";
const NEW: &str = "JTI=new";

/// A line about `resource[/subresource][.group] [namespace/]name`, answered a hundredth of a second after `second`.
fn line(second: u32, credential: &str, verb: &str, about: &str, code: u16) -> Value {
    let (kind, object) = about.split_once(' ').unwrap_or((about, ""));
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (resource, sub) = kind.split_once('/').unwrap_or((kind, ""));
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    json!({
        "auditID": format!("{second}-{credential}-{verb}-{about}"),
        "stage": "ResponseComplete",
        "level": "Metadata",
        "requestURI": format!("/apis/{about}?fieldManager=kmetal-x&force=true"),
        "verb": verb,
        "user": {
            "username": "system:serviceaccount:kmetal-system:x",
            "extra": {"authentication.kubernetes.io/credential-id": [credential]},
        },
        "userAgent": "kmetal-x/0.1.0",
        "objectRef": {"resource": resource, "subresource": sub, "apiGroup": group, "namespace": namespace, "name": name},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": format!("2026-11-30T14:{:02}:{:02}.000000Z", second / 60, second % 60),
        "stageTimestamp": format!("2026-11-30T14:{:02}:{:02}.010000Z", second / 60, second % 60),
    })
}

fn requests(lines: &[Value]) -> Requests {
    Requests::new(lines.iter().map(|line| parse(&line.to_string()).unwrap()).collect())
}

fn is_of(credential: &'static str) -> impl Fn(&Entry) -> bool {
    move |entry| entry.credential() == Some(credential)
}

#[test]
fn a_process_that_writes_after_losing_its_lease_is_found() {
    let mut lines = vec![
        line(1, OLD, "patch", "vpcs.kubeovn.io a", 200),
        line(2, OLD, "update", "leases.coordination.k8s.io kmetal-system/x", 200),
        line(20, NEW, "update", "leases.coordination.k8s.io kmetal-system/x", 200),
        line(21, NEW, "patch", "vpcs.kubeovn.io b", 200),
        // What is refused, and what is no work, is no harm.
        line(22, OLD, "update", "leases.coordination.k8s.io kmetal-system/x", 409),
        line(22, OLD, "create", "events.events.k8s.io a/e", 201),
        line(23, OLD, "patch", "vpcs.kubeovn.io a", 409),
    ];
    let writes = requests(&lines).by("kmetal-system", "x").useful_writes().accepted();
    let handover = writes.handover(is_of(OLD), is_of(NEW));
    assert!(handover.overlapping.is_empty(), "{handover:?}");
    assert_eq!(handover.last_of_old.unwrap().reference().name, "a");
    assert_eq!(handover.first_of_new.unwrap().reference().name, "b");

    lines.push(line(24, OLD, "patch", "vpcs.kubeovn.io late", 200));
    let writes = requests(&lines).useful_writes().accepted();
    let late = writes.handover(is_of(OLD), is_of(NEW)).overlapping;
    assert_eq!(late.iter().map(|entry| entry.reference().name).collect::<Vec<_>>(), ["late"]);

    // One that came before and was answered after the new one's first is late too.
    let mut slow = line(20, OLD, "patch", "vpcs.kubeovn.io slow", 200);
    slow["stageTimestamp"] = "2026-11-30T14:00:30.000000Z".into();
    let writes = requests(&[lines[3].clone(), slow]);
    assert_eq!(writes.handover(is_of(OLD), is_of(NEW)).overlapping.len(), 1);
}

#[test]
fn an_isolation_that_is_patched_in_later_is_found() {
    let whole = [
        line(1, NEW, "patch", "vpcs.kubeovn.io a", 201),
        line(2, NEW, "patch", "vpcs/status.kubeovn.io a", 200),
        line(3, NEW, "delete", "vpcs.kubeovn.io a", 200),
        line(4, NEW, "create", "vpcs.kubeovn.io a", 201),
    ];
    assert_eq!(requests(&whole).afterthoughts().len(), 0);
    let mut later = whole.to_vec();
    later.push(line(5, NEW, "patch", "vpcs.kubeovn.io a", 200));
    assert_eq!(requests(&later).about("vpcs").afterthoughts().len(), 1);
    // Of an object that somebody else made, a patch is all that one can do.
    assert_eq!(requests(&later[4..]).afterthoughts().len(), 0);
}

#[test]
fn a_loop_on_its_own_status_is_found() {
    let mut lines: Vec<Value> =
        (0..3).map(|n| line(n, NEW, "patch", &format!("vpcclaims/status.n t/{n}"), 200)).collect();
    assert!(requests(&lines).more_often_than(1).is_empty());
    lines.extend((10..60).map(|n| line(n, NEW, "patch", "vpcclaims/status.n t/1", 200)));
    let loops = requests(&lines).more_often_than(1);
    let told: Vec<String> = loops.iter().map(|(target, count)| format!("{target}: {count}")).collect();
    assert_eq!(told, ["vpcclaims.n/status t/1 by kmetal-x: 51"]);
}

#[test]
fn a_program_that_polls_is_found_by_the_minute() {
    let mut lines: Vec<Value> = (0..600).step_by(100).map(|n| line(n, NEW, "get", "pods a/p", 200)).collect();
    lines.extend((300..330).map(|n| line(n, NEW, "list", "pods", 200)));
    let minutes = &requests(&lines).per_minute()["kmetal-x/0.1.0"];
    assert_eq!(minutes["2026-11-30T14:05"], 31);
    assert_eq!(minutes.iter().filter(|(_, count)| **count > 1).count(), 1, "{minutes:?}");
}

#[test]
fn a_step_that_is_taken_too_early_is_found() {
    let of = |name: &'static str| move |entry: &Entry| entry.reference().name == name;
    let good = [line(1, NEW, "patch", "k/status one", 200), line(2, NEW, "create", "k two", 201)];
    assert!(requests(&good).out_of_order(of("one"), of("two")).is_none());
    // The log is written as requests end; what counts is when they came.
    let bad = [line(2, NEW, "patch", "k/status one", 200), line(1, NEW, "create", "k two", 201)];
    let (early, late) = requests(&bad).out_of_order(of("one"), of("two")).unwrap();
    assert_eq!((early.reference().name.as_str(), late.reference().name.as_str()), ("two", "one"));
}

#[test]
fn a_secret_in_the_log_is_found() {
    let mut lines =
        vec![line(1, NEW, "get", "secrets a/s", 200), line(2, NEW, "create", "configmaps a/m", 201)];
    lines[1]["requestObject"] = json!({"data": {}});
    assert!(requests(&lines).with_secret_bodies().is_empty());
    lines.push(line(3, NEW, "update", "secrets a/s", 200));
    lines[2]["responseObject"] = json!({"data": {"password": "aHVudGVyMg=="}});
    let found = requests(&lines).with_secret_bodies().told();
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("secrets") && !found[0].contains("aHVudGVyMg"), "{found:?}");
}

#[test]
fn what_is_granted_and_not_used_is_found_and_what_is_forbidden() {
    let chart = apply::parse(
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: x}
rules:
  - {apiGroups: [kubeovn.io], resources: [vpcs], verbs: [get, watch, create, patch]}
  - {apiGroups: [\"\"], resources: [pods], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: of-tenants}
rules: [{apiGroups: [n], resources: [vpcclaims], verbs: [delete]}]
",
    )
    .unwrap();
    let granted = permissions::granted(&chart, &["x"]).unwrap();
    let mut watch = line(2, NEW, "watch", "vpcs.kubeovn.io", 200);
    watch["stage"] = "ResponseStarted".into();
    let lines = [
        line(1, NEW, "patch", "vpcs.kubeovn.io a", 201),
        watch,
        line(3, NEW, "delete", "vpcs.kubeovn.io a", 403),
    ];
    let requests = requests(&lines);
    let used = requests.permissions();
    let unused: Vec<String> = granted.difference(&used).map(ToString::to_string).collect();
    assert_eq!(unused, ["list pods of core", "get vpcs of kubeovn.io"]);
    assert_eq!(requests.forbidden().len(), 1);

    let kept: BTreeSet<_> = used.iter().map(|used| used.to_string().parse().unwrap()).collect();
    assert_eq!(kept, used);
}

#[test]
fn the_log_is_read_from_the_mark_to_its_last_whole_line() {
    let rig = Rig::new("audit").unwrap();
    let path = rig.folder().join("audit.log");
    let first = format!("{}\n", line(1, NEW, "get", "pods a/before", 200));
    std::fs::write(&path, &first).unwrap();
    let mark = Audit::of(path.clone()).mark().unwrap();
    let mut begun = line(2, NEW, "watch", "pods", 200);
    begun["stage"] = "ResponseStarted".into();
    let mut running = line(3, NEW, "watch", "nodes", 200);
    running["stage"] = "ResponseStarted".into();
    let ended = line(2, NEW, "watch", "pods", 200);
    std::fs::write(&path, format!("{first}{begun}\n{running}\n{ended}\n{{\"half")).unwrap();
    assert_eq!(mark.entries().unwrap().len(), 1);
    let requests = mark.requests().unwrap();
    let told: Vec<String> = requests.iter().map(|entry| entry.reference().resource).collect();
    assert_eq!(told, ["pods", "nodes"], "a watch that ended is one request, one that runs is one too");
    assert_eq!(requests[0].manager(), "kmetal-x");
    assert!(requests[0].answered().unwrap() > requests[0].received().unwrap());
    rig.succeed();
}
