//! A clock that is wrong, and that jumps while a process runs.
//!
//! A real clock that is set leaves the monotonic clock alone: the wall jumps, time-outs and intervals run on. So does
//! this one. It is libfaketime, preloaded, which answers the C library's `clock_gettime` for the wall clock only and
//! reads the shift anew at each call, so a jump is seen at once. Programs that do not ask the C library (those in Go)
//! do not see it; ours do. (A time namespace of the kernel shifts only the other clocks, never the wall.)

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use k8s_openapi::jiff::SignedDuration;

use crate::rig::Rig;

/// Where the kernel keeps shared memory, and what libfaketime names its own after; a process id follows.
const SHARED: &str = "/dev/shm";
const LEFT: [&str; 2] = ["faketime_shm_", "sem.faketime_sem_"];

/// A clock for any number of processes.
#[derive(Debug)]
pub struct Clock {
    library: PathBuf,
    shift: PathBuf,
}

impl Clock {
    /// A clock that is off by `shift`; positive is ahead.
    pub fn new(rig: &Rig, name: &str, shift: SignedDuration) -> Result<Self> {
        let shift_file = rig.folder().join(format!("{name}.clock"));
        let clock = Self { library: library()?, shift: shift_file };
        // A process that is killed cannot remove its own, and the next with its id would stumble over it.
        sweep(Path::new(SHARED))?;
        clock.jump_to(shift)?;
        Ok(clock)
    }

    /// From now on it is off by this.
    pub fn jump_to(&self, shift: SignedDuration) -> Result<()> {
        let draft = self.shift.with_extension("draft");
        fs::write(&draft, format!("{:+.3}", shift.as_secs_f64()))?;
        fs::rename(&draft, &self.shift).context("set the clock")
    }

    /// What makes a child look at it.
    pub fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.shift.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            // Times of files are the disk's.
            ("NO_FAKE_STAT", "1".into()),
        ]
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        if let Err(error) = sweep(Path::new(SHARED)) {
            eprintln!("kit: {SHARED} is not cleaned up: {error}");
        }
    }
}

/// From Debian's package `libfaketime`.
fn library() -> Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib")?.flatten().map(|entry| entry.path());
    let mut libraries = folders.map(|folder| folder.join("faketime/libfaketime.so.1"));
    libraries.find(|library| library.exists()).context("libfaketime is not installed")
}

/// Removes what dead processes left.
fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let pid = LEFT.iter().find_map(|left| name.to_str()?.strip_prefix(left));
        let dead = pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if dead && let Err(error) = fs::remove_file(entry.path()) {
            // Another run may be sweeping too, and what is another user's is theirs.
            if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) {
                return Err(error);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_dead_left_is_swept() {
        let rig = Rig::new("sweep").unwrap();
        let folder = rig.subfolder("shm").unwrap();
        let living = std::process::id();
        let kept = [format!("faketime_shm_{living}"), "somebody-elses".into(), "sem.faketime_sem_".into()];
        // No process has this id: it is above the kernel's limit.
        let gone = ["faketime_shm_4194305".to_owned(), "sem.faketime_sem_4194305".into()];
        for name in kept.iter().chain(&gone) {
            fs::write(folder.join(name), "").unwrap();
        }
        sweep(&folder).unwrap();
        assert!(kept.iter().all(|name| folder.join(name).exists()));
        assert!(!gone.iter().any(|name| folder.join(name).exists()));
        rig.succeed();
    }
}
