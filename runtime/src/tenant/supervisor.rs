//! Which Clusters have a keeper: one task that only looks at caches and never waits for any cluster.

use std::{collections::HashMap, sync::Arc};

use futures::{StreamExt, stream};
use kmetal_crds::foreign::capi;
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    ClusterId,
    clusters::{Attach, Shared, Under},
    connect::Line,
    health::Health,
    keeper::Keeper,
};
use crate::Presence;

/// A Cluster that has a keeper.
struct Running {
    uid: String,
    poke: Arc<Notify>,
    stop: CancellationToken,
}

/// Namespace and name of a Cluster.
type Key = (String, String);

/// See the module.
pub(super) struct Supervisor<S> {
    shared: Arc<Shared<S>>,
    under: Under,
    line: Line,
    attach: Attach<S>,
    running: HashMap<Key, Running>,
}

impl<S: Send + Sync + 'static> Supervisor<S> {
    pub(super) fn new(shared: Arc<Shared<S>>, under: Under, line: Line, attach: Attach<S>) -> Self {
        Self { shared, under, line, attach, running: HashMap::new() }
    }

    /// Ends with the caches.
    pub(super) async fn run(mut self) {
        let Under { clusters, secrets } = self.under.clone();
        let of_cluster = clusters.changes().map(|cluster| key(&*cluster, cluster.name_any()));
        let of_secret = secrets.changes().filter_map(|secret| {
            let cluster = capi::cluster_of_secret(&secret.name_any()).map(ToOwned::to_owned);
            std::future::ready(cluster.and_then(|cluster| key(&*secret, cluster)))
        });
        let presence = stream::select(clusters.presence_changes(), secrets.presence_changes());
        let mut changes = stream::select_all([
            of_cluster.filter_map(std::future::ready).map(Some).boxed(),
            of_secret.map(Some).boxed(),
            presence.map(|()| None).boxed(),
        ]);
        while let Some(change) = changes.next().await {
            match change {
                Some(key) => self.judge(key),
                None => self
                    .running
                    .keys()
                    .cloned()
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|key| self.judge(key)),
            }
        }
    }

    /// Starts, wakes or ends the keeper of one Cluster.
    fn judge(&mut self, key: Key) {
        let (namespace, name) = &key;
        let clusters = &self.under.clusters;
        let reference = ObjectRef::new(name).within(namespace);
        let cluster = clusters.get(&reference);
        let wanted = match &cluster {
            Some(cluster) => cluster.uid().filter(|_| !cluster.is_deleting()),
            // Not known is not gone: an old keeper goes on while the kind is listed again, or one does not decode.
            None if matches!(clusters.presence(), Presence::Syncing) => return,
            None if clusters.exists(&reference).unwrap_or(false) => return,
            None => None,
        };
        if let Some(running) = self.running.get(&key) {
            if wanted.as_ref() == Some(&running.uid) {
                return running.poke.notify_one();
            }
            running.stop.cancel();
            self.running.remove(&key);
        }
        if let Some(uid) = wanted {
            let running = self.begin(ClusterId { namespace: namespace.clone(), name: name.clone(), uid });
            self.running.insert(key, running);
        }
    }

    fn begin(&self, id: ClusterId) -> Running {
        let running = Running {
            uid: id.uid.clone(),
            poke: Arc::default(),
            stop: self.shared.process.stop.child_token(),
        };
        let span = tracing::info_span!("tenant", cluster = %id);
        let (health, seen) = watch::channel(Health::Waiting("it was just found".to_owned()));
        self.shared.add(id.clone(), seen);
        let keeper = Keeper {
            id,
            shared: self.shared.clone(),
            under: self.under.clone(),
            line: self.line.clone(),
            attach: self.attach.clone(),
            health,
            poke: running.poke.clone(),
            stop: running.stop.clone(),
        };
        tokio::spawn(keeper.run().instrument(span));
        running
    }
}

fn key(object: &impl ResourceExt, name: String) -> Option<Key> {
    Some((object.namespace()?, name))
}
