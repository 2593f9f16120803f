//! What a write makes of an object: pure.

use serde_json::{Map, Value, json};

/// What is asked about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All but the status.
    Main,
    /// The status alone.
    Status,
}

/// The object that a whole one leaves: of the old one stay what is not this part, and what is the server's.
pub(super) fn replaced(old: &Value, mut new: Value, part: Part) -> Value {
    match part {
        Part::Status => {
            let mut kept = old.clone();
            kept["status"] = new["status"].take();
            kept
        }
        Part::Main => {
            new["status"] = old["status"].clone();
            for field in ["uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion"] {
                new["metadata"][field] = old["metadata"][field].clone();
            }
            if new["spec"] != old["spec"] {
                let generation = old["metadata"]["generation"].as_u64().unwrap_or(1);
                new["metadata"]["generation"] = json!(generation + 1);
            }
            without_nulls(new)
        }
    }
}

/// RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Whether an object that is being deleted is held by nobody.
pub(super) fn may_go(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
        && object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}

pub(super) fn without_nulls(mut object: Value) -> Value {
    for path in ["", "/metadata"] {
        if let Some(Value::Object(fields)) = object.pointer_mut(path) {
            fields.retain(|_, value| !value.is_null());
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_changes_only_its_part() {
        let old = json!({
            "metadata": {"name": "a", "uid": "1", "generation": 1},
            "spec": {"a": 1}, "status": {"b": 1},
        });
        let new = json!({"metadata": {"name": "a", "uid": "2"}, "spec": {"a": 2}, "status": {"b": 2}});
        let main = replaced(&old, new.clone(), Part::Main);
        assert_eq!(main["status"], json!({"b": 1}));
        assert_eq!(main["metadata"], json!({"name": "a", "uid": "1", "generation": 2}));
        let status = replaced(&old, new, Part::Status);
        assert_eq!(
            status,
            json!({
                "metadata": {"name": "a", "uid": "1", "generation": 1},
                "spec": {"a": 1}, "status": {"b": 2},
            })
        );
    }

    #[test]
    fn a_merge_adds_replaces_and_removes() {
        let mut object = json!({"a": {"b": 1, "c": [1]}, "d": 1});
        merge(&mut object, &json!({"a": {"b": null, "c": [2], "e": 1}, "f": {"g": null}}));
        assert_eq!(object, json!({"a": {"c": [2], "e": 1}, "d": 1, "f": {}}));
    }
}
