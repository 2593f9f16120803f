//! whatever happened meanwhile, nothing was made twice, not even for a moment.
//!
//! While things are only built, there never are more objects of a kind than there are in the end: one too many that is
//! cleaned up later was there all the same, and in another process it is a second pod or a second address.

use std::collections::BTreeSet;

use kube::ResourceExt;

use crate::history::Version;

/// How many objects lived at once at most, and how many live in the end.
pub fn most_and_last(versions: &[Version]) -> (usize, usize) {
    let mut living = BTreeSet::new();
    let mut most = 0;
    for version in versions {
        let uid = version.object.uid().unwrap_or_default();
        if version.deleted {
            living.remove(&uid);
        } else {
            living.insert(uid);
        }
        most = most.max(living.len());
    }
    (most, living.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(uid: &str, deleted: bool) -> Version {
        Version { object: serde_json::from_value(json!({"metadata": {"uid": uid}})).unwrap(), deleted }
    }

    #[test]
    fn a_planted_duplicate_is_found_though_it_is_cleaned_up() {
        let well = [version("a", false), version("b", false), version("a", false)];
        assert_eq!(most_and_last(&well), (2, 2));
        let twice = [version("a", false), version("b", false), version("c", false), version("c", true)];
        assert_eq!(most_and_last(&twice), (3, 2));
    }
}
