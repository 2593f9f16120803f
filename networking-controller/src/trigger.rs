//! What makes a claim worth another look, as streams of references. Too many only cost passes that change nothing;
//! one too few would be a claim that waits for its slow requeue.

use std::{collections::HashMap, future::ready, sync::Arc};

use futures::{Stream, StreamExt, stream};
use kmetal_runtime::{Watchable, Watched};
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};

use crate::context::{Caches, Context};

/// The platform file, Kube-OVN's state or the gateways changed: every claim.
pub fn platform(context: &Context) -> impl Stream<Item = ()> + Send + 'static {
    let gateways = distinct(&context.caches.nodes, |node| node.metadata.labels.clone()).map(|_| ());
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
    distinct(&caches.namespaces, |namespace| {
        (namespace.metadata.deletion_timestamp.is_some(), namespace.metadata.labels.clone())
    })
    .flat_map(move |namespace| stream::iter(claims_in(&caches, &namespace.name_any())))
}

/// Only those changes in which `aspect` of the object is another than the last time, and the object's end: what it
/// stood in the way of can go on only then, and its last version looks like the one before.
pub fn distinct<K, A, F>(
    watched: &Watched<K>,
    aspect: F,
) -> impl Stream<Item = Arc<K>> + Send + 'static + use<K, A, F>
where
    K: Watchable,
    A: PartialEq + Send + 'static,
    F: Fn(&K) -> A + Send + 'static,
{
    let cache = watched.clone();
    let mut known = Known::default();
    watched.changes().filter(move |object| {
        let uid = object.uid().unwrap_or_default();
        let is_there =
            cache.get(&ObjectRef::from_obj(&**object)).is_some_and(|now| now.uid() == object.uid());
        ready(known.is_news(uid, is_there.then(|| aspect(object))))
    })
}

/// The last aspect of each object, by uid.
struct Known<A>(HashMap<String, A>);

impl<A> Default for Known<A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<A: PartialEq> Known<A> {
    /// Whether that is something else than the last time; no aspect is the object's end.
    fn is_news(&mut self, uid: String, now: Option<A>) -> bool {
        let Some(now) = now else {
            self.0.remove(&uid);
            return true;
        };
        let news = self.0.get(&uid) != Some(&now);
        self.0.insert(uid, now);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_object_is_news_though_its_last_version_is_not() {
        let mut known = Known::default();
        let mut news = |deleting| known.is_news("uid".into(), deleting);
        assert!(news(Some(false)));
        assert!(!news(Some(false)));
        assert!(news(Some(true)));
        assert!(!news(Some(true)));
        assert!(news(None));
        assert!(known.0.is_empty(), "what is gone takes no room");
    }
}
