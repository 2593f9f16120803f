//! A Tenant's quota counts claims, over all its Environments: exactly when there is time, and by how much it may be
//! overrun when there is none.
//!
//! The counting is Kubernetes', the dividing up is Capsule's: in each namespace a ResourceQuota whose limit is what the
//! others leave. Two namespaces that are asked at the same moment both look at what was left before, so each may fill
//! what it saw.

mod global;

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::ResourceQuota;
use kmetal_crds::networking::{EipClaim, EipClaimSpec};
use kmetal_e2e::{
    capsule::{Capsule, Release},
    chart::Chart,
    cluster::{self, Cluster},
    environment::Tenant,
    networking, places,
    rig::Rig,
    wait::{PATIENCE, eventually},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

const EIP_CLAIMS: &str = "count/eipclaims.networking.kmetal.clastix.io";
/// What the Tenant may have, and how many are asked for at once.
const LIMIT: u32 = 10;
const BURST: u32 = 64;
const SOON: Duration = Duration::from_secs(20);

/// The Tenant that the documentation shows with this field in its spec.
fn documented(field: &str) -> Result<Value> {
    let page = fs::read_to_string(places::workspace().join("docs/networking.md"))?;
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let tenants = blocks.filter(|block| block.contains("kind: Tenant"));
    let tenants: Vec<Value> = tenants.map(serde_saphyr::from_str).collect::<Result<_, _>>()?;
    let mut found = tenants.into_iter().filter(|tenant| !tenant["spec"][field].is_null());
    let tenant = found.next().with_context(|| format!("the page shows no Tenant with {field}"))?;
    ensure!(found.next().is_none(), "the page shows two Tenants with {field}");
    Ok(tenant["spec"].clone())
}

/// Claims of one Environment, by its Tenant's owner.
async fn claims(tenant: &Tenant, namespace: &str) -> Result<Api<EipClaim>> {
    Ok(Api::namespaced(tenant.client().await?, namespace))
}

async fn claim(claims: &Api<EipClaim>, name: &str) -> kube::Result<EipClaim> {
    claims.create(&PostParams::default(), &EipClaim::new(name, EipClaimSpec::default())).await
}

/// Waits until Kubernetes counts claims. It notices half a minute late that there is a kind to count, and looks again at a
/// quota that it did not understand only after five minutes.
pub async fn counted(cluster: &Cluster) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(cluster.client().await?, "default");
    let used = |quota: ResourceQuota| quota.status?.used.filter(|used| used.contains_key(EIP_CLAIMS));
    let mut number = 0;
    eventually("claims are counted", PATIENCE, async || {
        number += 1;
        let name = format!("probe-{number}");
        let probe = json!({"metadata": {"name": name}, "spec": {"hard": {EIP_CLAIMS: "1"}}});
        quotas.create(&PostParams::default(), &serde_json::from_value(probe)?).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let probe = quotas.get(&name).await?;
        quotas.delete(&name, &DeleteParams::default()).await?;
        Ok(used(probe).map(drop))
    })
    .await
}

/// Waits until an Environment's own limit is this one: until Capsule has divided up.
async fn limit_is(client: &Client, namespace: &str, limit: u32) -> Result<()> {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    eventually(&format!("{namespace} may have {limit} claims"), SOON, async || {
        let limits = quotas.list(&ListParams::default()).await?.items.into_iter();
        let limits: Vec<String> = limits
            // The API server goes by the status, and refuses everything until that says what is used.
            .filter_map(|quota| quota.status)
            .filter(|status| status.used.as_ref().is_some_and(|used| used.contains_key(EIP_CLAIMS)))
            .filter_map(|status| Some(status.hard?.remove(EIP_CLAIMS)?.0))
            .collect();
        ensure!(limits == [limit.to_string()], "it may have {limits:?}");
        Ok(Some(()))
    })
    .await
}

/// A cluster with our kinds and tenant roles, and Capsule. The claims are only counted: nobody carries them out.
async fn counting_cluster(name: &str, release: Release) -> Result<(Cluster, Capsule)> {
    let options = cluster::Options { scheduler: false, ..cluster::Options::default() };
    let cluster = Cluster::start_in(&Rig::new(name)?, name, options).await?;
    Chart::ours(networking::NAME, networking::NAMESPACE, networking::values(&[])).install(&cluster).await?;
    let capsule = Capsule::start(&cluster, release).await?;
    counted(&cluster).await?;
    Ok((cluster, capsule))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_quota_counts_claims_over_all_its_environments() -> Result<()> {
    let (cluster, capsule) = counting_cluster("quotas", Release::V013).await?;
    what_is_documented_holds(&cluster).await?;
    however_many_ask(&cluster).await?;
    drop(capsule);
    cluster.finish();
    Ok(())
}

async fn what_is_documented_holds(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    let acme = Tenant::create(cluster, "acme", documented("resourceQuotas")?).await?;
    for name in ["acme-prod", "acme-test"] {
        acme.environment(cluster, name).await?;
        limit_is(&client, name, 3).await?;
    }
    let (prod, test) = (claims(&acme, "acme-prod").await?, claims(&acme, "acme-test").await?);
    claim(&prod, "one").await?;
    claim(&prod, "two").await?;
    limit_is(&client, "acme-test", 1).await?;
    claim(&test, "three").await?;
    limit_is(&client, "acme-prod", 2).await?;
    for claims in [&prod, &test] {
        let Err(kube::Error::Api(refused)) = claim(claims, "four").await else {
            anyhow::bail!("a fourth claim of three");
        };
        let told = &refused.message;
        ensure!(refused.code == 403 && told.contains("exceeded quota: capsule-acme-0"), "{told}");
        ensure!(told.contains(EIP_CLAIMS), "{told}");
    }
    prod.delete("one", &DeleteParams::default()).await?;
    limit_is(&client, "acme-test", 2).await?;
    claim(&test, "four").await?;
    Ok(())
}

/// 64 at once, in one Environment and over two.
async fn however_many_ask(cluster: &Cluster) -> Result<()> {
    const ROUNDS: usize = 3;
    let spec =
        json!({"resourceQuotas": {"scope": "Tenant", "items": [{"hard": {EIP_CLAIMS: LIMIT.to_string()}}]}});
    let tenant = Tenant::create(cluster, "globex", spec).await?;
    let client = cluster.client().await?;
    let environments = ["globex-a", "globex-b"];
    for name in environments {
        tenant.environment(cluster, name).await?;
    }
    let all_have_room = async || {
        for name in environments {
            limit_is(&client, name, LIMIT).await?;
        }
        anyhow::Ok(())
    };
    all_have_room().await?;
    let alone = burst(&tenant, &environments[..1]).await?;
    ensure!(alone.values().sum::<u32>() == LIMIT, "one Environment alone is exact: {alone:?}");
    give_back(&tenant, &environments).await?;

    let mut overrun = Vec::new();
    for _ in 0..ROUNDS {
        all_have_room().await?;
        let admitted = burst(&tenant, &environments).await?;
        let sum: u32 = admitted.values().sum();
        ensure!(sum >= LIMIT, "a claim that fits is refused: {admitted:?}");
        ensure!(admitted.values().all(|count| *count < BURST / 2), "no limit at all: {admitted:?}");
        overrun.push(sum - LIMIT);
        // What was let in too much stays, and nothing comes on top of it.
        for name in environments {
            limit_is(&client, name, admitted[name]).await?;
            ensure!(claim(&claims(&tenant, name).await?, "late").await.is_err(), "{name} has room again");
        }
        give_back(&tenant, &environments).await?;
    }
    eprintln!(
        "quotas: {LIMIT} allowed in two Environments, {BURST} asked at once, let in too many: {overrun:?}"
    );
    Ok(())
}

/// Claims [`BURST`] addresses at the same time, in turn in each Environment, and counts what was let in.
async fn burst(tenant: &Tenant, environments: &[&str]) -> Result<BTreeMap<String, u32>> {
    let mut apis = Vec::new();
    for name in environments {
        apis.push(((*name).to_owned(), claims(tenant, name).await?));
    }
    let asked = (0..BURST).map(|number| {
        let (environment, claims) = apis[number as usize % apis.len()].clone();
        async move { (environment, claim(&claims, &format!("c{number}")).await) }
    });
    let mut admitted: BTreeMap<String, u32> =
        environments.iter().map(|name| ((*name).to_owned(), 0)).collect();
    for (environment, answer) in join_all(asked).await {
        match answer {
            Ok(_) => *admitted.entry(environment).or_default() += 1,
            Err(kube::Error::Api(status)) if status.code == 403 => {}
            Err(error) => return Err(error).context("neither admitted nor refused"),
        }
    }
    Ok(admitted)
}

/// Deletes every claim of these Environments and waits until they are gone.
async fn give_back(tenant: &Tenant, environments: &[&str]) -> Result<()> {
    for name in environments {
        let claims = claims(tenant, name).await?;
        claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually(&format!("{name} has no claims"), PATIENCE, async || {
            Ok(claims.list(&ListParams::default()).await?.items.is_empty().then_some(()))
        })
        .await?;
    }
    Ok(())
}
