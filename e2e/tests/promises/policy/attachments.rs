//! NetworkAttachmentDefinitions of an Environment are the platform's to write, also where a role lets the tenant.

use anyhow::Result;
use kmetal_e2e::networking::Networking;
use kube::{Client, api::DeleteParams};
use serde_json::{Value, json};

use super::{OWN, api, create, patch, places, refused};

const THE_PLATFORMS: [&str; 2] =
    ["are written by the platform alone", "Make, change or delete a SubnetClaim in acme-a"];

pub(super) fn attachment() -> Value {
    json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "own", "namespace": OWN},
        "spec": {"config": r#"{"cniVersion":"0.3.1","type":"kube-ovn","provider":"web.bolt-a.ovn"}"#},
    })
}

/// kmetal-networking's.
fn web() -> Value {
    places::with(&attachment(), &json!({"metadata": {"name": "web"}}))
}

pub(super) async fn are_not_a_tenants_to_write(tenant: &Client) -> Result<()> {
    refused(create(tenant, &attachment()).await, "create", &THE_PLATFORMS)?;
    for change in [
        json!({"spec": {"config": "{}"}}),
        json!({"metadata": {"annotations": {"k8s.v1.cni.cncf.io/resourceName": "vendor/device"}}}),
        json!({"metadata": {"finalizers": null}}),
    ] {
        refused(patch(tenant, &web(), &change).await, &change.to_string(), &THE_PLATFORMS)?;
    }
    let deleted = api(tenant, &web())?.delete("web", &DeleteParams::default()).await;
    refused(deleted.map_err(Into::into), "delete", &THE_PLATFORMS)
}

pub(super) async fn are_the_platforms_to_write(networking: &Networking) -> Result<()> {
    let engineer = networking.under().client().await?;
    create(&engineer, &attachment()).await?;
    patch(&engineer, &web(), &json!({"metadata": {"labels": {"a": "b"}}})).await
}
