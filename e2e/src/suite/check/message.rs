//! whoever reads why something is not ready learns what, which object, since when, and what to do.
//!
//! A text cannot be understood by a test, but these four leave traces in it: a sentence and not a code, the name of
//! something, a time that can be true, and words that tell somebody to do something (or, while something is on its way,
//! what is waited for). What the traces miss, they miss on the generous side; that a bad message is refused is tested
//! below with bad messages.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::{ResourceExt, core::DynamicObject};

use crate::history::Version;

/// How a clause begins that tells somebody to do something.
const DO: [&str; 33] = [
    "add", "ask", "change", "check", "choose", "create", "delete", "enlarge", "exclude", "free", "give",
    "grant", "install", "label", "leave", "lower", "make", "mend", "name", "put", "raise", "remove",
    "rename", "restart", "restore", "see", "set", "start", "state", "take", "use", "wait", "write",
];
/// What says that somebody must act, or on what it waits; anywhere in the text.
const OBLIGES: [&str; 2] = [" must ", " before "];
/// What says, while something is on its way, on what it waits.
const WAITS: [&str; 6] =
    ["waiting for ", " as soon as ", " until ", " is being ", " are being ", " so that "];
/// Between clauses.
const ENDS: [&str; 7] = ["; ", ", ", ". ", ": ", " or ", " and ", "("];

/// By so much the clock of a process may be wrong in a test.
const CLOCKS: Duration = Duration::from_mins(90);

/// What is wrong with the `Ready` conditions of these versions, one line each; a message that is met often counts once.
pub fn faults(versions: &[Version]) -> Vec<String> {
    let mut faults: Vec<String> =
        versions.iter().filter(|version| !version.deleted).flat_map(|version| of(&version.object)).collect();
    faults.sort();
    faults.dedup();
    faults
}

/// What is wrong with the `Ready` condition of one object; nothing if it is `True`, or not there yet.
pub fn of(object: &DynamicObject) -> Vec<String> {
    let conditions = object.data.pointer("/status/conditions").cloned().unwrap_or_default();
    let conditions: Vec<Condition> = serde_json::from_value(conditions).unwrap_or_default();
    let is_true = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "True");
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status != "True");
    let Some(ready) = ready else { return Vec::new() };
    let kind = object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default();
    let born = object.creation_timestamp().map(|time| time.0);
    let faults = judge(ready, is_true("Reconciling"), born);
    let told = |fault| {
        let name = object.name_any();
        format!("{kind} {name}: {fault}: Ready={} {}: '{}'", ready.status, ready.reason, ready.message)
    };
    faults.into_iter().map(told).collect()
}

/// The pure judgement; `born` is when the object was made.
fn judge(ready: &Condition, under_way: bool, born: Option<Timestamp>) -> Vec<&'static str> {
    let message = ready.message.as_str();
    let mut faults = Vec::new();
    if message.split_whitespace().count() < 4 || message.contains("Err(") || message.contains("Some(") {
        faults.push("it does not say what is wrong");
    }
    if !names_something(message) {
        faults.push("it names no object and no field");
    }
    let since = ready.last_transition_time.0;
    if born.is_some_and(|born| since + CLOCKS < born) || since > Timestamp::now() + CLOCKS {
        faults.push("it does not say since when");
    }
    if !(tells_what_to_do(message)
        || under_way && WAITS.iter().any(|words| format!(" {message}").contains(words)))
    {
        faults.push("it does not say what to do");
    }
    if ready.reason.is_empty() || !ready.reason.starts_with(|c: char| c.is_ascii_uppercase()) {
        faults.push("it has no reason");
    }
    faults
}

/// Something quoted, a path of fields, or a word as only names have them: with a dash, a digit, or capitals inside.
fn names_something(message: &str) -> bool {
    let quoted = message.matches('\'').count() >= 2;
    let mut words = message.split(|c: char| c.is_whitespace() || "();,".contains(c));
    let is_name = |word: &str| {
        let word = word.trim_matches(['.', ':']);
        let inside = word.get(1..).unwrap_or_default();
        inside.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase() || "-./".contains(c))
    };
    quoted || words.any(is_name)
}

fn tells_what_to_do(message: &str) -> bool {
    let mut clauses = vec![message];
    for end in ENDS {
        clauses = clauses.into_iter().flat_map(|clause| clause.split(end)).collect();
    }
    let imperative = |clause: &&str| {
        let first = clause.split_whitespace().next().unwrap_or_default().to_lowercase();
        DO.contains(&first.as_str())
    };
    OBLIGES.iter().any(|words| message.contains(words)) || clauses.iter().skip(1).any(imperative)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(message: &str, more: &Value) -> DynamicObject {
        let mut ready = json!({
            "type": "Ready", "status": "False", "reason": "CidrOverlap", "message": message,
            "lastTransitionTime": "2026-11-30T10:00:05Z",
        });
        let mut conditions = vec![];
        for (key, value) in more.as_object().into_iter().flatten() {
            if key == "also" {
                conditions.push(json!({"type": value, "status": "True", "reason": "R", "message": message,
                    "lastTransitionTime": "2026-11-30T10:00:05Z"}));
            } else {
                ready[key] = value.clone();
            }
        }
        conditions.push(ready);
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Claim",
            "metadata": {"name": "front", "creationTimestamp": "2026-11-30T10:00:00Z"},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn good_messages_pass() {
        for (message, also) in [
            ("spec.cidr 10.1.0.0/24 overlaps that of claim back; choose another range", "Stalled"),
            (
                "there is no network 'spy' for this Tenant; ask the platform's engineers for the names",
                "Stalled",
            ),
            ("Thing vpc-acme-net is written; waiting for its peer to build it", "Reconciling"),
            ("the Peer-X kinds are not installed; nothing is built before somebody installs them", "Stalled"),
            (
                "claim front-1 is kept while machines hold 3 of its addresses; delete or detach them first",
                "Stalled",
            ),
        ] {
            assert_eq!(of(&object(message, &json!({"also": also}))), Vec::<String>::new());
        }
        let well = object("", &json!({"status": "True"}));
        assert_eq!(of(&well), Vec::<String>::new());
    }

    #[test]
    fn a_planted_bad_message_is_refused_for_what_it_lacks() {
        let good = "spec.cidr 10.1.0.0/24 overlaps that of claim back; choose another range";
        for (message, more, fault) in [
            ("", json!({}), "what is wrong"),
            ("failed", json!({}), "what is wrong"),
            ("ApiError: NotFound", json!({}), "what is wrong"),
            ("Error(Some(Status { code: 500 })); ask the engineers", json!({}), "what is wrong"),
            ("the range overlaps that of another claim; choose another", json!({}), "names no object"),
            ("spec.cidr 10.1.0.0/24 overlaps that of claim back", json!({}), "what to do"),
            // To wait is an answer only while something is under way.
            ("Thing vpc-acme-net is written; waiting for its peer to build it", json!({}), "what to do"),
            (good, json!({"lastTransitionTime": "1970-01-01T00:00:00Z"}), "since when"),
            (good, json!({"reason": ""}), "no reason"),
            (good, json!({"reason": "it failed"}), "no reason"),
        ] {
            let told = of(&object(message, &more)).join("\n");
            assert!(told.contains(fault) && told.contains("Claim front"), "'{message}': {told}");
        }
    }
}
