//! Every place at which an annotation of a machine can be written.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kmetal_e2e::networking::Networking;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{KUBE_OVN_ALONE, OWN, api, pod, pod_spec, refused};

/// A valid object of each kind, and where annotations stand in it.
pub(super) fn all() -> Vec<(Value, &'static [&'static str])> {
    let labels = json!({"app": "a"});
    let template = json!({"metadata": {"labels": labels}, "spec": pod_spec()});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let machine = json!({"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {"networks": []}}}});
    let workload = json!({
        "replicas": 0, "selector": {"matchLabels": labels}, "template": template, "serviceName": "a",
    });
    let mut daemons = workload.clone();
    daemons["template"]["spec"]["nodeSelector"] = json!({"nowhere": "true"});
    let job = json!({"suspend": true, "template": once});
    let of = |version: &str, kind: &str, spec: Value| {
        let name = json!({"name": "kept", "namespace": OWN});
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": name, "spec": spec});
        if kind == "PodTemplate" {
            object["template"] = object["spec"].take();
        }
        object
    };
    let virt = "kubevirt.io/v1";
    let pool = "pool.kubevirt.io/v1beta1";
    let types = "instancetype.kubevirt.io/v1beta1";
    let capk = "infrastructure.cluster.x-k8s.io/v1alpha1";
    let pooled: &[&str] = &[
        "/metadata",
        "/spec/virtualMachineTemplate/metadata",
        "/spec/virtualMachineTemplate/spec/template/metadata",
    ];
    let templated: &[&str] = &["/metadata", "/spec/template/metadata"];
    vec![
        (of("v1", "Pod", pod_spec()), &["/metadata"]),
        (of("v1", "PodTemplate", template.clone()), &["/metadata", "/template/metadata"]),
        (of("v1", "Service", json!({"ports": [{"port": 80}]})), &["/metadata"]),
        (
            of(
                "v1",
                "ReplicationController",
                json!({"replicas": 0, "selector": labels, "template": template}),
            ),
            templated,
        ),
        (of("networking.k8s.io/v1", "NetworkPolicy", json!({"podSelector": {}})), &["/metadata"]),
        (of("apps/v1", "Deployment", workload.clone()), templated),
        (of("apps/v1", "ReplicaSet", workload.clone()), templated),
        (of("apps/v1", "StatefulSet", workload), templated),
        (of("apps/v1", "DaemonSet", daemons), templated),
        (of("batch/v1", "Job", job.clone()), templated),
        (
            of(
                "batch/v1",
                "CronJob",
                json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": job}}),
            ),
            &["/metadata", "/spec/jobTemplate/metadata", "/spec/jobTemplate/spec/template/metadata"],
        ),
        (of(virt, "VirtualMachine", machine["spec"].clone()), templated),
        (of(virt, "VirtualMachineInstance", json!({"networks": []})), &["/metadata"]),
        (of(virt, "VirtualMachineInstanceReplicaSet", machine["spec"].clone()), templated),
        (of(pool, "VirtualMachinePool", json!({"virtualMachineTemplate": machine})), pooled),
        (of(types, "VirtualMachineInstancetype", json!({"cpu": {"guest": 1}})), &["/metadata", "/spec"]),
        (of(types, "VirtualMachinePreference", json!({})), &["/metadata", "/spec"]),
        (of(capk, "KubevirtMachine", json!({"virtualMachineTemplate": machine})), pooled),
        (
            of(
                capk,
                "KubevirtMachineTemplate",
                json!({"template": {"spec": {"virtualMachineTemplate": machine}}}),
            ),
            &[
                "/metadata",
                "/spec/template/metadata",
                "/spec/template/spec/virtualMachineTemplate/metadata",
                "/spec/template/spec/virtualMachineTemplate/spec/template/metadata",
            ],
        ),
    ]
}

/// A change that writes `value` at a path, as a merge patch.
pub(super) fn at(path: &str, value: Value) -> Value {
    path.rsplit('/').filter(|part| !part.is_empty()).fold(value, |inner, part| json!({part: inner}))
}

/// The object with a change made in it.
pub(super) fn with(object: &Value, change: &Value) -> Value {
    match (object, change) {
        (Value::Object(object), Value::Object(change)) => {
            let mut object = object.clone();
            for (field, change) in change {
                let old = object.get(field).cloned().unwrap_or_default();
                object.insert(field.clone(), with(&old, change));
            }
            object.into()
        }
        _ => change.clone(),
    }
}

/// Makes it for good.
pub(super) async fn keep(client: &Client, object: &Value) -> Result<DynamicObject> {
    let object_itself = serde_json::from_value(object.clone())?;
    Ok(api(client, object)?.create(&PostParams::default(), &object_itself).await?)
}

pub(super) async fn other_ways_to_an_annotation_are_closed(
    networking: &Networking,
    tenant: &Client,
    victim: &str,
) -> Result<()> {
    let bad = json!({"web.acme-a.ovn.kubernetes.io/logical_switch": victim});
    let change = |annotations: &Value| Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let pods: Api<Pod> = Api::namespaced(tenant.clone(), OWN);
    keep(tenant, &pod("ways", &json!({}))).await?;

    // The status of a Pod takes annotations too, and so does its binding to a Node.
    let status = pods.patch_status("ways", &PatchParams::default(), &change(&bad)).await;
    refused(status.map_err(Into::into), "pods/status", &[KUBE_OVN_ALONE])?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "ways", "namespace": OWN, "annotations": bad},
        "target": {"apiVersion": "v1", "kind": "Node", "name": kmetal_e2e::ovn::under_cluster::NODE},
    });
    let once = PostParams::default();
    let bound = pods.create_subresource::<Value, Value>("binding", "ways", &once, &binding).await;
    refused(bound.map_err(Into::into), "pods/binding", &[KUBE_OVN_ALONE])?;
    ensure!(pods.get("ways").await?.spec.is_some_and(|spec| spec.node_name.is_none()), "it was bound");

    // Kube-OVN reads the namespace for its own default network; Capsule lets an owner annotate it.
    for client in [tenant, &networking.under().client().await?] {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let switch = json!({"ovn.kubernetes.io/logical_switch": victim});
        let answer = namespaces.patch(OWN, &PatchParams::default(), &change(&switch)).await;
        refused(answer.map_err(Into::into), "the Namespace", &[KUBE_OVN_ALONE])?;
        namespaces.patch(OWN, &PatchParams::default(), &change(&json!({"note": "mine"}))).await?;
    }
    Ok(())
}

/// A machine's Pod carries Kube-OVN's annotations; its owner goes on writing on it, and does not change those.
pub(super) async fn what_stands_there_already_is_no_hindrance(
    networking: &Networking,
    tenant: &Client,
) -> Result<()> {
    let port = networking.under().workload(OWN, "machine", "web").await?;
    ensure!(port.switch == super::subnet_of(networking, OWN).await?, "{port:?}");
    let pods: Api<Pod> = Api::namespaced(tenant.clone(), OWN);
    let patched = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}, "annotations": {"note": "mine"}}}));
    pods.patch("machine", &PatchParams::default(), &patched).await?;
    let mut whole = pods.get("machine").await?;
    // Kube-OVN may write at the same moment; this is not about who comes first.
    whole.metadata.resource_version = None;
    whole.metadata.annotations.get_or_insert_default().insert("note".into(), "still mine".into());
    pods.replace("machine", &PostParams::default(), &whole).await?;

    let annotations = whole.metadata.annotations.as_mut().context("no annotations")?;
    let switch = annotations.get_mut("web.acme-a.ovn.kubernetes.io/logical_switch").context("no switch")?;
    *switch = "another".into();
    let replaced = pods.replace("machine", &PostParams::default(), &whole).await;
    refused(replaced.map_err(Into::into), "another switch", &[KUBE_OVN_ALONE])
}
