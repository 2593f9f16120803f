//! Chance that can be had again: a run says by which seed it was random, and takes the one that it is given.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use fastrand::Rng;

/// Set it to what a run said, to have that run's choices again.
const SEED: &str = "KMETAL_SEED";

/// The source of a test's choices; `what` tells its seed from that of another test.
pub fn chance(what: &str) -> Result<Rng> {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().with_context(|| format!("{SEED}={seed} is no number"))?,
        // Any number will do; a short one is easier to type.
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_micros().into(),
    };
    eprintln!("{what}: {SEED}={seed}");
    Ok(Rng::with_seed(seed))
}
