//! What a server may send that is not trusted, and what becomes of it: tests.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    fence::Fence,
    mock::{Server, status},
};

const MAPS: &str = "/api/v1/configmaps";
const SECOND: Duration = Duration::from_secs(1);
const MOST: usize = 10_000;

fn map(name: &str, data: &str) -> Value {
    json!({ "metadata": { "namespace": "ns", "name": name }, "data": { "x": data } })
}

fn undecodable(name: &str) -> Value {
    json!({ "metadata": { "namespace": "ns", "name": name }, "data": "x".repeat(2000) })
}

fn watch(server: &Server) -> (Watched<ConfigMap>, Metrics) {
    let terms = Terms {
        scope: "tenant/",
        pause: 20 * SECOND,
        list_within: 60 * SECOND,
        weigh: |map: &ConfigMap| map.data.iter().flatten().map(|(_, text)| text.len()).sum(),
        most: MOST,
        quote: Some(Quote::default()),
    };
    let (api, metrics) = (Api::all(server.client(Fence::default())), Metrics::default());
    let stop = CancellationToken::new();
    (Watched::spawn(api, watcher::Config::default(), |_| {}, terms, &metrics, stop), metrics)
}

fn too_much(watched: &Watched<ConfigMap>) -> bool {
    watched.presence() == Presence::Missing("there are more configmaps than kMetal keeps".into())
}

#[tokio::test(start_paused = true)]
async fn an_object_without_a_name_is_nobody_and_harms_nobody() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    let nameless = json!({ "metadata": { "namespace": "ns", "resourceVersion": "1" } });
    let named =
        |name: &str| json!({ "metadata": { "namespace": "ns", "name": name, "resourceVersion": "1" } });
    let items = json!([nameless, named(""), named(&"x".repeat(254)), map("b", "1"), { "metadata": {} }]);
    // After these, its watch is an ordinary one.
    let mut events =
        ["MODIFIED", "DELETED"].map(|kind| json!({ "type": kind, "object": nameless })).into_iter();
    server.script(move |seen| {
        if seen.query.contains("watch=true") {
            return events.next().map(|event| (200, event));
        }
        Some((200, json!({ "metadata": { "resourceVersion": "1" }, "items": items })))
    });
    let (watched, _) = watch(&server);
    sleep(SECOND).await;
    assert_eq!(watched.all().len(), 1);
    assert!(watched.get_in("ns", "b").is_some());
    server.put(MAPS, map("c", "1"));
    sleep(SECOND).await;
    assert!(watched.get_in("ns", "c").is_some(), "the watch went on");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_is_given_up_and_begun_anew_ever_more_slowly() {
    let server = Server::new(&[MAPS]);
    server.script(|_| {
        Some((200, json!({ "metadata": { "continue": "more", "resourceVersion": "1" }, "items": [] })))
    });
    let (watched, metrics) = watch(&server);
    // The mock takes no time, so the clock only moves where somebody waits.
    for _ in 0..200 {
        tokio::time::advance(SECOND).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(watched.presence(), Presence::Syncing);
    let text = metrics.encode().unwrap();
    let given_up = r#"kmetal_watch_errors_total{kind="tenant/configmaps",class="timeout"}"#;
    assert!(text.contains(given_up), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_more_than_is_kept_is_as_if_it_did_not_serve_the_kind() {
    let server = Server::new(&[MAPS]);
    for n in 0..9 {
        server.put(MAPS, map(&format!("a{n}"), &"x".repeat(1000)));
    }
    let (watched, metrics) = watch(&server);
    watched.settled().await;
    assert_eq!(watched.all().len(), 9);
    // Changed again and again, an object weighs what it weighs.
    for n in 0..50 {
        server.put(MAPS, map("a0", &format!("{n}{}", "x".repeat(900))));
        sleep(SECOND / 100).await;
    }
    assert_eq!(watched.presence(), Presence::Present);

    server.put(MAPS, map("b", &"x".repeat(1200)));
    sleep(SECOND).await;
    assert!(too_much(&watched), "{:?}", watched.presence());
    assert!(watched.all().is_empty() && watched.0.store.is_empty(), "what was kept is let go");
    assert!(matches!(watched.exists(&ObjectRef::new("a0").within("ns")), Err(Error::Unknown { .. })));
    let text = metrics.encode().unwrap();
    assert!(text.contains(r#"kmetal_watched_objects{kind="tenant/configmaps"} 0"#), "{text}");

    // The list is as much too large as what the watch brought.
    let asked = server.seen().len();
    sleep(300 * SECOND).await;
    assert!(too_much(&watched));
    assert!(server.seen().len() - asked < 20, "{}", server.seen().len() - asked);

    server.remove(MAPS, "b");
    sleep(30 * SECOND).await;
    assert_eq!(watched.presence(), Presence::Present);
    assert_eq!(watched.all().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_decode_weighs_too_and_is_quoted_short() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, undecodable("bad"));
    let (watched, _) = watch(&server);
    watched.settled().await;
    let invalid = watched.invalid();
    assert_eq!(invalid.len(), 1);
    assert!(invalid[0].1.len() < 400, "{}", invalid[0].1.len());
    for n in 0..20 {
        server.put(MAPS, undecodable(&format!("bad{n}")));
    }
    sleep(SECOND).await;
    assert!(too_much(&watched), "{:?}", watched.presence());
    assert!(watched.invalid().is_empty());
}

#[tokio::test(start_paused = true)]
async fn its_words_are_quoted_short_in_trouble() {
    let server = Server::new(&[MAPS]);
    server.script(|_| Some(status(500, "InternalError", &format!("\u{1b}[2J{}", "x".repeat(100_000)))));
    let (watched, _) = watch(&server);
    sleep(SECOND).await;
    let trouble = watched.trouble().unwrap();
    assert!(trouble.starts_with("[2J") && trouble.len() < 400, "{}", trouble.len());
}

#[tokio::test(start_paused = true)]
async fn its_counts_go_with_it() {
    let server = Server::new(&[MAPS]);
    server.put(MAPS, map("a", "1"));
    let metrics = Metrics::default();
    let stop = CancellationToken::new();
    let watch = |stop: &CancellationToken| {
        let api = Api::<ConfigMap>::all(server.client(Fence::default()));
        Watched::spawn(api, watcher::Config::default(), |_| {}, Terms::default(), &metrics, stop.clone())
    };
    let (one, two) = (watch(&stop), watch(&CancellationToken::new()));
    tokio::join!(one.settled(), two.settled());
    let count = || {
        metrics.encode().unwrap().lines().find(|line| line.contains("watched_objects{")).unwrap().to_owned()
    };
    assert!(count().ends_with(" 2"), "{}", count());
    stop.cancel();
    sleep(SECOND).await;
    assert!(count().ends_with(" 1"), "{}", count());
}
