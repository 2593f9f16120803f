//! What holds of every version of every claim that was ever stored.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::events::v1::Event, apimachinery::pkg::apis::meta::v1::Condition};
use kmetal_crds::{
    condition::{READY, RECONCILING, STALLED, get},
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    history::{History, Version},
    networking::Networking,
};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::Value;

/// kstatus: `Ready` for ever from the first pass on, the other two only while true and never both; each condition and
/// the status are about one generation, in the end the present one.
pub(super) fn of_every_version(history: &History) -> Result<()> {
    let mut last: HashMap<String, Version> = HashMap::new();
    let versions = [history.versions::<VpcClaim>()?, history.versions::<SubnetClaim>()?].concat();
    let mut judged = 0;
    for version in versions {
        let object = &version.object;
        let uid = object.uid().context("no uid")?;
        let all = conditions(&version)?;
        let what = || format!("{} {}: {}", object.name_any(), version.deleted, object.data["status"]);
        let before = last.get(&uid).map(conditions).transpose()?.unwrap_or_default();
        ensure!(before.is_empty() || !all.is_empty(), "Ready has vanished from {}", what());
        if let Some(ready) = get(&all, READY) {
            judged += 1;
            let observed = object.data["status"]["observedGeneration"].as_i64();
            ensure!(observed.is_some() && observed <= object.metadata.generation, "{}", what());
            let kinds: Vec<&str> = all.iter().map(|c| c.type_.as_str()).collect();
            let good = match ready.status.as_str() {
                "True" => kinds == [READY],
                "False" => kinds == [READY, RECONCILING] || kinds == [READY, STALLED],
                _ => false,
            };
            ensure!(good && all.iter().skip(1).all(|c| c.status == "True"), "{}", what());
            ensure!(
                all.iter().all(|c| c.observed_generation == observed && !c.message.is_empty()),
                "{}",
                what()
            );
        } else {
            ensure!(all.is_empty(), "conditions without Ready on {}", what());
        }
        last.insert(uid, version);
    }
    for version in last.values().filter(|version| !version.deleted) {
        let observed = version.object.data["status"]["observedGeneration"].as_i64();
        ensure!(observed == version.object.metadata.generation, "{:?}", version.object);
    }
    ensure!(judged > 100, "only {judged} versions were judged");
    Ok(())
}

/// Nothing that was ever said in one tenant's Environment, in a claim or an Event, names another tenant or a network
/// that is not theirs.
pub(super) async fn keep_tenants_apart(networking: &Networking, history: &History) -> Result<()> {
    let mut said: Vec<(String, String)> = Vec::new();
    for version in [history.versions::<VpcClaim>()?, history.versions::<SubnetClaim>()?].concat() {
        let place = version.object.namespace().context("a claim without namespace")?;
        said.extend(conditions(&version)?.into_iter().map(|condition| (place.clone(), condition.message)));
    }
    let events = Api::<Event>::all(networking.under().client().await?).list(&ListParams::default()).await?;
    let told = events.iter().filter_map(|event| Some((event.namespace()?, event.note.clone()?)));
    said.extend(told.filter(|(place, _)| place.contains('-') && place != "kmetal-system"));
    for (tenant, secrets) in [
        ("acme", &["bolt", "calm", "vault", "198.51"][..]),
        ("bolt", &["acme", "calm"]),
        ("calm", &["acme", "bolt", "internet", "203.0", "198.51"]),
    ] {
        for (_, message) in said.iter().filter(|(place, _)| place.starts_with(tenant)) {
            // What they have written themselves comes back to them.
            let answer =
                message.replace("spec.cidr 203.0.113.0/25", "").replace("spec.cidr 198.51.100.0/25", "");
            let leak = secrets.iter().find(|secret| answer.contains(*secret));
            ensure!(leak.is_none(), "{tenant} is told of {leak:?}: {message}");
        }
    }
    Ok(())
}

fn conditions(version: &Version) -> Result<Vec<Condition>> {
    match version.object.data.pointer("/status/conditions") {
        Some(all @ Value::Array(_)) => Ok(serde_json::from_value(all.clone())?),
        _ => Ok(Vec::new()),
    }
}
