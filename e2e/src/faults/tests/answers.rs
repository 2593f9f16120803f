//! What befalls single requests and their answers.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use tokio::time::timeout;

use super::server::{Client, Got, PATIENCE, SILENCE, Server, ask};
use crate::{
    faults::{Fault, Proxy, Reply, Select, Upstream},
    pki::Authority,
    wait::eventually,
};

fn whole(body: &'static str) -> Got {
    Got::Whole(200, Bytes::from(body))
}

#[tokio::test]
async fn without_a_rule_everything_passes_and_is_logged() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let mut client = Client::connect(&proxy).await.unwrap();
    assert_eq!(client.ask(Method::POST, "/a?x=1").await, whole("sent"));
    assert_eq!(client.ask(Method::GET, "/bytes/100000").await, Got::Whole(200, vec![b'x'; 100_000].into()));
    assert_eq!(server.asked(), ["POST /a", "GET /bytes/100000"]);
    let log = proxy.log();
    assert_eq!(log.len(), 2);
    assert_eq!((log[0].server, log[0].client), (Some(200), Some(200)));
    assert_eq!((log[0].asked.parameter("x"), log[0].faults.len()), (Some("1"), 0));
    assert_eq!(proxy.count(&Select::writes()), 1);
}

#[tokio::test]
async fn a_dropped_request_never_arrives() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::writes().nth(2), Fault::drop_request());
    assert_eq!(ask(&proxy, Method::POST, "/1").await, whole("sent"));
    assert_eq!(ask(&proxy, Method::GET, "/read").await, whole("sent"));
    assert_eq!(ask(&proxy, Method::POST, "/2").await, Got::Nothing);
    assert_eq!(ask(&proxy, Method::POST, "/3").await, whole("sent"));
    assert_eq!(server.asked(), ["POST /1", "GET /read", "POST /3"]);
    let log = proxy.log();
    assert_eq!((log[2].server, log[2].client), (None, None));
    assert_eq!(log[2].faults, ["Before(Break)"]);
}

#[tokio::test]
async fn a_dropped_answer_was_applied() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let rule = proxy.fault(Select::writes().nth(1), Fault::drop_answer());
    assert_eq!(ask(&proxy, Method::POST, "/1").await, Got::Nothing);
    assert_eq!(server.asked(), ["POST /1"]);
    assert_eq!(rule.struck(), 1);
    let log = proxy.log();
    assert!(log[0].is_applied());
    assert_eq!(log[0].client, None);
}

#[tokio::test]
async fn replies_stand_in_for_the_server_or_follow_it() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::under("/busy").first(2), Fault::throttled(7));
    let mut client = Client::connect(&proxy).await.unwrap();
    let response = client.open(Method::GET, "/busy").await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    drop(response);
    assert_eq!(ask(&proxy, Method::GET, "/busy").await.code(), Some(429));
    assert_eq!(ask(&proxy, Method::GET, "/busy").await.code(), Some(200));
    assert_eq!(server.asked(), ["GET /busy"]);

    let odd = Reply::new(StatusCode::BAD_GATEWAY, "text/xml", "<oops/>");
    proxy.fault(Select::under("/odd"), Fault::reply_applied(odd));
    assert_eq!(ask(&proxy, Method::PUT, "/odd").await, Got::Whole(502, Bytes::from("<oops/>")));
    assert_eq!(server.asked(), ["GET /busy", "PUT /odd"]);
    let log = proxy.log();
    let last = log.last().unwrap();
    assert_eq!((last.server, last.client), (Some(200), Some(502)));
}

#[tokio::test]
async fn slow_is_late_and_a_time_runs_out() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    let (delay, lasting) = (Duration::from_millis(150), Duration::from_secs(2));
    let made = Instant::now();
    proxy.fault(Select::all().lasting(lasting), Fault::slow(delay));
    proxy.fault(Select::all().nth(1), Fault::slow_answer(delay));
    let began = Instant::now();
    assert_eq!(ask(&proxy, Method::GET, "/").await, whole("sent"));
    assert!(began.elapsed() >= delay * 2, "two delays took {:?}", began.elapsed());
    tokio::time::sleep(lasting.saturating_sub(made.elapsed())).await;
    assert_eq!(ask(&proxy, Method::GET, "/").await, whole("sent"));
    assert_eq!(proxy.log()[1].faults.len(), 0, "it lasts for ever");

    proxy.fault(Select::all(), Fault::trickle(1000));
    let began = Instant::now();
    assert_eq!(ask(&proxy, Method::GET, "/bytes/300").await, Got::Whole(200, vec![b'x'; 300].into()));
    assert!(began.elapsed() >= Duration::from_millis(300), "300 bytes took {:?}", began.elapsed());
}

#[tokio::test]
async fn a_cut_body_ends_after_so_many_bytes_and_is_noticed() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    let rule = proxy.fault(Select::all(), Fault::cut(1234));
    assert_eq!(ask(&proxy, Method::GET, "/bytes/100000").await, Got::Part(200, vec![b'x'; 1234].into()));
    assert_eq!(ask(&proxy, Method::GET, "/bytes/1000").await, Got::Whole(200, vec![b'x'; 1000].into()));
    rule.lift();
    proxy.fault(Select::all(), Fault::cut(0));
    assert_eq!(ask(&proxy, Method::GET, "/bytes/10").await, Got::Part(200, Bytes::new()));
}

#[tokio::test]
async fn a_cut_upload_reaches_the_server_in_part() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::writes().nth(1), Fault::cut_upload(2));
    assert_eq!(ask(&proxy, Method::PUT, "/1").await, Got::Nothing);
    assert_eq!(ask(&proxy, Method::PUT, "/2").await, whole("sent"));
    assert_eq!(server.asked(), ["PUT /2"], "a request in part was taken for whole");
    assert_eq!(server.received(), ["se", "sent"]);
    assert!(!proxy.log()[0].is_applied());
}

#[tokio::test]
async fn an_answer_without_a_body_keeps_its_length() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    let mut client = Client::connect(&proxy).await.unwrap();
    let response = client.open(Method::HEAD, "/bytes/100").await.unwrap();
    assert_eq!(response.headers()["content-length"], "100");
    drop(response);
    assert_eq!(client.ask(Method::GET, "/bytes/0").await, whole(""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_count_is_exact_under_concurrency() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let rules: Vec<_> =
        (1..=40).map(|n| proxy.fault(Select::writes().nth(n * 5), Fault::drop_request())).collect();
    let asks = (0..400).map(|n| {
        let method = if n % 2 == 0 { Method::POST } else { Method::GET };
        let proxy = &proxy;
        async move { ask(proxy, method, &format!("/{n}")).await }
    });
    let got = join_all(asks).await;
    assert!(rules.iter().all(|rule| rule.struck() == 1), "{rules:?}");
    assert_eq!(got.iter().filter(|got| **got == Got::Nothing).count(), 40);
    assert_eq!(server.asked().len(), 360);
    // The log's order is the order of the count.
    let writes: Vec<bool> =
        proxy.log().iter().filter(|p| p.asked.is_write()).map(|p| p.faults.is_empty()).collect();
    assert!(writes.chunks(5).all(|five| five == [true, true, true, true, false]), "{writes:?}");
}

#[tokio::test]
async fn a_gate_holds_an_answer_that_was_applied() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let gate = proxy.hold_answer(Select::writes().nth(2));
    assert_eq!(ask(&proxy, Method::POST, "/1").await, whole("sent"));
    let mut client = Client::connect(&proxy).await.unwrap();
    let waiting = tokio::spawn(async move { client.ask(Method::POST, "/2").await });
    gate.reached(PATIENCE).await.unwrap();
    assert_eq!(server.asked(), ["POST /1", "POST /2"]);
    let log = proxy.log();
    assert_eq!((log[1].server, log[1].client), (Some(200), None));
    tokio::time::sleep(SILENCE).await;
    assert!(!waiting.is_finished(), "the answer went through");
    gate.release();
    assert_eq!(waiting.await.unwrap(), whole("sent"));
}

#[tokio::test]
async fn a_gate_holds_requests_and_what_is_abandoned_never_arrives() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let gate = proxy.hold_request(Select::writes().from(2));
    assert_eq!(ask(&proxy, Method::POST, "/1").await, whole("sent"));
    let mut client = Client::connect(&proxy).await.unwrap();
    let waiting = tokio::spawn(async move { client.ask(Method::POST, "/2").await });
    gate.reached(PATIENCE).await.unwrap();
    assert_eq!(gate.held(), 1);
    gate.abandon();
    assert_eq!(waiting.await.unwrap(), Got::Nothing);
    assert_eq!(ask(&proxy, Method::POST, "/3").await, whole("sent"), "the rule outlived its gate");
    assert_eq!(server.asked(), ["POST /1", "POST /3"]);
}

#[tokio::test]
async fn what_was_sent_is_carried_through_when_the_client_is_gone() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let mut client = Client::connect(&proxy).await.unwrap();
    let waiting = tokio::spawn(async move { client.ask(Method::POST, "/slow").await });
    eventually("it is sent", PATIENCE, async || Ok((!server.asked().is_empty()).then_some(())))
        .await
        .unwrap();
    waiting.abort();
    let _ = waiting.await;
    let answered = async || Ok(proxy.log()[0].is_applied().then_some(()));
    eventually("it is answered", PATIENCE, answered).await.unwrap();

    // One that was not sent goes with its client.
    let gate = proxy.hold_request(Select::all());
    let mut client = Client::connect(&proxy).await.unwrap();
    let waiting = tokio::spawn(async move { client.ask(Method::POST, "/2").await });
    gate.reached(PATIENCE).await.unwrap();
    waiting.abort();
    let _ = waiting.await;
    gate.abandon();
    tokio::time::sleep(SILENCE).await;
    assert_eq!(server.asked(), ["POST /slow"]);
}

#[tokio::test]
async fn tls_is_spoken_on_both_sides_and_certificates_may_change() {
    let server = Server::start().await.unwrap();
    let (authority, other) = (Authority::new("one").unwrap(), Authority::new("other").unwrap());
    let serving = authority.server("s", &["127.0.0.1"]).unwrap();
    // The inner one is the server with TLS; the outer one speaks TLS to it.
    let inner = Proxy::start(Upstream::http(&server.address), Some(&serving)).await.unwrap();
    let address = inner.url().trim_start_matches("https://").to_owned();
    let certificate = |authority: &Authority| authority.identity().certificate;
    let trusting = Upstream::https(&address, &certificate(&authority)).unwrap();
    let outer = Proxy::start(trusting, None).await.unwrap();
    assert_eq!(ask(&outer, Method::POST, "/1").await, whole("sent"));

    inner.serve_as(&other.server("s", &["127.0.0.1"]).unwrap()).unwrap();
    assert_eq!(ask(&outer, Method::POST, "/2").await, Got::Nothing, "a certificate of another authority");
    let trusting = Upstream::https(&address, &certificate(&other)).unwrap();
    let outer = Proxy::start(trusting, None).await.unwrap();
    assert_eq!(timeout(PATIENCE, ask(&outer, Method::POST, "/3")).await.unwrap(), whole("sent"));
    assert_eq!(server.asked(), ["POST /1", "POST /3"]);
}
