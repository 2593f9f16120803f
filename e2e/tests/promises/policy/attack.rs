//! The attacks themselves, on the real Kube-OVN: each works where the policy is off, so each refusal means something.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kmetal_e2e::{networking::Networking, ovn::under_cluster::NODE};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{INSTEAD, OWN, OWN_ONLY, create, places, pod, refused};

/// Name, annotations, and the annotation that tells on which switch the port is.
fn attacks(victim: &str) -> [(&'static str, Value, &'static str); 4] {
    let networks = "k8s.v1.cni.cncf.io/networks";
    [
        (
            "switch",
            json!({networks: "acme-a/web", "web.acme-a.ovn.kubernetes.io/logical_switch": victim}),
            "web.acme-a.ovn.kubernetes.io/logical_switch",
        ),
        (
            "twice",
            json!({
                networks: r#"[{"name":"web","interface":"net1"},{"name":"web","interface":"net2"}]"#,
                "web.acme-a.ovn.net1.kubernetes.io/logical_switch": victim,
            }),
            "web.acme-a.ovn.net1.kubernetes.io/logical_switch",
        ),
        ("foreign", json!({networks: "bolt-a/web"}), "web.bolt-a.ovn.kubernetes.io/logical_switch"),
        (
            "escaped",
            json!({networks: r#"[{"name":"web","\u006eamespace":"bolt-\u0061"}]"#}),
            "web.bolt-a.ovn.kubernetes.io/logical_switch",
        ),
    ]
}

/// The attacker's Pod, bound to the Node, which makes Kube-OVN act.
fn attacker(name: &str, annotations: &Value) -> Value {
    places::with(&pod(name, annotations), &json!({"spec": {"nodeName": NODE}}))
}

pub(super) async fn works_without_the_policy(
    networking: &Networking,
    victim: &str,
    tenant: &Client,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(tenant.clone(), OWN);
    let cluster = networking.under().cluster();
    for (name, annotations, switch) in attacks(victim) {
        places::keep(tenant, &attacker(name, &annotations)).await?;
        let allocated = switch.replace("logical_switch", "allocated");
        let wait = cluster.wait_for(format!("{name}: the attacker has a port")).await?;
        let there = wait
            .showing::<Pod>(Some(OWN), name)
            .until(async || {
                let pod = pods.get(name).await?;
                let done = pod.annotations().get(&allocated).is_some_and(|done| done == "true");
                Ok(done.then(|| pod.annotations().get(switch).cloned().unwrap_or_default()))
            })
            .await?;
        ensure!(there == victim, "{name}: on {there}");
    }
    networking.under().ovn().sync().await?;
    let ports = networking.under().ovn().nbctl(&["lsp-list", victim]).await?;
    for (name, _, _) in attacks(victim) {
        ensure!(
            ports.contains(&format!("({name}.{OWN}.")),
            "no port of {name} on the victim's switch:\n{ports}"
        );
    }
    for (name, _, _) in attacks(victim) {
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        cluster.wait_gone::<Pod>(Some(OWN), name).await?;
    }
    // Left for later: a workload whose template is bad, and that has made nothing yet.
    places::keep(tenant, &workload()).await?;
    Ok(())
}

pub(super) async fn is_refused_with_it(networking: &Networking, victim: &str, tenant: &Client) -> Result<()> {
    let administrator = networking.under().client().await?;
    for (name, annotations, _) in attacks(victim) {
        for client in [tenant, &administrator] {
            refused(create(client, &attacker(name, &annotations)).await, name, &[INSTEAD])?;
        }
    }
    Ok(())
}

/// A Deployment that asks for a foreign network, with no replica.
fn workload() -> Value {
    let (mut deployment, _) = places::all().swap_remove(5);
    deployment["metadata"]["name"] = json!("waiting");
    let annotations = json!({"annotations": {"k8s.v1.cni.cncf.io/networks": "bolt-a/web"}});
    places::with(&deployment, &json!({"spec": {"template": {"metadata": annotations}}}))
}

/// The template is older than the policy, so the tenant may scale it; the Pods are refused to the controller.
pub(super) async fn by_a_controller_is_refused(networking: &Networking, tenant: &Client) -> Result<()> {
    let mut again = workload();
    again["metadata"]["name"] = json!("again");
    refused(create(tenant, &again).await, "a Deployment", &[OWN_ONLY, INSTEAD])?;

    let audit = networking.under().cluster().audit().mark()?;
    let scaled = Patch::Merge(json!({"spec": {"replicas": 1}}));
    super::api(tenant, &again)?.patch("waiting", &PatchParams::default(), &scaled).await?;
    let sets: Api<ReplicaSet> = Api::namespaced(tenant.clone(), OWN);
    let wait =
        networking.under().cluster().wait_for("the ReplicaSet tells that it cannot make a Pod").await?;
    let said = wait
        .showing_all::<ReplicaSet>(Some(OWN))
        .until(async || {
            let sets = sets.list(&ListParams::default()).await?;
            let conditions = sets.items.into_iter().filter_map(|set| set.status?.conditions).flatten();
            Ok(conditions.into_iter().find(|c| c.type_ == "ReplicaFailure").and_then(|c| c.message))
        })
        .await?;
    ensure!(said.contains(OWN_ONLY), "{said}");
    let writes = audit.writes_by("kube-system", "replicaset-controller")?;
    let refused = writes.iter().find(|e| e.reference().resource == "pods" && e.verb == "create");
    ensure!(refused.context("no attempt in the audit log")?.code() == 403, "{refused:?}");
    Ok(())
}
