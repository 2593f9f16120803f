//! Calling cargo from a program that cargo runs.
//!
//! `cargo run` tells the program about its package in `CARGO_PKG_…` and the like. Build scripts of dependencies
//! (ring's) ask to be run again when these change, so a nested cargo that saw them would compile half the tree
//! anew, and the next plain one again.

use std::env;

use anyhow::{Result, ensure};

use crate::{child::Launch, places};

/// A cargo command in the workspace, as if typed by hand.
pub fn launch(args: &[&str]) -> Launch {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = env::vars_os().map(|(name, _)| name).filter(|name| is_told(&name.to_string_lossy()));
    told.fold(Launch::new("cargo", program), Launch::without).folder(places::workspace()).args(args)
}

/// Runs it with our own outputs.
pub fn run(args: &[&str]) -> Result<()> {
    let status = launch(args).run()?;
    ensure!(status.success(), "cargo {}: {status}", args.join(" "));
    Ok(())
}

fn is_told(name: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
        .iter()
        .any(|start| name.starts_with(start))
        || ["CARGO_PRIMARY_PACKAGE", "OUT_DIR"].contains(&name)
}
