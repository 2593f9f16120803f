//! Fields that a POST set are owned by our manager's *update*, fields of an apply by its *apply*: two owners to the
//! server. So what we created and later leave out of an apply would stay for ever. This moves the first kind of
//! ownership into the second, once per object; the next apply then removes what it leaves out.
//!
//! Seen on a real API server (1.35): without this, a label from the POST survives every later apply without it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::{Map, Value};

/// The entries with everything that `manager` owns by update owned by apply; `None` when there is nothing to move.
pub(super) fn moved(entries: &[ManagedFieldsEntry], manager: &str) -> Option<Vec<ManagedFieldsEntry>> {
    let ours = |entry: &ManagedFieldsEntry, operation: &str| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some(operation)
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    let created = entries.iter().find(|entry| ours(entry, "Update"))?;
    let mut applied = entries.iter().find(|entry| ours(entry, "Apply")).unwrap_or(created).clone();
    if applied.api_version != created.api_version {
        // Paths of two versions cannot be joined; ours have one.
        return None;
    }
    let mut fields = fields(&applied);
    join(&mut fields, self::fields(created));
    applied.operation = Some("Apply".to_owned());
    applied.fields_v1 = Some(FieldsV1(fields));
    let mut moved: Vec<_> =
        entries.iter().filter(|entry| !ours(entry, "Update") && !ours(entry, "Apply")).cloned().collect();
    moved.push(applied);
    Some(moved)
}

fn fields(entry: &ManagedFieldsEntry) -> Value {
    entry.fields_v1.as_ref().map_or_else(|| Value::Object(Map::new()), |fields| fields.0.clone())
}

/// The union of two field sets, which are trees of objects.
fn join(into: &mut Value, from: Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else { return };
    for (path, below) in from {
        join(into.entry(path).or_insert_with(|| Value::Object(Map::new())), below);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": operation, "subresource": subresource,
            "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }))
        .unwrap()
    }

    #[test]
    fn what_we_created_joins_what_we_applied_and_others_keep_theirs() {
        let theirs = entry("them", "Update", "", &json!({ "f:data": { "f:z": {} } }));
        let status = entry("me", "Update", "status", &json!({ "f:status": {} }));
        let created = entry("me", "Update", "", &json!({ "f:data": { ".": {}, "f:x": {} } }));
        let applied = entry("me", "Apply", "", &json!({ "f:data": { "f:y": {} } }));
        let union = entry("me", "Apply", "", &json!({ "f:data": { ".": {}, "f:x": {}, "f:y": {} } }));
        let before = [created, theirs.clone(), applied, status.clone()];
        assert_eq!(moved(&before, "me"), Some(vec![theirs, status, union]));
    }

    #[test]
    fn where_nothing_was_created_by_us_nothing_is_moved() {
        let applied = entry("me", "Apply", "", &json!({}));
        let theirs = entry("them", "Update", "", &json!({}));
        assert_eq!(moved(&[applied, theirs], "me"), None);
    }

    #[test]
    fn what_was_created_and_never_applied_becomes_applied() {
        let created = entry("me", "Update", "", &json!({ "f:data": {} }));
        let applied = entry("me", "Apply", "", &json!({ "f:data": {} }));
        assert_eq!(moved(&[created], "me"), Some(vec![applied]));
    }
}
