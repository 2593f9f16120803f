//! Changes outside of a tenant cluster that concern objects inside of it: who sees the change names the cluster and the
//! object, who reconciles there hears of it.

use std::{
    collections::HashMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{Stream, StreamExt, stream};
use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::watched::Watchable;

/// By the uid of the Cluster; several controllers may listen in one.
type Listeners<K> = HashMap<String, Vec<UnboundedSender<ObjectRef<K>>>>;

/// Requests to reconcile, by the uid of the Cluster. Clones share them.
///
/// One to a cluster that nobody listens to is dropped: who begins to listen reconciles everything anyway. Repetitions are
/// made one by the controller that takes them.
pub struct Requests<K: Watchable> {
    listeners: Arc<Mutex<Listeners<K>>>,
}

impl<K: Watchable> Clone for Requests<K> {
    fn clone(&self) -> Self {
        Self { listeners: self.listeners.clone() }
    }
}

impl<K: Watchable> Default for Requests<K> {
    fn default() -> Self {
        Self { listeners: Arc::default() }
    }
}

impl<K: Watchable> Debug for Requests<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Requests")
    }
}

impl<K: Watchable> Requests<K> {
    /// Asks that `object` of the cluster be reconciled.
    pub fn ask(&self, cluster_uid: &str, object: &ObjectRef<K>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_cluster) = listeners.get_mut(cluster_uid) else { return };
        of_cluster.retain(|listener| listener.send(object.clone()).is_ok());
        if of_cluster.is_empty() {
            listeners.remove(cluster_uid);
        }
    }

    /// What is asked of the cluster from now on; for [`crate::Drive::on`].
    pub fn of(&self, cluster_uid: &str) -> impl Stream<Item = ObjectRef<K>> + Send + 'static + use<K> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        // Clusters come and go: those that are gone are forgotten when another comes.
        listeners.retain(|_, of_cluster| {
            of_cluster.retain(|listener| !listener.is_closed());
            !of_cluster.is_empty()
        });
        listeners.entry(cluster_uid.to_owned()).or_default().push(sender);
        drop(listeners);
        let receive = |mut receiver: mpsc::UnboundedReceiver<_>| async move {
            receiver.recv().await.map(|object| (object, receiver))
        };
        stream::unfold(receiver, receive).boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use k8s_openapi::api::core::v1::Service;

    use super::*;

    fn service(name: &str) -> ObjectRef<Service> {
        ObjectRef::new(name).within("ns")
    }

    #[test]
    fn a_request_reaches_the_cluster_it_names_and_no_other() {
        let requests = Requests::default();
        let (mut one, mut two) = (requests.of("1"), requests.of("2"));
        requests.ask("1", &service("a"));
        requests.ask("3", &service("b"));
        assert_eq!(one.next().now_or_never(), Some(Some(service("a"))));
        assert_eq!(one.next().now_or_never(), None);
        assert_eq!(two.next().now_or_never(), None);
    }

    #[test]
    fn clusters_that_are_gone_are_forgotten() {
        let requests = Requests::<Service>::default();
        for uid in 0..100 {
            drop(requests.of(&uid.to_string()));
        }
        assert_eq!(requests.listeners.lock().unwrap().len(), 1);
        requests.ask("99", &service("a"));
        assert!(requests.listeners.lock().unwrap().is_empty());
    }
}
