//! The fence: whether this process may write now.
//!
//! A leader that was stopped (SIGSTOP) and resumed still believes that it leads, and so does every
//! reconcile in it. So the check is not made where a reconcile begins but at the client, on every request that is
//! not a read, and a write that is under way when the deadline passes is dropped. The deadline is monotonic and is
//! taken from the moment *before* the renewing request was sent, so no clock of another machine matters.

use std::time::Duration;

use tokio::{sync::watch, time::Instant};

/// A write was refused because this process does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not hold the lease (any more), so it does not write")]
pub struct NotLeading;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody asked for leadership: everything may be written.
    Open,
    /// Standby, released or lost.
    Closed,
    /// Leading until this moment unless it is moved.
    Until(Instant),
}

/// Shared by every client of the process.
#[derive(Clone, Debug)]
pub struct Fence {
    state: watch::Sender<State>,
}

impl Default for Fence {
    /// Open: a process that needs no leader writes freely.
    fn default() -> Self {
        Self { state: watch::Sender::new(State::Open) }
    }
}

impl Fence {
    /// Whether a write may leave now.
    pub fn check(&self) -> Result<(), NotLeading> {
        match *self.state.borrow() {
            State::Open => Ok(()),
            State::Until(deadline) if Instant::now() < deadline => Ok(()),
            State::Until(_) | State::Closed => Err(NotLeading),
        }
    }

    /// How long the present leadership lasts without another renewal; `None` when it has none or needs none.
    pub fn remaining(&self) -> Option<Duration> {
        match *self.state.borrow() {
            State::Until(deadline) => {
                Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
            }
            State::Open | State::Closed => None,
        }
    }

    /// Returns when writes are refused: the deadline passed, or [`Fence::close`] was called.
    pub async fn lapsed(&self) {
        let mut state = self.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            let changed = async {
                if state.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            match now {
                State::Open => changed.await,
                State::Closed => return,
                State::Until(deadline) => tokio::select! {
                    biased;
                    () = tokio::time::sleep_until(deadline) => return,
                    () = changed => {}
                },
            }
        }
    }

    /// No write from now on.
    pub(crate) fn close(&self) {
        self.state.send_replace(State::Closed);
    }

    /// Writes are allowed until `deadline`.
    pub(crate) fn allow_until(&self, deadline: Instant) {
        self.state.send_replace(State::Until(deadline));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn writes_are_allowed_until_the_deadline_and_not_a_moment_longer() {
        let fence = Fence::default();
        assert_eq!(fence.check(), Ok(()));
        fence.close();
        assert_eq!(fence.check(), Err(NotLeading));
        fence.allow_until(Instant::now() + SECOND);
        assert_eq!(fence.check(), Ok(()));
        tokio::time::advance(SECOND).await;
        assert_eq!(fence.check(), Err(NotLeading));
        assert_eq!(fence.remaining(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_moves_the_moment_at_which_a_write_under_way_is_dropped() {
        let fence = Fence::default();
        let start = Instant::now();
        fence.allow_until(start + SECOND);
        let lapsed = tokio::spawn({
            let fence = fence.clone();
            async move { fence.lapsed().await }
        });
        tokio::task::yield_now().await;
        fence.allow_until(start + 3 * SECOND);
        lapsed.await.unwrap();
        assert_eq!(start.elapsed(), 3 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_drops_writes_under_way_at_once() {
        let fence = Fence::default();
        fence.allow_until(Instant::now() + 60 * SECOND);
        let start = Instant::now();
        let closer = fence.clone();
        tokio::join!(fence.lapsed(), async move {
            tokio::time::sleep(SECOND).await;
            closer.close();
        });
        assert_eq!(start.elapsed(), SECOND);
    }
}
