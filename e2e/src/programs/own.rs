//! Our own binaries, as cargo builds them: in the profile that the kit itself was built in. So tests start what is
//! built in seconds, and `cargo measure`, which is built with `--release`, what is shipped.

use std::{
    collections::HashSet,
    env,
    path::PathBuf,
    sync::{LazyLock, Mutex, PoisonError},
};

use anyhow::{Context, Result};

use crate::{cargo, places};

/// Our processes: the package and the binary have the same name.
pub const PROCESSES: &[&str] = &["kmetal-networking"];

/// Cargo's folder for this profile.
const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Builds one of [`PROCESSES`], alone as it is shipped, unless this process or the one that started it did so
/// already.
///
/// `cargo e2e` builds before it starts the tests and says so by `KMETAL_BUILT`, so that no test waits for a
/// compiler and all run the same bytes.
pub fn build_own(package: &str) -> Result<()> {
    static BUILT: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if env::var_os("KMETAL_BUILT").is_none() && !built.contains(package) {
        let release: &[&str] = if PROFILE == "release" { &["--release"] } else { &[] };
        cargo::run(&[&["build", "--package", package], release].concat())?;
        built.insert(package.to_owned());
    }
    Ok(())
}

/// The binary of one of [`PROCESSES`], built if need be.
pub fn own_binary(package: &str) -> Result<PathBuf> {
    build_own(package)?;
    let path = places::target().join(PROFILE).join(package);
    path.is_file().then_some(path).with_context(|| format!("cargo build made no {package}"))
}
