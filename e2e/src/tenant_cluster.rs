//! Tenant clusters: further real control planes, published in an Environment as Cluster API and Kamaji do it.
//!
//! ```no_run
//! # use kmetal_e2e::{ovn::under_cluster::UnderCluster, tenant_cluster::{Options, TenantCluster}};
//! # async fn example(under: UnderCluster) -> anyhow::Result<()> {
//! let shop = TenantCluster::start(under.cluster(), "acme-prod", "shop", Options::on("front")).await?;
//! let worker = shop.worker(&under, "front", "shop-worker-1").await?;       // a Pod below, a Node above
//! let client = shop.client().await?;                                       // the tenant's administrator
//! shop.hang()?;                                                            // accepts, and is silent
//! shop.resume()?;
//! let proxy = shop.through_proxy().await?;                                 // [`crate::faults`]: slowed, cut off, and worse
//! shop.renew_kubeconfig().await?;                                          // another Secret, another certificate
//! shop.delete().await?;                                                    // as `kubectl delete cluster shop`
//! # drop((worker, client, proxy));
//! # Ok(())
//! # }
//! ```
//!
//! A tenant cluster is an etcd prefix in the under cluster's store (hosted control planes share a data store) and a real
//! kube-apiserver, with a controller manager only where asked for: without one nothing is collected and no namespace
//! ends, but Services get their ports and nothing else is missing to who reads Services, EndpointSlices and Nodes. What the
//! absent processes would write on the under cluster is the *capi* actor's ([`crate::capi`]).

mod workers;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use kube::{Client, ResourceExt, api::DeleteParams, core::DynamicObject};
use serde_json::{Value, json};

pub use self::workers::Worker;
use crate::{
    capi::{self, Actor},
    cluster::{self, Cluster},
    faults::Proxy,
    rig::Rig,
    wait::eventually,
};

/// Who the published kubeconfig says one is, by name and group.
pub const ADMINISTRATOR: (&str, &str) = ("kubernetes-super-admin", "system:masters");

const GONE_WITHIN: Duration = Duration::from_mins(1);

/// What may differ between tenant clusters.
#[derive(Debug, Clone)]
pub struct Options {
    /// The value of the topology variable `network`; a plain Cluster, without a ClusterClass, if `None`.
    pub network: Option<Value>,
    /// Annotations of the Cluster.
    pub annotations: BTreeMap<String, String>,
    /// Whether a controller manager runs.
    pub controller_manager: bool,
    /// Whether it has an etcd of its own.
    pub own_etcd: bool,
}

impl Options {
    /// A Cluster of a ClusterClass whose workers are on this SubnetClaim.
    pub fn on(subnet: &str) -> Self {
        Self { network: Some(json!({"subnet": subnet})), ..Self::plain() }
    }

    /// A Cluster that says nothing about its network.
    pub fn plain() -> Self {
        Self { network: None, annotations: BTreeMap::new(), controller_manager: false, own_etcd: false }
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The Cluster's spec as its user writes it.
    pub(crate) fn spec(&self) -> Value {
        let networks =
            json!({"pods": {"cidrBlocks": ["10.244.0.0/16"]}, "services": {"cidrBlocks": ["10.96.0.0/16"]}});
        let Some(network) = &self.network else { return json!({"clusterNetwork": networks}) };
        json!({
            "clusterNetwork": networks,
            "topology": {
                "classRef": {"name": "kmetal"},
                "version": capi::VERSION,
                "variables": [{"name": "network", "value": network}],
            },
        })
    }
}

/// A tenant cluster. Dropping it stops its control plane and leaves its objects on the under cluster.
pub struct TenantCluster {
    name: String,
    namespace: String,
    uid: String,
    cluster: Cluster,
    actor: Actor,
}

impl TenantCluster {
    /// Creates the Cluster, starts its control plane, publishes it and reports it as initialised.
    pub async fn start(under: &Cluster, environment: &str, name: &str, options: Options) -> Result<Self> {
        let tenant = Self::start_unpublished(under, environment, name, options).await?;
        tenant.renew_kubeconfig().await?;
        tenant.actor.initialized("127.0.0.1", tenant.cluster.port()).await?;
        Ok(tenant)
    }

    /// The same up to the moment when there is a Cluster and no way to reach it: no Secret, not initialised.
    pub async fn start_unpublished(
        under: &Cluster,
        environment: &str,
        name: &str,
        options: Options,
    ) -> Result<Self> {
        capi::install(under).await?;
        let actor = Actor::of(under, environment, name).await?;
        let metadata = json!({"annotations": options.annotations});
        let object = actor.create(metadata, options.spec()).await?;
        actor.adopt(options.network.is_some()).await?;
        let cluster = control_plane(under, environment, name, &options).await?;
        Ok(Self {
            name: name.to_owned(),
            namespace: environment.to_owned(),
            uid: object.uid().context("a Cluster without uid")?,
            cluster,
            actor,
        })
    }

    /// The Cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The Environment that the Cluster lies in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Cluster's uid on the under cluster.
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// Its control plane.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Its control plane, to replace its authority.
    pub fn cluster_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The actor, to write what else Cluster API and Kamaji may.
    pub fn capi(&self) -> &Actor {
        &self.actor
    }

    /// The tenant's administrator.
    pub async fn client(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// The Cluster object now; `None` when it is gone.
    pub async fn object(&self) -> Result<Option<DynamicObject>> {
        let found = self.actor.clusters().get_opt(&self.name).await?;
        Ok(found.filter(|object| object.uid().as_deref() == Some(&self.uid)))
    }

    /// Publishes a new kubeconfig with a new client certificate. The old one stays good.
    pub async fn renew_kubeconfig(&self) -> Result<()> {
        self.publish_at(&self.cluster.url()).await
    }

    /// The same, leading to another address: a proxy's, one where nobody is.
    pub async fn publish_at(&self, url: &str) -> Result<()> {
        self.actor.publish(&self.cluster.inline_kubeconfig(url, ADMINISTRATOR, None)?).await
    }

    /// The same with a client certificate that expires.
    pub async fn publish_for(&self, lifetime: Duration) -> Result<()> {
        let kubeconfig =
            self.cluster.inline_kubeconfig(&self.cluster.url(), ADMINISTRATOR, Some(lifetime))?;
        self.actor.publish(&kubeconfig).await
    }

    /// Puts a fault proxy in front of the API server and publishes a kubeconfig that leads through it. The proxy shows a
    /// client certificate of its own: what it is shown itself it cannot pass on.
    pub async fn through_proxy(&self) -> Result<Proxy> {
        let proxy = Proxy::before_as(&self.cluster, ADMINISTRATOR).await?;
        self.publish_at(&proxy.url()).await?;
        Ok(proxy)
    }

    /// Replaces the cluster's authority and publishes a kubeconfig of the new one: what was published before is void.
    pub async fn renew_authority(&mut self) -> Result<()> {
        self.cluster.renew_authority().await?;
        self.renew_kubeconfig().await
    }

    /// The API server falls silent: connections stay open, new ones are accepted, nothing is answered.
    pub fn hang(&self) -> Result<()> {
        self.cluster.pause_apiserver()
    }

    /// It answers again.
    pub fn resume(&self) -> Result<()> {
        self.cluster.resume_apiserver()
    }

    /// The API server is gone at once: connections break, new ones are refused. The Cluster stays.
    pub fn stop(&self) -> Result<()> {
        self.cluster.kill_apiserver()
    }

    /// The API server comes back, at the same address and with the same content.
    pub async fn start_again(&self) -> Result<()> {
        self.cluster.start_apiserver().await
    }

    /// Deletes the Cluster the way it goes in the product: asked for, its API server gone, the object gone.
    pub async fn delete(self) -> Result<()> {
        self.ask_deletion().await?;
        self.finish_deletion().await
    }

    /// Asks for the Cluster's deletion; it stays, with its API server, until [`TenantCluster::finish_deletion`].
    pub async fn ask_deletion(&self) -> Result<()> {
        self.actor.clusters().delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Stops the API server of a Cluster that is being deleted, by whomever, and waits until the object is gone.
    pub async fn finish_deletion(self) -> Result<()> {
        eventually("somebody asks for the Cluster's deletion", GONE_WITHIN, async || {
            let object = self.object().await?;
            Ok(object.is_none_or(|object| object.metadata.deletion_timestamp.is_some()).then_some(()))
        })
        .await?;
        self.stop()?;
        self.actor.release().await?;
        eventually("the Cluster is gone", GONE_WITHIN, async || {
            Ok(self.object().await?.is_none().then_some(()))
        })
        .await
    }
}

/// Starts the control plane in the under cluster's rig, under a name that no earlier one had.
async fn control_plane(under: &Cluster, environment: &str, name: &str, options: &Options) -> Result<Cluster> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let rig: &Arc<Rig> = under.rig();
    let unique = format!("{environment}-{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let options = cluster::Options {
        controller_manager: options.controller_manager,
        scheduler: false,
        etcd: (!options.own_etcd).then(|| under.etcd().clone()),
        ..cluster::Options::default()
    };
    Cluster::start_in(rig, &unique, options).await
}
