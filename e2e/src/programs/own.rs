//! Our own binaries, as cargo builds them.

use std::{
    collections::HashSet,
    env,
    path::PathBuf,
    sync::{LazyLock, Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};

use crate::{child::Launch, places};

/// The binary of one of our packages (both have the same name), built first unless this process did so already.
///
/// `cargo e2e` builds before it starts the tests and says so by `KMETAL_BUILT`, so that no test waits for a compiler and all run the
/// same bytes.
pub fn own_binary(package: &str) -> Result<PathBuf> {
    static BUILT: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    let path = places::target().join("debug").join(package);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if env::var_os("KMETAL_BUILT").is_none() && !built.contains(package) {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Launch::new("cargo build", cargo)
            .folder(places::workspace())
            .args(["build", "--quiet", "--package", package])
            .run()?;
        ensure!(status.success(), "cargo build --package {package} failed");
        built.insert(package.to_owned());
    }
    path.is_file().then_some(path).with_context(|| format!("cargo build made no {package}"))
}
