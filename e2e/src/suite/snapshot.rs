//! The end state as text that is the same whenever the state is.
//!
//! Left out is what differs between two runs that ended alike: times, uids, versions, who wrote last. A uid, or another
//! value that a server chose ([`Kind::assigned`]), is not merely struck out but replaced by the place it comes from,
//! wherever it stands: an owner reference to an object that is gone, or an address in a status that is not the one in
//! the object, is a difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use anyhow::Result;
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt, core::DynamicObject};
use serde_json::{Map, Value, json};

use super::kind::{Kind, Role};

/// What every object has and no two runs share.
const DROPPED: [&str; 5] =
    ["/metadata/resourceVersion", "/metadata/managedFields", "/metadata/generation", "/apiVersion", "/kind"];

/// All objects of the end state, and what the scenario knows of the world besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<String, String>);

impl Snapshot {
    /// The state now; `elsewhere` are lines about what is not in the API.
    pub async fn take(client: &Client, kinds: &[Kind], elsewhere: Vec<String>) -> Result<Self> {
        let mut objects = Vec::new();
        for kind in kinds {
            objects.extend(kind.list(client).await?.into_iter().map(|object| (kind, object)));
        }
        Ok(Self::of(&objects, &elsewhere))
    }

    /// The pure part of [`Snapshot::take`].
    pub fn of(objects: &[(&Kind, DynamicObject)], elsewhere: &[String]) -> Self {
        let mut names = Names::default();
        for (kind, object) in objects {
            names.learn(kind, object);
        }
        let mut state = BTreeMap::new();
        for (kind, object) in objects {
            state.insert(place(kind, object), names.apply(&normal(kind, object)));
        }
        let mut lines: Vec<String> = elsewhere.iter().map(|line| names.apply(line)).collect();
        lines.sort();
        // Lines are no map: one that is there twice must differ from one that is there once.
        state.extend(
            lines.into_iter().enumerate().map(|(number, line)| (format!("elsewhere {number:04}"), line)),
        );
        Self(state)
    }

    /// The same without the objects of kinds that people apply.
    #[must_use]
    pub fn without_own(&self, kinds: &[Kind]) -> Self {
        let own: Vec<String> = kinds
            .iter()
            .filter(|kind| kind.role == Role::Own)
            .map(|kind| format!("{} ", kind.resource.kind))
            .collect();
        let is_own = |place: &String| own.iter().any(|kind| place.starts_with(kind));
        Self(
            self.0
                .iter()
                .filter(|(place, _)| !is_own(place))
                .map(|(p, text)| (p.clone(), text.clone()))
                .collect(),
        )
    }

    /// What is in one and not in the other; none if they are the same.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let places: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let lines = |text: Option<&String>| -> Vec<String> {
            text.map(|text| text.lines().map(str::to_owned).collect()).unwrap_or_default()
        };
        let mut difference = Vec::new();
        for place in places {
            let (mine, theirs) = (lines(self.0.get(place)), lines(other.0.get(place)));
            let only = |these: &[String], those: &[String], sign: char| -> Vec<String> {
                let these = these.iter().filter(|line| !those.contains(line));
                these.map(|line| format!("{sign} {place}: {}", line.trim())).collect()
            };
            let (less, more) = (only(&mine, &theirs, '-'), only(&theirs, &mine, '+'));
            if mine != theirs && less.is_empty() && more.is_empty() {
                difference.push(format!("~ {place}: the same lines in another order or number"));
            }
            difference.extend(less);
            difference.extend(more);
        }
        (!difference.is_empty()).then_some(Difference(difference))
    }

    /// How many objects and lines it holds.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What two snapshots do not share: `-` lines of the first, `+` lines of the second.
#[derive(Debug)]
pub struct Difference(Vec<String>);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 40;
        write!(f, "{}", self.0[..self.0.len().min(SHOWN)].join("\n"))?;
        if self.0.len() > SHOWN { write!(f, "\n… and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}

fn place(kind: &Kind, object: &DynamicObject) -> String {
    let namespace = object.namespace().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    format!("{} {namespace}{}", kind.resource.kind, object.name_any())
}

/// The object as text, with names not yet put in.
fn normal(kind: &Kind, object: &DynamicObject) -> String {
    let mut value = json!(object);
    let generation = value.pointer("/metadata/generation").cloned();
    for pointer in DROPPED.iter().chain(kind.noise) {
        remove(&mut value, pointer);
    }
    mask(&mut value, generation.as_ref());
    serde_json::to_string_pretty(&value).unwrap_or_else(|error| error.to_string())
}

fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = value.pointer_mut(parent) {
        // `~1` is a slash inside of a key (RFC 6901).
        parent.remove(&key.replace("~1", "/"));
    }
}

/// Times become one word, and a generation the answer to whether it is the present one.
fn mask(value: &mut Value, generation: Option<&Value>) {
    match value {
        Value::String(text) if text.parse::<Timestamp>().is_ok() => "<time>".clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, generation)),
        Value::Object(fields) => mask_fields(fields, generation),
        _ => {}
    }
}

fn mask_fields(fields: &mut Map<String, Value>, generation: Option<&Value>) {
    for (key, value) in fields.iter_mut() {
        if key == "observedGeneration" {
            *value = json!(if Some(&*value) == generation { "<current>" } else { "<outdated>" });
        } else {
            mask(value, generation);
        }
    }
}

/// Values that servers chose, and what they are called instead.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn learn(&mut self, kind: &Kind, object: &DynamicObject) {
        let (value, place) = (json!(object), place(kind, object));
        for pointer in ["/metadata/uid"].iter().chain(kind.assigned) {
            if let Some(Value::String(text)) = value.pointer(pointer)
                && !text.is_empty()
            {
                // The first place keeps it: others are there to agree with it.
                self.0.entry(text.clone()).or_insert_with(|| format!("<{pointer} of {place}>"));
            }
        }
    }

    /// The text with every known value, where it stands as a word of its own, replaced; unknown uids are told as such.
    fn apply(&self, text: &str) -> String {
        let part_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':');
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(part_of_word) {
            out.push_str(&rest[..start]);
            let after = &rest[start..];
            let end = after.find(|c| !part_of_word(c)).unwrap_or(after.len());
            // A full stop or a colon at the end is punctuation.
            let word = after[..end].trim_end_matches(['.', ':', '-']);
            match self.0.get(word) {
                Some(name) => out.push_str(name),
                None if is_uid(word) => out.push_str("<unknown uid>"),
                None => out.push_str(word),
            }
            rest = &after[word.len()..];
            if word.is_empty() {
                out.push_str(&after[..end]);
                rest = &after[end..];
            }
        }
        out.push_str(rest);
        out
    }
}

fn is_uid(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests;
