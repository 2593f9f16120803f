//! Leadership on a `coordination.k8s.io` Lease.
//!
//! - Every write is a PUT with the resourceVersion that was observed, so of two candidates one is refused.
//! - Whether a holder is alive is judged by *observing* its renewals with the local monotonic clock; the times written
//!   in the Lease are for people. A wrong clock anywhere changes nothing.
//! - The holder stops believing in itself ([`renew deadline`](Terms::deadline)) a third of the duration before a
//!   candidate may take over, counted from the moment before its last successful renewal was *sent*.
//! - A candidate follows the Lease with a watch: taking over begins right when the holder has been silent for the
//!   duration, and at once when it was released.
//! - The client used here is its own, outside the fence and with its own connections: a busy process still renews.
//!
//! RBAC: `get`, `list`, `watch`, `update` on the named Lease, `create` on `leases` in that namespace.
//! Chosen over an existing crate because none of them is built on this version of kube, and because the usual ones
//! renew by patch, which lets two leaders be.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;

pub use self::{acquire::Candidate, keep::Held};

mod acquire;
mod keep;

/// The times of a lease, all from its duration, in the proportions of client-go (15 s, 10 s, 2 s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// A candidate takes over after not having seen a renewal for this long.
    pub duration: Duration,
}

impl Terms {
    /// The holder gives up when its last successful renewal is this old.
    pub fn deadline(self) -> Duration {
        self.duration * 2 / 3
    }

    /// Time between two renewals.
    pub fn retry(self) -> Duration {
        self.duration * 2 / 15
    }
}

/// What a candidate should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// There is no Lease.
    Create,
    /// It was released, or its holder has been silent for too long.
    Take,
    /// Somebody holds it; look again after this long unless it changes.
    Wait(Duration),
}

/// The pure decision of a candidate that has seen the spec of `lease` unchanged for `unchanged`.
fn decide(lease: Option<&Lease>, unchanged: Duration, terms: Terms) -> Step {
    let Some(lease) = lease else { return Step::Create };
    let Some(spec) = &lease.spec else { return Step::Take };
    if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
        return Step::Take;
    }
    // The holder may have been configured with a longer duration than we are.
    let theirs = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    match terms.duration.max(Duration::from_secs(theirs)).checked_sub(unchanged) {
        None | Some(Duration::ZERO) => Step::Take,
        Some(left) => Step::Wait(left),
    }
}

/// How holding a lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// We gave it back.
    Released,
    /// We may not lead any more, with the reason. The fence is closed.
    Lost(String),
}

#[cfg(test)]
mod tests;
