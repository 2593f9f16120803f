//! The error of a reconcile: what only a retry may cure.
//!
//! Invalid user input is a condition in a status and never an error. `anyhow::Error` cannot be the error of a
//! reconcile because it is not a `std::error::Error`; it is carried inside [`Error::Other`].

use std::error::Error as StdError;

use crate::{client::TimedOut, fence::NotLeading};

/// Result of everything in this crate that talks to an API server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure that is retried with backoff.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("{}", describe(.0))]
    Kube(#[source] kube::Error),
    /// The object changed, vanished or was replaced between reading and writing it: read again, decide again.
    #[error("{0}")]
    Conflict(String),
    /// A decision needs a kind whose objects are not known now (not listed yet, or its CRD is not installed).
    #[error("{what} cannot be read now: {why}")]
    Unknown {
        /// The kind, as `plural.group`.
        what: String,
        /// Why it is not known, for a person.
        why: String,
    },
    /// A reconcile that was dropped because it took too long.
    #[error("not done within {} s", .0.as_secs())]
    TookTooLong(std::time::Duration),
    /// Anything else.
    #[error("{0:#}")]
    Other(anyhow::Error),
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::Kube(error)
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl Error {
    /// The kind of failure as a metrics label; one of `transient`, `conflict`, `forbidden`, `invalid`,
    /// `not_found`, `timeout`, `unknown`, `other`.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Kube(error) => class_of(error),
            Self::Conflict(_) => "conflict",
            Self::Unknown { .. } => "unknown",
            Self::TookTooLong(_) => "timeout",
            Self::Other(error) => match error.downcast_ref::<kube::Error>() {
                Some(error) => class_of(error),
                None => "other",
            },
        }
    }

    /// The HTTP status code with which the API server refused, if it answered at all.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Kube(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }
}

/// [`Error::class`] of a client error.
pub fn class_of(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => match status.code {
            401 | 403 => "forbidden",
            404 => "not_found",
            408 | 504 => "timeout",
            409 => "conflict",
            400 | 405 | 413 | 415 | 422 => "invalid",
            // 410: a list or a watch has become too old and starts anew.
            410 | 429 | 500..=599 => "transient",
            _ => "other",
        },
        kube::Error::Service(source) if source.is::<TimedOut>() => "timeout",
        kube::Error::Service(source) if source.is::<NotLeading>() => "other",
        kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => "transient",
        kube::Error::SerdeError(_) | kube::Error::BuildRequest(_) => "invalid",
        _ => "other",
    }
}

/// One line for a person: the server's own message, or the chain of causes of a failed connection.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered {} {}", status.code, status.reason)
        }
        kube::Error::Api(status) => format!("{} ({})", status.message.trim(), status.code),
        kube::Error::Service(source) => chain(source.as_ref()),
        other => chain(other),
    }
}

/// An error and its causes, outermost first, without repeating a cause that its parent already quotes.
pub(crate) fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16) -> Error {
        Error::Kube(kube::Error::Api(Status::failure("no", "Reason").with_code(code).boxed()))
    }

    #[test]
    fn every_answer_of_the_server_has_a_bounded_class() {
        for (code, class) in [
            (400, "invalid"),
            (401, "forbidden"),
            (403, "forbidden"),
            (404, "not_found"),
            (409, "conflict"),
            (410, "transient"),
            (422, "invalid"),
            (429, "transient"),
            (500, "transient"),
            (503, "transient"),
            (504, "timeout"),
        ] {
            assert_eq!(api(code).class(), class, "{code}");
        }
    }

    #[test]
    fn a_request_that_timed_out_is_told_from_one_that_failed() {
        let timeout = kube::Error::Service(Box::new(TimedOut::for_test()));
        assert_eq!(Error::from(timeout).class(), "timeout");
        let refused = kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
        assert_eq!(Error::from(refused).class(), "transient");
    }

    #[test]
    fn the_text_is_what_the_server_said_and_not_a_debug_dump() {
        assert_eq!(api(403).to_string(), "no (403)");
    }

    #[test]
    fn an_error_wrapped_in_anyhow_keeps_its_class_and_its_context() {
        let status = Status::failure("taken", "Conflict").with_code(409).boxed();
        let error = Error::from(anyhow::Error::from(kube::Error::Api(status)).context("write vpc"));
        assert_eq!(error.class(), "conflict");
        assert!(error.to_string().starts_with("write vpc"), "{error}");
    }
}
