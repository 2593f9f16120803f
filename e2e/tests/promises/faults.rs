//! The kit's own promise: one of our processes lives behind the fault proxy and dies where the test says, and what the
//! oracles tell stays true whatever breaks.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kmetal_e2e::{
    chart::Chart,
    cluster::Cluster,
    controller::{Circumstances, Controller},
    faults::{Fault, Proxy, Select},
    history::History,
    wait::PATIENCE,
};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::ApiResource,
};
use serde_json::json;

const NAMESPACE: &str = "kmetal-system";
const NAME: &str = "kmetal-networking";

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_killed_between_its_write_and_the_answer() -> Result<()> {
    let cluster = Cluster::start("faults").await?;
    let chart = Chart::ours(NAME, NAMESPACE, json!({"platform": {"protectedCIDRs": ["192.0.2.0/24"]}}));
    chart.install(&cluster).await?;
    let proxy = Proxy::before(&cluster).await?;
    let leases: Api<Lease> = Api::namespaced(cluster.client().await?, NAMESPACE);
    let holder =
        async || anyhow::Ok(leases.get_opt(NAME).await?.and_then(|lease| lease.spec?.holder_identity));

    let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
    let write = Select::resource("leases").and(&Select::writes());
    let gate = proxy.hold_answer(write.clone().nth(1));
    let mut replica = Controller::start_in(&cluster, &chart, NAME, 0, &circumstances).await?;
    gate.reached(PATIENCE).await?;
    replica.kill()?;
    gate.abandon();
    let killed = holder().await?.context("the write that it did not hear of was not applied")?;

    // It starts again behind the same proxy, where its lists are held: asked to stop meanwhile, it hands over at once.
    let before = proxy.log().len();
    let lists = proxy.hold_request(Select::resource("vpcclaims"));
    replica.restart()?;
    cluster
        .wait_for("the pod leads again, as another process")
        .await?
        .showing_all::<Lease>(Some(NAMESPACE))
        .until(async || Ok(holder().await?.filter(|holder| *holder != killed)))
        .await?;
    lists.reached(PATIENCE).await?;
    let ended = replica.terminate(Duration::from_secs(10)).await?;
    ensure!(ended.success(), "asked to stop, it ended with {ended}:\n{}", replica.child().log_tail(20));
    ensure!(holder().await?.is_none_or(|holder| holder.is_empty()), "the Lease is not given back");

    let log = proxy.log();
    ensure!(log[..before].iter().filter(|passed| write.takes(&passed.asked)).count() == 1, "{log:#?}");
    ensure!(log.len() > before, "restarted, it does not come through the proxy");
    ensure!(log.iter().all(|passed| passed.asked.agent.starts_with(NAME)), "{log:#?}");
    drop(lists);

    let asked = cluster.audit().requests()?.by(NAMESPACE, NAME);
    ensure!(!asked.is_empty(), "the audit log does not know it");
    let stranger = asked.iter().find(|entry| entry.credential() != Some(replica.credential()));
    ensure!(stranger.is_none(), "another identity than {}: {stranger:?}", replica.credential());
    cluster.finish();
    Ok(())
}

/// Names and versions of the ConfigMaps that the test writes, in order.
fn told(history: &History) -> Result<Vec<(String, String)>> {
    let versions = history.versions::<ConfigMap>()?;
    let ours = versions.iter().filter(|version| version.object.name_any().starts_with("m-"));
    Ok(ours.map(|v| (v.object.name_any(), v.object.resource_version().unwrap_or_default())).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_over_broken_watches_misses_nothing() -> Result<()> {
    const WRITES: usize = 60;
    let cluster = Cluster::start("broken").await?;
    let proxy = Proxy::before_as(&cluster, ("recorder", "system:masters")).await?;
    let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig(cluster.kubeconfig())?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let (direct, through) = (cluster.client().await?, Client::try_from(config)?);
    let kinds = [ApiResource::erase::<ConfigMap>(&())];
    let whole = History::record(&direct, &kinds).await?;
    let broken = History::record(&through, &kinds).await?;

    let mark = cluster.audit().mark()?;
    let rules = [
        proxy.fault(Select::watches().nth(2), Fault::cut(700)),
        proxy.fault(Select::watches().nth(3), Fault::drop_answer()),
        proxy.fault(Select::watches().nth(4), Fault::status(503)),
        proxy.fault(Select::watches().nth(5), Fault::expired()),
        proxy.fault(Select::lists().nth(3), Fault::drop_request()),
        proxy.fault(Select::useful_writes().nth(7), Fault::throttled(1)),
    ];
    let (mut severed, mut expired) = (0, 0);
    let maps: Api<ConfigMap> = Api::namespaced(through, "default");
    for write in 0..WRITES {
        let map =
            json!({"metadata": {"name": format!("m-{}", write % 5)}, "data": {"write": write.to_string()}});
        let map = Patch::Apply(serde_json::from_value::<ConfigMap>(map)?);
        maps.patch(&format!("m-{}", write % 5), &PatchParams::apply("recorded"), &map).await?;
        // By and by, so that each watch has something to tell before it breaks.
        tokio::time::sleep(Duration::from_millis(20)).await;
        match write % 10 {
            5 => severed += proxy.sever(&Select::watches()),
            9 => expired += proxy.expire(&Select::watches()),
            _ => {}
        }
    }
    proxy.clear();
    whole.caught_up().await?;
    broken.caught_up().await?;
    ensure!(told(&whole)?.len() == WRITES, "{:?}", told(&whole)?);
    ensure!(told(&whole)? == told(&broken)?, "{:?} but {:?}", told(&whole)?, told(&broken)?);
    ensure!(severed > 0 && expired > 0 && rules.iter().all(|rule| rule.struck() == 1), "{rules:?}");

    // What the proxy says was applied is what the server says.
    let applied = proxy.log().iter().filter(|passed| passed.asked.is_write() && passed.is_applied()).count();
    let written =
        mark.requests()?.accepted().only(|entry| entry.username() == "recorder" && entry.is_write());
    ensure!(applied == WRITES && written.len() == WRITES, "{applied}, {}", written.len());
    drop((whole, broken));
    cluster.finish();
    Ok(())
}
