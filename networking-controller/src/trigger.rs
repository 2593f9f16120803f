//! What makes a claim worth another look, as streams of references. Too many only cost passes that change nothing;
//! one too few would be a claim that waits for its slow requeue.

use std::{collections::HashMap, future::ready, sync::Arc};

use futures::{Stream, StreamExt, stream};
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};

use crate::context::{Caches, Context};

/// The platform file, Kube-OVN's state or the gateways changed: every claim.
pub fn platform(context: &Context) -> impl Stream<Item = ()> + Send + 'static {
    let gateways = distinct(context.caches.nodes.changes(), |node| node.metadata.labels.clone()).map(|_| ());
    stream::select_all([
        context.platform.changes().boxed(),
        context.kube_ovn.changes().boxed(),
        gateways.boxed(),
    ])
}

/// A namespace got or lost its Tenant or began to be deleted: the claims in it.
pub fn namespaces<K, F>(context: &Context, claims_in: F) -> impl Stream<Item = ObjectRef<K>> + Send + 'static
where
    K: Resource<DynamicType = ()> + 'static,
    F: Fn(&Caches, &str) -> Vec<ObjectRef<K>> + Send + 'static,
{
    let caches = context.caches.clone();
    distinct(caches.namespaces.changes(), |namespace| {
        (namespace.metadata.deletion_timestamp.is_some(), namespace.metadata.labels.clone())
    })
    .flat_map(move |namespace| stream::iter(claims_in(&caches, &namespace.name_any())))
}

/// Only those changes in which `aspect` of the object is another than the last time.
pub fn distinct<K, A>(
    changes: impl Stream<Item = Arc<K>> + Send + 'static,
    aspect: impl Fn(&K) -> A + Send + 'static,
) -> impl Stream<Item = Arc<K>> + Send + 'static
where
    K: Resource + Send + Sync + 'static,
    A: PartialEq + Send + 'static,
{
    let mut last: HashMap<String, A> = HashMap::new();
    changes.filter(move |object| {
        let uid = object.meta().uid.clone().unwrap_or_default();
        let now = aspect(object);
        let news = last.get(&uid) != Some(&now);
        last.insert(uid, now);
        ready(news)
    })
}
