//! How fast one cluster is asked: whatever makes us ask again at once, a list without end or a watch that ends as soon as
//! it begins, costs no more than this.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Time between two requests in the long run: 20 a second.
const EVERY: Duration = Duration::from_millis(50);
/// Requests that may go at once after a rest.
const BURST: u32 = 40;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the next request would go if there were no bursts.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// When a request that comes `now` may go.
    pub(super) fn turn(&self, now: Instant) -> Instant {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let this = next.unwrap_or(now).max(now);
        *next = Some(this + EVERY);
        this.checked_sub(EVERY * BURST).map_or(now, |turn| turn.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_what_follows_at_the_pace() {
        let pace = Pace::default();
        // Paused clocks begin at nothing, from which nothing can be taken.
        tokio::time::advance(Duration::from_mins(1)).await;
        let now = Instant::now();
        let turns: Vec<_> = (0..BURST + 21).map(|_| pace.turn(now) - now).collect();
        assert!(turns[..=BURST as usize].iter().all(Duration::is_zero));
        assert_eq!(turns.last(), Some(&Duration::from_secs(1)));
        let later = now + Duration::from_mins(1);
        assert_eq!(pace.turn(later), later);
    }
}
