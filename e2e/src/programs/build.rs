//! Building what is missing or stale, once however many ask, with visible progress.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::{GROUPS, Group, source};
use crate::{child::Launch, places, rig::tail};

/// A build mostly fails because a download did; Go goes on where it was.
const TRIES: usize = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(10);
const BETWEEN_REPORTS: Duration = Duration::from_secs(15);

/// Builds every program that is missing or stale, those that only exhaustive tests need if told so.
pub fn ensure(exhaustive: bool) -> Result<()> {
    ensure_only(|group| exhaustive || !group.exhaustive)
}

/// Builds those groups that are missing or stale and chosen.
pub fn ensure_only(chosen: impl Fn(&Group) -> bool) -> Result<()> {
    let chosen: Vec<&Group> = GROUPS.iter().filter(|group| chosen(group)).collect();
    if stale(&chosen)?.is_empty() {
        return Ok(());
    }
    fs::create_dir_all(places::programs())?;
    let lock = File::create(places::kit().join("build.lock"))?;
    if lock.try_lock().is_err() {
        eprintln!("kit: another run is building the upstream programs; waiting for it");
        lock.lock()?;
    }
    // Whoever held the lock may have built them.
    let stale = stale(&chosen)?;
    for (index, (group, hash)) in stale.iter().enumerate() {
        let names: Vec<&str> = group.programs.iter().map(|(name, _)| *name).collect();
        let title = format!("kit: [{}/{}] {}", index + 1, stale.len(), names.join(", "));
        build(group, &title)?;
        fs::write(stamp(group), hash)?;
    }
    Ok(())
}

/// The groups to build, each with the hash that its stamp will hold.
fn stale<'a>(groups: &[&'a Group]) -> Result<Vec<(&'a Group, String)>> {
    let mut stale = Vec::new();
    for group in groups {
        let hash = hash(group)?;
        let present = group.programs.iter().all(|(name, _)| places::programs().join(name).is_file());
        if !present || fs::read_to_string(stamp(group)).ok().as_ref() != Some(&hash) {
            stale.push((*group, hash));
        }
    }
    Ok(stale)
}

fn build(group: &Group, title: &str) -> Result<()> {
    let fresh = places::kit().join("fresh");
    let log = places::kit().join(format!("build-{}.log", group.programs[0].0));
    let began = Instant::now();
    for attempt in 1..=TRIES {
        let _ = fs::remove_dir_all(&fresh);
        fs::create_dir_all(&fresh)?;
        if go_build(group, &fresh, &log, title, began)? {
            // Renamed, so that a program that is running keeps its own file.
            for (name, _) in group.programs {
                fs::rename(fresh.join(name), places::programs().join(name))
                    .with_context(|| format!("go build made no {name}"))?;
            }
            eprintln!("{title}: built in {}", elapsed(began));
            return Ok(());
        }
        eprintln!("{title}: attempt {attempt} of {TRIES} failed");
        if attempt < TRIES {
            thread::sleep(BETWEEN_TRIES);
        }
    }
    bail!("go build of {} failed; its log is {}:\n{}", group.folder, log.display(), tail(&log, 30))
}

/// Runs `go build` once, telling now and then how far it is.
fn go_build(group: &Group, into: &Path, log: &Path, title: &str, began: Instant) -> Result<bool> {
    // With one program `-o` names the file, with several the folder.
    let output = match group.programs {
        [(name, _)] => into.join(name),
        _ => into.to_owned(),
    };
    let folder = match &group.change {
        Some(change) => source::copy(group.folder, change)?,
        None => places::module(group.folder),
    };
    let go = Launch::new("go build", "go")
        .folder(folder)
        .args(["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", group.ldflags, "-o"])
        .arg(output)
        .args(group.programs.iter().map(|(_, package)| package));
    let _ = fs::remove_file(log);
    let child = go.start_into(log)?;
    eprintln!("{title}: go build (first time: minutes)");
    let mut reported = Instant::now();
    loop {
        if let Some(status) = child.ended() {
            return Ok(status.success());
        }
        if reported.elapsed() >= BETWEEN_REPORTS {
            reported = Instant::now();
            let packages = fs::read_to_string(log).unwrap_or_default().lines().count();
            eprintln!("{title}: {packages} packages, {}", elapsed(began));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn stamp(group: &Group) -> PathBuf {
    places::programs().join(format!(".{}.stamp", group.programs[0].0))
}

/// Over how we build, and the module's go.mod, go.sum and Go files.
fn hash(group: &Group) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(format!("{:?} {}", group.programs, group.ldflags));
    if group.change.is_some() {
        hash.update(format!(" {:?}", group.change));
    }
    let mut folders = vec![places::module(group.folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "go" || e == "mod" || e == "sum") {
                files.push(path);
            }
        }
    }
    files.sort();
    for file in files {
        hash.update(fs::read(&file)?);
    }
    Ok(format!("{:?}", hash.finalize().as_slice()))
}

fn elapsed(since: Instant) -> String {
    let seconds = since.elapsed().as_secs();
    format!("{}m{:02}s", seconds / 60, seconds % 60)
}
