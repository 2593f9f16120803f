//! Where things lie: the workspace, `target/kit/`, the folders of the kit's Go modules.
//!
//! Everything the kit writes is below [`kit`] (and the port locks in the system's temp folder), so `cargo clean`
//! undoes all of it.

use std::{
    env,
    path::{Path, PathBuf},
};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}

/// All that the kit builds and runs.
pub fn kit() -> PathBuf {
    target().join("kit")
}

/// The built upstream programs.
pub fn programs() -> PathBuf {
    kit().join("bin")
}

/// One folder per running (or failed) rig.
pub fn runs() -> PathBuf {
    kit().join("run")
}

/// The folder of one of the kit's Go modules: `kubernetes`, `kube-ovn`, `helm`.
pub fn module(folder: &str) -> PathBuf {
    workspace().join("e2e/kit").join(folder)
}

/// The folder of one of our charts.
pub fn chart(name: &str) -> PathBuf {
    workspace().join("deploy/charts").join(name)
}
