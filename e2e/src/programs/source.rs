//! A copy of a module with one text changed, below `target/kit`, made anew for each build.
//!
//! The copy is built with the module's own go.mod and go.sum, and go.sum of ours vouches for the module, so what is built is
//! what its authors build but for that text.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::{Change, module_dir};
use crate::places;

/// Copies the module, changes the text and returns the copy's folder.
pub(super) fn copy(folder: &str, change: &Change) -> Result<PathBuf> {
    let copy = places::kit().join("source").join(folder);
    let _ = fs::remove_dir_all(&copy);
    copy_folder(&module_dir(folder, change.module)?, &copy)?;
    let file = copy.join(change.file);
    let text = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    let found = text.matches(change.from).count();
    ensure!(found == 1, "{} is in {} {found} times, not once", change.from, file.display());
    fs::write(&file, text.replace(change.from, change.to))?;
    Ok(copy)
}

/// Copies a folder with all that is in it, writable: Go keeps modules read-only.
pub fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            // Not fs::copy, which would copy the permissions.
            fs::write(&target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
