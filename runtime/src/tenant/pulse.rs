//! Signs of life of one cluster, taken from every request that is made anyway: where watches are renewed, nobody needs to
//! ask whether it is there.

use std::sync::{Mutex, PoisonError};

use tokio::{sync::Notify, time::Instant};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    answered: Mutex<Option<Instant>>,
    failed: Notify,
}

impl Pulse {
    /// A request was answered as it should be.
    pub(super) fn answer(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// A request was not answered, or our credentials were not accepted.
    pub(super) fn fail(&self) {
        self.failed.notify_one();
    }

    /// When the last answer came.
    pub(super) fn last(&self) -> Option<Instant> {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns after a failure; after one that nobody waited for, at once.
    pub(super) async fn failed(&self) {
        self.failed.notified().await;
    }
}
