//! What this process has sent to the API server and the caches may not show yet.
//!
//! Two claims that want the same are judged one after the other, but the second may be judged before the watch has
//! brought what the first one got. There is one leader, so what it has sent and what the cache holds is all there can
//! be.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::OwnedMutexGuard;

/// An object that no watch has shown for so long was never made: its creation was refused, or it is gone again.
const LOST: Duration = Duration::from_mins(2);

/// By object: what it holds, and when it was sent.
type InScope<T> = HashMap<String, (T, Instant)>;

/// Objects of one kind that were sent, by what their claims compete in: a VPC, a provider network.
pub struct Sent<T> {
    lost: Duration,
    scopes: Mutex<HashMap<String, InScope<T>>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl<T> Default for Sent<T> {
    fn default() -> Self {
        Self::lost_after(LOST)
    }
}

impl<T> Sent<T> {
    /// The same with another time after which what no watch has shown was never made.
    pub fn lost_after(lost: Duration) -> Self {
        Self { lost, scopes: Mutex::default(), turns: Mutex::default() }
    }
}

impl<T: Clone> Sent<T> {
    /// Notes an object before it is sent: also when the answer is lost it may exist.
    pub fn note(&self, scope: &str, object: &str, holds: T) {
        let mut sent = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        sent.entry(scope.to_owned()).or_default().insert(object.to_owned(), (holds, Instant::now()));
    }

    /// Forgets an object whose creation the API server has refused.
    pub fn forget(&self, scope: &str, object: &str) {
        let mut sent = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(in_scope) = sent.get_mut(scope) {
            in_scope.remove(object);
        }
    }

    /// Forgets what is in the cache, which `shown` names, and returns the rest of that scope.
    pub fn pending(&self, scope: &str, shown: &HashSet<String>) -> HashMap<String, T> {
        let mut sent = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(in_scope) = sent.get_mut(scope) else { return HashMap::new() };
        in_scope.retain(|object, (_, at)| !shown.contains(object) && at.elapsed() < self.lost);
        let rest: HashMap<String, T> =
            in_scope.iter().map(|(object, (holds, _))| (object.clone(), holds.clone())).collect();
        if rest.is_empty() {
            sent.remove(scope);
        }
        rest
    }

    /// The turn in one scope, held from reading to writing; waits for it.
    pub async fn turn(&self, scope: &str) -> OwnedMutexGuard<()> {
        self.turn_of(scope).lock_owned().await
    }

    /// The turn in one scope if nobody has it.
    pub fn try_turn(&self, scope: &str) -> Option<OwnedMutexGuard<()>> {
        self.turn_of(scope).try_lock_owned().ok()
    }

    fn turn_of(&self, scope: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for a turn that only the map holds.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(scope.to_owned()).or_default().clone()
    }
}
