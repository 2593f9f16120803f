//! After a 429, requests of that verb go one by one at the pace the server asked for, until one is accepted.
//!
//! Without this, every reconcile would honour `Retry-After` on its own and all of them together would not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Method;
use tokio::time::Instant;

/// The pace when the server names none.
pub(super) const PACE: Duration = Duration::from_secs(1);
/// A server (or something between) that asks for more than this is not believed.
const SLOWEST: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
struct Pace {
    next: Instant,
    every: Duration,
}

/// The pace per verb; verbs without an entry are free.
#[derive(Clone, Debug, Default)]
pub(super) struct Throttle(Arc<Mutex<HashMap<Method, Pace>>>);

impl Throttle {
    /// When the request may go; `None` if that is later than `patience` from `now`.
    pub(super) fn turn(&self, method: &Method, now: Instant, patience: Duration) -> Option<Instant> {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pace) = paces.get_mut(method) else { return Some(now) };
        let turn = pace.next.max(now);
        if turn > now + patience {
            return None;
        }
        pace.next = turn + pace.every;
        Some(turn)
    }

    /// The server answered 429 and asks to wait for `wait`.
    pub(super) fn refused(&self, method: &Method, now: Instant, wait: Duration) {
        let every = wait.clamp(PACE, SLOWEST);
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pace = paces.entry(method.clone()).or_insert(Pace { next: now, every });
        pace.every = every;
        pace.next = pace.next.max(now + every);
    }

    /// The server answered something else.
    pub(super) fn accepted(&self, method: &Method) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(method);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn after_a_429_requests_of_that_verb_take_turns() {
        let throttle = Throttle::default();
        let now = Instant::now();
        assert_eq!(throttle.turn(&Method::GET, now, SECOND), Some(now));
        throttle.refused(&Method::GET, now, SECOND);
        assert_eq!(throttle.turn(&Method::GET, now, 2 * SECOND), Some(now + SECOND));
        assert_eq!(throttle.turn(&Method::GET, now, 2 * SECOND), Some(now + 2 * SECOND));
        assert_eq!(throttle.turn(&Method::GET, now, 2 * SECOND), None);
        assert_eq!(throttle.turn(&Method::POST, now, SECOND), Some(now));
    }

    #[test]
    fn one_accepted_request_ends_the_waiting() {
        let throttle = Throttle::default();
        let now = Instant::now();
        throttle.refused(&Method::GET, now, 5 * SECOND);
        throttle.accepted(&Method::GET);
        assert_eq!(throttle.turn(&Method::GET, now, SECOND), Some(now));
    }

    #[test]
    fn an_absurd_retry_after_does_not_stop_us_for_hours() {
        let throttle = Throttle::default();
        let now = Instant::now();
        throttle.refused(&Method::GET, now, 3600 * SECOND);
        assert_eq!(throttle.turn(&Method::GET, now, 15 * SECOND), Some(now + SLOWEST));
    }
}
