//! `cargo demo [-- --keep]`: everything set up from nothing, and the product's story played on it.

mod network;
mod terminal;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use kmetal_e2e::{
    programs::{self, PROCESSES},
    setup,
};

/// Plays the story of kMetal on real upstreams: two tenants claim networks with the same addresses.
#[derive(Parser)]
#[command(name = "cargo demo")]
struct Arguments {
    /// Leave everything running afterwards, to go on by hand; Ctrl-C ends it.
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    // The alias ends in `--`; people write another one, as with any cargo command.
    let arguments = Arguments::parse_from(std::env::args().filter(|argument| argument != "--"));
    let outcome = prepare().and_then(|()| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(network::play(arguments.keep))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<()> {
    setup::ensure()?;
    programs::ensure(false)?;
    PROCESSES.iter().try_for_each(|package| programs::build_own(package))
}
