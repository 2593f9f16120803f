//! A gate holds requests or answers until the test says how they go on.
//!
//! It makes "between the server's answer and the client's hearing of it" a moment in which a test can act, and so
//! "killed right after its n-th write" exact instead of likely.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;

use super::Rule;

/// How what is held goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    Wait,
    Go,
    Break,
}

/// The proxy's side of a gate.
#[derive(Debug, Clone)]
pub struct Hold {
    held: watch::Sender<usize>,
    decision: watch::Receiver<Decision>,
}

impl Hold {
    /// Waits for the decision; `false` to break the connection.
    pub(super) async fn passed(&self) -> bool {
        self.held.send_modify(|held| *held += 1);
        let mut decision = self.decision.clone();
        // A gate that is dropped opens.
        let decided = decision.wait_for(|decision| *decision != Decision::Wait).await;
        decided.is_ok_and(|decision| *decision == Decision::Go)
    }
}

/// Requests or answers are held here. Dropping it lets them go on and lifts the rule.
#[derive(Debug)]
pub struct Gate {
    rule: Rule,
    held: watch::Receiver<usize>,
    decision: watch::Sender<Decision>,
}

impl Gate {
    pub(super) fn new(add: impl FnOnce(Hold) -> Rule) -> Self {
        let (held_by, held) = watch::channel(0);
        let (decision, decided) = watch::channel(Decision::Wait);
        let rule = add(Hold { held: held_by, decision: decided });
        Self { rule, held, decision }
    }

    /// Waits until something is held.
    pub async fn reached(&self, patience: Duration) -> Result<()> {
        let mut held = self.held.clone();
        let reached = tokio::time::timeout(patience, held.wait_for(|held| *held > 0)).await;
        reached.with_context(|| format!("nothing came to the gate within {patience:?}"))??;
        Ok(())
    }

    /// How many have been held.
    pub fn held(&self) -> usize {
        *self.held.borrow()
    }

    /// What is held goes on; nothing more is held.
    pub fn release(self) {
        drop(self);
    }

    /// What is held never goes on, its connections break; nothing more is held. For a client that was killed.
    pub fn abandon(self) {
        self.decision.send_replace(Decision::Break);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.rule.lift();
        self.decision.send_if_modified(|decision| {
            let waiting = *decision == Decision::Wait;
            if waiting {
                *decision = Decision::Go;
            }
            waiting
        });
    }
}
