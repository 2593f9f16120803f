//! Which of very many cases a run takes: all with `--full`, else a third, another with each commit.
//!
//! The choice hangs on the commit alone, so a red run is red again, and over the commits every case gets its turn.

use anyhow::Result;
use sha2::{Digest, Sha256};

use crate::{child::Launch, places};

/// Set by `cargo e2e --full`.
pub const FULL: &str = "KMETAL_FULL";

/// A rule by which cases are chosen.
#[derive(Debug, Clone)]
pub enum Seed {
    /// All of them.
    All,
    /// A third, by this text.
    Of(String),
}

impl Seed {
    /// All if this run is a full one, else by the commit; said on standard error.
    pub fn of_this_run() -> Result<Self> {
        let seed = if std::env::var_os(FULL).is_some() { Self::All } else { Self::Of(commit()?) };
        eprintln!("suite: {}", seed.told());
        Ok(seed)
    }

    /// Whether the run has time for all that there is.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::All)
    }

    /// Whether this case is taken.
    pub fn takes(&self, case: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(_) => self.rank(case).first().is_some_and(|byte| byte.is_multiple_of(3)),
        }
    }

    /// A number by which cases are brought into some order.
    pub fn rank(&self, case: &str) -> Vec<u8> {
        let seed = match self {
            Self::All => "all",
            Self::Of(seed) => seed,
        };
        Sha256::digest(format!("{seed}/{case}")).to_vec()
    }

    /// One line for the reader of a log.
    pub fn told(&self) -> String {
        match self {
            Self::All => "every case is taken".into(),
            Self::Of(seed) => format!("a third of the cases is taken, chosen by seed {seed}"),
        }
    }
}

fn commit() -> Result<String> {
    let commit =
        Launch::new("git", "git").folder(places::workspace()).args(["rev-parse", "HEAD"]).output()?;
    Ok(commit.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_a_third_is_taken_and_another_with_each_commit() {
        let taken = |seed: &str| -> Vec<u32> {
            let seed = Seed::Of(seed.into());
            (0..300).filter(|case| seed.takes(&case.to_string())).collect()
        };
        let (one, two) = (taken("a"), taken("b"));
        assert_eq!(one, taken("a"));
        assert_ne!(one, two);
        assert!((70..130).contains(&one.len()), "{}", one.len());
        assert!(Seed::All.takes("any"));
    }
}
