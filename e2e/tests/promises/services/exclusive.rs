//! One address, sixty-four Services of two clusters: one has it, the others know why not, and the next gets it when the
//! first is gone.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Service;
use kmetal_crds::networking::service::reason;
use kmetal_e2e::{
    services::{Services, shown, told},
    tenant_cluster::TenantCluster,
};
use kube::{ResourceExt, api::ListParams};
use serde_json::json;

use super::{ENVIRONMENT, Stage, shown::Shown};

const EACH: usize = 32;
const ROUNDS: usize = 3;

/// Waits until one Service of the two clusters has the address and all others say so; which one, by cluster.
async fn one_winner(stage: &Stage, clusters: &[Services<'_>; 2], rivals: usize) -> Result<(usize, String)> {
    let wait = stage.under().cluster().wait_for("one has the address and the others know").await?;
    wait.until(async || {
        let mut winner = None;
        let mut losers = 0;
        for (cluster, services) in clusters.iter().enumerate() {
            for service in services.api().list(&ListParams::default()).await? {
                let (name, said) = (service.name_any(), told(&service));
                match said.as_ref().map(|(reason, _)| reason.as_str()) {
                    Some(reason::READY) => {
                        ensure!(winner.is_none(), "{winner:?} and {name}");
                        ensure!(shown(&service).is_some());
                        winner = Some((cluster, name));
                    }
                    Some(reason::EIP_CLAIM_IN_USE) => losers += 1,
                    // Kubernetes' own.
                    None if name == "kubernetes" => {}
                    other => anyhow::bail!("{name} says {other:?}"),
                }
            }
        }
        ensure!(losers + 1 == rivals, "{losers} of {rivals} lost");
        Ok(winner)
    })
    .await
}

/// Losers of the winner's cluster are told its name, those of the other cluster are not.
async fn losers_are_told(clusters: &[Services<'_>; 2], winner: &(usize, String)) -> Result<()> {
    for (cluster, services) in clusters.iter().enumerate() {
        let is_loser = |service: &Service| service.name_any() != winner.1 || cluster != winner.0;
        let all = services.api().list(&ListParams::default()).await?;
        let told: Vec<String> =
            all.iter().filter(|service| is_loser(service)).filter_map(told).map(|(_, text)| text).collect();
        let named = told.iter().filter(|text| text.contains(&format!("/{}", winner.1))).count();
        let wanted = if cluster == winner.0 { told.len() } else { 0 };
        ensure!(!told.is_empty() && named == wanted, "{named} of {} losers are told: {told:?}", told.len());
    }
    Ok(())
}

pub async fn one_of_many_gets_an_address(
    stage: &Stage,
    blue: &TenantCluster,
    red: &TenantCluster,
) -> Result<()> {
    stage.eip(ENVIRONMENT, "wanted", None).await?;
    let clusters = [Services::of(blue).await?, Services::of(red).await?];
    let history = Shown::record(&[blue, red]).await?;
    for round in 0..ROUNDS {
        let names: Vec<String> = (0..EACH).map(|number| format!("rival-{round}-{number}")).collect();
        let all = clusters.iter().flat_map(|services| names.iter().map(move |name| (services, name)));
        try_join_all(all.map(|(services, name)| services.apply(name, Some("wanted"), json!({})))).await?;
        let first = one_winner(stage, &clusters, 2 * EACH).await?;
        losers_are_told(&clusters, &first).await?;
        clusters[first.0].delete(&first.1).await?;
        clusters[first.0].gone(&first.1).await?;
        let second = one_winner(stage, &clusters, 2 * EACH - 1).await?;
        ensure!(second != first);
        let bound = stage.bound(ENVIRONMENT, "wanted").await?.context("bound to nobody")?;
        ensure!(bound.service.name == second.1, "{bound:?}");
        for services in &clusters {
            let left = services.api().list(&ListParams::default()).await?;
            let left = left.iter().map(ResourceExt::name_any).filter(|name| name != "kubernetes");
            try_join_all(left.map(async |name| services.delete(&name).await)).await?;
        }
        stage.nothing_is_bound().await?;
        // Who is gone shows nothing; who is on its way must have taken it out before.
        ensure!(history.each_once().await? >= 2 * (round + 1));
    }
    Ok(())
}
