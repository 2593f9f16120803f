//! `cargo ci`: everything that must hold before a change is taken, in one command.
//!
//! The upstream programs are built beside the cargo steps: on a fresh machine both take minutes, and each has
//! phases that use one core.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use kmetal_e2e::{
    cargo,
    child::Launch,
    places, programs,
    promises::{self, Selection},
    setup,
    steps::Steps,
};
use serde::Deserialize;

/// The part of `cargo metadata` that we ask for.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

fn main() -> ExitCode {
    let began = Instant::now();
    let clean_at_start = changes().is_ok_and(|changes| changes.is_empty());
    let kit = thread::spawn(|| {
        let began = Instant::now();
        let outcome = setup::ensure().and_then(|()| programs::ensure(false));
        (began.elapsed(), outcome)
    });

    let mut steps = Steps::default();
    steps.step("format", || cargo::run(&["fmt", "--all", "--check"]));
    steps
        .step("lint", || cargo::run(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]));
    steps.step("unit and golden tests", || {
        cargo::run(&["test", "--workspace", "--exclude", "kmetal-e2e"])?;
        cargo::run(&["test", "--package", "kmetal-e2e", "--lib"])
    });
    steps.step("each crate alone", each_crate_alone);
    let (took, outcome) =
        kit.join().unwrap_or_else(|_| (Duration::ZERO, Err(anyhow::anyhow!("it panicked"))));
    let kit_is_there = outcome.is_ok();
    steps.note("packages and upstream programs (beside the above)", took, outcome);
    if kit_is_there {
        steps.step("promises", || promises::run(&Selection::default()));
    }
    if clean_at_start {
        steps.step("the tree is clean", || {
            let changes = changes()?;
            ensure!(changes.is_empty(), "this run changed or made files:\n{changes}");
            Ok(())
        });
    }

    let minutes = began.elapsed().as_secs_f32() / 60.0;
    eprintln!("\n{}\n{minutes:.1} minutes in all", steps.table());
    if steps.all_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Features that one crate switches on for another in the workspace would hide that it does not say what it needs.
fn each_crate_alone() -> Result<()> {
    let metadata = cargo::launch(&["metadata", "--no-deps", "--format-version=1"]).output()?;
    let Metadata { packages } = serde_json::from_str(&metadata).context("cargo metadata")?;
    for Package { name } in packages {
        cargo::run(&["check", "--quiet", "--package", &name])
            .with_context(|| format!("crate {name} alone"))?;
    }
    Ok(())
}

fn changes() -> Result<String> {
    Launch::new("git", "git").folder(places::workspace()).args(["status", "--porcelain"]).output()
}
