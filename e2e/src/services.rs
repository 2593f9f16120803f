//! Services of type LoadBalancer in tenant clusters, as a test asks for them and reads what became of them.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use kmetal_crds::networking::service::{CONDITION, EIP_CLAIM, reason};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{tenant_cluster::TenantCluster, wait::Expected};

/// Where the Services of tests lie in their cluster.
pub const NAMESPACE: &str = "default";

/// `(port, protocol)` pairs as a Service has them.
pub fn ports(all: &[(u16, &str)]) -> Value {
    let port = |(port, protocol): &(u16, &str)| json!({"name": format!("{}-{port}", protocol.to_lowercase()), "port": port, "protocol": protocol});
    json!(all.iter().map(port).collect::<Vec<_>>())
}

/// The Services of a tenant cluster.
#[derive(Clone)]
pub struct Services<'a> {
    tenant: &'a TenantCluster,
    api: Api<Service>,
}

impl<'a> Services<'a> {
    /// Of this cluster.
    pub async fn of(tenant: &'a TenantCluster) -> Result<Self> {
        Ok(Self { tenant, api: Api::namespaced(tenant.client().await?, NAMESPACE) })
    }

    /// The API.
    pub fn api(&self) -> &Api<Service> {
        &self.api
    }

    /// Applies a Service with TCP 443, or what `more` of its spec says; `claim` is the EipClaim that it names.
    pub async fn apply(&self, name: &str, claim: Option<&str>, more: Value) -> Result<Service> {
        let mut spec =
            json!({"type": "LoadBalancer", "selector": {"app": name}, "ports": ports(&[(443, "TCP")])});
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        let annotations = claim.map(|claim| json!({EIP_CLAIM: claim}));
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "annotations": annotations},
            "spec": spec,
        });
        let parameters = PatchParams::apply("kit-tenant").force();
        Ok(self.api.patch(name, &parameters, &Patch::Apply(&service)).await?)
    }

    /// Asks for a Service's deletion.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until it is gone.
    pub async fn gone(&self, name: &str) -> Result<()> {
        self.tenant.cluster().wait_gone::<Service>(Some(NAMESPACE), name).await
    }

    /// Waits until a Service has an address that leads to it, and returns that.
    pub async fn address(&self, name: &str) -> Result<Ipv4Addr> {
        let expected = Expected { condition: CONDITION, status: "True", reason: Some(reason::READY) };
        let service: Service = self.tenant.cluster().wait_condition(Some(NAMESPACE), name, expected).await?;
        shown(&service).context("Ready without an address")
    }

    /// Waits until a Service is told this reason, and returns what it is told besides.
    pub async fn says(&self, name: &str, reason: &str) -> Result<String> {
        let expected = Expected { condition: CONDITION, status: "False", reason: Some(reason) };
        let service: Service = self.tenant.cluster().wait_condition(Some(NAMESPACE), name, expected).await?;
        told(&service).map(|(_, message)| message).context("no condition")
    }

    /// The port of each worker behind a port of the Service.
    pub async fn node_port(&self, name: &str, port: u16, protocol: &str) -> Result<u16> {
        let service = self.api.get(name).await?;
        let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
        let is_it = |known: &&k8s_openapi::api::core::v1::ServicePort| {
            known.port == i32::from(port) && known.protocol.as_deref() == Some(protocol)
        };
        let node_port = ports.iter().find(is_it).and_then(|known| known.node_port);
        node_port
            .and_then(|port| u16::try_from(port).ok())
            .with_context(|| format!("no node port for {port}"))
    }
}

/// The address in a Service's status.
pub fn shown(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    ingress.first()?.ip.as_ref()?.parse().ok()
}

/// Reason and message of our condition.
pub fn told(service: &Service) -> Option<(String, String)> {
    let conditions = service.status.as_ref()?.conditions.as_ref()?;
    let ours = conditions.iter().find(|condition| condition.type_ == CONDITION)?;
    Some((ours.reason.clone(), ours.message.clone()))
}
