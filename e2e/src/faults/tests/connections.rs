//! What befalls connections: silence without a FIN, breaking, and doors that do not open.

use http::Method;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::server::{Client, Got, PATIENCE, SILENCE, Server, ask};
use crate::faults::{Door, Fault, Proxy, Select};

/// A connection on which every byte, and the end, can be seen.
async fn bare(proxy: &Proxy, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.url().trim_start_matches("http://")).await.unwrap();
    stream
        .write_all(format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\n\r\n").as_bytes())
        .await
        .unwrap();
    stream
}

/// Nothing comes: no byte and no end.
async fn is_silent(stream: &mut TcpStream) -> bool {
    timeout(SILENCE, stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn a_blackhole_swallows_without_a_fin_and_breaks_when_it_is_lifted() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::ordinary(), Fault::blackhole());
    let mut stream = bare(&proxy, "/1").await;
    assert!(is_silent(&mut stream).await);
    stream.write_all(b"POST /2 HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    assert!(is_silent(&mut stream).await, "the rest of the connection is swallowed too");
    proxy.clear();
    assert!(timeout(PATIENCE, stream.read_u8()).await.unwrap().is_err(), "it breaks");
    assert_eq!(server.asked(), [""; 0]);
    assert_eq!(ask(&proxy, Method::GET, "/3").await.code(), Some(200));

    // The other half: applied, and then silence.
    proxy.fault(Select::writes(), Fault::blackhole_answer());
    let mut stream = bare(&proxy, "/4").await;
    assert!(is_silent(&mut stream).await);
    assert_eq!(server.asked(), ["GET /3", "POST /4"]);
}

#[tokio::test]
async fn what_is_under_way_falls_silent_and_what_is_new_passes() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    let mut watching = Client::connect(&proxy).await.unwrap();
    let mut watch = watching.open(Method::GET, "/api/v1/configmaps?watch=true").await.unwrap();
    watch.body_mut().frame().await.unwrap().unwrap();
    let mut idle = Client::connect(&proxy).await.unwrap();
    assert_eq!(idle.ask(Method::GET, "/1").await.code(), Some(200));

    assert_eq!(proxy.silence(&Select::watches()), 1);
    assert_eq!(proxy.silence(&Select::watches()), 0, "it is silent already");
    let more = async { while watch.body_mut().frame().await.unwrap().is_ok() {} };
    assert!(timeout(SILENCE, more).await.is_err(), "the watch ended");
    assert_eq!(idle.ask(Method::GET, "/2").await.code(), Some(200));
    assert_eq!(ask(&proxy, Method::GET, "/3").await.code(), Some(200));

    // Idle connections are struck with the rest. (That of the last question may not have closed yet.)
    assert!(proxy.silence_all() >= 1);
    assert!(timeout(SILENCE, idle.ask(Method::GET, "/4")).await.is_err());
    assert_eq!(ask(&proxy, Method::GET, "/5").await.code(), Some(200));
    proxy.clear();
    let ended = async { while watch.body_mut().frame().await.unwrap().is_ok() {} };
    timeout(PATIENCE, ended).await.expect("lifted, it breaks");
}

#[tokio::test]
async fn a_body_stalls_after_so_many_bytes() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::all(), Fault::stall(100));
    let mut client = Client::connect(&proxy).await.unwrap();
    let mut response = client.open(Method::GET, "/bytes/1000").await.unwrap();
    let mut received = 0;
    let reading = async {
        while let Some(Ok(frame)) = response.body_mut().frame().await {
            received += frame.into_data().unwrap().len();
        }
    };
    assert!(timeout(SILENCE, reading).await.is_err(), "it ended");
    assert_eq!(received, 100);
}

#[tokio::test]
async fn connections_break_when_told_and_with_the_proxy() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    let mut client = Client::connect(&proxy).await.unwrap();
    let mut watch = client.open(Method::GET, "/api/v1/configmaps?watch=true").await.unwrap();
    assert_eq!(proxy.sever(&Select::writes()), 0);
    assert_eq!(proxy.sever(&Select::watches()), 1);
    let ended = async { while watch.body_mut().frame().await.is_some_and(|frame| frame.is_ok()) {} };
    timeout(PATIENCE, ended).await.unwrap();

    let mut client = Client::connect(&proxy).await.unwrap();
    assert_eq!(client.ask(Method::GET, "/").await.code(), Some(200));
    drop(proxy);
    assert_eq!(timeout(PATIENCE, client.ask(Method::GET, "/")).await.unwrap(), Got::Nothing);
}

#[tokio::test]
async fn when_the_server_goes_its_clients_are_cut_off() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let mut client = Client::connect(&proxy).await.unwrap();
    let mut watch = client.open(Method::GET, "/api/v1/configmaps?watch=true").await.unwrap();
    let mut idle = bare(&proxy, "/1").await;
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).await.unwrap();
    drop(server);
    let ended = async { while watch.body_mut().frame().await.is_some_and(|frame| frame.is_ok()) {} };
    timeout(PATIENCE, ended).await.expect("the watch goes on");
    let mut rest = Vec::new();
    timeout(PATIENCE, idle.read_to_end(&mut rest)).await.expect("the idle one is open").unwrap();
    assert_eq!(ask(&proxy, Method::GET, "/2").await, Got::Nothing);
}

#[tokio::test]
async fn a_door_may_be_silent_or_shut() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.door(Door::Silent);
    let mut stream = bare(&proxy, "/1").await;
    assert!(is_silent(&mut stream).await);
    proxy.door(Door::Shut);
    assert_eq!(timeout(PATIENCE, ask(&proxy, Method::GET, "/2")).await.unwrap(), Got::Nothing);
    proxy.clear();
    assert_eq!(ask(&proxy, Method::GET, "/3").await.code(), Some(200));
    assert_eq!(server.asked(), ["GET /3"]);
}
