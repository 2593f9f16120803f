//! Server-side apply of whatever YAML there is, in an order that works.
//!
//! CRDs go first and are awaited until they are served, then namespaces, then the rest as given. Only the kit
//! applies things this way; our processes have their own, stricter writer.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
    discovery::{self, Scope},
};

/// The kit's field manager.
pub const MANAGER: &str = "kmetal-kit";

const SERVED_WITHIN: Duration = Duration::from_mins(1);

/// Parses one or more YAML documents; empty ones are skipped, `List`s are opened.
pub fn parse(yaml: &str) -> Result<Vec<DynamicObject>> {
    let documents: Vec<serde_json::Value> = serde_saphyr::from_multiple(yaml).context("not YAML")?;
    let mut objects = Vec::new();
    for document in documents {
        match document.get("items").and_then(serde_json::Value::as_array) {
            Some(items) => objects.extend(items.clone()),
            None if document.is_null() => {}
            None => objects.push(document),
        }
    }
    objects
        .into_iter()
        .map(|object| {
            serde_json::from_value(object.clone())
                .with_context(|| format!("not a Kubernetes object: {object}"))
        })
        .collect()
}

/// Applies the objects; see the module's text for the order. `namespace` is for those that name none and need one.
pub async fn apply(client: &Client, namespace: &str, objects: Vec<DynamicObject>) -> Result<()> {
    let (crds, rest): (Vec<_>, Vec<_>) = objects.into_iter().partition(|o| is(o, "CustomResourceDefinition"));
    let (namespaces, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|o| is(o, "Namespace"));
    let mut kinds = HashMap::new();
    for crd in &crds {
        apply_one(client, &mut kinds, namespace, crd).await?;
    }
    for crd in &crds {
        await_served(client, &crd.name_any()).await?;
    }
    for object in namespaces.iter().chain(&rest) {
        apply_one(client, &mut kinds, namespace, object).await?;
    }
    Ok(())
}

/// Waits until the CRD of this name is established.
pub async fn await_served(client: &Client, crd: &str) -> Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let deadline = Instant::now() + SERVED_WITHIN;
    loop {
        let found = crds.get_opt(crd).await?;
        let conditions = found.and_then(|found| found.status).and_then(|status| status.conditions);
        if conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Established" && c.status == "True")) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("CRD {crd} is not established after {SERVED_WITHIN:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn apply_one(
    client: &Client,
    kinds: &mut HashMap<GroupVersionKind, (ApiResource, Scope)>,
    namespace: &str,
    object: &DynamicObject,
) -> Result<()> {
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let what = format!("{} {}/{}", types.kind, object.namespace().unwrap_or_default(), object.name_any());
    let gvk = GroupVersionKind::try_from(&types)?;
    if !kinds.contains_key(&gvk) {
        let (resource, capabilities) =
            find_kind(client, &gvk).await.with_context(|| format!("apply {what}"))?;
        kinds.insert(gvk.clone(), (resource, capabilities));
    }
    let (resource, scope) = &kinds[&gvk];
    let api: Api<DynamicObject> = match scope {
        Scope::Cluster => Api::all_with(client.clone(), resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| namespace.to_owned());
            Api::namespaced_with(client.clone(), &namespace, resource)
        }
    };
    api.patch(&object.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {what}"))?;
    Ok(())
}

/// A kind that was established a moment ago may not be in discovery yet.
async fn find_kind(client: &Client, gvk: &GroupVersionKind) -> Result<(ApiResource, Scope)> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match discovery::pinned_kind(client, gvk).await {
            Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn is(object: &DynamicObject, kind: &str) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == kind)
}
