//! Named steps with their durations, for commands that do one thing after another.
//!
//! A step that fails does not keep the next from running: one run tells all that is wrong.

use std::time::{Duration, Instant};

use anyhow::Result;

/// What was done so far.
#[derive(Debug, Default)]
pub struct Steps {
    done: Vec<(String, Duration, Result<()>)>,
}

impl Steps {
    /// Does one step and tells so.
    pub fn step(&mut self, name: &str, action: impl FnOnce() -> Result<()>) {
        eprintln!("\n=== {name}");
        let began = Instant::now();
        let outcome = action();
        self.note(name, began.elapsed(), outcome);
    }

    /// Adds a step that was done elsewhere.
    pub fn note(&mut self, name: &str, took: Duration, outcome: Result<()>) {
        if let Err(error) = &outcome {
            eprintln!("{error:#}");
        }
        eprintln!("=== {name}: {} in {}", word(&outcome), seconds(took));
        self.done.push((name.to_owned(), took, outcome));
    }

    /// Whether all went well.
    pub fn all_well(&self) -> bool {
        self.done.iter().all(|(_, _, outcome)| outcome.is_ok())
    }

    /// One line per step.
    pub fn table(&self) -> String {
        let width = self.done.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        let lines = self.done.iter().map(|(name, took, outcome)| {
            format!("{name:width$}  {:>8}  {}\n", seconds(*took), word(outcome))
        });
        lines.collect::<Vec<_>>().concat()
    }
}

fn word(outcome: &Result<()>) -> &'static str {
    if outcome.is_ok() { "ok" } else { "FAILED" }
}

fn seconds(took: Duration) -> String {
    format!("{}m{:02}s", took.as_secs() / 60, took.as_secs() % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_tells_every_step() {
        let mut steps = Steps::default();
        steps.note("format", Duration::from_secs(1), Ok(()));
        assert!(steps.all_well());
        steps.note("a longer name", Duration::from_secs(75), Err(anyhow::anyhow!("broken")));
        assert!(!steps.all_well());
        assert_eq!(steps.table(), "format            0m01s  ok\na longer name     1m15s  FAILED\n");
    }
}
