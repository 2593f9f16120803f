//! One kind as it is now, followed by a watch: thousands of objects are waited for without listing them again and
//! again, which would be a load of its own on the API server that is measured.

use std::{fmt::Debug, hash::Hash, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use futures::StreamExt;
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt, reflector,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

/// A followed kind; it ends when dropped.
pub struct Watching<K: Resource<DynamicType = ()> + Clone + 'static> {
    store: Store<K>,
    changed: watch::Receiver<()>,
    task: JoinHandle<()>,
}

impl<K> Watching<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    ObjectRef<K>: Hash + Eq,
{
    /// Follows all that this `Api` lists.
    pub async fn start(api: Api<K>) -> Result<Self> {
        let (store, writer) = reflector::store();
        let (sender, changed) = watch::channel(());
        let task = tokio::spawn(async move {
            let events = reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
            events.for_each(async |_| sender.send_replace(())).await;
        });
        store.wait_until_ready().await?;
        Ok(Self { store, changed, task })
    }

    /// All objects as they are now.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// Waits until `probe` gives a value; it is asked whenever an object has changed.
    pub async fn until<T>(
        &self,
        what: &str,
        patience: Duration,
        mut probe: impl FnMut(&[Arc<K>]) -> Option<T>,
    ) -> Result<T> {
        let deadline = Instant::now() + patience;
        let mut changed = self.changed.clone();
        loop {
            changed.mark_unchanged();
            if let Some(value) = probe(&self.all()) {
                return Ok(value);
            }
            if timeout_at(deadline, changed.changed()).await.is_err() {
                bail!("not within {patience:?}: {what}");
            }
        }
    }

    /// Waits until so many objects are as wanted, of those that `counts`.
    pub async fn until_count(
        &self,
        what: &str,
        patience: Duration,
        wanted: usize,
        counts: impl Fn(&K) -> bool,
    ) -> Result<()> {
        // Looked at now and then: at each of thousands of changes it would cost more than what is measured.
        let deadline = Instant::now() + patience;
        loop {
            let count = self.store.state_filter(&counts).len();
            if count == wanted {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("not within {patience:?}: {what} ({count} of {wanted})");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl<K: Resource<DynamicType = ()> + Clone + 'static> Drop for Watching<K> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
