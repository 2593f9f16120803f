//! Bridging what a watch cannot give.
//!
//! An API server that was restarted knows, in its watch cache, only what came after its start, and refuses a watch
//! from before (410). etcd still has every revision until it is compacted, and a LIST "exactly at" one of them
//! reads it there. A revision is one write, so the lists one after another are the versions one after another.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use kube::{
    Api, ResourceExt,
    api::{ListParams, VersionMatch},
    core::{DynamicObject, ObjectList},
};

use super::Version;

/// The versions stored after revision `from` and up to now, and the revision that "now" is.
///
/// `known` are the versions up to `from`. `None` when the server does not answer at the moment.
pub(super) async fn bridge(
    api: &Api<DynamicObject>,
    from: &str,
    known: &[Version],
) -> Result<Option<(Vec<Version>, String)>> {
    let Some(list) = list(api, None).await? else { return Ok(None) };
    let now = revision(&list)?;
    let from: u64 = from.parse().context("a resourceVersion that is no number")?;
    let mut living = living(known);
    let mut versions = Vec::new();
    for at in from + 1..=now {
        let Some(list) = self::list(api, Some(at)).await? else { return Ok(None) };
        versions.extend(differences(&mut living, list.items, at));
    }
    Ok(Some((versions, now.to_string())))
}

async fn list(api: &Api<DynamicObject>, at: Option<u64>) -> Result<Option<ObjectList<DynamicObject>>> {
    let parameters = ListParams {
        resource_version: at.map(|at| at.to_string()),
        version_match: at.map(|_| VersionMatch::Exact),
        ..ListParams::default()
    };
    match api.list(&parameters).await {
        Ok(list) => Ok(Some(list)),
        Err(kube::Error::Api(status)) if status.code == 410 => bail!("revision {at:?} is compacted"),
        Err(_) => Ok(None),
    }
}

fn revision(list: &ObjectList<DynamicObject>) -> Result<u64> {
    let version = list.metadata.resource_version.as_deref().context("a list without resourceVersion")?;
    version.parse().context("a resourceVersion that is no number")
}

type Living = HashMap<String, DynamicObject>;

fn living(known: &[Version]) -> Living {
    let mut living = Living::new();
    for Version { object, deleted } in known {
        let uid = object.uid().unwrap_or_default();
        if *deleted {
            living.remove(&uid);
        } else {
            living.insert(uid, object.clone());
        }
    }
    living
}

/// What changed between two lists, the later one at revision `at`; `living` becomes the later one. An end bears the
/// revision at which it came, as in a watch.
fn differences(living: &mut Living, later: Vec<DynamicObject>, at: u64) -> Vec<Version> {
    let later: Living = later.into_iter().map(|object| (object.uid().unwrap_or_default(), object)).collect();
    let gone = living.iter().filter(|(uid, _)| !later.contains_key(*uid));
    let gone = gone.map(|(_, object)| {
        let mut object = object.clone();
        object.metadata.resource_version = Some(at.to_string());
        Version { object, deleted: true }
    });
    let new = later.iter().filter(|(uid, object)| {
        living.get(*uid).is_none_or(|before| before.resource_version() != object.resource_version())
    });
    let new = new.map(|(_, object)| Version { object: object.clone(), deleted: false });
    let versions = gone.chain(new).collect();
    *living = later;
    versions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(uid: &str, version: &str) -> DynamicObject {
        serde_json::from_value(json!({"metadata": {"uid": uid, "resourceVersion": version}})).unwrap()
    }

    fn told(versions: &[Version]) -> Vec<(String, String, bool)> {
        let line = |v: &Version| (v.object.uid().unwrap(), v.object.resource_version().unwrap(), v.deleted);
        versions.iter().map(line).collect()
    }

    #[test]
    fn lists_one_after_another_are_versions_one_after_another() {
        let mut state = living(&[
            Version { object: object("a", "1"), deleted: false },
            Version { object: object("b", "2"), deleted: false },
            Version { object: object("b", "2"), deleted: true },
        ]);
        assert_eq!(told(&differences(&mut state, vec![object("a", "1")], 3)), []);
        assert_eq!(
            told(&differences(&mut state, vec![object("a", "4")], 4)),
            [("a".into(), "4".into(), false)]
        );
        assert_eq!(told(&differences(&mut state, vec![], 5)), [("a".into(), "5".into(), true)]);
    }
}
