//! What the process knows of one kind: one watch and one cache, shared by everybody in it, on every replica.
//!
//! A plain reflector is not enough for kinds of other people's CRDs. Here:
//! - a CRD that is not installed is a state ([`Presence::Missing`]), not an error loop, and when it is uninstalled at
//!   run time, what was cached stops being readable at once;
//! - an object that does not decode is set aside ([`Watched::invalid`]) and hides no other; it is *there*, though, so
//!   nobody may conclude from its absence in the cache that it was deleted ([`Watched::exists`]);
//! - whoever decides on absence reads through [`Watched::read`], which refuses when the kind is not known.
//!
//! - nothing that a server sends ends the watch: no nameless object, no list without end, and from a tenant's server no
//!   more than [`Terms::most`].
//!
//! `metadata.managedFields` is dropped to save memory, unless [`Watched::start_with`] decides otherwise. For metadata
//! only, watch `PartialObjectMeta<K>`.

use std::{
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use kube::{
    Api, Resource,
    runtime::{
        reflector::{ObjectRef, Store, store::Writer},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::follow::{Follower, Unreadable};
use crate::{
    client::WATCH_SECONDS,
    error::{Error, Result},
    metrics::Metrics,
    process::Process,
    tenant::Quote,
};

mod follow;
mod guarded;

/// A failure this old that no other followed is over: a watch that goes on where it was cut says nothing.
const TROUBLE: Duration = Duration::from_secs(25);
/// The longest pause after a failed list or watch: what comes back is seen soon.
const PAUSE: Duration = Duration::from_secs(5);

/// A kind that can be watched: any typed Kubernetes object.
pub trait Watchable:
    Resource<DynamicType: Default + Eq + Hash + Clone + Debug + Unpin + Send + Sync>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Watchable for K where
    K: Resource<DynamicType: Default + Eq + Hash + Clone + Debug + Unpin + Send + Sync>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Whether the objects of a kind are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Presence {
    /// Not listed yet, or again not yet after it was missing.
    Syncing,
    /// Listed and watched. When the API server stops answering, it stays so: the cache is then merely old.
    Present,
    /// The API server does not serve the kind, or holds more of it than is kept; the text says which, and is fit for a
    /// status.
    Missing(String),
}

/// How one cache is kept.
pub(crate) struct Terms<K> {
    /// Before the kind's name in metrics.
    pub(crate) scope: &'static str,
    /// The longest pause after a failed list or watch.
    pub(crate) pause: Duration,
    /// A list that takes longer is given up.
    pub(crate) list_within: Duration,
    /// The weight of one object, in the unit of `most`.
    pub(crate) weigh: fn(&K) -> usize,
    /// The weight of all; a server that has more is treated as if it did not serve the kind.
    pub(crate) most: usize,
    /// How to repeat the words of a server that is not trusted.
    pub(crate) quote: Option<Quote>,
}

impl<K> Default for Terms<K> {
    /// For the under cluster, which is trusted.
    fn default() -> Self {
        Self {
            scope: "",
            pause: PAUSE,
            list_within: Duration::from_hours(1),
            weigh: |_| 0,
            most: usize::MAX,
            quote: None,
        }
    }
}

#[derive(Debug, Clone)]
struct State {
    presence: Presence,
    /// Raised whenever the kind stops being present: two reads with one epoch saw the same life of the cache.
    epoch: u64,
}

struct Shared<K: Watchable> {
    /// `plural.group` (or `plural` of the core group).
    what: String,
    store: Store<K>,
    state: watch::Sender<State>,
    trouble: Mutex<Option<(String, Instant)>>,
    unreadable: Mutex<Unreadable<K>>,
    subscribers: Mutex<Vec<mpsc::UnboundedSender<Arc<K>>>>,
}

/// The cache of one kind. Clones share it.
pub struct Watched<K: Watchable>(Arc<Shared<K>>);

impl<K: Watchable> Clone for Watched<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Watchable> Debug for Watched<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watched").field(&self.0.what).finish()
    }
}

impl<K: Watchable> Watched<K> {
    /// Starts watching until the process stops. `config.timeout` is [`WATCH_SECONDS`] if unset.
    pub fn start(process: &Process, api: Api<K>, config: watcher::Config) -> Self {
        Self::start_with(process, api, config, |object| object.meta_mut().managed_fields = None)
    }

    /// [`Watched::start`] with `modify` run on every object before it is cached, to drop what is not needed.
    pub fn start_with(
        process: &Process,
        api: Api<K>,
        config: watcher::Config,
        modify: impl Fn(&mut K) + Send + Sync + 'static,
    ) -> Self {
        Self::spawn(api, config, modify, Terms::default(), &process.metrics, process.stop.clone())
    }

    pub(crate) fn spawn(
        api: Api<K>,
        mut config: watcher::Config,
        modify: impl Fn(&mut K) + Send + Sync + 'static,
        terms: Terms<K>,
        metrics: &Metrics,
        stop: CancellationToken,
    ) -> Self {
        config.timeout.get_or_insert(WATCH_SECONDS);
        let kind = K::DynamicType::default();
        let what = match (K::plural(&kind), K::group(&kind)) {
            (plural, group) if group.is_empty() => plural.into_owned(),
            (plural, group) => format!("{plural}.{group}"),
        };
        let writer = Writer::<K>::default();
        let watched = Self(Arc::new(Shared {
            what,
            store: writer.as_reader(),
            state: watch::Sender::new(State { presence: Presence::Syncing, epoch: 0 }),
            trouble: Mutex::default(),
            unreadable: Mutex::default(),
            subscribers: Mutex::default(),
        }));
        let follower = Follower::new(watched.clone(), writer, metrics, modify, terms);
        let following = async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follower.run(guarded::api(&api), config) => {}
            }
        };
        tokio::spawn(following.in_current_span());
        watched
    }

    /// `plural.group`, for texts.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Whether the kind is known now.
    pub fn presence(&self) -> Presence {
        self.0.state.borrow().presence.clone()
    }

    /// The last error of the watch while it lasts, for a gate or a condition; `None` when all is well.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(_, at)| at.elapsed() < TROUBLE).map(|(text, _)| text.clone())
    }

    /// The object, if it is cached and the kind is present. Absence proves nothing; see [`Watched::exists`].
    pub fn get(&self, object: &ObjectRef<K>) -> Option<Arc<K>> {
        self.is_present().then(|| self.0.store.get(object)).flatten()
    }

    /// [`Watched::get`] of a namespaced object.
    pub fn get_in(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectRef::new(name).within(namespace))
    }

    /// [`Watched::get`] of a cluster-scoped object.
    pub fn get_named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&ObjectRef::new(name))
    }

    /// All cached objects; none while the kind is not present.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.state_filter(|_| true)
    }

    /// The cached objects for which `wanted` holds, which must be quick: the cache is locked meanwhile.
    pub fn state_filter(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        if self.is_present() { self.0.store.state_filter(wanted) } else { Vec::new() }
    }

    /// Reads the cache for a decision: [`Error::Unknown`] unless the kind was present from before to after `read`.
    ///
    /// Use it wherever something is deleted, released or refused because an object is absent.
    pub fn read<T>(&self, read: impl FnOnce(&Store<K>) -> T) -> Result<T> {
        let before = self.known()?;
        let value = read(&self.0.store);
        if self.known()? == before { Ok(value) } else { Err(self.unknown("it was reinstalled meanwhile")) }
    }

    /// Whether the object exists, decodable or not; [`Error::Unknown`] unless the kind is present.
    pub fn exists(&self, object: &ObjectRef<K>) -> Result<bool> {
        self.read(|store| {
            // Locked over both looks: an object moves from one to the other while the lock is held.
            let unreadable = self.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
            unreadable.contains(object) || store.get(object).is_some()
        })
    }

    /// The objects that did not decode, with the decoder's message.
    pub fn invalid(&self) -> Vec<(ObjectRef<K>, String)> {
        self.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner).list()
    }

    /// Every object that is applied, deleted or listed again; starts, when first polled, with all that are cached.
    ///
    /// When an object changes, the version before it comes first: whoever maps an object to another by a field is so
    /// told of the one it left, too. Nothing is ever dropped; the queue is unbounded, so keep polling (a stream that
    /// was never polled holds nothing).
    pub fn changes(&self) -> impl Stream<Item = Arc<K>> + Send + 'static + use<K> {
        let shared = self.0.clone();
        stream::once(async move {
            let (sender, receiver) = mpsc::unbounded_channel();
            // Subscribed first and read afterwards: what changes in between comes twice, and never not at all.
            shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
            let cached = shared.store.state();
            let later = stream::unfold(receiver, |mut receiver| async move {
                receiver.recv().await.map(|object| (object, receiver))
            });
            stream::iter(cached).chain(later)
        })
        .flatten()
    }

    /// An item whenever [`Watched::presence`] changed after this call; several changes may be one item.
    pub fn presence_changes(&self) -> impl Stream<Item = ()> + Send + 'static + use<K> {
        let shared = self.0.clone();
        stream::unfold((self.0.state.subscribe(), shared), |(mut state, shared)| async move {
            state.changed().await.ok()?;
            Some(((), (state, shared)))
        })
    }

    /// Returns as soon as it is known whether the kind is present (immediately if it is).
    pub async fn settled(&self) {
        let mut state = self.0.state.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = state.wait_for(|state| state.presence != Presence::Syncing).await;
    }

    /// The raw cache, for the controller.
    pub(crate) fn store(&self) -> Store<K> {
        self.0.store.clone()
    }

    fn is_present(&self) -> bool {
        self.0.state.borrow().presence == Presence::Present
    }

    fn known(&self) -> Result<u64> {
        let state = self.0.state.borrow();
        match &state.presence {
            Presence::Present => Ok(state.epoch),
            Presence::Syncing => {
                drop(state);
                Err(self.unknown(&self.trouble().unwrap_or_else(|| "not listed yet".to_owned())))
            }
            Presence::Missing(why) => Err(self.unknown(why)),
        }
    }

    fn unknown(&self, why: &str) -> Error {
        Error::Unknown { what: self.0.what.clone(), why: why.to_owned() }
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
