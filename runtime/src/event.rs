//! Events for people, on the object they will `kubectl describe`.
//!
//! kube's own recorder is not used: its cache ignores the note, so a changed message is never shown and the old one is
//! sent again. Here the note is part of the key: the same note again raises the count of the one Event (at most one
//! write a minute), another note is another Event. Publishing never fails a reconcile.
//!
//! RBAC: `create` and `patch` on `events` in `events.k8s.io`; Events of cluster-scoped objects land in `default`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
pub use kube::runtime::events::EventType;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::Instant;

use crate::{error, metrics::Metrics};

/// Longest note in bytes; the server refuses more.
const NOTE: usize = 1000;
/// Longest reason, action and reporter in bytes; the server refuses more.
const WORD: usize = 128;
/// Repetitions within this time are only counted.
const QUIET: Duration = Duration::from_mins(1);
/// An Event not repeated for this long is forgotten, and a repetition is a new Event (the server keeps them an hour).
const FORGET: Duration = Duration::from_mins(30);
/// Most that is kept of what a tenant's cluster was told: there, anybody can make objects to tell of. When there is more,
/// repetitions are Events of their own.
const MOST: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    uid: String,
    name: String,
    reason: String,
    action: String,
    note: String,
    warning: bool,
}

#[derive(Clone, Debug)]
struct Told {
    name: String,
    count: i32,
    written: Instant,
}

/// Publishes Events of one process. Clones share what was already told.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: String,
    instance: String,
    told: Arc<Mutex<HashMap<Key, Told>>>,
    /// Most that is kept of what was told.
    most: usize,
    metrics: Metrics,
}

/// What is to be written.
enum Write {
    Nothing,
    New,
    Repeat { name: String, count: i32 },
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl Events {
    /// `controller` is the process's name, `instance` the pod's.
    pub fn new(client: Client, controller: &str, instance: &str, metrics: Metrics) -> Self {
        Self {
            client,
            controller: cut(controller, WORD).to_owned(),
            instance: cut(instance, WORD).to_owned(),
            told: Arc::default(),
            most: usize::MAX,
            metrics,
        }
    }

    /// The same reporter in a tenant's cluster.
    pub(crate) fn towards(&self, client: Client) -> Self {
        let there = Self::new(client, &self.controller, &self.instance, self.metrics.clone());
        Self { most: MOST, ..there }
    }

    /// Tells `note` about `regarding`. `reason` and `action` are CamelCase words. A failure is only logged.
    pub async fn publish(
        &self,
        regarding: &ObjectReference,
        kind: EventType,
        reason: &str,
        note: &str,
        action: &str,
    ) {
        let key = Key {
            uid: regarding.uid.clone().unwrap_or_default(),
            name: regarding.name.clone().unwrap_or_default(),
            reason: cut(reason, WORD).to_owned(),
            action: cut(action, WORD).to_owned(),
            note: cut(note, NOTE).to_owned(),
            warning: kind == EventType::Warning,
        };
        let namespace = regarding.namespace.as_deref().unwrap_or("default");
        let api = Api::<Event>::namespaced(self.client.clone(), namespace);
        let outcome = match self.decide(&key, Instant::now()) {
            Write::Nothing => return,
            Write::New => self.create(&api, regarding, key).await,
            Write::Repeat { name, count } => match repeat(&api, &name, count).await {
                // The server has dropped it (they live an hour).
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    self.create(&api, regarding, key).await
                }
                outcome => outcome,
            },
        };
        if let Err(failure) = outcome {
            self.metrics.event_lost();
            tracing::debug!(error = error::describe(&failure), reason, note, "event not published");
        }
    }

    fn decide(&self, key: &Key, now: Instant) -> Write {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, told| now.saturating_duration_since(told.written) < FORGET);
        let Some(told) = told.get_mut(key) else { return Write::New };
        told.count = told.count.saturating_add(1);
        if now.saturating_duration_since(told.written) < QUIET {
            return Write::Nothing;
        }
        told.written = now;
        Write::Repeat { name: told.name.clone(), count: told.count }
    }

    async fn create(
        &self,
        api: &Api<Event>,
        regarding: &ObjectReference,
        key: Key,
    ) -> Result<(), kube::Error> {
        let now = Timestamp::now();
        // 253 is the longest name; the object's own may already be that long.
        let name = format!("{}.{:x}", cut(&key.name, 200).trim_end_matches(['.', '-']), now.as_nanosecond());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: api.namespace().map(ToOwned::to_owned),
                ..ObjectMeta::default()
            },
            action: Some(key.action.clone()),
            event_time: Some(MicroTime(now)),
            note: Some(key.note.clone()),
            reason: Some(key.reason.clone()),
            regarding: Some(regarding.clone()),
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(if key.warning { "Warning" } else { "Normal" }.to_owned()),
            ..Event::default()
        };
        api.create(&PostParams::default(), &event).await?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= self.most {
            told.clear();
        }
        told.insert(key, Told { name, count: 1, written: Instant::now() });
        Ok(())
    }
}

async fn repeat(api: &Api<Event>, name: &str, count: i32) -> Result<(), kube::Error> {
    let series = EventSeries { count, last_observed_time: MicroTime(Timestamp::now()) };
    api.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "series": series }))).await.map(drop)
}

/// The longest beginning of `text` with at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests;
