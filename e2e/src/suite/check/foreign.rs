//! what another one writes into our objects stays there, in every version that was ever stored.
//!
//! The rival writes a growing number into a label, an annotation and, where the object's status has conditions, a condition
//! of its own. Whoever writes an object whole, or from an old copy, loses one of them or sets it back for a moment; that
//! the rival mends it at the next stroke hides this from everybody but the history.

use std::collections::BTreeMap;

use kube::{ResourceExt, core::DynamicObject};

use crate::history::Version;

/// Label, annotation and condition of the rival. The prefix is nobody's.
pub const MARK: &str = "rival.example.com/stroke";
/// Type of the rival's condition.
pub const CONDITION: &str = "Rival";

/// Where the rival's number may stand in an object.
const PLACES: [&str; 3] = ["label", "annotation", "condition"];

/// Where the rival's number was lost or set back, one line for each version in which it was.
pub fn lost(versions: &[Version]) -> Vec<String> {
    let mut reached: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut faults = Vec::new();
    for version in versions.iter().filter(|version| !version.deleted) {
        let object = &version.object;
        for place in PLACES {
            let key = (object.uid().unwrap_or_default(), place);
            let now = stroke(object, place);
            match (reached.get(&key), now) {
                (Some(before), now) if now.is_none_or(|now| now < *before) => faults.push(format!(
                    "{} at version {}: the rival's {place} {before} became {now:?}",
                    object.name_any(),
                    object.resource_version().unwrap_or_default(),
                )),
                (_, Some(now)) => drop(reached.insert(key, now)),
                _ => {}
            }
        }
    }
    faults
}

/// The highest number that stands in any of the versions, in this place of theirs.
pub fn strokes(versions: &[Version]) -> BTreeMap<&'static str, u64> {
    let highest = |place| versions.iter().filter_map(|version| stroke(&version.object, place)).max();
    PLACES.into_iter().filter_map(|place| Some((place, highest(place)?))).collect()
}

fn stroke(object: &DynamicObject, place: &str) -> Option<u64> {
    let text = match place {
        "label" => object.labels().get(MARK)?.as_str(),
        "annotation" => object.annotations().get(MARK)?.as_str(),
        _ => {
            let conditions = object.data.pointer("/status/conditions")?.as_array()?;
            conditions.iter().find(|condition| condition["type"] == CONDITION)?["message"].as_str()?
        }
    };
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn version(label: Option<u64>, condition: Option<u64>) -> Version {
        let mut object = json!({"metadata": {"name": "o", "uid": "u", "labels": {"ours": "x"}},
            "status": {"conditions": [{"type": "Ready", "message": "x"}]}});
        if let Some(label) = label {
            object["metadata"]["labels"][MARK] = json!(label.to_string());
        }
        if let (Some(condition), Value::Array(all)) = (condition, &mut object["status"]["conditions"]) {
            all.push(json!({"type": CONDITION, "message": condition.to_string()}));
        }
        Version { object: serde_json::from_value(object).unwrap(), deleted: false }
    }

    #[test]
    fn growing_numbers_are_well() {
        let versions = [
            version(None, None),
            version(Some(1), None),
            version(Some(1), Some(2)),
            version(Some(3), Some(2)),
        ];
        assert_eq!(lost(&versions), Vec::<String>::new());
        assert_eq!(strokes(&versions), [("condition", 2), ("label", 3)].into());
    }

    #[test]
    fn a_planted_loss_is_found_though_it_is_mended_at_once() {
        for lost_for_a_moment in [version(None, Some(2)), version(Some(1), Some(2)), version(Some(2), None)] {
            let versions = [version(Some(2), Some(2)), lost_for_a_moment, version(Some(3), Some(3))];
            assert_eq!(lost(&versions).len(), 1);
        }
    }

    #[test]
    fn an_object_that_ends_takes_them_along() {
        let mut end = version(None, None);
        end.deleted = true;
        assert_eq!(lost(&[version(Some(1), Some(1)), end]), Vec::<String>::new());
    }
}
