//! The same with a Capsule that counts before it admits: v0.14, `rules[].quota`.

use anyhow::{Context, Result, ensure};
use kmetal_e2e::{
    capsule::Release,
    environment::Tenant,
    wait::{PATIENCE, READY},
};
use kube::{
    Api,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;

use super::{EIP_CLAIMS, LIMIT, burst, claim, claims, counting_cluster, documented, eventually, give_back};

fn quotas() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("capsule.clastix.io", "v1beta2", "GlobalResourceQuota"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "exhaustive: builds another Capsule"]
async fn a_tenants_quota_is_exact_over_all_its_environments_where_capsule_counts_first() -> Result<()> {
    const ROUNDS: usize = 3;
    let (cluster, capsule) = counting_cluster("quotas-global", Release::V014).await?;
    let mut spec = documented("rules")?;
    spec["rules"][0]["quota"][0]["hard"][EIP_CLAIMS] = json!(LIMIT.to_string());
    let tenant = Tenant::create(&cluster, "acme", spec).await?;
    let environments = ["acme-a", "acme-b"];
    for name in environments {
        tenant.environment(&cluster, name).await?;
    }
    let all: Api<DynamicObject> = Api::all_with(cluster.client().await?, &quotas());
    let left = async |wanted: u32| {
        eventually(&format!("{wanted} claims are left"), PATIENCE, async || {
            let quota = all.get("acme-claims").await?;
            let total = quota.data.pointer("/status/total").cloned().unwrap_or_default();
            let left = total["available"][EIP_CLAIMS].as_str().map(str::to_owned);
            ensure!(READY.holds(&quota) && left == Some(wanted.to_string()), "it says {total}");
            Ok(Some(()))
        })
        .await
    };
    for _ in 0..ROUNDS {
        left(LIMIT).await?;
        let admitted = burst(&tenant, &environments).await?;
        ensure!(admitted.values().sum::<u32>() == LIMIT, "of {LIMIT}: {admitted:?}");
        left(0).await?;
        let refused = claim(&claims(&tenant, "acme-a").await?, "late").await.err().context("one more")?;
        ensure!(refused.to_string().contains("exceeds GlobalResourceQuota"), "{refused}");
        give_back(&tenant, &environments).await?;
    }
    drop(capsule);
    cluster.finish();
    Ok(())
}
