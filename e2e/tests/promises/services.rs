//! Services of tenant clusters get public addresses: two real API servers, real Kube-OVN, packets through real flows.

mod life;

use anyhow::{Context, Result};
use kmetal_crds::{
    foreign::kube_ovn::OvnDnatRule,
    networking::{Binding, EipClaim, VpcClaim},
};
use kmetal_e2e::{
    capi,
    controller::Circumstances,
    networking::{self, Networking, Offer},
    ovn::{provider_network::ProviderNetwork, under_cluster::UnderCluster},
    tenant_cluster::{Options, TenantCluster},
    wait::READY,
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

const ENVIRONMENT: &str = "acme-prod";

fn internet() -> ProviderNetwork {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1")
}

fn partner() -> ProviderNetwork {
    ProviderNetwork::new("partner", "198.51.100.0/24", "198.51.100.1")
}

/// An Environment with VPC `net` and subnet `front`, on a platform with two provider networks.
struct Stage {
    networking: Networking,
}

impl Stage {
    async fn start(name: &str) -> Result<Self> {
        Self::start_in(name, &Circumstances::default()).await
    }

    async fn start_in(name: &str, circumstances: &Circumstances<'_>) -> Result<Self> {
        let under = UnderCluster::start(name).await?;
        capi::install(under.cluster()).await?;
        under.provider_networks(&[internet(), partner()]).await?;
        let offers: [Offer; 2] = [internet().into(), partner().into()];
        let networking = Networking::install_in(under, networking::values(&offers), circumstances).await?;
        networking.controller().ready(networking.under().cluster()).await?;
        let stage = Self { networking };
        stage.environment("acme", ENVIRONMENT, Some("internet")).await?;
        Ok(stage)
    }

    /// One more Environment like the first.
    async fn environment(&self, tenant: &str, name: &str, egress: Option<&str>) -> Result<()> {
        self.networking.environment(tenant, name).await?;
        self.networking.claim_vpc(name, "net", egress).await?;
        self.networking.claim_subnet(name, "front", "net", "10.1.0.0/24").await?;
        self.networking.vpc_ready(name, "net").await?;
        self.networking.subnet_ready(name, "front").await?;
        Ok(())
    }

    fn under(&self) -> &UnderCluster {
        self.networking.under()
    }

    /// A tenant cluster on subnet `front`.
    async fn cluster(&self, environment: &str, name: &str) -> Result<TenantCluster> {
        TenantCluster::start(self.under().cluster(), environment, name, Options::on("front")).await
    }

    /// Applies an EipClaim and waits for its address.
    async fn eip(&self, environment: &str, name: &str, network: Option<&str>) -> Result<EipClaim> {
        let spec = network.map_or_else(|| json!({}), |network| json!({"providerNetwork": network}));
        let claim = json!({
            "apiVersion": "networking.kmetal.clastix.io/v1alpha1",
            "kind": "EipClaim",
            "metadata": {"name": name},
            "spec": spec,
        });
        let parameters = PatchParams::apply("kit-tenant").force();
        self.eips(environment).await?.patch(name, &parameters, &Patch::Apply(&claim)).await?;
        self.under().cluster().wait_condition(Some(environment), name, READY).await
    }

    async fn eips(&self, environment: &str) -> Result<Api<EipClaim>> {
        Ok(Api::namespaced(self.under().client().await?, environment))
    }

    /// Who has an EipClaim's address.
    async fn bound(&self, environment: &str, name: &str) -> Result<Option<Binding>> {
        let claim = self.eips(environment).await?.get(name).await?;
        Ok(claim.status.and_then(|status| status.bound_to))
    }

    /// Every OvnDnatRule.
    async fn rules(&self) -> Result<Vec<OvnDnatRule>> {
        let rules: Api<OvnDnatRule> = Api::all(self.under().client().await?);
        Ok(rules.list(&ListParams::default()).await?.items)
    }

    /// The Vpc of an Environment's VPC `net`.
    async fn vpc(&self, environment: &str) -> Result<String> {
        let claims: Api<VpcClaim> = Api::namespaced(self.under().client().await?, environment);
        let claim = claims.get("net").await?;
        claim.status.and_then(|status| status.vpc).context("no Vpc")
    }

    /// Waits until no rule is left and none of these EipClaims is bound.
    async fn nothing_is_bound(&self) -> Result<()> {
        let wait = self.under().cluster().wait_for("no rule is left and no address is bound").await?;
        let claims: Api<EipClaim> = Api::all(self.under().client().await?);
        wait.showing_all::<EipClaim>(None)
            .showing_all::<OvnDnatRule>(None)
            .until(async || {
                let is_bound = |claim: &EipClaim| claim.status.as_ref().is_some_and(|s| s.bound_to.is_some());
                let bound: Vec<String> = claims
                    .list(&ListParams::default())
                    .await?
                    .iter()
                    .filter(|claim| is_bound(claim))
                    .map(ResourceExt::name_any)
                    .collect();
                let rules: Vec<String> = self.rules().await?.iter().map(ResourceExt::name_any).collect();
                anyhow::ensure!(bound.is_empty() && rules.is_empty(), "{bound:?} {rules:?}");
                Ok(Some(()))
            })
            .await
    }

    fn finish(self) {
        self.networking.finish();
    }
}
