//! `cargo e2e [NAME…] [--full] [--list]`: the promises against real upstreams, with all that they need.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use kmetal_e2e::{
    programs,
    promises::{self, Selection},
    setup,
};

/// Runs the promises against real upstreams, building and installing first what they need.
#[derive(Parser)]
#[command(name = "cargo e2e")]
struct Arguments {
    /// Parts of test names; all tests if none is given.
    names: Vec<String>,
    /// Also the exhaustive tests.
    #[arg(long)]
    full: bool,
    /// Only list the tests.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    // The alias ends in `--`; people write another one, as with any cargo command.
    match run(Arguments::parse_from(std::env::args().filter(|argument| argument != "--"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { names, full, list }: Arguments) -> Result<()> {
    if !list {
        setup::ensure()?;
        programs::ensure(full)?;
    }
    promises::run(&Selection { names, full, list })
}
