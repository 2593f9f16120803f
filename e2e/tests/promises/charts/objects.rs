//! Every rendered object is one that its API server would take as it is written: no misspelt field, no unknown kind.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        apps::v1::Deployment,
        core::v1::{ConfigMap, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kmetal_e2e::{apply, programs};
use kube::{ResourceExt, core::DynamicObject};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{all, networking, of_kind};

/// Fields of `written` that are not in `read`, as paths. A type drops what it does not know.
fn lost(written: &Value, read: &Value, path: &str, found: &mut Vec<String>) {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (field, value) in written {
                let path = format!("{path}.{field}");
                match read.get(field) {
                    Some(read) => lost(value, read, &path, found),
                    // An empty list or map is the same as none.
                    None if *value == json!([]) || *value == json!({}) => {}
                    None => found.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) if written.len() == read.len() => {
            for (index, (written, read)) in written.iter().zip(read).enumerate() {
                lost(written, read, &format!("{path}[{index}]"), found);
            }
        }
        (Value::Number(written), Value::Number(read)) if written.as_f64() == read.as_f64() => {}
        _ if written == read => {}
        _ => found.push(format!("{path} ({written} became {read})")),
    }
}

fn typed<K: DeserializeOwned + Serialize>(written: &Value) -> Result<()> {
    let read = serde_json::to_value(serde_json::from_value::<K>(written.clone())?)?;
    let mut found = Vec::new();
    lost(written, &read, "", &mut found);
    ensure!(found.is_empty(), "unknown fields: {found:?}");
    Ok(())
}

/// The properties of each kind's spec in Kube-OVN's own CRDs.
fn kube_ovn_specs() -> Result<BTreeMap<String, Value>> {
    let module = programs::module_dir("kube-ovn", "github.com/kubeovn/kube-ovn")?;
    let text = fs::read_to_string(module.join("charts/kube-ovn-v2/crds/kube-ovn-crd.yaml"))?;
    let crds = apply::parse(&text)?;
    let spec = |crd: &DynamicObject| {
        let kind = crd.data.pointer("/spec/names/kind")?.as_str()?.to_owned();
        let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        Some((kind, crd.data.pointer(schema)?.clone()))
    };
    Ok(crds.iter().filter_map(spec).collect())
}

/// Fields of `value` that a structural schema does not know, as paths.
fn undeclared(value: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let path = format!("{path}.{field}");
                match schema["properties"].get(field) {
                    Some(schema) => undeclared(value, schema, &path, found),
                    None if schema["additionalProperties"].is_object() => {}
                    None => found.push(path),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                undeclared(item, &schema["items"], &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

fn known(object: &DynamicObject, kube_ovn: &BTreeMap<String, Value>) -> Result<()> {
    let types = object.types.as_ref().context("without apiVersion and kind")?;
    let written = serde_json::to_value(object)?;
    match (types.api_version.as_str(), types.kind.as_str()) {
        ("v1", "ConfigMap") => typed::<ConfigMap>(&written),
        ("v1", "Service") => typed::<Service>(&written),
        ("v1", "ServiceAccount") => typed::<ServiceAccount>(&written),
        ("apps/v1", "Deployment") => typed::<Deployment>(&written),
        ("networking.k8s.io/v1", "NetworkPolicy") => typed::<NetworkPolicy>(&written),
        ("policy/v1", "PodDisruptionBudget") => typed::<PodDisruptionBudget>(&written),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => typed::<ClusterRole>(&written),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => typed::<ClusterRoleBinding>(&written),
        ("rbac.authorization.k8s.io/v1", "Role") => typed::<Role>(&written),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => typed::<RoleBinding>(&written),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy") => {
            typed::<ValidatingAdmissionPolicy>(&written)
        }
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding") => {
            typed::<ValidatingAdmissionPolicyBinding>(&written)
        }
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition") => {
            typed::<CustomResourceDefinition>(&written)
        }
        // No type of it here: `traffic` judges each of its fields.
        ("monitoring.coreos.com/v1", "ServiceMonitor") => Ok(()),
        ("kubeovn.io/v1", kind) => {
            let schema = kube_ovn.get(kind).context("Kube-OVN has no such kind")?;
            let mut found = Vec::new();
            undeclared(&object.data["spec"], schema, "spec", &mut found);
            ensure!(found.is_empty(), "Kube-OVN does not know {found:?}");
            Ok(())
        }
        (version, kind) => bail!("{version} {kind} is not known here; add it"),
    }
}

#[tokio::test]
async fn every_object_is_one_that_its_server_knows() -> Result<()> {
    let kube_ovn = kube_ovn_specs()?;
    for chart in all()? {
        for object in chart.render().await? {
            known(&object, &kube_ovn).with_context(|| format!("{:?} {}", object.types, object.name_any()))?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_chart_installs_the_kinds_it_owns_and_leaves_them_behind() -> Result<()> {
    let objects = networking(json!({})).render().await?;
    let crds = of_kind(&objects, "CustomResourceDefinition");
    let mut rendered: Vec<String> = crds.iter().map(|crd| crd.name_any()).collect();
    let owned = kmetal_crds::all().into_iter().filter(|owned| owned.chart == "kmetal-networking");
    let mut owned: Vec<String> = owned.map(|owned| owned.crd.name_any()).collect();
    rendered.sort();
    owned.sort();
    ensure!(rendered == owned, "the chart renders {rendered:?} and owns {owned:?}");
    for crd in crds {
        let policy = crd.annotations().get("helm.sh/resource-policy").map(String::as_str);
        ensure!(policy == Some("keep"), "uninstalling would delete {} and every claim", crd.name_any());
    }
    Ok(())
}
