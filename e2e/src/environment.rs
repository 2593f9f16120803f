//! Environments: the namespaces that tenants work in.
//!
//! Capsule makes them in the product. Where it does not run, the label that it would set is set here; that label is
//! all our processes look at.

use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, api::DeleteParams};
use serde_json::json;

use crate::{apply, cluster::Cluster};

/// The label by which Capsule says whose namespace it is.
pub const TENANT_LABEL: &str = "capsule.clastix.io/tenant";

/// A tenant's namespace.
#[derive(Clone)]
pub struct Environment {
    /// The namespace.
    pub namespace: String,
    /// Whose it is.
    pub tenant: String,
    client: Client,
}

impl Environment {
    /// Creates the namespace of this name for the tenant.
    pub async fn create(cluster: &Cluster, tenant: &str, name: &str) -> Result<Self> {
        let client = cluster.client().await?;
        let namespace = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {TENANT_LABEL: tenant}},
        }))?;
        apply::apply(&client, name, vec![namespace]).await?;
        Ok(Self { namespace: name.to_owned(), tenant: tenant.to_owned(), client })
    }

    /// Asks for its deletion; its end is somebody's to wait for.
    pub async fn delete(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}
