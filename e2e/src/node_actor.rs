//! The *node* actor: plays the two things of a kubelet that tests of controllers cannot do without.
//!
//! No kubelet runs in a [`crate::cluster::Cluster`], so a hand-made Node would stay unready and a Pod on it would
//! stay Terminating for ever, and its namespace with it. The facts played:
//! - a kubelet reports its Node Ready (<https://kubernetes.io/docs/reference/node/node-status/#condition>);
//! - it removes a Pod's object from the API, with grace period 0, once the Pod's containers have stopped
//!   (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination>).
//!
//! It writes no other Pod status: a Pod here never runs.

use std::{net::IpAddr, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::{apply::MANAGER, cluster::Cluster};

const PAUSE: Duration = Duration::from_millis(250);

/// A running node actor; it ends when dropped.
pub struct NodeActor {
    client: Client,
    task: JoinHandle<()>,
}

impl NodeActor {
    /// Starts finishing Terminating Pods that are bound to a Node.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let client = cluster.client().await?;
        let task = tokio::spawn(finish_pods(client.clone()));
        Ok(Self { client, task })
    }

    /// Makes a Node, or adds to it: Ready, with these labels, annotations and this internal address.
    pub async fn node(
        &self,
        name: &str,
        address: &str,
        labels: &[(&str, &str)],
        annotations: &[(&str, &str)],
    ) -> Result<Node> {
        let addresses = [address.parse()?];
        report(&self.client, Report { name, addresses: &addresses, labels, annotations, ready: true }).await
    }
}

/// What a kubelet reports of itself.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// The Node's name, and the machine's.
    pub name: &'a str,
    /// Its internal addresses.
    pub addresses: &'a [IpAddr],
    /// Its labels.
    pub labels: &'a [(&'a str, &'a str)],
    /// Its annotations.
    pub annotations: &'a [(&'a str, &'a str)],
    /// Whether it is Ready.
    pub ready: bool,
}

/// Writes a kubelet's report on its Node, and returns that.
pub async fn report(client: &Client, report: Report<'_>) -> Result<Node> {
    let Report { name, addresses, labels, annotations, ready } = report;
    let pairs = |pairs: &[(&str, &str)]| -> serde_json::Map<_, _> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
    };
    let nodes: Api<Node> = Api::all(client.clone());
    let parameters = PatchParams::apply(MANAGER).force();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": pairs(labels), "annotations": pairs(annotations)},
    });
    nodes.patch(name, &parameters, &Patch::Apply(&node)).await?;
    let (status, reason) = if ready { ("True", "KubeletReady") } else { ("False", "KubeletNotReady") };
    let message = "played by the node actor";
    let internal = addresses.iter().map(|address| json!({"type": "InternalIP", "address": address}));
    let hostname = json!({"type": "Hostname", "address": name});
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "1000"});
    let status = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "status": {
            "addresses": internal.chain([hostname]).collect::<Vec<_>>(),
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": status, "reason": reason, "message": message}],
        },
    });
    Ok(nodes.patch_status(name, &parameters, &Patch::Apply(&status)).await?)
}

impl Drop for NodeActor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn finish_pods(client: Client) {
    let all: Api<Pod> = Api::all(client.clone());
    loop {
        // An API server that is being restarted is met again at the next round.
        if let Ok(pods) = all.list(&ListParams::default()).await {
            for pod in pods.items.iter().filter(|pod| is_terminating_on_a_node(pod)) {
                let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
                let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_terminating_on_a_node(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
        && pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
        // Once the grace period is 0 only finalizers are left, and those are not a kubelet's.
        && pod.metadata.deletion_grace_period_seconds != Some(0)
}
