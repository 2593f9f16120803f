//! What a Service asks in vain it is told, in its own cluster, and nothing is opened for it.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{ResourceQuota, Service},
    events::v1::Event,
};
use kmetal_crds::networking::service::reason;
use kmetal_e2e::{
    services::{NAMESPACE, Services, ports, shown},
    tenant_cluster::TenantCluster,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};

use super::{ENVIRONMENT, Stage};
use crate::quotas::counted;

/// Waits for an Event with this reason about an object of this name.
pub async fn event(
    cluster: &kmetal_e2e::cluster::Cluster,
    namespace: &str,
    name: &str,
    reason: &str,
) -> Result<String> {
    let events: Api<Event> = Api::namespaced(cluster.client().await?, namespace);
    let wait = cluster.wait_for(format!("Event {reason} about {name}")).await?;
    wait.until(async || {
        let all = events.list(&ListParams::default()).await?;
        let about = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().is_some_and(|it| it.name.as_deref() == Some(name))
        };
        Ok(all.iter().find(about).map(|event| event.note.clone().unwrap_or_default()))
    })
    .await
}

pub async fn what_cannot_be_done_is_refused(stage: &Stage, tenant: &TenantCluster) -> Result<()> {
    let services = Services::of(tenant).await?;
    let partner = stage.eip(ENVIRONMENT, "elsewhere", Some("partner")).await?;
    ensure!(partner.status.is_some_and(|status| status.address.is_some()));
    let many: Vec<(u16, &str)> = (1..=101).map(|port| (port, "TCP")).collect();
    let cases: [(&str, Option<&str>, Value, &str); 7] = [
        (
            "ranges",
            None,
            json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}),
            reason::SOURCE_RANGES_UNSUPPORTED,
        ),
        ("no-ports", None, json!({"allocateLoadBalancerNodePorts": false}), reason::NODE_PORTS_REQUIRED),
        ("sctp", None, json!({"ports": ports(&[(443, "TCP"), (80, "SCTP")])}), reason::PROTOCOL_UNSUPPORTED),
        ("many", None, json!({"ports": ports(&many)}), reason::TOO_MANY_PORTS),
        ("nowhere", Some("nowhere"), json!({}), reason::EIP_CLAIM_NOT_FOUND),
        ("hostile", Some("../../secrets/\u{202e}x"), json!({}), reason::EIP_CLAIM_NOT_FOUND),
        ("elsewhere", Some("elsewhere"), json!({}), reason::WRONG_PROVIDER_NETWORK),
    ];
    for (name, claim, spec, _) in &cases {
        services.apply(name, *claim, spec.clone()).await?;
    }
    for (name, _, _, reason) in &cases {
        services.says(name, reason).await?;
        event(tenant.cluster(), NAMESPACE, name, reason).await?;
    }
    ensure!(stage.rules().await?.is_empty(), "something was opened all the same");
    ensure!(stage.bound(ENVIRONMENT, "elsewhere").await?.is_none());
    for (name, ..) in &cases {
        services.delete(name).await?;
        services.gone(name).await?;
    }
    Ok(())
}

/// A Service that restricts its sources later is closed, not left open.
pub async fn a_service_that_asks_for_less_is_closed(stage: &Stage, tenant: &TenantCluster) -> Result<()> {
    let services = Services::of(tenant).await?;
    let more = json!({"sessionAffinity": "ClientIP"});
    services.apply("closing", None, more).await?;
    let address = services.address("closing").await?;
    event(tenant.cluster(), NAMESPACE, "closing", reason::SESSION_AFFINITY_LIMITED).await?;
    services.apply("closing", None, json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]})).await?;
    services.says("closing", reason::SOURCE_RANGES_UNSUPPORTED).await?;
    let wait = stage.under().cluster().wait_for("the Service is closed").await?;
    wait.until(async || Ok(stage.rules().await?.is_empty().then_some(()))).await?;
    ensure!(shown(&services.api().get("closing").await?).is_none());
    services.apply("closing", None, json!({})).await?;
    ensure!(services.address("closing").await? == address, "another address");
    services.delete("closing").await?;
    services.gone("closing").await
}

/// Services of another class, and no load balancers at all, are not touched.
pub async fn services_of_others_are_untouched(tenant: &TenantCluster) -> Result<()> {
    let services = Services::of(tenant).await?;
    let history =
        kmetal_e2e::history::History::record(&tenant.client().await?, &[ApiResource::erase::<Service>(&())])
            .await?;
    services.apply("theirs", Some("shop"), json!({"loadBalancerClass": "metallb.io/metallb"})).await?;
    services.apply("inside", Some("shop"), json!({"type": "ClusterIP"})).await?;
    // One that is served meanwhile: those before it have had their turn.
    services
        .apply("ours", None, json!({"loadBalancerClass": kmetal_crds::networking::service::CLASS}))
        .await?;
    services.address("ours").await?;
    history.caught_up().await?;
    let is_untouched = |object: &DynamicObject| {
        let name = object.name_any();
        let managers: Vec<_> =
            object.managed_fields().iter().filter_map(|field| field.manager.clone()).collect();
        let by_us = managers.iter().any(|manager| manager.starts_with("kmetal-"));
        ensure!(!["theirs", "inside"].contains(&name.as_str()) || !by_us, "{name}: {managers:?}");
        Ok(())
    };
    history.replay()?.every::<Service>(is_untouched)?;
    for name in ["theirs", "inside", "ours"] {
        services.delete(name).await?;
        services.gone(name).await?;
    }
    Ok(())
}

/// Kubernetes' own quota bounds the addresses that are made, and the Service is told.
pub async fn quota_is_told_and_room_is_noticed(stage: &Stage, tenant: &TenantCluster) -> Result<()> {
    let services = Services::of(tenant).await?;
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.under().client().await?, ENVIRONMENT);
    counted(stage.under().cluster()).await?;
    let claims = stage.eips(ENVIRONMENT).await?;
    let wait = stage.under().cluster().wait_for("the claims of earlier Services are gone").await?;
    let used = wait
        .until(async || {
            let claims = claims.list(&ListParams::default()).await?.items;
            Ok(claims.iter().all(|claim| claim.metadata.deletion_timestamp.is_none()).then_some(claims.len()))
        })
        .await?;
    let hard = json!({"count/eipclaims.networking.kmetal.clastix.io": (used + 1).to_string()});
    let quota = json!({"metadata": {"name": "addresses"}, "spec": {"hard": hard}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    let wait = stage.under().cluster().wait_for("the quota counts").await?;
    wait.until(async || {
        let status = quotas.get("addresses").await?.status.context("no status")?;
        Ok(status.used.is_some_and(|used| !used.is_empty()).then_some(()))
    })
    .await?;
    services.apply("first", None, json!({})).await?;
    services.address("first").await?;
    services.apply("second", None, json!({})).await?;
    services.says("second", reason::QUOTA_EXCEEDED).await?;
    let told = event(tenant.cluster(), NAMESPACE, "second", reason::QUOTA_EXCEEDED).await?;
    ensure!(told.contains("Environment"), "{told}");
    services.delete("first").await?;
    services.gone("first").await?;
    let wait = tenant.cluster().wait_for("the second Service gets the room").await?;
    wait.within(std::time::Duration::from_mins(3))
        .until(async || Ok(shown(&services.api().get("second").await?)))
        .await?;
    services.delete("second").await?;
    services.gone("second").await?;
    quotas.delete("addresses", &DeleteParams::default()).await?;
    Ok(())
}
