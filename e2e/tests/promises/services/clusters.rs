//! Clusters that come, are cut off, go and come again, and clusters of several tenants that look alike.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kmetal_crds::networking::{EipClaim, service::reason};
use kmetal_e2e::{
    reach::{Reach, public::Socket},
    services::{NAMESPACE, Services},
    tenant_cluster::TenantCluster,
};
use kube::{Api, api::DeleteParams};
use serde_json::json;

use super::{ENVIRONMENT, Stage, internet, refused::event};

/// How long the addresses of a Cluster that is gone may be kept (bar B-10).
const FREE_WITHIN: Duration = Duration::from_mins(1);
/// Long enough for whatever would take something away.
const A_WHILE: Duration = Duration::from_secs(8);

/// Two tenants with the same range, the same Service, the same names: each packet finds its own.
pub async fn tenants_that_look_alike_are_kept_apart(stage: &Stage) -> Result<()> {
    const THEIRS: &str = "globex-prod";
    stage.environment("globex", THEIRS, Some("internet")).await?;
    let mut found = Vec::new();
    for environment in [ENVIRONMENT, THEIRS] {
        let twin = stage.cluster(environment, "twin").await?;
        let worker = twin.worker(stage.under(), "front", "twin-1").await?;
        let services = Services::of(&twin).await?;
        services.apply("web", None, json!({})).await?;
        let address = services.address("web").await?;
        let node_port = services.node_port("web", 443, "TCP").await?;
        found.push((environment, twin, worker, address, node_port));
    }
    ensure!(found[0].3 != found[1].3, "one address for both");
    stage.under().ovn().sync().await?;
    for (environment, _, worker, address, node_port) in &found {
        let vpc = stage.vpc(environment).await?;
        stage.under().play_gateway(&internet(), &vpc).await?;
        let reach = Reach::of(stage.under().ovn()).await?;
        let to = Socket { address: *address, protocol: "tcp", port: 443 };
        let inbound = reach.inbound(&internet(), &vpc, to).await?;
        let arrives = inbound.verdict().is_some_and(|verdict| verdict.is_delivered_to(&worker.port));
        let backend = format!("{}:{node_port}", worker.address()?);
        ensure!(arrives && inbound.text().contains(&backend), "{environment}: {}", inbound.text());
    }
    // One goes; of the other nothing does.
    let mut found = found.into_iter();
    let (Some((_, mine, ..)), Some((_, theirs, _, kept, _))) = (found.next(), found.next()) else {
        anyhow::bail!("two were made")
    };
    mine.delete().await?;
    let wait = stage.under().cluster().wait_for("the addresses of the Cluster that is gone are free").await?;
    wait.until(async || Ok((stage.rules().await?.len() == 1).then_some(()))).await?;
    ensure!(Services::of(&theirs).await?.address("web").await? == kept);
    theirs.delete().await?;
    stage.nothing_is_bound().await
}

/// What a cluster has it keeps while it is silent or gone, and loses when its Cluster goes, without being asked.
pub async fn a_cluster_that_is_away_keeps_what_it_has_until_its_cluster_goes(stage: &Stage) -> Result<()> {
    let away = stage.cluster(ENVIRONMENT, "away").await?;
    away.worker(stage.under(), "front", "away-1").await?;
    let services = Services::of(&away).await?;
    stage.eip(ENVIRONMENT, "kept", None).await?;
    services.apply("named", Some("kept"), json!({})).await?;
    services.apply("own", None, json!({})).await?;
    services.address("named").await?;
    services.address("own").await?;
    for silent in [true, false] {
        if silent {
            away.hang()?;
        } else {
            away.stop()?;
        }
        tokio::time::sleep(A_WHILE).await;
        ensure!(stage.rules().await?.len() == 2, "taken away while it is away");
        ensure!(stage.bound(ENVIRONMENT, "kept").await?.is_some());
        if silent {
            away.resume()?;
        }
    }
    away.ask_deletion().await?;
    tokio::time::sleep(A_WHILE / 2).await;
    ensure!(stage.rules().await?.len() == 2, "taken away before the Cluster is gone");
    away.finish_deletion().await?;
    let eips = stage.eips(ENVIRONMENT).await?;
    let wait = stage.under().cluster().wait_for("the addresses are free without the tenant's API").await?;
    wait.within(FREE_WITHIN)
        .showing_all::<EipClaim>(Some(ENVIRONMENT))
        .until(async || {
            let left = eips.list(&kube::api::ListParams::default()).await?.items;
            let bound =
                left.iter().filter(|claim| claim.status.as_ref().is_some_and(|s| s.bound_to.is_some()));
            ensure!(bound.count() == 0 && stage.rules().await?.is_empty());
            let made = left.iter().any(|claim| claim.metadata.owner_references.is_some());
            Ok((!made).then_some(()))
        })
        .await
}

/// A Cluster of the same name is another one: it gets nothing that it does not ask for itself.
pub async fn a_cluster_that_is_made_again_inherits_nothing(stage: &Stage) -> Result<()> {
    let again = stage.cluster(ENVIRONMENT, "away").await?;
    again.worker(stage.under(), "front", "away-2").await?;
    tokio::time::sleep(A_WHILE / 2).await;
    ensure!(stage.rules().await?.is_empty() && stage.bound(ENVIRONMENT, "kept").await?.is_none());
    let services = Services::of(&again).await?;
    services.apply("named", Some("kept"), json!({})).await?;
    services.address("named").await?;
    let bound = stage.bound(ENVIRONMENT, "kept").await?.context("not bound")?;
    ensure!(bound.cluster.uid == again.uid(), "{bound:?}");
    again.delete().await?;
    stage.nothing_is_bound().await
}

/// On a VPC without a way out nothing works, and both sides are told.
pub async fn a_cluster_without_a_way_out_is_told(stage: &Stage) -> Result<()> {
    const DARK: &str = "acme-dark";
    stage.environment("acme", DARK, None).await?;
    let dark = stage.cluster(DARK, "dark").await?;
    let note = event(stage.under().cluster(), DARK, "dark", reason::NO_ROUTE_TO_CONTROL_PLANE).await?;
    ensure!(note.contains("VpcClaim net"), "{note}");
    let services = Services::of(&dark).await?;
    services.apply("web", None, json!({})).await?;
    let told = services.says("web", reason::NO_EGRESS).await?;
    ensure!(told.contains("spec.egress"), "{told}");
    // Whoever adds it is served.
    stage.networking.claim_vpc(DARK, "net", Some("internet")).await?;
    dark.worker(stage.under(), "front", "dark-1").await?;
    services.address("web").await?;
    // And may not take it away while it is needed.
    stage.networking.claim_vpc(DARK, "net", None).await?;
    let told = stage.networking.vpc_says(DARK, "net", kmetal_crds::networking::reason::IN_USE).await?;
    ensure!(told.contains("service-"), "{told}");
    services.delete("web").await?;
    services.gone("web").await?;
    stage.networking.vpc_ready(DARK, "net").await?;
    dark.delete().await?;
    stage.nothing_is_bound().await
}

/// Who tears out finalizers leaks nothing, and no address is shown by two.
pub async fn torn_finalizers_leak_nothing(stage: &Stage, blue: &TenantCluster) -> Result<()> {
    let services = Services::of(blue).await?;
    stage.eip(ENVIRONMENT, "torn", None).await?;
    services.apply("torn", Some("torn"), json!({})).await?;
    services.address("torn").await?;
    services.delete("torn").await?;
    let nothing = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // It may have gone by itself meanwhile.
    let _ = services.api().patch("torn", &kube::api::PatchParams::default(), &nothing).await;
    services.gone("torn").await?;
    stage.nothing_is_bound().await?;

    // The EipClaim of a living Service: the address goes out of the Service first.
    let shown = super::shown::Shown::record(&[blue]).await?;
    services.apply("left", Some("torn"), json!({})).await?;
    let address = services.address("left").await?;
    let eips = stage.eips(ENVIRONMENT).await?;
    eips.delete("torn", &DeleteParams::default()).await?;
    let told = stage.under().cluster();
    let in_use = kmetal_e2e::wait::not_ready(kmetal_crds::networking::reason::IN_USE);
    told.wait_condition::<EipClaim>(Some(ENVIRONMENT), "torn", in_use).await?;
    ensure!(services.address("left").await? == address, "the Service loses what its claim waits for");
    eips.patch("torn", &kube::api::PatchParams::default(), &nothing).await?;
    services.says("left", reason::EIP_CLAIM_NOT_FOUND).await?;
    services.apply("next", None, json!({"loadBalancerIP": address.to_string()})).await?;
    ensure!(services.address("next").await? == address);
    ensure!(shown.each_once().await? >= 2);
    let service: Service = Api::namespaced(blue.client().await?, NAMESPACE).get("left").await?;
    ensure!(kmetal_e2e::services::shown(&service).is_none());
    for name in ["left", "next"] {
        services.delete(name).await?;
        services.gone(name).await?;
    }
    stage.nothing_is_bound().await
}
