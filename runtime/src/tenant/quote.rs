//! How the words of a tenant's server are repeated: short, on one line, and without the token that we sent it.
//!
//! A server may answer a mebibyte of terminal escapes, or what it was given; neither belongs in the platform's log. Its
//! refusals are rewritten before the client sees them, because the client logs, quotes and keeps them whole.

use std::sync::Arc;

use kube::core::{Status, response::StatusDetails};

/// Longest text in bytes.
const LONGEST: usize = 300;
/// Longest reason in bytes: `TooManyRequests` and its like.
const WORD: usize = 64;
/// In place of a secret.
const HIDDEN: &str = "[hidden]";

/// Repeats words of one server.
#[derive(Clone, Default)]
pub struct Quote {
    token: Option<Arc<str>>,
}

impl std::fmt::Debug for Quote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Quote")
    }
}

impl Quote {
    /// Hides `token`.
    pub(super) fn hiding(token: Option<&str>) -> Self {
        Self { token: token.filter(|token| !token.is_empty()).map(Arc::from) }
    }

    /// `text` as it may be logged and shown.
    pub fn say(&self, text: &str) -> String {
        // Cut before it is searched, and again after: a server decides how long the text is.
        let text = cut(text, 4 * LONGEST);
        let hidden = match &self.token {
            Some(token) => hide(text, token),
            None => text.to_owned(),
        };
        let line: String = hidden.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match cut(line.trim(), LONGEST) {
            all if all.len() == line.trim().len() => all.to_owned(),
            beginning => format!("{beginning}…"),
        }
    }

    /// The refusal that a body with that status code is, if it is one at all, as a body that says no more than it may.
    pub(super) fn refusal(&self, code: u16, body: &[u8]) -> Vec<u8> {
        let told = serde_json::from_slice::<Status>(body);
        let (message, reason, retry) = match &told {
            Ok(told) => {
                let retry = told.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                (told.message.as_str(), told.reason.as_str(), retry)
            }
            Err(_) => (std::str::from_utf8(body).unwrap_or("an answer that is no text"), "", 0),
        };
        let reason: String = reason.chars().filter(char::is_ascii_alphanumeric).take(WORD).collect();
        let mut status = Status::failure(&self.say(message), &reason).with_code(code);
        // The pace that a server under load asks for; nothing else of the details is decided on.
        status.details = (retry > 0).then(|| StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: retry,
        });
        // A structure of strings and numbers always serialises.
        serde_json::to_vec(&status).unwrap_or_default()
    }
}

/// `text` without `token`, and without a beginning of it at the end, where the text was cut.
fn hide(text: &str, token: &str) -> String {
    let text = text.replace(token, HIDDEN);
    let partial = token.char_indices().map(|(at, _)| &token[..at]).filter(|part| part.len() >= 8);
    match partial.rev().find(|part| text.ends_with(part)) {
        Some(part) => format!("{}{HIDDEN}", &text[..text.len() - part.len()]),
        None => text,
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9.secret";

    fn refusal(code: u16, body: &str) -> Value {
        serde_json::from_slice(&Quote::hiding(Some(TOKEN)).refusal(code, body.as_bytes())).unwrap()
    }

    #[test]
    fn a_text_is_one_short_line() {
        let quote = Quote::default();
        assert_eq!(quote.say(" no \n"), "no");
        assert_eq!(quote.say("a\x1b[31mb\r\nc"), "a [31mb  c");
        let long = quote.say(&"ä".repeat(1 << 20));
        assert!(long.len() <= LONGEST + '…'.len_utf8() && long.ends_with('…'), "{}", long.len());
    }

    #[test]
    fn the_token_is_never_repeated_not_even_where_the_text_is_cut() {
        let quote = Quote::hiding(Some(TOKEN));
        assert_eq!(quote.say(&format!("bad token {TOKEN}!")), "bad token [hidden]!");
        for padding in 0..2 * LONGEST {
            for filler in ["x", "ä", "\n"] {
                let said = quote.say(&format!("{}{TOKEN}", filler.repeat(padding)));
                assert!(!said.contains(&TOKEN[..8]), "{said}");
            }
        }
        for padding in 3 * LONGEST..5 * LONGEST {
            let said = quote.say(&format!("{}{TOKEN}", "\n".repeat(padding)));
            assert!(!said.contains(&TOKEN[..8]), "{said}");
        }
    }

    #[test]
    fn a_refusal_keeps_what_a_controller_decides_on() {
        let body = json!({
            "kind": "Status", "status": "Failure", "code": 409, "reason": "AlreadyExists",
            "message": format!("it exists; {TOKEN}"), "details": { "retryAfterSeconds": 3, "name": "x" },
        });
        let seen = refusal(409, &body.to_string());
        assert_eq!(seen["reason"], "AlreadyExists");
        assert_eq!(seen["message"], "it exists; [hidden]");
        assert_eq!(seen["details"]["retryAfterSeconds"], 3);
    }

    #[test]
    fn the_status_code_is_that_of_the_answer_whatever_the_body_says() {
        assert_eq!(refusal(404, r#"{"kind":"Status","code":200,"status":"Success"}"#)["code"], 404);
        assert_eq!(refusal(502, "<html>bad gateway</html>")["message"], "<html>bad gateway</html>");
        assert_eq!(refusal(500, "")["code"], 500);
        assert_eq!(refusal(500, r#"{"code":"x"}"#)["code"], 500);
    }

    #[test]
    fn a_reason_is_a_word() {
        let body = json!({ "reason": format!("A b{}", "c".repeat(1000)) }).to_string();
        assert_eq!(refusal(500, &body)["reason"].as_str().unwrap().len(), WORD);
    }
}
