//! The product's networking as it is installed: an under cluster with Kube-OVN, our two charts, our real binary.
//!
//! Tests and the demo start here. The platform file is the chart's, the permissions are the chart's; what a test
//! changes, it changes the way a platform engineer would.

pub mod scenario;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kmetal_crds::networking::{SubnetClaim, VpcClaim};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    chart::Chart,
    controller::{Circumstances, Controller},
    environment::Environment,
    ovn::{provider_network::ProviderNetwork, under_cluster::UnderCluster},
    wait::{READY, not_ready},
};

/// Package, binary, chart and ServiceAccount of the process.
pub const NAME: &str = "kmetal-networking";
/// Where it is installed.
pub const NAMESPACE: &str = "kmetal-system";
/// The ConfigMap and key of the platform file.
pub const PLATFORM: (&str, &str) = ("kmetal-networking-platform", "platform.yaml");
/// What no VPC may reach in these tests: the network of the under cluster's nodes.
pub const MANAGEMENT: &str = "192.0.2.0/24";
/// Where tenants' API servers would listen.
pub const CONTROL_PLANES: &str = "100.100.0.0/24";

/// A provider network and to whom it is open; the first one given is the default.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The segment.
    pub network: ProviderNetwork,
    /// The Tenants that it is reserved to; empty: everybody.
    pub tenants: Vec<String>,
}

impl From<ProviderNetwork> for Offer {
    fn from(network: ProviderNetwork) -> Self {
        Self { network, tenants: Vec::new() }
    }
}

/// kmetal-networking on an under cluster. Dropping it stops everything.
pub struct Networking {
    // Dropped first: it talks to the other.
    controller: Controller,
    under: UnderCluster,
    chart: Chart,
}

/// The chart's values for these provider networks, with what the platform protects.
pub fn values(offers: &[Offer]) -> Value {
    let networks: Vec<Value> = offers
        .iter()
        .enumerate()
        .map(|(index, offer)| {
            json!({
                "name": offer.network.name,
                "externalSubnet": offer.network.name,
                "cidr": offer.network.cidr,
                "gateway": offer.network.gateway,
                "default": index == 0,
                "tenants": offer.tenants,
            })
        })
        .collect();
    json!({
        "platform": {
            "providerNetworks": networks,
            "protectedCIDRs": [MANAGEMENT, "10.96.0.0/16", "10.244.0.0/16", "2001:db8:ff::/48"],
            "tenantControlPlanePools": [CONTROL_PLANES],
        },
        // Where the kit's tenant clusters are.
        "tenantClusters": {"apiServers": {"loopback": true}},
    })
}

impl Networking {
    /// Starts an under cluster with these segments, installs both charts and waits until the process is ready.
    pub async fn start(name: &str, offers: &[Offer]) -> Result<Self> {
        let under = UnderCluster::start_with_capsule(name).await?;
        let segments: Vec<ProviderNetwork> = offers.iter().map(|offer| offer.network.clone()).collect();
        if !segments.is_empty() {
            under.provider_networks(&segments).await?;
        }
        let networking = Self::install(under, values(offers)).await?;
        networking.controller.ready(networking.under.cluster()).await?;
        Ok(networking)
    }

    /// Installs the chart with these values on an under cluster and starts the process, ready or not.
    pub async fn install(under: UnderCluster, values: Value) -> Result<Self> {
        Self::install_in(under, values, &Circumstances::default()).await
    }

    /// The same with the process in other circumstances.
    pub async fn install_in(
        under: UnderCluster,
        values: Value,
        circumstances: &Circumstances<'_>,
    ) -> Result<Self> {
        let chart = Chart::ours(NAME, NAMESPACE, values);
        chart.install(under.cluster()).await?;
        let controller = Controller::start_in(under.cluster(), &chart, NAME, 0, circumstances).await?;
        Ok(Self { controller, under, chart })
    }

    /// The under cluster.
    pub fn under(&self) -> &UnderCluster {
        &self.under
    }

    /// The process.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// The process, to restart it.
    pub fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// SIGKILL, and the same pod again. Its Lease is emptied, which time alone would do as well: that wait is proven
    /// elsewhere.
    pub async fn start_again(&mut self) -> Result<()> {
        self.controller.kill()?;
        let leases: Api<Lease> = Api::namespaced(self.under.client().await?, NAMESPACE);
        let empty = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
        leases.patch(NAME, &PatchParams::default(), &empty).await.context("empty the Lease")?;
        self.controller.restart()
    }

    /// The chart as installed last.
    pub fn chart(&self) -> &Chart {
        &self.chart
    }

    /// Installs the chart again with other values, and brings the mounted platform file up to date.
    pub async fn reconfigure(&mut self, values: Value) -> Result<()> {
        self.chart = self.chart.with_values(values);
        self.chart.install(self.under.cluster()).await?;
        self.controller.sync_mounts(self.under.cluster()).await
    }

    /// A tenant's Environment.
    pub async fn environment(&self, tenant: &str, name: &str) -> Result<Environment> {
        self.under.environment(tenant, name).await
    }

    /// Applies a VpcClaim; `egress` names a provider network, `""` takes the default.
    pub async fn claim_vpc(&self, namespace: &str, name: &str, egress: Option<&str>) -> Result<()> {
        let egress = egress
            .map(|network| if network.is_empty() { json!({}) } else { json!({"providerNetwork": network}) });
        let spec = egress.map_or_else(|| json!({}), |egress| json!({"egress": egress}));
        self.apply("VpcClaim", namespace, name, spec).await
    }

    /// Applies a SubnetClaim.
    pub async fn claim_subnet(&self, namespace: &str, name: &str, vpc: &str, cidr: &str) -> Result<()> {
        self.apply("SubnetClaim", namespace, name, json!({"vpc": vpc, "cidr": cidr})).await
    }

    /// Waits until a VpcClaim is Ready.
    pub async fn vpc_ready(&self, namespace: &str, name: &str) -> Result<VpcClaim> {
        self.under.cluster().wait_condition(Some(namespace), name, READY).await
    }

    /// Waits until a SubnetClaim is Ready.
    pub async fn subnet_ready(&self, namespace: &str, name: &str) -> Result<SubnetClaim> {
        self.under.cluster().wait_condition(Some(namespace), name, READY).await
    }

    /// Waits until a VpcClaim is refused or waits for this reason, and returns the message.
    pub async fn vpc_says(&self, namespace: &str, name: &str, reason: &str) -> Result<String> {
        let claim: VpcClaim =
            self.under.cluster().wait_condition(Some(namespace), name, not_ready(reason)).await?;
        Ok(message(claim.status.map(|status| status.conditions)))
    }

    /// Waits until a SubnetClaim is refused or waits for this reason, and returns the message.
    pub async fn subnet_says(&self, namespace: &str, name: &str, reason: &str) -> Result<String> {
        let claim: SubnetClaim =
            self.under.cluster().wait_condition(Some(namespace), name, not_ready(reason)).await?;
        Ok(message(claim.status.map(|status| status.conditions)))
    }

    /// Ends a test that went well.
    pub fn finish(self) {
        let Self { controller, under, .. } = self;
        drop(controller);
        under.finish();
    }

    async fn apply(&self, kind: &str, namespace: &str, name: &str, spec: Value) -> Result<()> {
        let claim = json!({
            "apiVersion": "networking.kmetal.clastix.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        });
        self.under.cluster().apply_yaml(&claim.to_string()).await
    }
}

fn message(conditions: Option<Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>) -> String {
    let conditions = conditions.unwrap_or_default();
    kmetal_crds::condition::get(&conditions, kmetal_crds::condition::READY)
        .map(|ready| ready.message.clone())
        .unwrap_or_default()
}
