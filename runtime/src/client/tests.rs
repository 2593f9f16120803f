use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchParams};
use serde_json::json;

use super::*;
use crate::{
    error::{Error, class_of},
    fence::NotLeading,
    mock::{Server, Wire, status},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECOND: Duration = Duration::from_secs(1);

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap()
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_reads_pass_and_writes_do_not_leave() {
    let server = Server::new(&[MAPS]);
    let fence = Fence::default();
    let api = Api::<ConfigMap>::default_namespaced(server.client(fence.clone()));
    fence.close();
    api.list(&ListParams::default()).await.unwrap();
    let error = api.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Service(source) if source.is::<NotLeading>()), "{error}");
    assert_eq!(server.seen().len(), 1);

    fence.allow_until(Instant::now() + SECOND);
    api.create(&PostParams::default(), &map("a")).await.unwrap();
    tokio::time::sleep(SECOND).await;
    api.create(&PostParams::default(), &map("b")).await.unwrap_err();
    assert!(server.stored(MAPS, "b").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_review_is_a_question_and_passes() {
    assert!(!is_write(&Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"));
    assert!(is_write(&Method::POST, "/api/v1/namespaces/a/configmaps"));
    assert!(!is_write(&Method::GET, "/api/v1/namespaces/a/configmaps"));
    assert!(is_write(&Method::DELETE, "/api/v1/namespaces/a/configmaps/b"));
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_when_the_lease_lapses_is_dropped() {
    let server = Server::new(&[MAPS]);
    let (fence, wire) = (Fence::default(), Wire::default());
    let api = Api::<ConfigMap>::default_namespaced(server.client_over(fence.clone(), wire.clone()));
    wire.silence();
    fence.allow_until(Instant::now() + 3 * SECOND);
    let start = Instant::now();
    let error = api.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Service(source) if source.is::<NotLeading>()), "{error}");
    assert_eq!(start.elapsed(), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_answered_ends_in_time_and_says_which() {
    let server = Server::new(&[MAPS]);
    let wire = Wire::default();
    let api = Api::<ConfigMap>::default_namespaced(server.client_over(Fence::default(), wire.clone()));
    wire.silence();
    let start = Instant::now();
    let error = api.get("a").await.unwrap_err();
    assert_eq!(start.elapsed(), ANSWER);
    assert_eq!(class_of(&error), "timeout");
    assert_eq!(
        Error::from(error).to_string(),
        "GET /api/v1/namespaces/default/configmaps/a: no answer within 13 s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_not_cut() {
    use futures::StreamExt;
    let server = Server::new(&[MAPS]);
    let api = Api::<ConfigMap>::default_namespaced(server.client(Fence::default()));
    let start = Instant::now();
    let mut events = api.watch(&WatchParams::default().timeout(200), "0").await.unwrap().boxed();
    assert!(events.next().await.is_none(), "it ends when the server ends it");
    assert_eq!(start.elapsed(), 200 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn errors_are_not_retried_behind_the_callers_back() {
    let server = Server::new(&[MAPS]);
    server.script(|_| Some(status(503, "ServiceUnavailable", "not now")));
    let api = Api::<ConfigMap>::default_namespaced(server.client(Fence::default()));
    api.get("a").await.unwrap_err();
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn under_a_429_no_more_than_one_request_a_second_of_that_verb_leaves() {
    let server = Server::new(&[MAPS]);
    let refusing = Arc::new(AtomicUsize::new(1));
    let flag = refusing.clone();
    server
        .script(move |_| (flag.load(Ordering::SeqCst) == 1).then(|| status(429, "TooManyRequests", "wait")));
    let client = server.client(Fence::default());
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let api = Api::<ConfigMap>::default_namespaced(client.clone());
            tokio::spawn(async move {
                for _ in 0..30 {
                    let _ = api.get(&format!("m{n}")).await;
                    tokio::time::sleep(SECOND).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(30 * SECOND).await;
    // The ten that were under way before the first refusal came, then one a second.
    let during = server.seen().len();
    assert!((20..=41).contains(&during), "{during} requests in 30 s");

    refusing.store(0, Ordering::SeqCst);
    tokio::time::sleep(5 * SECOND).await;
    assert!(server.seen().len() >= during + 10, "nobody starves afterwards");
    for task in tasks {
        task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_a_budget_forbids_slows_nothing_else() {
    let server = Server::new(&[MAPS]);
    server.script(|seen| seen.path.ends_with("/eviction").then(|| status(429, "TooManyRequests", "budget")));
    let client = server.client(Fence::default());
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client.clone());
    pods.evict("p", &kube::api::EvictParams::default()).await.unwrap_err();
    let start = Instant::now();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
}
