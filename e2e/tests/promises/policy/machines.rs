//! What a virtual machine asks for, in each kind that holds one.

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};

use super::{INSTEAD, OWN, OWN_ONLY, create, patch, places, refused};

/// The networks of a machine, in each kind: where they stand is beside its annotations.
fn holders() -> Vec<(Value, String)> {
    let kinds = places::all().into_iter().filter(|(object, _)| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let machine = kind.contains("Virtual") || kind.starts_with("Kubevirt");
        machine && !kind.ends_with("type") && !kind.ends_with("Preference")
    });
    let last = |(object, places): (Value, &[&str])| {
        let metadata = places.last().copied().unwrap_or_default();
        (object, metadata.replace("/metadata", "/spec/networks"))
    };
    kinds.map(last).collect()
}

fn asks(network: &Value) -> Value {
    json!([{"name": "pod", "pod": {}}, {"name": "second", "multus": network}])
}

pub(super) async fn stay_in_the_environment(tenant: &Client) -> Result<()> {
    let accepted = [
        json!({"networkName": "web"}),
        json!({"networkName": "acme-a/web"}),
        json!({"networkName": "acme-a/web", "default": true}),
        json!({"networkName": "web", "default": false}),
    ];
    let foreign = [
        json!({"networkName": "bolt-a/web"}),
        json!({"networkName": " bolt-a/web"}),
        json!({"networkName": "acme-a/web/bolt-a/web"}),
        json!({"networkName": "acme-a/web,bolt-a/web"}),
        json!({"networkName": "acme-ab/web"}),
        json!({"networkName": "bolt-a/web", "default": true}),
        // Multus would look in its own namespace.
        json!({"networkName": "web", "default": true}),
    ];
    let holders = holders();
    anyhow::ensure!(holders.len() == 6, "{} kinds", holders.len());
    for (object, path) in holders {
        for network in &accepted {
            create(tenant, &places::with(&object, &places::at(&path, asks(network)))).await?;
        }
        let kind = object["kind"].as_str().unwrap_or_default();
        for network in &foreign {
            let change = places::at(&path, asks(network));
            let what = format!("{kind} {change}");
            refused(create(tenant, &places::with(&object, &change)).await, &what, &[OWN_ONLY, INSTEAD])?;
            // `kept` is there since the annotations were tried.
            refused(patch(tenant, &object, &change).await, &what, &[OWN_ONLY, INSTEAD])?;
        }
        patch(tenant, &object, &places::at(&path, asks(&accepted[1]))).await?;
    }
    nothing_asks_for_nothing(tenant).await
}

/// What clients write that leave fields empty instead of leaving them out.
async fn nothing_asks_for_nothing(tenant: &Client) -> Result<()> {
    let spec = |spec: Value| {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "kept", "namespace": OWN, "annotations": null}, "spec": spec,
        })
    };
    for empty in [
        json!({"template": {"metadata": {"creationTimestamp": null, "annotations": null}}}),
        json!({"template": {"metadata": null, "spec": {"networks": null}}}),
        json!({"template": {"spec": {"networks": [{"name": "pod", "pod": {}, "multus": null}]}}}),
        json!({"template": null}),
        json!(null),
    ] {
        create(tenant, &spec(empty.clone())).await.with_context(|| empty.to_string())?;
    }
    Ok(())
}
