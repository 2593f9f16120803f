//! Questions about many requests together.
//!
//! [`Requests`] is narrowed step by step (`.by(…).useful_writes()`), then asked. Nothing here knows what is right: it
//! counts and orders, the test judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Deref,
};

use super::{COMPLETE, Entry, Reference};

/// Requests in the order in which they came.
#[derive(Debug, Clone)]
pub struct Requests(Vec<Entry>);

/// What a write is aimed at, and by whom: one field manager and one object, or one sub-resource of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The object.
    pub object: Reference,
    /// The field manager.
    pub manager: String,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reference { resource, subresource, namespace, name, api_group } = &self.object;
        let sub = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
        write!(f, "{resource}.{api_group}{sub} {namespace}/{name} by {}", self.manager)
    }
}

/// How writing passed from one to another.
#[derive(Debug, Clone)]
pub struct Handover {
    /// The last that the old one asked.
    pub last_of_old: Option<Entry>,
    /// The first that the new one asked.
    pub first_of_new: Option<Entry>,
    /// What of the old one's was not yet answered when the first of the new one came, or came later: must be empty.
    pub overlapping: Vec<Entry>,
}

impl Deref for Requests {
    type Target = [Entry];

    fn deref(&self) -> &[Entry] {
        &self.0
    }
}

impl Requests {
    /// From lines of the log: each request once, by its end if it has ended.
    pub(super) fn new(lines: Vec<Entry>) -> Self {
        let ended: BTreeSet<String> =
            lines.iter().filter(|entry| entry.stage == COMPLETE).map(|entry| entry.id.clone()).collect();
        let mut entries = lines;
        entries.retain(|entry| entry.stage == COMPLETE || !ended.contains(&entry.id));
        entries.sort_by(|a, b| a.request_received_timestamp.cmp(&b.request_received_timestamp));
        Self(entries)
    }

    /// Those of which this is true.
    #[must_use]
    pub fn only(mut self, is_meant: impl Fn(&Entry) -> bool) -> Self {
        self.0.retain(is_meant);
        self
    }

    /// Those of a ServiceAccount.
    #[must_use]
    pub fn by(self, namespace: &str, service_account: &str) -> Self {
        self.only(|entry| entry.is_by(namespace, service_account))
    }

    /// Those about a resource (plural) or its sub-resources.
    #[must_use]
    pub fn about(self, resource: &str) -> Self {
        self.only(|entry| entry.object_ref.as_ref().is_some_and(|about| about.resource == resource))
    }

    /// Those that the server did.
    #[must_use]
    pub fn accepted(self) -> Self {
        self.only(Entry::is_accepted)
    }

    /// Writes that do the work: no Lease, no Event, no review, no dry run.
    #[must_use]
    pub fn useful_writes(self) -> Self {
        self.only(Entry::is_useful_write)
    }

    /// Those that are forbidden: RBAC, or admission.
    #[must_use]
    pub fn forbidden(self) -> Self {
        self.only(|entry| entry.code() == 403)
    }

    /// Those about Secrets of which the log holds a body, although it should hold none.
    #[must_use]
    pub fn with_secret_bodies(self) -> Self {
        self.about("secrets").only(Entry::has_body)
    }

    /// How many writes each field manager made to each object and sub-resource.
    pub fn per_target(&self) -> BTreeMap<Target, usize> {
        let mut counts = BTreeMap::new();
        for entry in self.iter().filter(|entry| entry.is_write()) {
            let target = Target { object: entry.reference(), manager: entry.manager().to_owned() };
            *counts.entry(target).or_default() += 1;
        }
        counts
    }

    /// What was written more often than this by one field manager: a loop, most likely.
    pub fn more_often_than(&self, most: usize) -> Vec<(Target, usize)> {
        self.per_target().into_iter().filter(|(_, count)| *count > most).collect()
    }

    /// Writes to an object by the one who made it, after it was made: what should have been in it from the start,
    /// perhaps. Its sub-resources do not count, its deletion neither.
    pub fn afterthoughts(&self) -> Vec<Entry> {
        let mut made: BTreeSet<Target> = BTreeSet::new();
        let mut later = Vec::new();
        for entry in self.iter().filter(|entry| entry.is_write() && entry.is_accepted()) {
            let target = Target { object: entry.reference(), manager: entry.manager().to_owned() };
            if entry.verb.starts_with("delete") {
                // By whomever: what comes under this name afterwards is another object.
                made.retain(|other| other.object != target.object);
            } else if entry.is_creation() {
                made.insert(target);
            } else if made.contains(&target) {
                later.push(entry.clone());
            }
        }
        later
    }

    /// How many requests each program made in each minute (`2026-11-30T14:18`); a minute without any is not listed.
    pub fn per_minute(&self) -> BTreeMap<String, BTreeMap<String, usize>> {
        let mut agents: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for entry in self.iter() {
            let minute: String = entry.request_received_timestamp.chars().take(16).collect();
            *agents.entry(entry.user_agent.clone()).or_default().entry(minute).or_default() += 1;
        }
        agents
    }

    /// How writing passed from one to another; narrow to the writes that count first.
    pub fn handover(&self, old: impl Fn(&Entry) -> bool, new: impl Fn(&Entry) -> bool) -> Handover {
        let first_of_new = self.iter().find(|entry| new(entry)).cloned();
        let overlaps = |entry: &&Entry| {
            let late = |first: &Entry| entry.stage_timestamp >= first.request_received_timestamp;
            old(entry) && first_of_new.as_ref().is_some_and(late)
        };
        Handover {
            last_of_old: self.iter().rfind(|entry| old(entry)).cloned(),
            overlapping: self.iter().filter(overlaps).cloned().collect(),
            first_of_new,
        }
    }

    /// The first pair that breaks "all of these, before any of those": a later one that came before an earlier one
    /// had been answered.
    pub fn out_of_order(
        &self,
        earlier: impl Fn(&Entry) -> bool,
        later: impl Fn(&Entry) -> bool,
    ) -> Option<(Entry, Entry)> {
        let handover = self.handover(earlier, later);
        Some((handover.first_of_new?, handover.overlapping.into_iter().next()?))
    }

    /// One line each: time, who, verb, what, code.
    pub fn told(&self) -> Vec<String> {
        self.iter().map(Entry::line).collect()
    }
}
