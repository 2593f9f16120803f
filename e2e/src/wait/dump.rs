//! What a failed wait shows.

use std::collections::BTreeSet;

use k8s_openapi::api::events::v1::Event;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

use super::{Shown, dynamic};
use crate::rig::Rig;

const LOG_LINES: usize = 25;

pub(super) async fn all(client: &Client, rig: &Rig, shown: &[Shown]) -> String {
    let mut parts = Vec::new();
    for one in shown {
        parts.push(objects(client, one).await);
    }
    // Events about objects of cluster scope are kept in `default`.
    let namespaces: BTreeSet<&str> =
        shown.iter().map(|one| one.namespace.as_deref().unwrap_or("default")).collect();
    for namespace in namespaces {
        parts.push(events(client, namespace).await);
    }
    parts.push(rig.log_tails(LOG_LINES));
    parts.join("\n")
}

async fn objects(client: &Client, shown: &Shown) -> String {
    let Shown { resource, namespace, name } = shown;
    let api = dynamic(client.clone(), resource, namespace.as_deref());
    let found = match name {
        Some(name) => api.get_opt(name).await.map(|found| found.into_iter().collect()),
        None => api.list(&ListParams::default()).await.map(|list| list.items),
    };
    let place = format!(
        "--- {} {}{}",
        resource.kind,
        namespace.as_deref().map(|ns| format!("{ns}/")).unwrap_or_default(),
        name.as_deref().unwrap_or("*")
    );
    match found {
        Ok(found) if found.is_empty() => format!("{place}: none"),
        Ok(found) => {
            let found: Vec<String> = found.into_iter().map(|object| yaml(resource, object)).collect();
            found.join("\n")
        }
        Err(error) => format!("{place}: {error}"),
    }
}

fn yaml(resource: &ApiResource, mut object: DynamicObject) -> String {
    object.managed_fields_mut().clear();
    let yaml = serde_saphyr::to_string(&object).unwrap_or_else(|error| error.to_string());
    format!("--- {} {}\n{yaml}", resource.kind, object.name_any())
}

async fn events(client: &Client, namespace: &str) -> String {
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match api.list(&ListParams::default()).await {
        Ok(list) => {
            let lines: Vec<String> = list.items.into_iter().map(line).collect();
            format!("--- {} events in {namespace}\n{}", lines.len(), lines.join("\n"))
        }
        Err(error) => format!("--- events in {namespace}: {error}"),
    }
}

fn line(event: Event) -> String {
    let about = event.regarding.unwrap_or_default();
    format!(
        "{} {}/{}: {}: {}",
        event.type_.unwrap_or_default(),
        about.kind.unwrap_or_default(),
        about.name.unwrap_or_default(),
        event.reason.unwrap_or_default(),
        event.note.unwrap_or_default(),
    )
}
