//! Tenants and their Environments: the namespaces that tenants work in, made as in the product.
//!
//! A [`Tenant`] is Capsule's, with one owner: a person with a client certificate. The owner creates the namespaces, and
//! label and owner reference are Capsule's own. Where a promise is not about tenancy and no Capsule runs,
//! [`Environment::labelled`] sets the label that it would; that label is all our processes look at.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
        core::v1::Namespace,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    apply::{self, MANAGER},
    capsule::{ADMINISTRATOR, PEOPLE},
    cluster::{self, Cluster},
    wait::READY,
};

/// The label by which Capsule says whose namespace it is.
pub const TENANT_LABEL: &str = "capsule.clastix.io/tenant";

/// A Tenant of Capsule's and its owner.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// The owner's user name.
    pub owner: String,
    kubeconfig: PathBuf,
}

impl Tenant {
    /// Creates it, unless it is there, with `<name>-owner` as its owner and this spec besides, and waits until Capsule knows
    /// it. Capsule must run.
    pub async fn create(cluster: &Cluster, name: &str, spec: Value) -> Result<Self> {
        let owner = format!("{name}-owner");
        let tenants: Api<DynamicObject> = Api::all_with(cluster.client().await?, &resource());
        if tenants.get_opt(name).await?.is_none() {
            let mut tenant = json!({
                "apiVersion": "capsule.clastix.io/v1beta2",
                "kind": "Tenant",
                "metadata": {"name": name},
                "spec": spec,
            });
            tenant["spec"]["owners"] = json!([{"kind": "User", "name": owner}]);
            tenants.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&tenant)).await?;
        }
        let wait = cluster.wait_for(format!("Capsule knows Tenant {name}")).await?;
        wait.showing_resource(&resource(), None, Some(name))
            .until(async || Ok(tenants.get_opt(name).await?.filter(|tenant| READY.holds(tenant)).map(drop)))
            .await?;
        let kubeconfig = cluster.user_kubeconfig(&owner, PEOPLE)?;
        Ok(Self { name: name.to_owned(), owner, kubeconfig })
    }

    /// The owner's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The owner's client.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(cluster::config(&self.kubeconfig).await?)?)
    }

    /// Creates a namespace as the owner, sees to it that Capsule made it an Environment, and waits until the owner may
    /// work in it.
    pub async fn environment(&self, cluster: &Cluster, name: &str) -> Result<Environment> {
        let owner = self.client().await?;
        let namespaces: Api<Namespace> = Api::all(owner.clone());
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {TENANT_LABEL: self.name}},
        }))?;
        let made = namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .with_context(|| format!("{} creates namespace {name}", self.owner))?;
        let is_theirs = |owner: &OwnerReference| owner.kind == "Tenant" && owner.name == self.name;
        let taken = made.owner_references().iter().any(is_theirs);
        ensure!(taken, "Capsule did not take namespace {name} for Tenant {}: {made:?}", self.name);
        let review = may_work(name);
        let reviews: Api<SelfSubjectAccessReview> = Api::all(owner);
        let wait = cluster.wait_for(format!("{} may work in {name}", self.owner)).await?;
        wait.until(async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed).then_some(()))
        })
        .await?;
        Ok(Environment {
            namespace: name.to_owned(),
            tenant: self.name.clone(),
            client: cluster.client().await?,
        })
    }
}

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
    /// Creates a namespace with the label that Capsule would set, for a cluster on which no Capsule runs.
    pub async fn labelled(cluster: &Cluster, tenant: &str, name: &str) -> Result<Self> {
        let client = cluster.client().await?;
        let namespace = serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {TENANT_LABEL: tenant}},
        }))?;
        apply::apply(&client, name, vec![namespace]).await?;
        Ok(Self { namespace: name.to_owned(), tenant: tenant.to_owned(), client })
    }

    /// Puts a namespace that is there into a Tenant, as Capsule's administrator.
    pub async fn adopt(cluster: &Cluster, tenant: &str, name: &str) -> Result<Self> {
        let administrator = cluster.user_kubeconfig(ADMINISTRATOR.0, ADMINISTRATOR.1)?;
        let client = Client::try_from(cluster::config(&administrator).await?)?;
        let label = Patch::Merge(json!({"metadata": {"labels": {TENANT_LABEL: tenant}}}));
        Api::<Namespace>::all(client).patch(name, &PatchParams::default(), &label).await?;
        Ok(Self { namespace: name.to_owned(), tenant: tenant.to_owned(), client: cluster.client().await? })
    }

    /// Asks for its deletion; its end is somebody's to wait for.
    pub async fn delete(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.delete(&self.namespace, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Tenants, as the API server knows them.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("capsule.clastix.io", "v1beta2", "Tenant"))
}

/// Capsule binds its owners to Kubernetes' `admin`; nobody else gives them ConfigMaps.
fn may_work(namespace: &str) -> SelfSubjectAccessReview {
    let attributes = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        verb: Some("create".to_owned()),
        resource: Some("configmaps".to_owned()),
        ..ResourceAttributes::default()
    };
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}
