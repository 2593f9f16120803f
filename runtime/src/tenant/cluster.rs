//! One tenant cluster that is connected to: its client, what is watched in it, and reconciling there.

use std::{fmt, sync::Arc, time::Duration};

use futures::{Stream, stream};
use kube::{
    Api, Client,
    runtime::{controller::Action, watcher},
};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Limits, health::Health, quote::Quote, weight};
use crate::{
    controller::{Around, Drive, drive_around},
    error::Result,
    event::Events,
    process::Process,
    watched::{Terms, Watchable, Watched},
};

/// Most reconciles at a time in one cluster, for each controller.
pub const CONCURRENCY: u16 = 2;
/// A reconcile that takes longer is dropped, as a crash would drop it, and tried again.
pub const PASS: Duration = Duration::from_mins(1);
/// The longest delay after failures of one object.
const RETRY: Duration = Duration::from_mins(1);
/// The longest pause after a failed list or watch.
const PAUSE: Duration = Duration::from_secs(20);
/// A list that takes longer is given up.
const LIST: Duration = Duration::from_mins(1);
/// Objects on one page of a list: together they must not be more than [`Limits::answer`].
const PAGE: u32 = 50;

/// Which Cluster: another one of the same name has another uid.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClusterId {
    /// Namespace of the Cluster on the under cluster: its tenant's Environment.
    pub namespace: String,
    /// Name of the Cluster.
    pub name: String,
    /// Uid of the Cluster.
    pub uid: String,
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A tenant cluster as long as one kubeconfig leads to it, and what the process watches in it.
#[derive(Debug)]
pub struct TenantCluster<S> {
    /// The way to it.
    pub link: Link,
    /// What is watched in it: what the closure given to [`super::TenantClusters::start`] returned.
    pub seen: S,
}

/// The way to one tenant cluster. Ends when the Cluster or its kubeconfig goes or changes; clones are the same way.
#[derive(Clone)]
pub struct Link {
    pub(super) id: ClusterId,
    /// Unique in the process: another kubeconfig, another number.
    pub(super) serial: u64,
    pub(super) client: Client,
    pub(super) health: watch::Receiver<Health>,
    pub(super) limits: Limits,
    pub(super) quote: Quote,
    pub(super) stop: CancellationToken,
    pub(super) process: Process,
    pub(super) events: Events,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).field("serial", &self.serial).finish_non_exhaustive()
    }
}

impl Link {
    /// Which cluster.
    pub fn id(&self) -> &ClusterId {
        &self.id
    }

    /// A client for it: every request ends in time, none is repeated, writes leave only while this process leads.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Events inside the cluster. What they say is read by its tenant.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Whether it answers.
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// Whether it answered the last time it was asked.
    pub fn is_reachable(&self) -> bool {
        *self.health.borrow() == Health::Reachable
    }

    /// Returns when this way has ended. Whatever was begun for it should end, too.
    pub async fn gone(&self) {
        self.stop.cancelled().await;
    }

    /// The text of an error of this cluster as it may be logged and shown: short, and without our token.
    pub fn say(&self, text: &str) -> String {
        self.quote.say(text)
    }

    /// Watches a kind in this cluster, with `modify` run on every object before it is kept; drop there what is not needed.
    ///
    /// At most [`Limits::cache`] is kept; a cluster that has more is treated as if it did not serve the kind
    /// ([`crate::Presence::Missing`]). Ends with this link.
    pub fn watch<K: Watchable + Serialize>(
        &self,
        api: Api<K>,
        config: watcher::Config,
        modify: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Watched<K> {
        let terms = Terms {
            scope: "tenant/",
            pause: PAUSE,
            list_within: LIST,
            weigh: weight::of_object,
            most: self.limits.cache,
            quote: Some(self.quote.clone()),
        };
        let modify = move |object: &mut K| {
            object.meta_mut().managed_fields = None;
            modify(object);
        };
        let page = config.page_size.map_or(PAGE, |size| size.min(PAGE));
        let config = watcher::Config { page_size: Some(page), timeout: None, ..config };
        Watched::spawn(api, config, modify, terms, &self.process.metrics, self.stop.clone())
    }

    /// [`crate::drive`] for objects of this cluster, until this link ends.
    ///
    /// At most [`CONCURRENCY`] at a time, each at most [`PASS`]. While the cluster does not answer none is begun, and when it
    /// does again all are. A failure is logged and counted, and not told as an Event: it may tell of the platform.
    pub async fn drive<K, Ctx, F, Fut>(&self, drive: Drive<K>, context: Arc<Ctx>, reconcile: F)
    where
        K: Watchable,
        Ctx: Send + Sync + 'static,
        F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action>> + Send + 'static,
    {
        let around = Around {
            metrics: self.process.metrics.clone(),
            events: None,
            stop: self.stop.clone(),
            within: Some(PASS),
            longest: RETRY,
            quote: Some(self.quote.clone()),
        };
        let drive = drive.at_most(CONCURRENCY).everything_on(self.recoveries());
        let health = self.health.clone();
        let reachable = move |object, context| {
            let pass = (*health.borrow() == Health::Reachable).then(|| reconcile(object, context));
            async {
                match pass {
                    Some(pass) => pass.await,
                    None => Ok(Action::await_change()),
                }
            }
        };
        drive_around(around, drive, context, reachable).await;
    }

    /// An item whenever it answers again.
    fn recoveries(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        stream::unfold((self.health.clone(), false), |(mut health, reachable)| async move {
            let mut before = reachable;
            loop {
                let now = *health.borrow_and_update() == Health::Reachable;
                if now && !before {
                    return Some(((), (health, true)));
                }
                before = now;
                health.changed().await.ok()?;
            }
        })
    }
}
