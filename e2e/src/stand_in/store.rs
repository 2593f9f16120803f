//! The objects of one stand-in, and every change of them, in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{
    KINDS, Kind,
    object::{self, Part},
};

/// Kind, namespace (empty where there is none), name.
type Key = (&'static str, String, String);

/// A change, as a watch tells it.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) plural: &'static str,
    pub(super) what: &'static str,
    pub(super) object: Value,
}

/// Why a write is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    NotFound,
    Exists,
    Conflict,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Store {
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    objects: BTreeMap<Key, Value>,
    changes: Vec<Change>,
}

impl Default for Store {
    fn default() -> Self {
        // A list of nothing has a version too, and 0 means "any".
        let inner = Inner { version: 1, ..Inner::default() };
        Self { inner: Mutex::new(inner), changed: watch::channel(1).0 }
    }
}

impl Store {
    /// Creates or replaces an object, status and all.
    pub(super) fn put(&self, object: Value) -> Result<()> {
        let kind = KINDS
            .iter()
            .find(|kind| object["kind"] == kind.kind && object["apiVersion"] == kind.api_version)
            .with_context(|| format!("not played here: {object}"))?;
        let status = object["status"].clone();
        let key = key(kind, &object);
        let mut inner = self.lock();
        match inner.objects.get(&key).cloned() {
            None => self.commit(&mut inner, key, made(kind, object), "ADDED"),
            Some(old) => {
                let mut new = object::replaced(&old, object, Part::Main);
                new["status"] = status;
                let new = object::without_nulls(new);
                if new != old {
                    self.commit(&mut inner, key, new, "MODIFIED");
                }
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let kind = KINDS.iter().find(|kind| kind.plural == plural)?;
        self.lock().objects.get(&(kind.plural, namespace.to_owned(), name.to_owned())).cloned()
    }

    /// All objects of a kind, of one namespace if given, and the version at which that was so.
    pub(super) fn list(&self, kind: &Kind, namespace: Option<&str>) -> (u64, Vec<Value>) {
        let inner = self.lock();
        let of_kind = inner.objects.iter().filter(|((plural, of, _), _)| {
            *plural == kind.plural && namespace.is_none_or(|namespace| namespace == of)
        });
        (inner.version, of_kind.map(|(_, object)| object.clone()).collect())
    }

    pub(super) fn create(&self, kind: &'static Kind, object: Value) -> Result<Value, Refused> {
        let key = key(kind, &object);
        let mut inner = self.lock();
        if inner.objects.contains_key(&key) {
            return Err(Refused::Exists);
        }
        self.commit(&mut inner, key.clone(), made(kind, object), "ADDED");
        inner.objects.get(&key).cloned().ok_or(Refused::NotFound)
    }

    /// Replaces a part of an object with what `new` makes of the object.
    pub(super) fn update(
        &self,
        kind: &'static Kind,
        (namespace, name): (&str, &str),
        part: Part,
        new: impl FnOnce(&Value) -> Value,
    ) -> Result<Value, Refused> {
        let key = (kind.plural, namespace.to_owned(), name.to_owned());
        let mut inner = self.lock();
        let old = inner.objects.get(&key).cloned().ok_or(Refused::NotFound)?;
        let new = new(&old);
        let stated = &new["metadata"]["resourceVersion"];
        if !stated.is_null() && *stated != old["metadata"]["resourceVersion"] {
            return Err(Refused::Conflict);
        }
        let new = object::replaced(&old, new, part);
        if new != old {
            let what = if object::may_go(&new) { "DELETED" } else { "MODIFIED" };
            self.commit(&mut inner, key.clone(), new.clone(), what);
        }
        Ok(inner.objects.get(&key).cloned().unwrap_or(new))
    }

    /// Deletes an object, or marks it where finalizers hold it.
    pub(super) fn delete(&self, kind: &'static Kind, namespace: &str, name: &str) -> Result<Value, Refused> {
        let key = (kind.plural, namespace.to_owned(), name.to_owned());
        let mut inner = self.lock();
        let mut object = inner.objects.get(&key).cloned().ok_or(Refused::NotFound)?;
        if object["metadata"]["deletionTimestamp"].is_null() {
            object["metadata"]["deletionTimestamp"] = json!(Time(Timestamp::now()));
            let what = if object::may_go(&object) { "DELETED" } else { "MODIFIED" };
            self.commit(&mut inner, key, object.clone(), what);
        }
        Ok(object)
    }

    /// The changes of a kind after this version, and the version up to which that is all.
    pub(super) fn changes(&self, kind: &Kind, namespace: Option<&str>, after: u64) -> (u64, Vec<Change>) {
        let inner = self.lock();
        let news = inner.changes.iter().filter(|change| {
            let of = change.object["metadata"]["namespace"].as_str().unwrap_or_default();
            change.version > after
                && change.plural == kind.plural
                && namespace.is_none_or(|namespace| namespace == of)
        });
        (inner.version, news.cloned().collect())
    }

    /// Tells of each new version.
    pub(super) fn versions(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn commit(&self, inner: &mut Inner, key: Key, mut object: Value, what: &'static str) {
        inner.version += 1;
        let version = inner.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        inner.changes.push(Change { version, plural: key.0, what, object: object.clone() });
        match what {
            "DELETED" => drop(inner.objects.remove(&key)),
            _ => drop(inner.objects.insert(key, object)),
        }
        self.changed.send_replace(version);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(kind: &'static Kind, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (kind.plural, text("namespace"), text("name"))
}

/// A new object, with what a server gives it.
fn made(kind: &Kind, mut object: Value) -> Value {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    object["apiVersion"] = json!(kind.api_version);
    object["kind"] = json!(kind.kind);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{count:012x}"));
    object["metadata"]["creationTimestamp"] = json!(Time(Timestamp::now()));
    object["metadata"]["generation"] = json!(1);
    object
}
