//! Whoever keeps undoing what we keep is answered, but not at their pace: an object is mended at once, a few times in a
//! row, and then at a steady rate, however often it is torn meanwhile.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::change::Change;

/// So many times in a row, which is more than any change of the platform takes.
const AT_ONCE: u32 = 6;
/// And then once in this time.
const EVERY: Duration = Duration::from_secs(2);
/// More objects than are mended at a time.
const MANY: usize = 1_024;

/// When each object, by uid, has earned all its mendings back.
#[derive(Default)]
pub struct Pace(Mutex<HashMap<String, Instant>>);

impl Pace {
    /// As many of the changes as are due, in order, and after which time the rest is.
    pub fn due(&self, mut changes: Vec<Change>, now: Instant) -> (Vec<Change>, Option<Duration>) {
        for (index, change) in changes.iter().enumerate() {
            let Some(object) = change.mends() else { continue };
            if let Err(wait) = self.spend(object, now) {
                changes.truncate(index);
                return (changes, Some(wait));
            }
        }
        (changes, None)
    }

    fn spend(&self, object: &str, now: Instant) -> Result<(), Duration> {
        let mut earned = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if earned.len() >= MANY {
            earned.retain(|_, at| *at > now);
        }
        let at = earned.get(object).copied().unwrap_or(now).max(now);
        match (at - now).checked_sub(EVERY * (AT_ONCE - 1)) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => {
                earned.insert(object.to_owned(), at + EVERY);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::change::{Kind, Target};

    fn mend(uid: &str) -> Change {
        let target = Target { namespace: String::new(), name: "vpc".into(), uid: uid.into() };
        Change::Relabel(Kind::Vpc, target, BTreeMap::new())
    }

    #[test]
    fn an_object_is_mended_a_few_times_at_once_and_then_steadily() {
        let (pace, start) = (Pace::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        // Torn fifty times a second for twenty seconds.
        let mended = (0..1_000).filter(|n| pace.due(vec![mend("a")], at(n * 20)).1.is_none()).count();
        assert_eq!(mended, 6 + 9);
        let (changes, wait) = pace.due(vec![mend("b"), mend("a"), Change::Hold], at(19_980));
        assert_eq!(changes, [mend("b")], "what comes after it waits as well");
        let wait = wait.unwrap();
        assert!(!wait.is_zero() && wait <= EVERY, "{wait:?}");
        assert_eq!(pace.due(vec![mend("a")], at(19_980) + wait).1, None);
    }

    #[test]
    fn what_mends_nothing_is_never_late() {
        let pace = Pace::default();
        for _ in 0..100 {
            assert_eq!(pace.due(vec![Change::Hold, Change::Release], Instant::now()).0.len(), 2);
        }
    }
}
