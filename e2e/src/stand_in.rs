//! A stand-in for a tenant's API server, for hundreds of them at once: not Kubernetes, but what a controller that reads and
//! writes a few kinds can see of it.
//!
//! A real API server takes 250 MB; three hundred of them do not fit on the machine. Where a promise is about their number
//! (one that hangs never delays another), all but a few may be these. Whoever starts them says so in the output. The
//! facts played, and no others (what is not played is refused with 400, 404, 406 or 415, never answered half):
//! - the paths, lists, watches, bookmarks and errors of the API
//!   (<https://kubernetes.io/docs/reference/using-api/api-concepts/>): `/version`, `/readyz`, and [`KINDS`], with their
//!   status sub-resource;
//! - optimistic concurrency by `resourceVersion`, `generation` that follows the spec, a write that changes nothing makes no new
//!   version, finalizers hold a deleted object;
//! - a merge patch merges; server-side apply is played as a merge patch that may create, so a field that a manager no
//!   longer states stays;
//! - a bearer token opens its own cluster and no other.
//!
//! No admission, no defaults, no allocation: a Service has the node ports that whoever writes it gives it. Every one is behind
//! a [`Proxy`], which gives it TLS and everything that can break.

mod object;
mod serve;
mod store;

use std::sync::Arc;

use anyhow::Result;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use self::store::Store;
use crate::{
    capi::{self, Actor},
    cluster::{self, Cluster},
    faults::{Proxy, Upstream},
    pki::{Authority, Identity},
    ports::{self, Port},
    tenant_cluster::Options,
};

/// A kind that is played.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// `v1`, `discovery.k8s.io/v1`.
    pub api_version: &'static str,
    /// Its name.
    pub kind: &'static str,
    /// Its name in paths.
    pub plural: &'static str,
    /// Whether it lies in namespaces.
    pub namespaced: bool,
}

/// The kinds that are played.
pub const KINDS: [Kind; 5] = [
    Kind { api_version: "v1", kind: "Service", plural: "services", namespaced: true },
    Kind { api_version: "v1", kind: "Node", plural: "nodes", namespaced: false },
    Kind { api_version: "v1", kind: "Namespace", plural: "namespaces", namespaced: false },
    Kind {
        api_version: "discovery.k8s.io/v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
        namespaced: true,
    },
    Kind { api_version: "events.k8s.io/v1", kind: "Event", plural: "events", namespaced: true },
];

/// Makes stand-ins; all have certificates of one authority.
pub struct StandIns {
    authority: Authority,
    serving: Identity,
}

impl StandIns {
    /// None yet, on this under cluster. Says in the output that stand-ins are used.
    pub async fn new(under: &Cluster) -> Result<Self> {
        capi::install(under).await?;
        eprintln!(
            "kit: stand-ins play the API servers of tenant clusters here; what they play: e2e/src/stand_in.rs"
        );
        let authority = Authority::new("stand-ins")?;
        let serving = authority.server("stand-in", &["127.0.0.1"])?;
        Ok(Self { authority, serving })
    }

    /// Starts one and publishes it as a tenant cluster, as [`crate::tenant_cluster::TenantCluster::start`] does.
    pub async fn start(
        &self,
        under: &Cluster,
        environment: &str,
        name: &str,
        options: &Options,
    ) -> Result<StandIn> {
        let port = ports::take()?;
        let listener = TcpListener::bind(port.address()).await?;
        let token = format!("{environment}.{name}.{}", port.number());
        let store = Arc::new(Store::default());
        let server = tokio::spawn(serve::accept(listener, store.clone(), token.clone()));
        let proxy = Proxy::start(Upstream::http(&port.address()), Some(&self.serving)).await?;
        let authority = self.authority.identity().certificate;
        let kubeconfig = cluster::token_kubeconfig(&proxy.url(), &authority, &token);

        let actor = Actor::of(under, environment, name).await?;
        actor.create(json!({"annotations": options.annotations}), options.spec()).await?;
        actor.adopt(options.network.is_some()).await?;
        actor.publish(&kubeconfig).await?;
        actor.initialized("127.0.0.1", port.number()).await?;
        Ok(StandIn { kubeconfig, proxy, store, actor, server, _port: port })
    }
}

/// A stand-in. Dropping it ends it and leaves its Cluster.
pub struct StandIn {
    kubeconfig: String,
    proxy: Proxy,
    store: Arc<Store>,
    actor: Actor,
    server: JoinHandle<()>,
    _port: Port,
}

impl StandIn {
    /// The way to it, to break it.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// The actor, to write what else Cluster API and Kamaji may.
    pub fn capi(&self) -> &Actor {
        &self.actor
    }

    /// The tenant's administrator, through the proxy.
    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig)?;
        Ok(Client::try_from(
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?,
        )?)
    }

    /// The same with the token of another: what that one's tenant would try.
    pub async fn client_of(&self, other: &Self) -> Result<Client> {
        let mut config = self.config().await?;
        config.auth_info = other.config().await?.auth_info;
        Ok(Client::try_from(config)?)
    }

    /// Writes an object as the tenant would, created or replaced, without a way through the network.
    pub fn put(&self, object: Value) -> Result<()> {
        self.store.put(object)
    }

    async fn config(&self) -> Result<Config> {
        let kubeconfig = Kubeconfig::from_yaml(&self.kubeconfig)?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// An object as it is now.
    pub fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.store.get(plural, namespace, name)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.server.abort();
    }
}
