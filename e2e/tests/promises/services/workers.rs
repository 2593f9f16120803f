//! To which worker an address leads, and what a lie of a Node is worth.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use kmetal_crds::networking::service::{EXCLUDE_NODE, reason};
use kmetal_e2e::{
    history::History,
    services::{NAMESPACE, Services, shown},
    tenant_cluster::{TenantCluster, Worker},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;

use super::{ENVIRONMENT, Stage};

/// Waits until all rules lead to this worker, one for each port.
async fn leads_to(stage: &Stage, worker: &Worker, ports: usize) -> Result<()> {
    let wait = stage.under().cluster().wait_for(format!("the address leads to {}", worker.name)).await?;
    wait.until(async || {
        let rules = stage.rules().await?;
        let to: Vec<&str> = rules.iter().map(|rule| rule.spec.v4_ip.as_str()).collect();
        let address = worker.address()?.to_string();
        let is_ready = |rule: &kmetal_crds::foreign::kube_ovn::OvnDnatRule| {
            rule.status.as_ref().is_some_and(|status| status.ready)
                && rule.metadata.deletion_timestamp.is_none()
        };
        ensure!(
            rules.iter().all(is_ready) && to.len() == ports && to.iter().all(|to| *to == address),
            "{to:?}"
        );
        Ok(Some(()))
    })
    .await
}

/// Two workers, one Service: it stays, and moves when it has to, and shows its address all the while.
pub async fn it_moves_only_when_it_has_to(
    stage: &Stage,
    tenant: &TenantCluster,
    workers: &[Worker; 2],
) -> Result<()> {
    let services = Services::of(tenant).await?;
    stage.eip(ENVIRONMENT, "moving", None).await?;
    services.apply("moving", Some("moving"), json!({})).await?;
    services.address("moving").await?;
    let rules = stage.rules().await?;
    let to = rules.first().context("no rule")?.spec.v4_ip.clone();
    let is_first = workers[0].address()?.to_string() == to;
    let (here, there) = if is_first { (&workers[0], &workers[1]) } else { (&workers[1], &workers[0]) };
    let history = History::record(&tenant.client().await?, &[ApiResource::erase::<Service>(&())]).await?;

    let report = async |worker: &Worker, labels: &[(&str, &str)], ready| {
        let addresses = worker.port.addresses.clone();
        tenant.report_node(&worker.name, &addresses, labels, ready).await
    };
    report(here, &[], false).await?;
    leads_to(stage, there, 1).await?;
    report(here, &[], true).await?;
    services.address("moving").await?;
    leads_to(stage, there, 1).await?;
    report(there, &[(EXCLUDE_NODE, "")], true).await?;
    leads_to(stage, here, 1).await?;
    report(there, &[], true).await?;
    cordon(tenant, &here.name, true).await?;
    services
        .apply(
            "moving",
            Some("moving"),
            json!({"ports": kmetal_e2e::services::ports(&[(443, "TCP"), (80, "TCP")])}),
        )
        .await?;
    leads_to(stage, here, 2).await?;
    cordon(tenant, &here.name, false).await?;
    Api::<Node>::all(tenant.client().await?).delete(&here.name, &DeleteParams::default()).await?;
    leads_to(stage, there, 2).await?;
    report(there, &[], false).await?;
    services.says("moving", reason::NO_WORKER).await?;
    leads_to(stage, there, 2).await?;

    history.caught_up().await?;
    let is_shown = |object: &DynamicObject| {
        let service: Service = serde_json::from_value(serde_json::to_value(object)?)?;
        ensure!(
            object.metadata.name.as_deref() != Some("moving") || shown(&service).is_some(),
            "{service:?}"
        );
        Ok(())
    };
    history.replay()?.every::<Service>(is_shown)?;
    report(here, &[], true).await?;
    report(there, &[], true).await?;
    services.address("moving").await?;
    services.delete("moving").await?;
    services.gone("moving").await
}

async fn cordon(tenant: &TenantCluster, node: &str, on: bool) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": {"unschedulable": on}}));
    Api::<Node>::all(tenant.client().await?).patch(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// `externalTrafficPolicy: Local` follows the endpoints.
pub async fn a_local_service_follows_its_endpoints(
    stage: &Stage,
    tenant: &TenantCluster,
    workers: &[Worker; 2],
) -> Result<()> {
    let services = Services::of(tenant).await?;
    services.apply("local", None, json!({"externalTrafficPolicy": "Local"})).await?;
    services.says("local", reason::NO_READY_ENDPOINT).await?;
    ensure!(stage.rules().await?.is_empty());
    for worker in workers {
        endpoint(tenant, &worker.name, false).await?;
    }
    for worker in [&workers[0], &workers[1], &workers[0]] {
        for other in workers {
            endpoint(tenant, &other.name, other.name == worker.name).await?;
        }
        services.address("local").await?;
        leads_to(stage, worker, 1).await?;
    }
    services.delete("local").await?;
    services.gone("local").await
}

/// An EndpointSlice of Service `local` with an endpoint on this Node; no controller manager makes any here.
async fn endpoint(tenant: &TenantCluster, node: &str, ready: bool) -> Result<()> {
    let name = format!("local-{node}");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "local"}},
        "addressType": "IPv4",
        "ports": [{"name": "tcp-443", "port": 8443, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.244.0.7"], "nodeName": node, "conditions": {"ready": ready}}],
    });
    let slices: Api<EndpointSlice> = Api::namespaced(tenant.client().await?, NAMESPACE);
    let parameters = PatchParams::apply("kit-tenant").force();
    slices.patch(&name, &parameters, &Patch::Apply(&slice)).await?;
    Ok(())
}

/// Whatever a Node says of its address, nothing leads out of the VPC, to its router, or to another tenant.
pub async fn a_lie_leads_nowhere(stage: &Stage, tenant: &TenantCluster, workers: &[Worker; 2]) -> Result<()> {
    let services = Services::of(tenant).await?;
    for worker in workers {
        Api::<Node>::all(tenant.client().await?).delete(&worker.name, &DeleteParams::default()).await?;
    }
    services.apply("lie", None, json!({})).await?;
    let lies = [
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "255.255.255.255",
        "10.1.0.0",
        "10.1.0.1",
        "10.1.0.255",
        "10.1.1.7",
        "192.0.2.7",
        "203.0.113.1",
        "203.0.113.9",
        "10.96.0.1",
        "100.100.0.7",
        "fd00::1",
    ];
    let lies = lies.iter().map(|lie| lie.parse()).collect::<Result<Vec<IpAddr>, _>>()?;
    for (number, lie) in lies.iter().enumerate() {
        tenant.report_node(&format!("liar-{number}"), &[*lie], &[], true).await?;
    }
    let told = services.says("lie", reason::NO_WORKER).await?;
    ensure!(told.contains("subnet of the Cluster's VPC"), "{told}");
    // One honest worker among them, and it is found.
    let honest = &workers[0];
    tenant.report_node(&honest.name, &honest.port.addresses, &[], true).await?;
    services.address("lie").await?;
    leads_to(stage, honest, 1).await?;
    let nodes: Api<Node> = Api::all(tenant.client().await?);
    for number in 0..lies.len() {
        nodes.delete(&format!("liar-{number}"), &DeleteParams::default()).await?;
    }
    tenant.report_node(&workers[1].name, &workers[1].port.addresses, &[], true).await?;
    services.delete("lie").await?;
    services.gone("lie").await
}
