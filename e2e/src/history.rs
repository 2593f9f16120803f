//! Every stored version of every object of some kinds, from a moment on.
//!
//! A watch never skips a version, so an invariant ("the drop policies are never absent") can be checked on all of
//! them and not only on the last. Where a watch cannot go on (a restarted API server), the versions between are
//! read one by one ([`gap`]); where that cannot be done either (compaction), judging the history is an error, never
//! a silent gap. What is true of single versions or of all objects together is asked of a [`Replay`].

mod gap;
mod replay;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, WatchParams},
    core::{ApiResource, DynamicObject, WatchEvent},
};
use tokio::task::JoinHandle;

pub use self::replay::{Moment, Replay};
use crate::wait::{PATIENCE, eventually};

/// One version of one object.
#[derive(Debug, Clone)]
pub struct Version {
    /// The object; for a deletion, its last state.
    pub object: DynamicObject,
    /// Whether this is its end.
    pub deleted: bool,
}

#[derive(Debug, Default)]
struct Record {
    /// The revision of the list that it begins with.
    since: u64,
    versions: Vec<Version>,
    failure: Option<String>,
}

#[derive(Debug)]
struct Recorder {
    api: Api<DynamicObject>,
    record: Arc<Mutex<Record>>,
    task: JoinHandle<()>,
}

/// A recording; it ends when dropped.
#[derive(Debug)]
pub struct History {
    recorders: HashMap<String, Recorder>,
}

impl History {
    /// Records these kinds in all namespaces. What exists already counts as a first version.
    pub async fn record(client: &Client, kinds: &[ApiResource]) -> Result<Self> {
        let mut recorders = HashMap::new();
        for kind in kinds {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), kind);
            let list =
                api.list(&ListParams::default()).await.with_context(|| format!("list {}", kind.plural))?;
            let from = list.metadata.resource_version.clone().context("a list without resourceVersion")?;
            let versions = list.items.into_iter().map(|object| Version { object, deleted: false }).collect();
            let since = from.parse().context("a resourceVersion that is no number")?;
            let record = Arc::new(Mutex::new(Record { since, versions, failure: None }));
            let task = tokio::spawn(follow(api.clone(), from, record.clone()));
            recorders.insert(key(kind), Recorder { api, record, task });
        }
        Ok(Self { recorders })
    }

    /// All versions of all objects of a kind so far, in the order in which they were stored.
    pub fn versions<K: Resource<DynamicType = ()>>(&self) -> Result<Vec<Version>> {
        self.versions_of(&ApiResource::erase::<K>(&()))
    }

    /// The same for a kind known only at run time.
    pub fn versions_of(&self, kind: &ApiResource) -> Result<Vec<Version>> {
        let recorder =
            self.recorders.get(&key(kind)).with_context(|| format!("{} is not recorded", kind.kind))?;
        let record = lock(&recorder.record);
        match &record.failure {
            Some(failure) => bail!("the history of {} has a gap: {failure}", kind.kind),
            None => Ok(record.versions.clone()),
        }
    }

    /// What was stored at each moment so far; wait for [`History::caught_up`] first.
    pub fn replay(&self) -> Result<Replay> {
        let kinds = self.recorders.iter().map(|(kind, recorder)| {
            let record = lock(&recorder.record);
            match &record.failure {
                Some(failure) => bail!("the history of {kind} has a gap: {failure}"),
                None => Ok((kind.clone(), record.since, record.versions.clone())),
            }
        });
        Replay::new(kinds.collect::<Result<Vec<_>>>()?)
    }

    /// Waits until the recording has seen all that is stored now; ask before judging the versions.
    pub async fn caught_up(&self) -> Result<()> {
        for (kind, recorder) in &self.recorders {
            let stored = recorder.api.list(&ListParams::default()).await?;
            let now: HashSet<(String, String)> = stored.items.iter().filter_map(version).collect();
            eventually(&format!("the history of {kind} has caught up"), PATIENCE, async || {
                let record = lock(&recorder.record);
                if let Some(failure) = &record.failure {
                    bail!("{failure}");
                }
                let seen: HashSet<_> = record.versions.iter().filter_map(|v| version(&v.object)).collect();
                let ended: HashSet<_> =
                    record.versions.iter().filter(|v| v.deleted).filter_map(uid).collect();
                let all_ended = record
                    .versions
                    .iter()
                    .filter_map(uid)
                    .all(|uid| ended.contains(&uid) || now.iter().any(|(living, _)| *living == uid));
                // An object made or ended since the list only makes this wait for less than there is.
                Ok((now.is_subset(&seen) && all_ended).then_some(()))
            })
            .await?;
        }
        Ok(())
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.recorders.values().for_each(|recorder| recorder.task.abort());
    }
}

async fn follow(api: Api<DynamicObject>, mut from: String, record: Arc<Mutex<Record>>) {
    loop {
        if let Err(error) = one_watch(&api, &mut from, &record).await {
            lock(&record).failure = Some(format!("{error:#}"));
            return;
        }
        // A watch ends now and then, and with an API server; the next goes on where it stopped.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An error is a gap; a broken connection is none.
async fn one_watch(api: &Api<DynamicObject>, from: &mut String, record: &Mutex<Record>) -> Result<()> {
    let stream = match api.watch(&WatchParams::default(), from).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) if status.code == 410 => return bridge(api, from, record).await,
        Err(_) => return Ok(()),
    };
    let mut stream = stream.boxed();
    while let Ok(Some(event)) = stream.try_next().await {
        let (object, deleted) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(bookmark) => {
                *from = bookmark.metadata.resource_version;
                continue;
            }
            WatchEvent::Error(status) if status.code == 410 => return bridge(api, from, record).await,
            WatchEvent::Error(_) => return Ok(()),
        };
        *from = object.resource_version().context("an object without resourceVersion")?;
        lock(record).versions.push(Version { object, deleted });
    }
    Ok(())
}

async fn bridge(api: &Api<DynamicObject>, from: &mut String, record: &Mutex<Record>) -> Result<()> {
    let known = lock(record).versions.clone();
    if let Some((versions, now)) = gap::bridge(api, from, &known).await? {
        lock(record).versions.extend(versions);
        *from = now;
    }
    Ok(())
}

fn version(object: &DynamicObject) -> Option<(String, String)> {
    Some((object.uid()?, object.resource_version()?))
}

fn uid(version: &Version) -> Option<String> {
    version.object.uid()
}

fn key(kind: &ApiResource) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
