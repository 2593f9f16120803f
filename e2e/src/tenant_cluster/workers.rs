//! Workers of a tenant cluster: a Pod object on the under cluster that has the machine's port, and the Node that its
//! kubelet would report.
//!
//! The facts played, beside those of [`crate::node_actor`]: a worker is a virtual machine in the Cluster's Environment,
//! attached to its SubnetClaim (Cluster API's KubeVirt provider); its kubelet reports the address of that attachment as
//! InternalIP, and the provider writes `spec.providerID`.

use std::net::IpAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;

use super::TenantCluster;
use crate::{
    apply::MANAGER,
    node_actor::{self, Report},
    ovn::under_cluster::UnderCluster,
    reach::Port,
};

/// A machine of a tenant cluster.
#[derive(Debug, Clone)]
pub struct Worker {
    /// The Pod below and the Node above.
    pub name: String,
    /// Its port.
    pub port: Port,
}

impl Worker {
    /// Its first address, which its Node reports.
    pub fn address(&self) -> Result<IpAddr> {
        self.port.addresses.first().copied().context("a port without addresses")
    }
}

impl TenantCluster {
    /// Starts a machine on a SubnetClaim of the Cluster's Environment, and reports it as a Node that is Ready.
    pub async fn worker(&self, under: &UnderCluster, subnet: &str, name: &str) -> Result<Worker> {
        let port = under.workload(self.namespace(), name, subnet).await?;
        let worker = Worker { name: name.to_owned(), port };
        let addresses = worker.port.addresses.clone();
        self.report_node(name, &addresses, &[], true).await?;
        Ok(worker)
    }

    /// Writes a Node of the tenant cluster, true or not: tenants write these themselves if they like.
    pub async fn report_node(
        &self,
        name: &str,
        addresses: &[IpAddr],
        labels: &[(&str, &str)],
        ready: bool,
    ) -> Result<Node> {
        let mut labels = labels.to_vec();
        labels.extend([("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux")]);
        let report = Report { name, addresses, labels: &labels, annotations: &[], ready };
        let client = self.client().await?;
        let node = node_actor::report(&client, report).await?;
        let provider = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {"providerID": format!("kubevirt://{name}")},
        });
        let nodes: Api<Node> = Api::all(client);
        let parameters = PatchParams::apply(&format!("{MANAGER}-provider")).force();
        nodes.patch(name, &parameters, &Patch::Apply(&provider)).await?;
        Ok(node)
    }

    /// Takes a worker away: its Node, then the machine.
    pub async fn remove_worker(&self, under: &UnderCluster, worker: &Worker) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        nodes.delete(&worker.name, &DeleteParams::default()).await?;
        under.stop_workload(self.namespace(), &worker.name).await
    }
}
