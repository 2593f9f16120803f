//! Who reaches a process, and whom it reaches: closed where the values say so, and found by a Prometheus that may.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    networking::v1::{NetworkPolicy, NetworkPolicySpec},
};
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{NAMESPACE, networking, of_kind, platform};

/// Every switch on, over a complete platform.
pub(super) fn everything() -> Value {
    let mut values = platform();
    values["networkPolicy"] = json!({
        "enabled": true,
        "metricsFrom": [
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
            {"ipBlock": {"cidr": "10.20.4.0/24", "except": ["10.20.4.7/32"]}},
        ],
        "apiServer": {"ports": [443, 8443], "cidrs": ["10.20.4.0/24", "fd00:1::/64"]},
    });
    values["serviceMonitor"] =
        json!({"enabled": true, "labels": {"release": "kube-prometheus-stack"}, "interval": "15s"});
    values
}

fn the<K: DeserializeOwned>(objects: &[DynamicObject], kind: &str) -> Result<K> {
    let found = of_kind(objects, kind);
    ensure!(found.len() == 1, "{} of {kind}", found.len());
    Ok(serde_json::from_value(serde_json::to_value(found[0])?)?)
}

async fn policy(values: Value) -> Result<NetworkPolicySpec> {
    let objects = networking(values).render().await?;
    let policy: NetworkPolicy = the(&objects, "NetworkPolicy")?;
    let deployment: Deployment = the(&objects, "Deployment")?;
    let spec = policy.spec.context("no spec")?;
    let pods = deployment.spec.context("no spec")?.selector;
    ensure!(spec.pod_selector.as_ref() == Some(&pods), "the policy is about other pods: {spec:?}");
    ensure!(policy.metadata.namespace.as_deref() == Some(NAMESPACE), "{:?}", policy.metadata);
    ensure!(spec.policy_types == Some(vec!["Ingress".into(), "Egress".into()]), "{spec:?}");
    Ok(spec)
}

#[tokio::test]
async fn neither_kind_is_rendered_unless_asked_for() -> Result<()> {
    let objects = networking(json!({})).render().await?;
    for kind in ["NetworkPolicy", "ServiceMonitor"] {
        ensure!(of_kind(&objects, kind).is_empty(), "{kind} comes unasked");
    }
    Ok(())
}

#[tokio::test]
async fn a_closed_process_lets_only_scrapers_in_and_reaches_only_api_servers_and_dns() -> Result<()> {
    let closed = serde_json::to_value(policy(json!({"networkPolicy": {"enabled": true}})).await?)?;
    ensure!(closed.get("ingress").is_none(), "nobody was named, and somebody is let in: {closed}");
    let dns = json!({"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]});
    let servers = json!({"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]});
    ensure!(closed["egress"] == json!([servers, dns]), "{closed}");

    let named = serde_json::to_value(policy(everything()).await?)?;
    let scrapers = &everything()["networkPolicy"]["metricsFrom"];
    let admin = json!([{"from": scrapers, "ports": [{"protocol": "TCP", "port": "admin"}]}]);
    ensure!(named["ingress"] == admin, "{named}");
    let servers = json!({
        "ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 8443}],
        "to": [{"ipBlock": {"cidr": "10.20.4.0/24"}}, {"ipBlock": {"cidr": "fd00:1::/64"}}],
    });
    ensure!(named["egress"] == json!([servers, dns]), "{named}");
    Ok(())
}

#[tokio::test]
async fn prometheus_finds_the_metrics_of_each_replica() -> Result<()> {
    let objects = networking(everything()).render().await?;
    let monitor: DynamicObject = the(&objects, "ServiceMonitor")?;
    let service: DynamicObject = the(&objects, "Service")?;
    let labels = serde_json::to_value(&service.metadata.labels)?;
    let wanted = monitor.data["spec"]["selector"]["matchLabels"].as_object().context("no selector")?;
    ensure!(!wanted.is_empty() && wanted.iter().all(|(key, value)| labels[key] == *value), "{wanted:?}");
    // In another namespace it would have to name the Service's.
    ensure!(monitor.metadata.namespace == service.metadata.namespace, "{:?}", monitor.metadata);
    let endpoint = json!({"port": "admin", "path": "/metrics", "interval": "15s"});
    ensure!(monitor.data["spec"]["endpoints"] == json!([endpoint]), "{}", monitor.data);
    ensure!(monitor.data["spec"].as_object().map(serde_json::Map::len) == Some(2), "{}", monitor.data);
    ensure!(service.data["spec"]["ports"][0]["name"] == "admin", "{}", service.data);
    let chosen = monitor.metadata.labels.as_ref().and_then(|labels| labels.get("release"));
    ensure!(chosen.map(String::as_str) == Some("kube-prometheus-stack"), "{:?}", monitor.metadata);
    Ok(())
}
