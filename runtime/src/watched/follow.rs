//! The one task behind a [`Watched`]: takes the watcher's events, is the only writer of the cache and of its state.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    runtime::{
        reflector::{ObjectRef, store::Writer},
        watcher::{self, Event, watcher},
    },
};
use tokio::time::Instant;

use super::{Presence, Terms, Watchable, Watched, guarded::Guarded};
use crate::{
    backoff::exponential,
    error,
    metrics::{Counted, Metrics},
};

/// The first pause.
const FIRST: Duration = Duration::from_millis(500);
/// After this long without a failure the next pause is the first again.
const CALM: Duration = Duration::from_secs(30);
/// What the note of an undecodable object of a tenant weighs.
const NOTE: usize = 1024;
/// The longest name, and the longest version that is compared.
const NAME: usize = 253;

/// The objects that did not decode.
pub(super) struct Unreadable<K: Watchable> {
    seen: HashMap<ObjectRef<K>, Bad>,
    /// Those of a list that is under way.
    listing: HashMap<ObjectRef<K>, Bad>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bad {
    version: Option<String>,
    text: String,
}

impl<K: Watchable> Default for Unreadable<K> {
    fn default() -> Self {
        Self { seen: HashMap::new(), listing: HashMap::new() }
    }
}

impl<K: Watchable> Unreadable<K> {
    pub(super) fn contains(&self, object: &ObjectRef<K>) -> bool {
        self.seen.contains_key(object)
    }

    pub(super) fn list(&self) -> Vec<(ObjectRef<K>, String)> {
        self.seen.iter().map(|(object, bad)| (object.clone(), bad.text.clone())).collect()
    }
}

/// See the module.
pub(super) struct Follower<K: Watchable, F> {
    watched: Watched<K>,
    writer: Writer<K>,
    metrics: Metrics,
    counted: Counted,
    modify: F,
    terms: Terms<K>,
    /// The weight of what is cached, and of a list that is under way.
    weight: usize,
    listing: usize,
}

/// Why there is no next event.
enum Failure {
    /// The watcher's own.
    Watch(watcher::Error),
    /// A list that did not end in time.
    Endless,
    /// The server has more than is kept.
    TooMuch,
}

impl<K: Watchable, F: Fn(&mut K)> Follower<K, F> {
    pub(super) fn new(
        watched: Watched<K>,
        writer: Writer<K>,
        metrics: &Metrics,
        modify: F,
        terms: Terms<K>,
    ) -> Self {
        let counted = metrics.watched(&format!("{}{}", terms.scope, watched.what()));
        Self { watched, writer, metrics: metrics.clone(), counted, modify, terms, weight: 0, listing: 0 }
    }

    /// Never returns. A watcher that met a 404 is replaced by a fresh one: it would go on from a resource version of
    /// the CRD's former life.
    pub(super) async fn run(mut self, api: Api<Guarded<K>>, config: watcher::Config) {
        let mut failures = 0;
        let mut failed = Instant::now();
        loop {
            let mut events = std::pin::pin!(watcher(api.clone(), config.clone()));
            // When the list that is under way is given up.
            let mut due = None;
            loop {
                let event = match due {
                    Some(due) => tokio::time::timeout_at(due, events.next()).await,
                    None => Ok(events.next().await),
                };
                let failure = match event {
                    Ok(None) => break,
                    Ok(Some(Ok(event))) => {
                        match event {
                            Event::Init => due = Some(Instant::now() + self.terms.list_within),
                            Event::InitDone => due = None,
                            _ => {}
                        }
                        match self.take(event) {
                            Ok(()) => continue,
                            Err(failure) => failure,
                        }
                    }
                    Ok(Some(Err(error))) => Failure::Watch(error),
                    Err(_) => Failure::Endless,
                };
                failures = if failed.elapsed() > CALM { 1 } else { failures + 1 };
                failed = Instant::now();
                let code = self.note(&failure);
                let pause = match (&failure, code) {
                    // Too old a version is no trouble of the server's: the list may follow at once.
                    (_, Some(410)) => FIRST,
                    (Failure::TooMuch, _) => self.terms.pause,
                    _ => exponential(failures, FIRST, self.terms.pause),
                };
                tokio::time::sleep(pause).await;
                if code == Some(404) || !matches!(failure, Failure::Watch(_)) {
                    break;
                }
            }
        }
    }

    /// Takes note of a failure; returns the status code if the server gave one.
    fn note(&mut self, failure: &Failure) -> Option<u16> {
        let what = self.watched.what().to_owned();
        let (text, class, code) = match failure {
            Failure::Watch(
                watcher::Error::InitialListFailed(error)
                | watcher::Error::WatchStartFailed(error)
                | watcher::Error::WatchFailed(error),
            ) => told(error),
            Failure::Watch(watcher::Error::WatchError(status)) => told(&kube::Error::Api(status.clone())),
            Failure::Watch(error @ watcher::Error::NoResourceVersion) => (error.to_string(), "other", None),
            Failure::Endless => {
                let within = self.terms.list_within.as_secs();
                (format!("the list of {what} did not end within {within} s"), "timeout", None)
            }
            Failure::TooMuch => (format!("there are more {what} than kMetal keeps"), "other", None),
        };
        let text = self.quoted(text);
        self.metrics.watch_failed(&format!("{}{what}", self.terms.scope), class);
        match (failure, code) {
            (Failure::TooMuch, _) => self.go_missing(&text),
            (_, Some(404)) => self.go_missing(&format!("the API server does not serve {what}")),
            (_, Some(410)) => tracing::debug!(kind = what, error = text, "listing again"),
            _ => {
                if self.set_trouble(Some(&text)) {
                    tracing::warn!(kind = what, error = text, "watch failed; trying again");
                }
            }
        }
        code
    }

    fn go_missing(&mut self, why: &str) {
        let missing = Presence::Missing(why.to_owned());
        let changed = self.watched.0.state.send_if_modified(|state| {
            let changed = state.presence != missing;
            state.epoch += u64::from(state.presence == Presence::Present);
            state.presence = missing;
            changed
        });
        // Emptied after the state says so: no reader takes the emptiness for truth.
        self.writer.apply_watcher_event(&Event::Init);
        self.writer.apply_watcher_event(&Event::InitDone);
        *self.watched.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Unreadable::default();
        (self.weight, self.listing) = (0, 0);
        self.set_trouble(None);
        self.count();
        if changed {
            tracing::warn!(kind = self.watched.what(), why, "this kind is not to be had; waiting for it");
        }
    }

    fn take(&mut self, event: Event<Guarded<K>>) -> Result<(), Failure> {
        match event {
            Event::Init => {
                self.listing = 0;
                self.unreadable(|unreadable| unreadable.listing.clear());
                self.writer.apply_watcher_event(&Event::Init);
                return Ok(());
            }
            Event::InitApply(object) => {
                if let Some(object) = self.decode(object, true) {
                    self.listing += (self.terms.weigh)(&object);
                    self.writer.apply_watcher_event(&Event::InitApply(object));
                }
                return self.bounded(self.listing, |unreadable| unreadable.listing.len());
            }
            Event::InitDone => self.listed(),
            Event::Apply(object) => self.applied(object),
            Event::Delete(object) => self.deleted(object),
        }
        self.bounded(self.weight, |unreadable| unreadable.seen.len())?;
        self.set_trouble(None);
        self.count();
        Ok(())
    }

    fn bounded(&self, weight: usize, unreadable: impl Fn(&Unreadable<K>) -> usize) -> Result<(), Failure> {
        let notes = self.unreadable(|notes| unreadable(notes)).saturating_mul(NOTE);
        if weight.saturating_add(notes) > self.terms.most { Err(Failure::TooMuch) } else { Ok(()) }
    }

    /// The list is complete: it replaces the cache, and everybody hears of all that is in it and all that left it.
    fn listed(&mut self) {
        self.weight = std::mem::take(&mut self.listing);
        let before = self.watched.0.store.state();
        // Together, so that nobody sees an object in neither place.
        let mut unreadable = self.watched.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        unreadable.seen = std::mem::take(&mut unreadable.listing);
        self.writer.apply_watcher_event(&Event::InitDone);
        drop(unreadable);
        let what = self.watched.what();
        let arrived = self.watched.0.state.send_if_modified(|state| {
            std::mem::replace(&mut state.presence, Presence::Present) != Presence::Present
        });
        if arrived {
            tracing::info!(kind = what, objects = self.watched.0.store.len(), "listed");
        }
        for old in before {
            let now = self.watched.0.store.get(&ObjectRef::from_obj(&*old));
            if now.is_none_or(|now| now.resource_version() != old.resource_version()) {
                self.tell(&old);
            }
        }
        for object in self.watched.0.store.state() {
            self.tell(&object);
        }
    }

    fn applied(&mut self, object: Guarded<K>) {
        let Some(key) = reference(&object) else { return };
        let before = self.watched.0.store.get(&key);
        match self.decode(object, false) {
            Some(object) => {
                let mut unreadable = self.watched.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
                unreadable.seen.remove(&key);
                self.writer.apply_watcher_event(&Event::Apply(object));
            }
            // What was cached is no longer true, and what is true cannot be read.
            None => {
                if let Some(before) = &before {
                    self.writer.apply_watcher_event(&Event::Delete((**before).clone()));
                }
            }
        }
        let now = self.watched.0.store.get(&key);
        self.exchange(before.as_deref(), now.as_deref());
        for object in before.into_iter().chain(now) {
            self.tell(&object);
        }
    }

    fn deleted(&mut self, object: Guarded<K>) {
        let Some(key) = reference(&object) else { return };
        let before = self.watched.0.store.get(&key);
        self.unreadable(|unreadable| unreadable.seen.remove(&key));
        self.exchange(before.as_deref(), None);
        let last = match object.0.0 {
            Ok(mut object) => {
                (self.modify)(&mut object);
                Some(Arc::new(object))
            }
            Err(_) => before,
        };
        if let Some(last) = last {
            self.writer.apply_watcher_event(&Event::Delete((*last).clone()));
            self.tell(&last);
        }
    }

    /// The weight of the cache after `now` took the place of `before`.
    fn exchange(&mut self, before: Option<&K>, now: Option<&K>) {
        let weigh = |object: Option<&K>| object.map_or(0, self.terms.weigh);
        self.weight = self.weight.saturating_sub(weigh(before)) + weigh(now);
    }

    /// The object, or `None` with a note of why it does not decode; logged once per version of the object.
    fn decode(&self, object: Guarded<K>, listing: bool) -> Option<K> {
        let key = reference(&object)?;
        match object.0.0 {
            Ok(mut object) => {
                (self.modify)(&mut object);
                Some(object)
            }
            Err(invalid) => {
                let version = invalid.metadata.resource_version.filter(|version| version.len() <= NAME);
                let bad = Bad { version, text: self.quoted(invalid.error) };
                let known = self.unreadable(|unreadable| {
                    let known = unreadable.seen.get(&key) == Some(&bad);
                    let target = if listing { &mut unreadable.listing } else { &mut unreadable.seen };
                    target.insert(key.clone(), bad.clone());
                    known
                });
                let kind = self.watched.what();
                match &self.terms.quote {
                    _ if known => {}
                    // A tenant's server may send any number of them.
                    Some(_) => {
                        tracing::debug!(kind, object = %key, error = bad.text, "object does not decode");
                    }
                    None => {
                        tracing::warn!(kind, object = %key, error = bad.text, "object does not decode; it is set aside");
                    }
                }
                None
            }
        }
    }

    fn quoted(&self, text: String) -> String {
        match &self.terms.quote {
            Some(quote) => quote.say(&text),
            None => text,
        }
    }

    fn tell(&self, object: &Arc<K>) {
        let mut subscribers = self.watched.0.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain(|subscriber| subscriber.send(object.clone()).is_ok());
    }

    /// True when the text is another than before.
    fn set_trouble(&self, now: Option<&str>) -> bool {
        let mut trouble = self.watched.0.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *trouble, now.map(|text| (text.to_owned(), Instant::now())));
        before.as_ref().map(|(text, _)| text.as_str()) != now
    }

    fn unreadable<T>(&self, with: impl FnOnce(&mut Unreadable<K>) -> T) -> T {
        with(&mut self.watched.0.unreadable.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn count(&mut self) {
        let invalid = self.unreadable(|unreadable| unreadable.seen.len());
        self.counted.set(self.watched.0.store.len(), invalid);
    }
}

fn told(error: &kube::Error) -> (String, &'static str, Option<u16>) {
    let code = match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    };
    (error::describe(error), error::class_of(error), code)
}

/// `None` for an object that no API server has: the cache could not hold it, and no name is that long.
fn reference<K: Watchable>(object: &Guarded<K>) -> Option<ObjectRef<K>> {
    let meta = object.meta();
    let named = |name: &&str| !name.is_empty() && name.len() <= NAME;
    let reference = ObjectRef::new(meta.name.as_deref().filter(named)?);
    match meta.namespace.as_deref() {
        Some(namespace) => named(&namespace).then(|| reference.within(namespace)),
        None => Some(reference),
    }
}
