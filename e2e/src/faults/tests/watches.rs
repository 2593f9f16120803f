//! Expiry, as kube's own watcher sees it.

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Config,
    runtime::watcher::{self, Event, watcher},
};
use tokio::time::timeout;

use super::server::{Client, PATIENCE, Server, ask};
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
async fn a_new_watch_and_a_list_may_be_told_that_they_are_too_late() {
    let (server, proxy) = Server::proxied().await.unwrap();
    proxy.fault(Select::watches().nth(1), Fault::expired());
    proxy.fault(
        Select::lists().and(&Select::new(|asked| asked.parameter("continue").is_some())),
        Fault::expired(),
    );
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
