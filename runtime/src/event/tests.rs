use http::Method;

use super::*;
use crate::{
    fence::Fence,
    mock::{Server, status},
};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/ns/events";
const SECOND: Duration = Duration::from_secs(1);

fn events(server: &Server) -> Events {
    Events::new(server.client(Fence::default()), "kmetal-test", "pod-1", Metrics::default())
}

fn vpc() -> ObjectReference {
    ObjectReference {
        kind: Some("VpcClaim".into()),
        name: Some("a".into()),
        namespace: Some("ns".into()),
        uid: Some("u".into()),
        ..ObjectReference::default()
    }
}

/// Patches are accepted without being kept.
fn server() -> Server {
    let server = Server::new(&[EVENTS, "/apis/events.k8s.io/v1/namespaces/default/events"]);
    server.script(|seen| (seen.method == Method::PATCH).then(|| (200, serde_json::json!({}))));
    server
}

async fn warn(events: &Events, note: &str) {
    events.publish(&vpc(), EventType::Warning, "Failed", note, "Reconcile").await;
}

#[tokio::test(start_paused = true)]
async fn the_same_note_raises_the_count_of_one_event_and_another_note_is_another_event() {
    let server = server();
    let events = events(&server);
    warn(&events, "x").await;
    warn(&events, "x").await;
    warn(&events, "x").await;
    assert_eq!(server.seen().len(), 1, "repetitions within a minute are only counted");
    warn(&events, "y").await;
    assert_eq!(server.seen().len(), 2);
    assert_eq!(server.seen()[1].body["note"], "y");

    tokio::time::sleep(61 * SECOND).await;
    warn(&events, "x").await;
    let patch = server.seen()[2].clone();
    assert_eq!(patch.method, Method::PATCH);
    assert_eq!(patch.body["series"]["count"], 4);
    let made = &server.seen()[0].body;
    assert!(patch.path.ends_with(made["metadata"]["name"].as_str().unwrap()));
    assert_eq!(made["type"], "Warning");
    assert_eq!(made["regarding"]["name"], "a");
    assert_eq!(made["reportingInstance"], "pod-1");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_has_forgotten_is_made_anew() {
    let server = server();
    let events = events(&server);
    warn(&events, "x").await;
    server.script(|seen| (seen.method == Method::PATCH).then(|| status(404, "NotFound", "gone")));
    tokio::time::sleep(61 * SECOND).await;
    warn(&events, "x").await;
    let methods: Vec<_> = server.seen().iter().map(|seen| seen.method.clone()).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST]);
}

#[tokio::test(start_paused = true)]
async fn what_the_server_would_refuse_is_cut_to_size() {
    let server = server();
    let mut long = vpc();
    long.name = Some("n".repeat(253));
    let note = "ü".repeat(2000);
    events(&server).publish(&long, EventType::Normal, &"R".repeat(300), &note, "Act").await;
    let made = server.seen()[0].body.clone();
    assert_eq!(made["note"].as_str().unwrap().len(), 1000);
    assert_eq!(made["reason"].as_str().unwrap().len(), 128);
    assert!(made["metadata"]["name"].as_str().unwrap().len() <= 253);
}

#[tokio::test(start_paused = true)]
async fn events_of_cluster_scoped_objects_land_in_default() {
    let server = server();
    let mut node = vpc();
    node.namespace = None;
    events(&server).publish(&node, EventType::Normal, "R", "n", "A").await;
    assert!(server.seen()[0].path.contains("/namespaces/default/"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_event_is_counted_and_told_again_next_time() {
    let server = server();
    let events = events(&server);
    server.script(|_| Some(status(403, "Forbidden", "no")));
    warn(&events, "x").await;
    assert!(events.metrics.encode().unwrap().contains("kmetal_events_lost_total 1"));
    server.script(|_| None);
    warn(&events, "x").await;
    assert_eq!(server.seen().len(), 2);
}
