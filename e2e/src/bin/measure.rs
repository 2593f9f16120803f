//! `cargo measure NAME [BAR…]`: how good a process is, one line for each bar.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use kmetal_e2e::{
    measure::{self, Outcome, Settings, table},
    networking, programs, setup,
};
use serde_json::json;

/// Measures a process of ours against its bars. Exits with 0 also when it is short of one: that is a finding.
#[derive(Parser)]
#[command(name = "cargo measure")]
struct Arguments {
    /// The process.
    #[arg(value_enum, required_unless_present = "list")]
    process: Option<Process>,
    /// Which bars, `B-P1` for example; all but the long ones if none is given.
    bars: Vec<String>,
    /// How often what varies is repeated; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,
    /// Only see that everything can be measured: small numbers, one run unless --runs says otherwise.
    #[arg(long)]
    quick: bool,
    /// Print JSON for machines.
    #[arg(long)]
    json: bool,
    /// Only list the bars.
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Process {
    /// kmetal-networking.
    Networking,
}

fn main() -> ExitCode {
    // The alias ends in `--`; people write another one, as with any cargo command.
    match run(&Arguments::parse_from(std::env::args().filter(|argument| argument != "--"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cargo measure: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if arguments.list {
        print!("{}", table::list(&measure::bars()));
        return Ok(());
    }
    let scenes = measure::select(&arguments.bars)?;
    let settings = Settings { runs: arguments.runs.into(), quick: arguments.quick };
    setup::ensure()?;
    programs::ensure(false)?;
    programs::build_own(networking::NAME)?;
    let machine = measure::machine()?;
    eprintln!("machine: {machine}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let Outcome { lines, failures } = runtime.block_on(measure::play(&scenes, settings));
    if arguments.json {
        let told = json!({"machine": machine, "bars": table::json(&lines), "failures": failures});
        println!("{told:#}");
    } else {
        println!("\n{}", table::table(&lines));
    }
    if !failures.is_empty() {
        bail!("could not be measured:\n{}", failures.join("\n"));
    }
    Ok(())
}
