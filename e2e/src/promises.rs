//! Building and running the one test binary of the promises (`e2e/tests/promises`).
//!
//! The binary is started directly and not through `cargo test`: so it is our child, and ends with us.

use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::{
    cargo,
    child::Launch,
    permissions, places,
    programs::{self, PROCESSES},
    suite::seed,
};

/// Each test may hold a control plane and an OVN; more of them at once only wait for each other on two cores.
const THREADS: &str = "2";

/// Which tests.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Parts of names; all tests if empty.
    pub names: Vec<String>,
    /// Also the exhaustive ones.
    pub full: bool,
    /// Only say which there are.
    pub list: bool,
}

/// What cargo says about something that it built.
#[derive(Deserialize)]
struct Message {
    target: Target,
    executable: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// The test target.
const PROMISES: &str = "promises";

/// Builds our processes and the tests, and runs the tests. The upstream programs are there already.
pub fn run(selection: &Selection) -> Result<()> {
    for package in PROCESSES {
        programs::build_own(package)?;
    }
    let tests = build_tests()?;
    let kept = places::kit().join("permissions");
    if kept.exists() {
        fs::remove_dir_all(&kept)?;
    }
    fs::create_dir_all(&kept)?;
    let mut test = Launch::new("promises", tests)
        .folder(places::workspace().join("e2e"))
        .env("KMETAL_BUILT", "1")
        .env(permissions::FOLDER, &kept)
        // An error tells what was expected and what was found; forty frames of a runtime below it only hide that.
        .env("RUST_LIB_BACKTRACE", "0")
        .args(&selection.names)
        .args(["--test-threads", THREADS]);
    if selection.full {
        test = test.arg("--include-ignored").env(seed::FULL, "1");
    }
    if selection.list {
        test = test.arg("--list");
    }
    let status = test.run()?;
    if !status.success() {
        bail!("promises are broken: {status}");
    }
    if selection.list { Ok(()) } else { permissions::judge(&kept, selection.names.is_empty()) }
}

fn build_tests() -> Result<String> {
    let build = ["test", "--package", "kmetal-e2e", "--test", PROMISES, "--no-run"];
    // Once for people to see, once for the path.
    cargo::run(&build)?;
    let messages = cargo::launch(&build).arg("--message-format=json").output()?;
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        // Cargo builds the package's commands along with a test.
        .filter(|message| message.target.name == PROMISES)
        .find_map(|message| message.executable)
        .context("cargo built no test binary")
}
