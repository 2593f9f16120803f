//! An upgrade with the same values writes nothing, and Kube-OVN finds nothing to add to what we wrote.
//!
//! It matters most for external Subnets: Kube-OVN takes a Subnet's ACLs away and adds them again whenever the Subnet
//! changes, and until they are back a host on the segment reaches the tenants' machines.

use anyhow::{Context, Result, ensure};
use kmetal_crds::foreign::kube_ovn::Subnet;
use kmetal_e2e::{cluster::Cluster, ovn::under_cluster::UnderCluster, wait::READY};
use serde_json::{Value, json};

use super::{networking, platform, provider_networks, providers};

const KUBE_OVN: &str = "provider-networks.kubeovn.io,vlans.kubeovn.io,subnets.kubeovn.io";

async fn objects(cluster: &Cluster, kinds: &str, chart: &str) -> Result<Vec<Value>> {
    let selector = format!("app.kubernetes.io/name={chart}");
    let get = ["get", kinds, "--all-namespaces", "--show-managed-fields", "-o", "json", "-l", &selector];
    let mut list: Value = serde_json::from_str(&cluster.kubectl(&get).await?)?;
    let items = list["items"].as_array_mut().context("no list")?;
    ensure!(!items.is_empty(), "no {kinds} of {chart}");
    Ok(std::mem::take(items))
}

/// The object without what its controller writes while it works: status, and the version that this moves on.
fn as_written(mut object: Value) -> Value {
    if let Some(fields) = object["metadata"]["managedFields"].as_array_mut() {
        fields.retain(|entry| entry["subresource"] != "status");
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(fields) = object["metadata"].as_object_mut() {
        fields.remove("resourceVersion");
    }
    object
}

/// The state of the chart's objects; a time in managedFields moves when helm changes anything at all.
async fn written(cluster: &Cluster, kinds: &str, chart: &str) -> Result<Vec<Value>> {
    Ok(objects(cluster, kinds, chart).await?.into_iter().map(as_written).collect())
}

fn nobody_else_wrote_the_spec(objects: &[Value]) -> Result<()> {
    for object in objects {
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        ensure!(object["metadata"]["generation"] == 1, "{name} was rewritten: {object:#}");
        let entries = object["metadata"]["managedFields"].as_array().context("no managedFields")?;
        let writers = entries.iter().filter(|entry| entry["fieldsV1"].get("f:spec").is_some());
        let writers: Vec<&Value> = writers.map(|entry| &entry["manager"]).collect();
        ensure!(writers == [&json!("helm")], "{name}: its spec belongs to {writers:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_upgrade_changes_nothing_and_kube_ovn_completes_nothing() -> Result<()> {
    let under = UnderCluster::start("upgrade").await?;
    let cluster = under.cluster();
    let chart = providers(provider_networks());
    let ready = async || -> Result<()> {
        for name in ["internet", "partner"] {
            cluster.wait_condition::<Subnet>(None, name, READY).await?;
        }
        under.ovn().sync().await
    };

    chart.upgrade(cluster).await?;
    ready().await?;
    let first = written(cluster, KUBE_OVN, "kmetal-provider-networks").await?;
    ensure!(first.len() == 6, "{} objects", first.len());
    nobody_else_wrote_the_spec(&first)?;

    chart.upgrade(cluster).await?;
    let second = written(cluster, KUBE_OVN, "kmetal-provider-networks").await?;
    ensure!(first == second, "the second upgrade wrote:\n{first:#?}\n{second:#?}");

    // Every Subnet goes through Kube-OVN again when it starts.
    under.kube_ovn().restart().await?;
    ready().await?;
    let restarted = written(cluster, KUBE_OVN, "kmetal-provider-networks").await?;
    ensure!(first == restarted, "Kube-OVN wrote:\n{first:#?}\n{restarted:#?}");

    for (switch, network) in [("internet", "203.0.113.0/24"), ("partner", "198.51.100.0/24")] {
        let acls = under.ovn().nbctl(&["acl-list", switch]).await?;
        let drops = acls.lines().filter(|line| line.contains("-lport  2000") && line.ends_with("drop"));
        ensure!(drops.count() == 4, "{switch}:\n{acls}");
        for side in ["dst", "src"] {
            ensure!(acls.contains(&format!("ip4.{side} != {network}")), "{switch}:\n{acls}");
        }
    }
    under.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn kmetal_networking_is_upgraded_without_touching_its_pods() -> Result<()> {
    let cluster = Cluster::start("upgrade-networking").await?;
    let kinds =
        "deployments,clusterroles,roles,serviceaccounts,services,customresourcedefinitions,networkpolicies";
    let closed = json!({"enabled": true});
    let chart = networking(json!({"networkPolicy": closed}));
    chart.upgrade(&cluster).await?;
    let first = written(&cluster, kinds, "kmetal-networking").await?;
    let mut changed = platform();
    changed["networkPolicy"] = closed.clone();
    for values in [json!({"networkPolicy": closed}), changed] {
        chart.with_values(values).upgrade(&cluster).await?;
        let again = written(&cluster, kinds, "kmetal-networking").await?;
        ensure!(first == again, "the upgrade wrote:\n{first:#?}\n{again:#?}");
    }
    let get = ["get", "configmap", "kmetal-networking-platform", "-n", super::NAMESPACE, "-o", "yaml"];
    ensure!(cluster.kubectl(&get).await?.contains("10.96.0.0/12"), "the platform file was not upgraded");
    cluster.finish();
    Ok(())
}
