use std::sync::atomic::Ordering;

use futures::{StreamExt, TryStreamExt, future::join_all};
use k8s_openapi::api::core::v1::{ConfigMap, Service as Balancer};
use kube::{
    Api, Client,
    api::{ListParams, PostParams, WatchParams},
};
use serde_json::json;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::{
    error::{class_of, describe},
    fence::Fence,
    mock::{Server, Wire},
    tenant::{
        TenantOptions,
        connect::{self, Line},
        kubeconfig::credentials,
        pki::{Authority, PKI, kubeconfig, secret},
        stand_in::{Manner, StandIn, answer, head},
    },
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TOKEN: &str = "t0ken-that-nobody-may-repeat";
/// Longer than any limit of these tests allows.
const LATE: Duration = Duration::from_secs(30);

fn limits() -> Limits {
    Limits { within: Duration::from_secs(2), watch: Duration::from_secs(4), ..Limits::default() }
}

fn line(fence: Fence) -> Line {
    let policy = Arc::new(TenantOptions { tenant_api_loopback: true, ..TenantOptions::default() });
    Line { agent: "kmetal-test", fence, policy, limits: limits() }
}

/// A client for that kubeconfig, with a token.
fn client_for(mut kubeconfig: serde_json::Value, fence: Fence) -> (Client, DropGuard) {
    kubeconfig["users"][0]["user"]["token"] = json!(TOKEN);
    let credentials = credentials(&secret("blue", kubeconfig.to_string().as_bytes()), "blue").unwrap();
    let stop = CancellationToken::new();
    let quote = Quote::hiding(credentials.token.as_deref());
    let client = connect::client(&credentials, &line(fence), quote, Arc::default(), stop.clone()).unwrap();
    (client, stop.drop_guard())
}

fn client(server: &StandIn) -> (Client, DropGuard) {
    client_for(server.kubeconfig(), Fence::default())
}

/// The error of a list, which must come in time.
async fn list(server: &StandIn) -> kube::Error {
    let (client, _end) = client(server);
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let all = ListParams::default();
    tokio::time::timeout(LATE, maps.list(&all)).await.expect("bounded in time").unwrap_err()
}

/// What a watch brings until it fails or ends, in time.
async fn watch(server: &StandIn) -> (usize, Option<String>) {
    let (client, _end) = client(server);
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let watched = async {
        let mut events = maps.watch(&WatchParams::default(), "0").await?.boxed();
        let mut seen = 0;
        loop {
            match events.try_next().await {
                Ok(Some(_)) => seen += 1,
                Ok(None) => return Ok((seen, None)),
                Err(error) => return Ok((seen, Some(describe(&error)))),
            }
        }
    };
    let outcome: Result<_, kube::Error> = tokio::time::timeout(LATE, watched).await.expect("bounded in time");
    outcome.unwrap_or_else(|error| (0, Some(describe(&error))))
}

#[tokio::test]
async fn a_good_server_is_read_and_written() {
    let server = Server::new(&[MAPS]);
    let stand_in = StandIn::start(Manner::Good(server.clone())).await;
    let (client, _end) = client(&stand_in);
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(maps.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert_eq!(stand_in.accepted(), 1, "connections are used again");
}

#[tokio::test]
async fn without_the_lease_nothing_is_written_there_either() {
    let server = Server::new(&[MAPS]);
    let stand_in = StandIn::start(Manner::Good(server.clone())).await;
    let fence = Fence::default();
    let (client, _end) = client_for(stand_in.kubeconfig(), fence.clone());
    fence.close();
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" } })).unwrap();
    let error = maps.create(&PostParams::default(), &map).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Service(source) if source.is::<NotLeading>()), "{error}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn one_that_hangs_or_drips_costs_the_time_of_a_request() {
    let partial = |length| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
    let hangs = [
        ("mute", Manner::Mute),
        ("silent", Manner::Silent),
        ("no body", Manner::Says(partial(100))),
        ("head drips", Manner::Drips(b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n")),
        ("body drips", Manner::Drips(head("200 OK"), b" ")),
        ("refusal drips", Manner::Drips(head("500 Internal Server Error"), b"x")),
    ];
    join_all(hangs.map(async |(name, manner)| {
        let server = StandIn::start(manner).await;
        let error = list(&server).await;
        assert_eq!(class_of(&error), "timeout", "{name}: {error}");
        assert!(describe(&error).contains("GET /api/v1/namespaces/default/configmaps"), "{name}: {error}");
    }))
    .await;
}

#[tokio::test]
async fn nothing_that_is_too_large_is_read_to_its_end() {
    let hundred = b"HTTP/1.1 200 OK\r\ncontent-length: 104857600\r\n\r\n".to_vec();
    for (name, manner) in [
        ("body", Manner::Pours(hundred, b"[[[[")),
        ("hollow objects", Manner::Pours(head("200 OK"), b"{},")),
        ("head", Manner::Pours(b"HTTP/1.1 200 OK\r\n".to_vec(), b"a: b\r\n")),
        ("one header", Manner::Pours(b"HTTP/1.1 200 OK\r\na: ".to_vec(), b"b")),
        ("refusal", Manner::Pours(head("403 Forbidden"), b"no ")),
        ("garbage", Manner::Pours(Vec::new(), b"\x00\xff\x13\x37")),
    ] {
        let server = StandIn::start(manner).await;
        let error = list(&server).await;
        assert!(describe(&error).len() < 1000, "{name}");
        let poured = server.poured.load(Ordering::SeqCst);
        // What is on its way in the sockets of both sides comes on top.
        assert!(poured < limits().answer + (16 << 20), "{name}: {poured} bytes");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_takes_no_credentials_away() {
    let elsewhere = StandIn::start(Manner::Silent).await;
    for status in
        ["301 Moved Permanently", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect", "304 Not"]
    {
        let to =
            format!("HTTP/1.1 {status}\r\nlocation: {}/\r\ncontent-length: 2\r\n\r\n{{}}", elsewhere.url);
        let error = list(&StandIn::start(Manner::Says(to.into_bytes())).await).await;
        assert!(describe(&error).contains("it is not followed"), "{error}");
    }
    assert_eq!(elsewhere.accepted(), 0);
}

#[tokio::test]
async fn what_makes_no_sense_is_an_error_and_no_more() {
    for body in [
        "",
        "null",
        "[]",
        "\"x\"",
        "{",
        "\u{0}",
        r#"{"items":{}}"#,
        r#"{"items":[{"metadata":{"name":7}}]}"#,
        r#"{"items":[{"data":{"a":{}}}]}"#,
        r#"{"metadata":{"remainingItemCount":1e999}}"#,
    ] {
        let error = list(&StandIn::start(Manner::Says(answer("200 OK", body))).await).await;
        assert!(!describe(&error).is_empty(), "{body}");
    }
    let deep = "[".repeat(100_000);
    list(&StandIn::start(Manner::Says(answer("200 OK", &deep))).await).await;
    list(&StandIn::start(Manner::Says(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())).await).await;
    list(&StandIn::start(Manner::Cuts(head("200 OK"))).await).await;
}

#[tokio::test]
async fn a_refusal_is_repeated_short_and_without_our_token() {
    let body = json!({
        "kind": "Status", "code": 403, "reason": "Forbidden",
        "message": format!("Bearer {TOKEN} may not\u{1b}[2J{}", "x".repeat(5000)),
    });
    let server = StandIn::start(Manner::Says(answer("403 Forbidden", &body.to_string()))).await;
    let error = list(&server).await;
    let text = describe(&error);
    assert_eq!(class_of(&error), "forbidden");
    assert!(text.starts_with("Bearer [hidden] may not [2J") && text.len() < 400, "{text}");
    assert!(!format!("{error:?}").contains(TOKEN));
}

#[tokio::test]
async fn only_the_authority_of_the_kubeconfig_vouches_for_the_server() {
    let stranger = Authority::new("stranger");
    let right = StandIn::start(Manner::Good(Server::new(&[MAPS]))).await;
    let expired = StandIn::start_as(&PKI.0.server(true), Manner::Good(Server::new(&[MAPS]))).await;
    for (kubeconfig, words) in
        [(kubeconfig(&right.url, &stranger), "UnknownIssuer"), (kubeconfig(&expired.url, &PKI.0), "expired")]
    {
        let (client, _end) = client_for(kubeconfig, Fence::default());
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let text = describe(&maps.list(&ListParams::default()).await.unwrap_err());
        assert!(text.contains("certificate") && text.contains(words), "{text}");
    }
    let mut named = kubeconfig(&right.url, &PKI.0);
    named["clusters"][0]["cluster"]["tls-server-name"] = json!("localhost");
    let (client, _end) = client_for(named.clone(), Fence::default());
    Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
    named["clusters"][0]["cluster"]["tls-server-name"] = json!("elsewhere.example");
    let (client, _end) = client_for(named, Fence::default());
    let error = Api::<ConfigMap>::default_namespaced(client).list(&ListParams::default()).await.unwrap_err();
    assert!(describe(&error).contains("not valid for name"), "{}", describe(&error));
}

#[tokio::test]
async fn a_watch_is_bounded_by_event_by_sum_and_by_time() {
    let event = br#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}
"#;
    let one = r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}"#;
    for (name, manner, words) in [
        ("endless event", Manner::Pours(head("200 OK"), b"[[[["), "an event of the watch is larger"),
        ("endless events", Manner::Pours(head("200 OK"), event), "what the watch brought is larger"),
        ("drips", Manner::Drips(head("200 OK"), b"\n"), "did not end when it was due"),
        ("no head", Manner::Silent, "no answer"),
        ("ends at once", Manner::Says(answer("200 OK", "")), "ended as soon as it had begun"),
        ("is cut at once", Manner::Cuts(head("200 OK")), "ended as soon as it had begun"),
        ("ends after one", Manner::Says(answer("200 OK", one)), "ended as soon as it had begun"),
        ("redirects", Manner::Says(answer("302 Found", "{}")), "it is not followed"),
        ("nonsense", Manner::Says(answer("200 OK", "{\"type\":\"ADDED\",\"object\":[7]}\n")), ""),
    ] {
        let (_, failure) = watch(&StandIn::start(manner).await).await;
        let text = failure.unwrap_or_else(|| panic!("{name}: no failure"));
        assert!(text.contains(words) && text.len() < 1000, "{name}: {text}");
    }
}

#[tokio::test]
async fn a_quiet_watch_that_ends_in_time_is_no_failure() {
    let server = Server::new(&[MAPS]);
    let stand_in = StandIn::start(Manner::Good(server)).await;
    let (client, _end) = client(&stand_in);
    let maps = Api::<ConfigMap>::default_namespaced(client);
    let mut events = maps.watch(&WatchParams::default().timeout(1), "0").await.unwrap().boxed();
    assert!(events.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn ordinary_requests_take_turns_and_watches_take_none() {
    let server = StandIn::start(Manner::Silent).await;
    let (client, _end) = client(&server);
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let services = Api::<Balancer>::all(client);
    let (all, from_now) = (ListParams::default(), WatchParams::default());
    let asking = (0..20).map(|_| maps.list(&all));
    let watching = (0..3).map(|_| services.watch(&from_now, "0"));
    let (answers, watches) = tokio::join!(join_all(asking), join_all(watching));
    assert!(answers.iter().all(Result::is_err) && watches.iter().all(Result::is_err));
    assert!(server.accepted() <= limits().requests + 3, "{} connections", server.accepted());
}

#[tokio::test]
async fn the_end_of_a_client_is_the_end_of_its_connections() {
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let server = StandIn::start(Manner::Deaf).await;
    let (client, end) = client(&server);
    wait(|| alive() == 2).await;
    let maps = Api::<ConfigMap>::default_namespaced(client);
    // More than the sockets of both sides hold: the connection cannot even say that it ends.
    let large = json!({ "metadata": { "name": "a" }, "data": { "x": "x".repeat(16 << 20) } });
    let large: ConfigMap = serde_json::from_value(large).unwrap();
    assert_eq!(class_of(&maps.create(&PostParams::default(), &large).await.unwrap_err()), "timeout");
    assert_eq!(server.accepted(), 1);
    drop((maps, end));
    // The server, and what it does with the one connection.
    wait(|| alive() == 2).await;
}

/// Until it holds, which must be soon.
async fn wait(holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not in time");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_loops_is_slowed_down() {
    let server = Server::new(&[MAPS]);
    let mock = server.clone();
    let inner = tower::service_fn(move |request| {
        let mock = mock.clone();
        async move { Ok::<_, BoxError>(mock.answer::<Body>(request, Wire::default()).await) }
    });
    let service = Bounds::new(Limits::default(), Arc::default(), Quote::default()).layer(inner);
    let maps = Api::<ConfigMap>::default_namespaced(Client::new(service, "default"));
    let began = Instant::now();
    while began.elapsed() < Duration::from_mins(1) {
        let _ = maps.list(&ListParams::default()).await;
    }
    let asked = server.seen().len();
    assert!((1200..1300).contains(&asked), "{asked} requests in a minute");
}
