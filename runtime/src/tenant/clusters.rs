//! Which tenant clusters there are: follows the Clusters of the under cluster and their kubeconfig Secrets, and has one
//! keeper (`keeper.rs`) for each Cluster.
//!
//! Of Secrets only the metadata are watched, and only of those with Cluster API's type and label: the process learns that
//! a kubeconfig changed and then asks for that one Secret. The keys of a cluster's authority, which lie beside it, never
//! come here. RBAC: `list`, `watch` and `get` on `secrets` (no rule can say "by label"), `list` and `watch` on `clusters`.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Secret;
use kmetal_crds::foreign::capi::{self, Cluster};
use kube::{Api, api::PartialObjectMeta, runtime::watcher};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
};
use tokio::{sync::watch, task::JoinSet};
use tracing::Instrument;

use super::{
    ClusterId, Limits, TenantCluster, TenantOptions, cluster::Link, connect::Line, health::Health,
    supervisor::Supervisor,
};
use crate::{
    Process, Watched,
    backoff::{FIRST, exponential},
    controller::DRAIN,
};

/// The longest pause after a panic in somebody's work on a cluster.
const PAUSE: Duration = Duration::from_secs(30);
/// How long work may go on after [`DRAIN`] when its cluster is gone.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    state: &'static str,
}

/// One Cluster.
struct Entry<S> {
    id: ClusterId,
    health: watch::Receiver<Health>,
    open: Option<Arc<TenantCluster<S>>>,
}

/// What keepers and readers share.
pub(super) struct Shared<S> {
    entries: Mutex<BTreeMap<String, Entry<S>>>,
    /// Raised whenever a cluster was connected to, or no longer is.
    changed: watch::Sender<u64>,
    states: Family<State, Gauge>,
    pub(super) process: Process,
    pub(super) serial: AtomicU64,
}

/// What keepers know of the under cluster.
#[derive(Clone)]
pub(super) struct Under {
    pub(super) clusters: Watched<Cluster>,
    pub(super) secrets: Watched<PartialObjectMeta<Secret>>,
}

/// The closure that begins to watch in a cluster.
pub(super) type Attach<S> = Arc<dyn Fn(&Link) -> S + Send + Sync>;

/// All tenant clusters, and in each what the process watches. Clones share them.
pub struct TenantClusters<S>(Arc<Shared<S>>);

impl<S> Clone for TenantClusters<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> fmt::Debug for TenantClusters<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantClusters")
    }
}

impl<S: Send + Sync + 'static> TenantClusters<S> {
    /// Follows `clusters` and their kubeconfigs until the process stops. `attach` begins what the process watches in each
    /// ([`Link::watch`]) whenever one is connected to; it must not block.
    pub fn start(
        process: &Process,
        clusters: &Watched<Cluster>,
        options: &TenantOptions,
        attach: impl Fn(&Link) -> S + Send + Sync + 'static,
    ) -> Self {
        Self::start_within(process, clusters, options, Limits::default(), attach)
    }

    /// [`TenantClusters::start`] with other limits for each cluster.
    pub fn start_within(
        process: &Process,
        clusters: &Watched<Cluster>,
        options: &TenantOptions,
        limits: Limits,
        attach: impl Fn(&Link) -> S + Send + Sync + 'static,
    ) -> Self {
        let states = Family::default();
        process.metrics.register(
            "tenant_clusters",
            "Tenant clusters by whether they can be reached",
            states.clone(),
        );
        let shared = Arc::new(Shared {
            entries: Mutex::default(),
            changed: watch::Sender::new(0),
            states,
            process: process.clone(),
            serial: AtomicU64::default(),
        });
        let kubeconfigs = watcher::Config::default()
            .labels(capi::CLUSTER_NAME)
            .fields(&format!("type={}", capi::SECRET_TYPE));
        let secrets = Watched::start_with(process, Api::all(process.client.clone()), kubeconfigs, bare);
        let line = Line {
            agent: process.name,
            fence: process.fence.clone(),
            policy: Arc::new(options.clone()),
            limits,
        };
        let under = Under { clusters: clusters.clone(), secrets };
        let supervisor = Supervisor::new(shared.clone(), under, line, Arc::new(attach));
        let stop = process.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = supervisor.run() => {}
            }
        });
        Self(shared)
    }

    /// The cluster of that uid, if it is connected to. Whether it answers is another question: [`Link::health`].
    pub fn get(&self, uid: &str) -> Option<Arc<TenantCluster<S>>> {
        self.0.with(|entries| entries.get(uid)?.open.clone())
    }

    /// The cluster of that name, if it is connected to.
    pub fn named(&self, namespace: &str, name: &str) -> Option<Arc<TenantCluster<S>>> {
        self.0.with(|entries| {
            let here = |id: &ClusterId| id.namespace == namespace && id.name == name;
            entries.values().find(|entry| here(&entry.id))?.open.clone()
        })
    }

    /// All that are connected to.
    pub fn all(&self) -> Vec<Arc<TenantCluster<S>>> {
        self.0.with(|entries| entries.values().filter_map(|entry| entry.open.clone()).collect())
    }

    /// What is known of the way to the cluster of that uid; `None` when there is none, or it is being deleted.
    pub fn health(&self, uid: &str) -> Option<Health> {
        self.0.with(|entries| entries.get(uid).map(|entry| entry.health.borrow().clone()))
    }

    /// Runs `work` for every cluster that is connected to, now and later, until the process stops.
    ///
    /// `work` should return soon after [`Link::gone`], as [`Link::drive`] does; shortly later it is dropped. After a panic it
    /// is begun again, more slowly each time; what it does in other clusters goes on.
    pub async fn for_each<F, Fut>(&self, name: &'static str, work: F)
    where
        F: Fn(Arc<TenantCluster<S>>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let work = Arc::new(work);
        let mut changed = self.0.changed.subscribe();
        let mut begun = HashSet::new();
        let mut tasks = JoinSet::new();
        while !self.0.process.stop.is_cancelled() {
            changed.borrow_and_update();
            let open = self.all();
            begun.retain(|serial| open.iter().any(|cluster| cluster.link.serial == *serial));
            for cluster in open {
                if begun.insert(cluster.link.serial) {
                    let span = tracing::info_span!("tenant", cluster = %cluster.link.id);
                    tasks.spawn(attend(name, cluster, work.clone()).instrument(span));
                }
            }
            tokio::select! {
                () = self.0.process.stop.cancelled() => {}
                _ = changed.changed() => {}
                Some(_) = tasks.join_next() => {}
            }
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// Does `work` on one cluster until the cluster is gone or the work is done.
async fn attend<S, F, Fut>(name: &'static str, cluster: Arc<TenantCluster<S>>, work: Arc<F>)
where
    F: Fn(Arc<TenantCluster<S>>) -> Fut,
    Fut: Future<Output = ()>,
{
    let stop = cluster.link.stop.clone();
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN + GRACE).await;
    };
    let working = async {
        let mut panics = 0;
        loop {
            let once = AssertUnwindSafe(async { work(cluster.clone()).await });
            if once.catch_unwind().await.is_ok() {
                return;
            }
            panics += 1;
            let delay = exponential(panics, FIRST, PAUSE);
            tracing::error!(
                work = name,
                delay = delay.as_secs(),
                "a bug: it panicked (the log has the place)"
            );
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
        }
    };
    tokio::select! {
        () = working => {}
        () = overdue => tracing::warn!(work = name, "abandoned: the cluster is gone"),
    }
}

impl<S> Shared<S> {
    fn with<T>(&self, with: impl FnOnce(&mut BTreeMap<String, Entry<S>>) -> T) -> T {
        with(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, id: ClusterId, health: watch::Receiver<Health>) {
        self.with(|entries| entries.insert(id.uid.clone(), Entry { id, health, open: None }));
        self.count();
    }

    pub(super) fn remove(&self, uid: &str) {
        let removed = self.with(|entries| entries.remove(uid));
        if removed.is_some_and(|entry| entry.open.is_some()) {
            self.changed.send_modify(|n| *n += 1);
        }
        self.count();
    }

    /// The cluster is connected to, or no longer.
    pub(super) fn set(&self, uid: &str, open: Option<Arc<TenantCluster<S>>>) {
        self.with(|entries| {
            if let Some(entry) = entries.get_mut(uid) {
                entry.open = open;
            }
        });
        self.changed.send_modify(|n| *n += 1);
    }

    /// Counts the clusters by state.
    pub(super) fn count(&self) {
        let states: Vec<_> =
            self.with(|entries| entries.values().map(|entry| entry.health.borrow().state()).collect());
        for state in Health::STATES {
            let count = states.iter().filter(|one| **one == state).count();
            self.states.get_or_create(&State { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

/// Only what tells that a Secret changed.
fn bare(secret: &mut PartialObjectMeta<Secret>) {
    let meta = &mut secret.metadata;
    (meta.managed_fields, meta.labels, meta.annotations, meta.owner_references) = (None, None, None, None);
}

#[cfg(test)]
mod tests;
