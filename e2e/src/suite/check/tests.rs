//! What the tests of the judgements share.

use serde_json::json;

use crate::audit::Entry;

/// A request of this verb for this URI, answered with 200; what it is about is read from the path.
pub fn entry(verb: &str, uri: &str) -> Entry {
    let path = uri.split('?').next().unwrap_or_default();
    let mut parts: Vec<&str> = path.trim_start_matches("/apis/").split('/').collect();
    let group = parts.remove(0);
    parts.remove(0);
    let namespace =
        (parts.first() == Some(&"namespaces") && parts.len() > 2).then(|| parts.drain(..2).nth(1)).flatten();
    let part = |index: usize| parts.get(index).copied().unwrap_or_default();
    serde_json::from_value(json!({
        "verb": verb,
        "user": {"username": "system:serviceaccount:kmetal-system:x"},
        "requestURI": uri,
        "objectRef": {"apiGroup": group, "namespace": namespace.unwrap_or_default(), "resource": part(0),
            "name": part(1), "subresource": part(2)},
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-11-30T10:00:00.000000Z",
        "stageTimestamp": "2026-11-30T10:00:00.000000Z",
        "stage": "ResponseComplete",
    }))
    .unwrap()
}
