//! What JSON may come to weigh in memory, told from its text alone, before and after it is decoded.
//!
//! Bytes alone do not bound memory: `{},` are three bytes and become a structure of hundreds. So every opening brace
//! counts [`OBJECT`] and every quote [`QUOTE`] on top of its byte, strings and keys being what else is allocated. For what
//! people really write this is about twice the memory that it takes; the worst that can be contrived takes a few times as
//! much as it weighs.

use std::io::{self, Write};

use serde::Serialize;

/// An empty object decoded.
const OBJECT: usize = 256;
/// Half of a short string.
const QUOTE: usize = 16;

/// The weight of a piece of JSON.
pub(super) fn of_text(json: &[u8]) -> usize {
    json.iter().fold(json.len(), |weight, byte| match byte {
        b'{' => weight + OBJECT,
        b'"' => weight + QUOTE,
        _ => weight,
    })
}

/// The weight of an object as it is kept.
pub(super) fn of_object<K: Serialize>(object: &K) -> usize {
    let mut scale = Scale(0);
    // What cannot be written as JSON did not come from JSON.
    let _ = serde_json::to_writer(&mut scale, object);
    scale.0
}

struct Scale(usize);

impl Write for Scale {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        self.0 += of_text(json);
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_short_in_text_and_large_in_memory_is_heavy() {
        let hollow = format!("[{}]", vec!["{}"; 1000].join(","));
        assert!(of_text(hollow.as_bytes()) > 1000 * OBJECT);
        let text = "x".repeat(3000);
        assert_eq!(of_text(text.as_bytes()), 3000);
    }

    #[test]
    fn an_object_weighs_the_same_in_text_and_decoded() {
        let text = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a", "namespace": "b" },
            "spec": { "ports": [{ "port": 80, "name": "http" }] },
        });
        let service: Service = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(of_object(&service), of_text(text.to_string().as_bytes()));
    }
}
