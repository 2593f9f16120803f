//! kmetal-networking.

use std::process::ExitCode;

use kmetal_networking::config::Config;

fn main() -> ExitCode {
    kmetal_runtime::run::<Config, _, _>("kmetal-networking", kmetal_networking::run)
}
