//! `cargo measure`: how good the processes are, in figures that mean the same on every machine.
//!
//! A bar is a ratio wherever it can be one: what a process of ours takes over what a bare driver ([`bare`]) takes for
//! the least that could be done, on the same machine, in the same run. Who did what, when and how often is read from
//! the API server's audit log and from the kernel, never from our own metrics. A figure that is short of its bar is a
//! finding and no failure; only what could not be measured fails.

pub mod bar;
pub mod bare;
pub mod bench;
pub mod figures;
pub mod networking;
pub mod record;
pub mod table;
pub mod watching;

use std::{fs, thread};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use self::{
    bar::{Bar, Line},
    networking::Scene,
    record::Record,
};

/// How thoroughly.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How often what varies is repeated.
    pub runs: usize,
    /// Whether it is enough to see that everything works.
    pub quick: bool,
}

impl Settings {
    /// The one or, in a quick run, the other.
    pub fn pick<T>(self, thorough: T, quick: T) -> T {
        if self.quick { quick } else { thorough }
    }
}

/// Every bar that can be measured.
pub fn bars() -> Vec<&'static Bar> {
    Scene::ALL.iter().flat_map(|scene| scene.bars()).collect()
}

/// The scenes that measure these bars; without any, all but the long ones.
pub fn select(ids: &[String]) -> Result<Vec<Scene>> {
    let known = bars();
    let is = |bar: &Bar, id: &String| bar.id.eq_ignore_ascii_case(id);
    if let Some(unknown) = ids.iter().find(|id| !known.iter().any(|bar| is(bar, id))) {
        let mut names: Vec<&str> = known.iter().map(|bar| bar.id).collect();
        names.dedup();
        bail!("there is no bar {unknown}; there are {}", names.join(", "));
    }
    let wanted = |scene: &Scene| match ids {
        [] => !scene.is_long(),
        ids => scene.bars().iter().any(|bar| ids.iter().any(|id| is(bar, id))),
    };
    Ok(Scene::ALL.iter().copied().filter(wanted).collect())
}

/// What was measured, and which scenes could not be.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One for each bar.
    pub lines: Vec<Line>,
    /// What went wrong.
    pub failures: Vec<String>,
}

/// Plays the scenes, one after the other. One that fails does not keep the next from being played.
pub async fn play(scenes: &[Scene], settings: Settings) -> Outcome {
    let mut outcome = Outcome::default();
    for scene in scenes {
        let mut record = Record::default();
        let played = scene.measure(settings, &mut record).await;
        match played.and_then(|()| record.lines(&scene.bars())) {
            Ok(lines) => {
                eprint!("{}", table::table(&lines));
                outcome.lines.extend(lines);
            }
            Err(error) => {
                eprintln!("{scene:?} could not be measured: {error:#}");
                outcome.failures.push(format!("{scene:?}: {error:#}"));
            }
        }
    }
    outcome
}

/// The machine as far as figures depend on it: how many cores, which, and what else runs on them.
pub fn machine() -> Result<Value> {
    let load = fs::read_to_string("/proc/loadavg")?;
    let load: Vec<f64> = load.split_whitespace().take(3).flat_map(str::parse).collect();
    ensure!(load.len() == 3, "no load in /proc/loadavg");
    let processor = fs::read_to_string("/proc/cpuinfo")?;
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    Ok(json!({
        "cores": thread::available_parallelism()?.get(),
        "processor": model.map(|(_, name)| name),
        "load": load,
        "optimised": !cfg!(debug_assertions),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(ids: &[&str]) -> Result<Vec<Scene>> {
        select(&ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_bar_of_the_process_is_measured() {
        for id in ["B-P1", "B-P2", "B-P3", "B-P5", "B-4", "B-7", "X-1", "X-2", "X-7", "X-13"] {
            assert!(bars().iter().any(|bar| bar.id == id), "{id}");
            assert!(!named(&[id]).unwrap().is_empty(), "{id}");
        }
    }

    #[test]
    fn a_bar_brings_its_scenes_and_long_ones_come_only_when_they_are_named() {
        assert_eq!(named(&["b-p3", "X-2"]).unwrap(), [Scene::Restart]);
        assert_eq!(named(&["B-P1"]).unwrap(), [Scene::Latency, Scene::Neighbour]);
        assert_eq!(named(&["X-1"]).unwrap(), [Scene::Idle]);
        let unnamed = named(&[]).unwrap();
        assert!(!unnamed.contains(&Scene::Idle) && !unnamed.contains(&Scene::Soak));
        assert!(named(&["B-P9"]).unwrap_err().to_string().contains("B-P1, B-P2"));
    }

    #[test]
    fn no_two_bars_are_told_alike() {
        let mut told: Vec<_> = bars().iter().map(|bar| (bar.id, bar.what)).collect();
        let all = told.len();
        told.sort_unstable();
        told.dedup();
        assert_eq!(told.len(), all);
    }
}
