//! When to try again: attempts per key and a pure delay. No clock other than the one handed in.
//!
//! kube's error policy is told the error but not how often it happened, so the count is kept here.

use std::{
    collections::HashMap,
    hash::Hash,
    time::{Duration, Instant},
};

/// The delay after the first failure.
pub const FIRST: Duration = Duration::from_secs(1);
/// The longest delay.
pub const LONGEST: Duration = Duration::from_mins(5);
/// A key that has not failed for this long is forgotten when room is needed (deleted objects never succeed).
const FORGET: Duration = Duration::from_mins(15);
/// From this many keys on, old ones are looked for.
const MANY: usize = 1024;

/// More keys than this are not kept.
const MOST: usize = 16 * MANY;

/// How long to wait after the `failures`-th failure in a row (from 1): 1 s, 2 s, 4 s … 5 min.
pub fn delay(failures: u32) -> Duration {
    exponential(failures, FIRST, LONGEST)
}

/// `first`, doubled with each further failure in a row (from 1), at most `longest`.
pub fn exponential(failures: u32, first: Duration, longest: Duration) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    first.saturating_mul(1 << doublings).min(longest)
}

/// What is remembered of a key that failed.
#[derive(Debug, Clone)]
struct Failing {
    failures: u32,
    last: Instant,
    told: Option<String>,
}

/// What the caller should do about a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Failures in a row, this one included.
    pub failures: u32,
    /// How long to wait before the next attempt.
    pub delay: Duration,
    /// The text differs from the one last told (or none was told): tell it, then call [`Attempts::told`].
    pub news: bool,
}

/// Failures in a row per key.
#[derive(Debug)]
pub struct Attempts<T> {
    failing: HashMap<T, Failing>,
}

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        Self { failing: HashMap::new() }
    }
}

impl<T: Eq + Hash> Attempts<T> {
    /// Counts a failure of `key` that reads `text`.
    pub fn failed(&mut self, key: T, text: &str, now: Instant) -> Verdict {
        if self.failing.len() >= MANY {
            self.failing.retain(|_, failing| now.saturating_duration_since(failing.last) < FORGET);
            // A tenant may make failing objects faster than they are forgotten: then all begin anew.
            if self.failing.len() >= MOST {
                self.failing.clear();
            }
        }
        let failing = self.failing.entry(key).or_insert(Failing { failures: 0, last: now, told: None });
        failing.failures = failing.failures.saturating_add(1);
        failing.last = now;
        Verdict {
            failures: failing.failures,
            delay: delay(failing.failures),
            news: failing.told.as_deref() != Some(text),
        }
    }

    /// Notes that a person was told `text` about `key`.
    pub fn told(&mut self, key: &T, text: String) {
        if let Some(failing) = self.failing.get_mut(key) {
            failing.told = Some(text);
        }
    }

    /// Forgets the failures of `key`; true if there were any.
    pub fn succeeded(&mut self, key: &T) -> bool {
        self.failing.remove(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_from_one_second_to_five_minutes() {
        let seconds: Vec<_> = (0..=11).map(|n| delay(n).as_secs()).collect();
        assert_eq!(seconds, [1, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(delay(u32::MAX), LONGEST);
    }

    #[test]
    fn a_success_starts_the_count_anew() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        assert_eq!(attempts.failed("a", "x", now).failures, 1);
        assert_eq!(attempts.failed("a", "x", now).failures, 2);
        assert_eq!(attempts.failed("b", "x", now).failures, 1);
        assert!(attempts.succeeded(&"a"));
        assert!(!attempts.succeeded(&"a"));
        assert_eq!(attempts.failed("a", "x", now).failures, 1);
    }

    #[test]
    fn the_same_text_is_news_only_until_it_was_told() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        assert!(attempts.failed("a", "x", now).news);
        assert!(attempts.failed("a", "x", now).news);
        attempts.told(&"a", "x".into());
        assert!(!attempts.failed("a", "x", now).news);
        assert!(attempts.failed("a", "y", now).news);
    }

    #[test]
    fn objects_that_vanished_while_failing_are_forgotten() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        for key in 0..MANY {
            attempts.failed(key, "x", now);
        }
        attempts.failed(MANY, "x", now + FORGET);
        assert_eq!(attempts.failing.len(), 1);
    }

    #[test]
    fn however_many_fail_at_once_what_is_kept_is_bounded() {
        let now = Instant::now();
        let mut attempts = Attempts::default();
        for key in 0..3 * MOST {
            attempts.failed(key, "x", now);
            assert!(attempts.failing.len() <= MOST);
        }
    }
}
