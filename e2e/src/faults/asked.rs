//! A request as rules and the log see it: its head, without anything that might be a secret.

use http::{Method, Request, header::USER_AGENT};

/// The head of a request. Its `Authorization` is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The HTTP method.
    pub method: Method,
    /// The path, as sent.
    pub path: String,
    /// The query without `?`; empty if there is none.
    pub query: String,
    /// The program that asks.
    pub agent: String,
}

impl Asked {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        Self {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            agent: agent.unwrap_or_default().to_owned(),
        }
    }

    /// Whether the method is one that changes something.
    pub fn is_write(&self) -> bool {
        !matches!(self.method, Method::GET | Method::HEAD | Method::OPTIONS)
    }

    /// A parameter of the query, as sent (not decoded).
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

impl std::fmt::Display for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.query.is_empty() { "" } else { "?" };
        write!(f, "{} {}{mark}{} ({})", self.method, self.path, self.query, self.agent)
    }
}
