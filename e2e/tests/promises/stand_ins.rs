//! The kit's own promise: a stand-in answers a client as an API server does, in what it plays, and refuses the rest.

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kmetal_e2e::{
    cluster::{self, Cluster},
    environment::Environment,
    rig::Rig,
    stand_in::{StandIn, StandIns},
    tenant_cluster::Options,
    wait::PATIENCE,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;

const ENVIRONMENT: &str = "acme-prod";

fn web() -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30080}]},
    })
}

fn code<T>(answer: kube::Result<T>) -> Option<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stand_in_answers_as_an_api_server_does_and_refuses_what_it_does_not_play() -> Result<()> {
    let options =
        cluster::Options { scheduler: false, controller_manager: false, ..cluster::Options::default() };
    let under = Cluster::start_in(&Rig::new("stand-ins")?, "under", options).await?;
    Environment::labelled(&under, "acme", ENVIRONMENT).await?;
    let stand_ins = StandIns::new(&under).await?;
    let one = stand_ins.start(&under, ENVIRONMENT, "one", &Options::on("front")).await?;
    let two = stand_ins.start(&under, ENVIRONMENT, "two", &Options::plain()).await?;
    what_is_written_is_watched(&one).await?;
    writes_are_exclusive(&one).await?;
    nothing_is_answered_half(&one, &two).await?;
    under.finish();
    Ok(())
}

async fn what_is_written_is_watched(one: &StandIn) -> Result<()> {
    let services: Api<Service> = Api::all(one.client().await?);
    let mut seen = watcher(services, watcher::Config::default()).boxed();
    let mut next = async || {
        let event = tokio::time::timeout(PATIENCE, seen.next()).await?.context("the watch ended")??;
        anyhow::Ok(match event {
            Event::Init => "init".to_owned(),
            Event::InitDone => "done".to_owned(),
            Event::InitApply(service) | Event::Apply(service) => {
                format!("{} {}", service.name_any(), service.metadata.generation.unwrap_or_default())
            }
            Event::Delete(service) => format!("{} gone", service.name_any()),
        })
    };
    ensure!(next().await? == "init" && next().await? == "done", "it is empty");
    one.put(web())?;
    ensure!(next().await? == "web 1");
    let mut changed = web();
    changed["spec"]["type"] = json!("ClusterIP");
    one.put(changed.clone())?;
    ensure!(next().await? == "web 2");
    // What changes nothing is no change.
    one.put(changed)?;

    let services: Api<Service> = Api::namespaced(one.client().await?, "default");
    let finalizer = |names: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": names}}));
    services.patch("web", &PatchParams::default(), &finalizer(&["a/b"])).await?;
    ensure!(next().await? == "web 2");
    services.delete("web", &DeleteParams::default()).await?;
    ensure!(next().await? == "web 2", "the finalizer holds it");
    services.patch("web", &PatchParams::default(), &finalizer(&[])).await?;
    ensure!(next().await? == "web gone");
    Ok(())
}

async fn writes_are_exclusive(one: &StandIn) -> Result<()> {
    let services: Api<Service> = Api::namespaced(one.client().await?, "default");
    let created = services.create(&PostParams::default(), &serde_json::from_value(web())?).await?;
    ensure!(code(services.create(&PostParams::default(), &created).await) == Some(409));
    let status = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "resourceVersion": created.resource_version()},
        "spec": {"type": "ClusterIP"},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}},
    });
    let apply = PatchParams::apply("test").force();
    let written = services.patch_status("web", &apply, &Patch::Apply(&status)).await?;
    let ingress = written.status.and_then(|status| status.load_balancer?.ingress);
    ensure!(ingress.is_some_and(|all| all[0].ip.as_deref() == Some("203.0.113.9")));
    ensure!(written.spec.and_then(|spec| spec.type_).as_deref() == Some("LoadBalancer"), "the spec changed");
    let late = services.patch_status("web", &apply, &Patch::Apply(&status)).await;
    ensure!(code(late) == Some(409), "the version is an old one");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    let nodes: Api<Node> = Api::all(one.client().await?);
    nodes.patch("n", &apply, &Patch::Apply(&node)).await?;
    ensure!(one.get("nodes", "", "n").is_some(), "apply creates");
    Ok(())
}

async fn nothing_is_answered_half(one: &StandIn, two: &StandIn) -> Result<()> {
    let slices: Api<EndpointSlice> = Api::all(one.client().await?);
    ensure!(slices.list(&ListParams::default().limit(5)).await?.items.is_empty());
    ensure!(code(slices.list(&ListParams::default().labels("a=b")).await) == Some(400), "selectors");
    let events: Vec<WatchEvent<EndpointSlice>> =
        slices.watch(&WatchParams::default().timeout(1), "1").await?.try_collect().await?;
    ensure!(events.is_empty(), "{events:?}");
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::all(one.client().await?);
    ensure!(code(pods.list(&ListParams::default()).await) == Some(404), "Pods");
    let strangers: Client = two.client_of(one).await?;
    let answer = Api::<Service>::all(strangers).list(&ListParams::default()).await;
    ensure!(code(answer) == Some(401), "a kubeconfig of one opens another");
    Ok(())
}
