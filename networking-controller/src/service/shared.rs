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

/// Writes to the under cluster that the Services of one cluster may cause at once …
const BURST: f64 = 500.0;
/// … and a second in the long run.
const RATE: f64 = 50.0;

/// See the module.
pub struct Shared {
    /// Services that are to be looked at because of something outside of their cluster.
    pub requests: Requests<Service>,
    /// Rules that were sent and may not be in the cache yet, by uid of their EipClaim.
    pub sent: Sent<Socket>,
    /// Environments whose quota is used up.
    pub quota: Quota,
    /// What each cluster may still write.
    pub shares: Shares,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            requests: Requests::default(),
            sent: Sent::lost_after(LOST),
            quota: Quota::default(),
            shares: Shares::default(),
        }
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

/// How much the Services of each cluster may cause on the under cluster, by uid of the Cluster. One whose owner changes
/// ports in a loop would otherwise keep the API server and Kube-OVN busy for everybody.
#[derive(Default)]
pub struct Shares(Mutex<HashMap<String, (f64, Instant)>>);

impl Shares {
    /// Takes one write of a cluster's share; false when it has none left now.
    pub fn take(&self, cluster_uid: &str) -> bool {
        self.take_at(cluster_uid, Instant::now())
    }

    fn take_at(&self, cluster_uid: &str, now: Instant) -> bool {
        let left = |(left, since): (f64, Instant)| {
            now.saturating_duration_since(since).as_secs_f64().mul_add(RATE, left).min(BURST)
        };
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.get(cluster_uid).map_or(BURST, |share| left(*share));
        if share < 1.0 {
            return false;
        }
        // One that has all of its share is like one that never took any.
        shares.retain(|_, share| left(*share) < BURST);
        shares.insert(cluster_uid.to_owned(), (share - 1.0, now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_writes_without_end_is_slowed_down_and_no_other_is() {
        let shares = Shares::default();
        let start = Instant::now();
        let burst = (0..1000).filter(|_| shares.take_at("loud", start)).count();
        assert_eq!(burst, 500);
        assert!(shares.take_at("quiet", start));
        let later = start + Duration::from_secs(2);
        assert_eq!((0..1000).filter(|_| shares.take_at("loud", later)).count(), 100);
        assert!(shares.take_at("loud", later + Duration::from_mins(1)));
        assert_eq!(shares.0.lock().unwrap().len(), 1, "who has rested takes no room");
    }

    #[test]
    fn a_full_environment_is_left_alone_until_something_goes() {
        let quota = Quota::default();
        assert!(!quota.is_closed("acme"));
        quota.close("acme");
        assert!(quota.is_closed("acme") && !quota.is_closed("globex"));
        quota.open("acme");
        assert!(!quota.is_closed("acme"));
    }
}
