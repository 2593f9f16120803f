//! What a tenant runs, as far as the network is concerned: a Pod object that asks for an attachment.
//!
//! Kube-OVN allocates the port, its address and its MAC for the *object*; that no kubelet starts it changes nothing in
//! OVN. A virtual machine's launcher pod is such a Pod.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::under_cluster::{NODE, UnderCluster};
use crate::reach::Port;

impl UnderCluster {
    /// Creates a Pod attached to this NetworkAttachmentDefinition of its namespace, unless it is there, and waits for its
    /// port.
    pub async fn workload(&self, namespace: &str, name: &str, attachment: &str) -> Result<Port> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "annotations": {"k8s.v1.cni.cncf.io/networks": format!("{namespace}/{attachment}")},
            },
            "spec": {
                "nodeName": NODE,
                "automountServiceAccountToken": false,
                "containers": [{"name": "machine", "image": "kit.invalid/machine"}],
            },
        }))?;
        self.default_account(namespace).await?;
        match pods.create(&PostParams::default(), &pod).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made?),
        }
        let port = self
            .cluster()
            .wait_for(format!("Pod {namespace}/{name} has a port on {attachment}"))
            .await?
            .showing::<Pod>(Some(namespace), name)
            .until(async || Port::of(&pods.get(name).await?, attachment))
            .await?;
        self.ovn().sync().await?;
        Ok(port)
    }

    /// Deletes a Pod and waits until it is gone.
    pub async fn stop_workload(&self, namespace: &str, name: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, namespace);
        pods.delete(name, &DeleteParams::default().grace_period(0)).await?;
        self.cluster().wait_gone::<Pod>(Some(namespace), name).await
    }

    /// A Pod is refused until its namespace's default ServiceAccount exists.
    async fn default_account(&self, namespace: &str) -> Result<()> {
        let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
            Api::namespaced(self.client().await?, namespace);
        let wait = self.cluster().wait_for(format!("namespace {namespace} has its ServiceAccount")).await?;
        wait.until(async || Ok(accounts.get_opt("default").await?.map(|account| drop(account.name_any()))))
            .await
    }
}
