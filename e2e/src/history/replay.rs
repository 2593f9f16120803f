//! What was stored at each moment, one write after another.
//!
//! A resourceVersion is the revision of the one store that all kinds of a cluster share, so recordings of several
//! kinds are brought into one order, and a question about many objects ("no two of them at once", "the sum never
//! counts it twice") is asked of every moment. A question that met nothing to judge is an error: a test that never
//! saw an object proves nothing about it.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::{
    Resource, ResourceExt,
    core::{ApiResource, DynamicObject},
};

use super::{Version, key};

type Id = (String, String, String);

/// Recordings in the order of the store.
#[derive(Debug)]
pub struct Replay {
    /// From here on all kinds are recorded.
    since: u64,
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    kind: String,
    revision: u64,
    version: Version,
}

/// What is stored at one moment.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The revision.
    pub revision: u64,
    /// What was written; `None` for what was there when the recording began.
    pub changed: Option<&'a Version>,
    living: BTreeMap<Id, &'a DynamicObject>,
}

impl<'a> Moment<'a> {
    /// All objects of a kind, by namespace and name.
    pub fn all<K: Resource<DynamicType = ()>>(&self) -> impl Iterator<Item = &'a DynamicObject> {
        let kind = key(&ApiResource::erase::<K>(&()));
        self.living.iter().filter(move |((of, ..), _)| *of == kind).map(|(_, object)| *object)
    }

    /// One object, if it is there.
    pub fn get<K: Resource<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Option<&'a DynamicObject> {
        let kind = key(&ApiResource::erase::<K>(&()));
        self.living.get(&(kind, namespace.unwrap_or_default().to_owned(), name.to_owned())).copied()
    }
}

impl Replay {
    /// `since` is the revision from which on each kind was recorded.
    pub(super) fn new(kinds: impl IntoIterator<Item = (String, u64, Vec<Version>)>) -> Result<Self> {
        let (mut since, mut steps) = (0, Vec::new());
        for (kind, from, versions) in kinds {
            since = since.max(from);
            for version in versions {
                let revision =
                    version.object.resource_version().context("an object without resourceVersion")?;
                let revision = revision.parse().context("a resourceVersion that is no number")?;
                steps.push(Step { kind: kind.clone(), revision, version });
            }
        }
        steps.sort_by_key(|step| step.revision);
        Ok(Self { since, steps })
    }

    /// Asks this of every stored version of a kind, from its first on. Returns how many there were.
    pub fn every<K: Resource<DynamicType = ()>>(
        &self,
        holds: impl Fn(&DynamicObject) -> Result<()>,
    ) -> Result<usize> {
        let kind = key(&ApiResource::erase::<K>(&()));
        let mut judged = 0;
        for step in self.steps.iter().filter(|step| step.kind == kind && !step.version.deleted) {
            holds(&step.version.object).with_context(|| step.told())?;
            judged += 1;
        }
        ensure!(judged > 0, "no version of {kind} was recorded");
        Ok(judged)
    }

    /// Asks this of every moment since all kinds are recorded. Returns how many there were.
    pub fn always(&self, holds: impl Fn(&Moment<'_>) -> Result<()>) -> Result<usize> {
        ensure!(!self.steps.is_empty(), "nothing was recorded");
        let before = self.steps.partition_point(|step| step.revision <= self.since);
        let mut moment = Moment { revision: self.since, changed: None, living: BTreeMap::new() };
        self.steps[..before].iter().for_each(|step| step.enter(&mut moment.living));
        holds(&moment).with_context(|| format!("when the recording began, at version {}", self.since))?;
        for step in &self.steps[before..] {
            step.enter(&mut moment.living);
            (moment.revision, moment.changed) = (step.revision, Some(&step.version));
            holds(&moment).with_context(|| step.told())?;
        }
        Ok(self.steps.len() - before + 1)
    }

    /// An object is there from its first version on, at every moment.
    pub fn never_absent<K: Resource<DynamicType = ()>>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<()> {
        let kind = key(&ApiResource::erase::<K>(&()));
        let id = (kind, namespace.unwrap_or_default().to_owned(), name.to_owned());
        let mut versions = self.steps.iter().filter(|step| step.id() == id).peekable();
        ensure!(versions.peek().is_some(), "{} {name} was never there", id.0);
        match versions.find(|step| step.version.deleted) {
            Some(end) => Err(anyhow::anyhow!("it was gone").context(end.told())),
            None => Ok(()),
        }
    }
}

impl Step {
    fn id(&self) -> Id {
        let object = &self.version.object;
        (self.kind.clone(), object.namespace().unwrap_or_default(), object.name_any())
    }

    fn enter<'a>(&'a self, living: &mut BTreeMap<Id, &'a DynamicObject>) {
        if self.version.deleted {
            living.remove(&self.id());
        } else {
            living.insert(self.id(), &self.version.object);
        }
    }

    fn told(&self) -> String {
        let (kind, namespace, name) = self.id();
        let end = if self.version.deleted { ", its end" } else { "" };
        format!("{kind} {namespace}/{name} at version {}{end}", self.revision)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::api::core::v1::{ConfigMap, Service};
    use serde_json::json;

    use super::*;

    fn version(name: &str, revision: u64, address: &str) -> Version {
        let metadata =
            json!({"namespace": "a", "name": name, "uid": name, "resourceVersion": revision.to_string()});
        let object = json!({"metadata": metadata, "data": {"address": address}});
        Version { object: serde_json::from_value(object).unwrap(), deleted: false }
    }

    fn end(name: &str, revision: u64) -> Version {
        Version { deleted: true, ..version(name, revision, "gone") }
    }

    fn address(object: &DynamicObject) -> &str {
        object.data["data"]["address"].as_str().unwrap()
    }

    fn replay(kinds: Vec<(ApiResource, u64, Vec<Version>)>) -> Replay {
        Replay::new(kinds.into_iter().map(|(kind, since, versions)| (key(&kind), since, versions))).unwrap()
    }

    fn maps(versions: Vec<Version>) -> Replay {
        replay(vec![(ApiResource::erase::<ConfigMap>(&()), 1, versions)])
    }

    fn unique(moment: &Moment<'_>) -> Result<()> {
        let mut seen = BTreeSet::new();
        let twice = moment.all::<ConfigMap>().find(|map| !seen.insert(address(map)));
        ensure!(twice.is_none(), "{} has two owners", twice.map_or("", address));
        Ok(())
    }

    #[test]
    fn one_bad_version_between_good_ones_is_found() {
        let closed = |map: &DynamicObject| {
            ensure!(address(map) == "closed", "it is {}", address(map));
            Ok(())
        };
        let good = vec![version("m", 2, "closed"), version("m", 3, "closed"), end("m", 4)];
        assert_eq!(maps(good).every::<ConfigMap>(closed).unwrap(), 2);
        let bad = vec![version("m", 2, "closed"), version("m", 3, "open"), version("m", 4, "closed")];
        let error = maps(bad).every::<ConfigMap>(closed).unwrap_err();
        assert_eq!(format!("{error:#}"), "configmaps. a/m at version 3: it is open");
        assert!(maps(vec![]).every::<ConfigMap>(closed).is_err(), "it judged nothing");
    }

    #[test]
    fn a_moment_with_two_owners_is_found() {
        let handed_over = vec![version("one", 2, "x"), end("one", 3), version("two", 4, "x")];
        assert_eq!(maps(handed_over).always(unique).unwrap(), 4);
        // Each version alone is right.
        let too_early = vec![version("one", 2, "x"), version("two", 3, "x"), end("one", 4)];
        let error = maps(too_early).always(unique).unwrap_err();
        assert_eq!(format!("{error:#}"), "configmaps. a/two at version 3: x has two owners");
    }

    #[test]
    fn kinds_are_brought_into_one_order_from_when_all_are_recorded() {
        // The map's counterpart must be there first; the moment before the second list is not known and not judged.
        let served = |moment: &Moment<'_>| {
            for map in moment.all::<ConfigMap>() {
                ensure!(moment.get::<Service>(Some("a"), &map.name_any()).is_some(), "{}", map.name_any());
            }
            Ok(())
        };
        let story = |second: u64| {
            replay(vec![
                (
                    ApiResource::erase::<ConfigMap>(&()),
                    1,
                    vec![version("x", 3, ""), version("y", 12, ""), end("y", 20)],
                ),
                (ApiResource::erase::<Service>(&()), 10, vec![version("x", 5, ""), version("y", second, "")]),
            ])
        };
        assert_eq!(story(11).always(served).unwrap(), 4);
        let error = story(13).always(served).unwrap_err();
        assert_eq!(format!("{error:#}"), "configmaps. a/y at version 12: y");
    }

    #[test]
    fn an_object_that_was_gone_for_a_moment_is_found() {
        let steady = vec![version("m", 2, ""), version("m", 3, "")];
        maps(steady).never_absent::<ConfigMap>(Some("a"), "m").unwrap();
        let recreated = vec![version("m", 2, ""), end("m", 3), version("m", 4, "")];
        let error = maps(recreated).never_absent::<ConfigMap>(Some("a"), "m").unwrap_err();
        assert_eq!(format!("{error:#}"), "configmaps. a/m at version 3, its end: it was gone");
        assert!(maps(vec![]).never_absent::<ConfigMap>(Some("a"), "m").is_err(), "it was never there");
    }
}
