//! Whether a tenant cluster answers. For the platform's log and metrics: the texts tell what is reachable from here, so
//! they are not shown to tenants.

use k8s_openapi::jiff::Timestamp;

use super::kubeconfig::Refusal;

/// What is known of the way to a tenant cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// There is nothing to try yet; the text says what is waited for.
    Waiting(String),
    /// The kubeconfig is not used. Changing the Secret is noticed at once.
    Refused(Refusal),
    /// It does not answer, or not as an API server that knows us.
    Unreachable {
        /// When it was first found so.
        since: Timestamp,
        /// What happened at the last attempt.
        why: String,
    },
    /// It answered the last time it was asked.
    Reachable,
}

impl Health {
    /// All values of [`Health::state`].
    pub(super) const STATES: [&'static str; 4] = ["waiting", "refused", "unreachable", "reachable"];

    /// As a metrics label.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Refused(_) => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Reachable => "reachable",
        }
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Waiting(why) | Self::Unreachable { why, .. } => why.clone(),
            Self::Refused(refusal) => refusal.to_string(),
            Self::Reachable => "it answers".to_owned(),
        }
    }
}
