//! Expiry, as kube's own watcher sees it.

use std::time::Duration;

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Config,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::server::{Client, Got, PATIENCE, Server, ask};
use crate::faults::{Fault, Proxy, Select};

fn api(proxy: &Proxy) -> Api<ConfigMap> {
    let config = Config::new(proxy.url().parse().unwrap());
    Api::all(kube::Client::try_from(config).unwrap())
}

#[tokio::test]
async fn an_expired_watch_makes_the_watcher_list_again() {
    let (server, proxy) = Server::proxied().await.unwrap();
    let mut events = Box::pin(watcher(api(&proxy), watcher::Config::default()));
    let lists = || server.asked().iter().filter(|asked| *asked == "GET /api/v1/configmaps").count();
    let apply = async |events: &mut std::pin::Pin<Box<_>>| {
        while !matches!(StreamExt::next(events).await, Some(Ok(Event::Apply(_)))) {}
    };
    timeout(PATIENCE, apply(&mut events)).await.expect("nothing is watched");
    let before = lists();

    assert_eq!(proxy.expire(&Select::all()), 1);
    let error = timeout(PATIENCE, async {
        loop {
            if let Some(Err(error)) = events.next().await {
                return error;
            }
        }
    });
    let error = error.await.expect("the watcher notices nothing");
    assert!(matches!(&error, watcher::Error::WatchError(status) if status.code == 410), "{error:?}");
    timeout(PATIENCE, apply(&mut events)).await.expect("it does not recover");
    assert!(lists() > before, "{:?}", server.asked());
}

#[tokio::test]
async fn expiry_is_told_once_and_never_within_an_event() {
    let (_server, proxy) = Server::proxied().await.unwrap();
    for round in 0..10_u32 {
        let mut client = Client::connect(&proxy).await.unwrap();
        let watch =
            tokio::spawn(async move { client.ask(Method::GET, "/api/v1/configmaps?watch=true").await });
        // At another place of an event each time.
        tokio::time::sleep(Duration::from_millis(60) + Duration::from_millis(5) * round).await;
        assert_eq!(proxy.expire(&Select::all()), 1);
        let Got::Whole(200, body) = timeout(PATIENCE, watch).await.unwrap().unwrap() else {
            panic!("the watch was not ended in order")
        };
        let lines = std::str::from_utf8(&body).unwrap().lines();
        let types = lines.map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone());
        let types: Vec<Value> = types.collect();
        let (last, before) = types.split_last().unwrap();
        assert!(last == "ERROR" && !before.contains(&json!("ERROR")), "{types:?}");
    }
}

#[tokio::test]
async fn a_new_watch_and_a_list_may_be_told_that_they_are_too_late() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::watches().nth(1), Fault::expired());
    proxy.fault(Select::continuations(), Fault::expired());
    let got = ask(&proxy, Method::GET, "/api/v1/configmaps?watch=true").await;
    assert_eq!(got.code(), Some(200));
    assert!(format!("{got:?}").contains(r#"\"code\":410"#), "{got:?}");
    assert_eq!(ask(&proxy, Method::GET, "/api/v1/configmaps?continue=x").await.code(), Some(410));
    assert_eq!(ask(&proxy, Method::GET, "/api/v1/configmaps").await.code(), Some(200));
    assert_eq!(server.asked(), ["GET /api/v1/configmaps"]);

    let mut client = Client::connect(&proxy).await.unwrap();
    assert_eq!(client.open(Method::GET, "/api/v1/configmaps?watch=true").await.unwrap().status(), 200);
    let error = api(&proxy).list(&kube::api::ListParams::default().continue_token("x")).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 410), "{error:?}");
}
