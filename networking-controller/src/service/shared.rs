//! What the passes of all Services share: what was sent and is not in a cache yet, whose turn it is, and which
//! Environments are full.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Service;
use kmetal_runtime::tenant::Requests;
use tokio::sync::OwnedMutexGuard;

use super::rules::Socket;
use crate::sent::Sent;

/// A rule whose creation was not answered, and that no watch has shown for so long, was never made. If it comes later
/// all the same, it is one too many, and one goes.
const LOST: Duration = Duration::from_secs(30);

/// How long after a refusal by quota nothing more is tried in an Environment.
const FULL: Duration = Duration::from_secs(30);

/// See the module.
pub struct Shared {
    /// Services that are to be looked at because of something outside of their cluster.
    pub requests: Requests<Service>,
    /// Rules that were sent and may not be in the cache yet, by uid of their EipClaim.
    pub sent: Sent<Socket>,
    /// Environments whose quota is used up.
    pub quota: Quota,
}

impl Default for Shared {
    fn default() -> Self {
        Self { requests: Requests::default(), sent: Sent::lost_after(LOST), quota: Quota::default() }
    }
}

impl Shared {
    /// The turn for one EipClaim, from reading to writing, if nobody has it.
    pub fn turn(&self, namespace: &str, claim: &str) -> Option<OwnedMutexGuard<()>> {
        self.sent.try_turn(&format!("{namespace}/{claim}"))
    }
}

/// Environments in which a quota refused an EipClaim a moment ago. A cluster with thousands of Services would otherwise
/// ask the API server thousands of times for what it has just refused.
#[derive(Default)]
pub struct Quota(Mutex<HashMap<String, Instant>>);

impl Quota {
    /// Notes a refusal.
    pub fn close(&self, namespace: &str) {
        let mut closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closed.retain(|_, since| since.elapsed() < FULL);
        closed.insert(namespace.to_owned(), Instant::now());
    }

    /// An EipClaim has gone there: it is worth another try.
    pub fn open(&self, namespace: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }

    /// Whether a refusal is so fresh that nothing is tried.
    pub fn is_closed(&self, namespace: &str) -> bool {
        let closed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        closed.get(namespace).is_some_and(|since| since.elapsed() < FULL)
    }
}
