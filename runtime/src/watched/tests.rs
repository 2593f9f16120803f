use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::*;
use crate::{fence::Fence, mock::Server};

const MAPS: &str = "/api/v1/configmaps";
const SECOND: Duration = Duration::from_secs(1);

fn map(name: &str, data: &str) -> Value {
    json!({ "metadata": { "namespace": "ns", "name": name, "managedFields": [] }, "data": { "x": data } })
}

fn undecodable(name: &str) -> Value {
    json!({ "metadata": { "namespace": "ns", "name": name }, "data": "not a map" })
}

fn watch(server: &Server) -> Watched<ConfigMap> {
    let api = Api::all(server.client(Fence::default()));
    let strip = |map: &mut ConfigMap| map.metadata.managed_fields = None;
    let (terms, metrics) = (Terms::default(), Metrics::default());
    Watched::spawn(api, watcher::Config::default(), strip, terms, &metrics, CancellationToken::new())
}

fn names(maps: &[Arc<ConfigMap>]) -> Vec<String> {
    let mut names: Vec<_> = maps.iter().map(|map| map.name_any()).collect();
    names.sort();
    names
}

/// What arrives until nothing does for a while, as `name=data`.
async fn heard(changes: &mut (impl Stream<Item = Arc<ConfigMap>> + Unpin)) -> Vec<String> {
    let mut heard = Vec::new();
    while let Ok(Some(map)) = timeout(SECOND / 10, changes.next()).await {
        let data = map.data.as_ref().map_or("", |data| data["x"].as_str());
        heard.push(format!("{}={data}", map.name_any()));
    }
    heard
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_and_what_changes_is_readable() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    let watched = watch(&server);
    assert_eq!(watched.presence(), Presence::Syncing);
    assert!(matches!(watched.read(Store::len), Err(Error::Unknown { .. })));
    watched.settled().await;
    assert_eq!(watched.presence(), Presence::Present);
    assert_eq!(watched.get_in("ns", "a").unwrap().metadata.managed_fields, None);
    server.put(MAPS, map("b", "1"));
    server.remove(MAPS, "a");
    sleep(SECOND / 10).await;
    assert_eq!(names(&watched.all()), ["b"]);
    assert_eq!(names(&watched.state_filter(|map| map.name_any() == "x")), Vec::<String>::new());
    assert!(watched.get_in("ns", "a").is_none());
    assert!(watched.exists(&ObjectRef::new("b").within("ns")).unwrap());
    assert!(!watched.exists(&ObjectRef::new("a").within("ns")).unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_installed_is_missing_and_is_seen_soon_after_it_is() {
    let server = Server::new(&[]);
    let watched = watch(&server);
    watched.settled().await;
    let missing = Presence::Missing("the API server does not serve configmaps".into());
    assert_eq!(watched.presence(), missing);
    sleep(300 * SECOND).await;
    assert_eq!(watched.presence(), missing);
    assert!(matches!(watched.exists(&ObjectRef::new("a")), Err(Error::Unknown { .. })));
    let mut changes = watched.presence_changes().boxed();
    server.serve(MAPS);
    let start = Instant::now();
    changes.next().await.unwrap();
    assert_eq!(watched.presence(), Presence::Present);
    assert!(start.elapsed() <= 5 * SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_a_kind_is_uninstalled_what_was_cached_is_no_longer_readable() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    let watched = watch(&server);
    watched.settled().await;
    assert_eq!(watched.all().len(), 1);
    let mut changes = watched.presence_changes().boxed();
    server.stop_serving(MAPS);
    changes.next().await.unwrap();
    assert!(matches!(watched.presence(), Presence::Missing(_)));
    assert!(watched.all().is_empty());
    assert!(watched.get_in("ns", "a").is_none());
    assert!(watched.read(Store::len).is_err());

    server.serve(MAPS);
    server.put(MAPS, map("b", "1"));
    changes.next().await.unwrap();
    assert_eq!(watched.read(|store| names(&store.state())).unwrap(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_spans_an_uninstallation_is_refused() {
    let server = Server::new(&[MAPS]);
    let watched = watch(&server);
    watched.settled().await;
    let outcome = watched.read(|_| {
        watched.0.state.send_modify(|state| state.epoch += 1);
    });
    assert!(matches!(outcome, Err(Error::Unknown { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_does_not_decode_hides_no_other_and_is_not_absent() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("good", "1"));
    server.put(MAPS, undecodable("bad"));
    let watched = watch(&server);
    watched.settled().await;
    assert_eq!(names(&watched.all()), ["good"]);
    let bad = ObjectRef::new("bad").within("ns");
    let invalid = watched.invalid();
    assert_eq!(invalid.len(), 1);
    assert_eq!(invalid[0].0, bad);
    assert!(invalid[0].1.contains("map"), "{}", invalid[0].1);
    assert!(watched.exists(&bad).unwrap());

    server.put(MAPS, map("bad", "now good"));
    sleep(SECOND / 10).await;
    assert!(watched.invalid().is_empty());
    assert_eq!(names(&watched.all()), ["bad", "good"]);

    server.put(MAPS, undecodable("good"));
    sleep(SECOND / 10).await;
    assert_eq!(names(&watched.all()), ["bad"], "the old version is not truth any more");
    assert!(watched.exists(&ObjectRef::new("good").within("ns")).unwrap());

    server.remove(MAPS, "good");
    sleep(SECOND / 10).await;
    assert!(!watched.exists(&ObjectRef::new("good").within("ns")).unwrap());
}

#[tokio::test(start_paused = true)]
async fn changes_begin_with_all_there_is_and_then_miss_nothing() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    let watched = watch(&server);
    watched.settled().await;
    let mut changes = watched.changes().boxed();
    assert_eq!(heard(&mut changes).await, ["a=1"]);
    server.put(MAPS, map("a", "2"));
    server.put(MAPS, map("b", "1"));
    server.remove(MAPS, "a");
    server.put(MAPS, undecodable("b"));
    assert_eq!(
        heard(&mut changes).await,
        // Each version that is left, then the one that is; of "b" only what could be read.
        ["a=1", "a=2", "b=1", "a=2", "b=1"]
    );
}

#[tokio::test(start_paused = true)]
async fn what_vanished_while_the_watch_was_broken_is_told_too() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    server.put(MAPS, map("b", "1"));
    let watched = watch(&server);
    watched.settled().await;
    let mut changes = watched.changes().boxed();
    heard(&mut changes).await;
    // The next watch is refused with "expired", so that a list has to tell.
    let mut refusals = 1;
    server.script(move |seen| {
        let watch = seen.query.contains("watch=true") && refusals > 0;
        if !watch {
            return None;
        }
        refusals -= 1;
        let status = crate::mock::status(410, "Expired", "too old resource version").1;
        Some((200, json!({ "type": "ERROR", "object": status })))
    });
    sleep(Duration::from_secs(u64::from(WATCH_SECONDS)) + SECOND).await;
    let mut told = heard(&mut changes).await;
    told.sort();
    assert_eq!(told, ["a=1", "b=1"], "all that is listed again is told");
    assert_eq!(watched.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_server_are_retried_and_shown_but_what_is_cached_stays() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    let watched = watch(&server);
    watched.settled().await;
    server.script(|_| Some(crate::mock::status(503, "ServiceUnavailable", "etcd is away")));
    sleep(120 * SECOND).await;
    assert_eq!(watched.trouble().as_deref(), Some("etcd is away (503)"));
    assert_eq!(watched.presence(), Presence::Present);
    assert_eq!(names(&watched.all()), ["a"]);
    server.put(MAPS, map("b", "1"));
    server.script(|_| None);
    sleep(6 * SECOND).await;
    assert_eq!(names(&watched.all()), ["a", "b"]);
    assert_eq!(watched.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn a_trouble_is_over_when_the_watch_goes_on_silently() {
    let server = Server::new(&[MAPS]);
    let watched = watch(&server);
    watched.settled().await;
    let mut refusals = 1;
    server.script(move |seen| {
        let refused = seen.query.contains("watch=true") && refusals > 0;
        refusals -= i32::from(refused);
        refused.then(|| crate::mock::status(500, "InternalError", "no"))
    });
    sleep(Duration::from_secs(u64::from(WATCH_SECONDS)) + SECOND).await;
    assert_eq!(watched.trouble().as_deref(), Some("no (500)"));
    sleep(TROUBLE).await;
    assert_eq!(watched.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_never_polled_holds_nothing() {
    let server = Server::new(&[MAPS]);
    let watched = watch(&server);
    watched.settled().await;
    let unpolled = watched.changes();
    server.put(MAPS, map("a", "1"));
    sleep(SECOND / 10).await;
    assert!(watched.0.subscribers.lock().unwrap().is_empty());
    drop(unpolled);
}
