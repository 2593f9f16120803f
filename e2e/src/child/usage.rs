//! What a child takes of the machine, as the kernel counts it in `/proc`.

use std::{fs, time::Duration};

use anyhow::{Context, Result};

use super::Child;

/// What a process takes now, and took at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory in bytes (`VmRSS`).
    pub resident: u64,
    /// The most that was ever resident, in bytes (`VmHWM`).
    pub resident_at_most: u64,
    /// Threads.
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
    /// CPU time spent in it so far, user's and system's, in steps of (usually) 10 ms.
    pub cpu: Duration,
}

impl Child {
    /// What it takes now; an error when it has ended.
    pub fn usage(&self) -> Result<Usage> {
        // Reaped only under this lock: until it is released the pid is this child's.
        let mut process = self.lock();
        anyhow::ensure!(process.try_wait()?.is_none(), "{} has ended", self.name);
        let folder = format!("/proc/{}", self.pid);
        let read = |file: &str| {
            let path = format!("{folder}/{file}");
            fs::read_to_string(&path).with_context(|| path)
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let descriptors = fs::read_dir(format!("{folder}/fd"))?.count();
        parse(&read("status")?, &read("stat")?, ticks, u64::try_from(descriptors)?)
    }
}

/// See proc(5) for both files.
fn parse(status: &str, stat: &str, ticks: u64, descriptors: u64) -> Result<Usage> {
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let value = value.with_context(|| format!("no {name} in the status"))?;
        let number = value.split_whitespace().next().with_context(|| format!("{name} is empty"))?;
        Ok::<u64, anyhow::Error>(number.parse()?)
    };
    // The second field, the program's name in brackets, may hold anything, brackets too.
    let (_, rest) = stat.rsplit_once(')').context("a stat without a name")?;
    let times = rest.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let spent: u64 = times.collect::<Result<Vec<u64>, _>>()?.iter().sum();
    Ok(Usage {
        resident: field("VmRSS")? * 1024,
        resident_at_most: field("VmHWM")? * 1024,
        threads: field("Threads")?,
        descriptors,
        cpu: Duration::from_millis(spent * 1000 / ticks.max(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{child::Launch, rig::Rig, wait::eventually};

    const MIB: u64 = 1024 * 1024;
    const PATIENCE: Duration = Duration::from_mins(1);

    #[test]
    fn the_kernels_files_are_read() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t7\n";
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 200 0 0 150 25 9 9 20 0 7 0 1 1 1";
        let expected = Usage {
            resident: MIB,
            resident_at_most: 2 * MIB,
            threads: 7,
            descriptors: 5,
            cpu: Duration::from_millis(1750),
        };
        assert_eq!(parse(status, stat, 100, 5).unwrap(), expected);
        assert!(parse("Name:\tx\n", stat, 100, 5).is_err(), "a zombie has no memory");
    }

    /// Runs a script and waits, once it says `ready`, for what it is to take.
    async fn taken(script: &str, enough: impl Fn(&Usage) -> bool) -> Usage {
        let rig = Rig::new("usage").unwrap();
        let child = Launch::new("taker", "sh").args(["-c", script]).start(&rig).unwrap();
        let usage = eventually(script, PATIENCE, async || {
            let usage = child.usage()?;
            Ok((child.log_tail(1) == "ready" && enough(&usage)).then_some(usage))
        });
        let usage = usage.await.unwrap();
        child.kill().unwrap();
        assert!(child.usage().is_err());
        rig.succeed();
        usage
    }

    #[tokio::test]
    async fn what_a_child_takes_is_seen() {
        let idle = taken("echo ready; exec sleep 60", |_| true).await;
        assert!(idle.threads == 1 && idle.resident < 10 * MIB, "{idle:?}");
        let two_more = "exec 5</dev/null 6</dev/null; echo ready; exec sleep 60";
        taken(two_more, |usage| usage.descriptors == idle.descriptors + 2).await;
        taken("echo ready; while :; do :; done", |usage| usage.cpu >= Duration::from_millis(200)).await;
        let fat = "x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ready; sleep 60";
        taken(fat, |usage| usage.resident > 18 * MIB && usage.resident_at_most >= usage.resident).await;
    }

    #[tokio::test]
    async fn a_child_that_wants_more_memory_than_it_may_have_is_refused() {
        let rig = Rig::new("limit").unwrap();
        let want = Launch::new("wanter", "sh").args(["-c", "head -c 50000000 /dev/zero | tail"]);
        assert_eq!(want.output().unwrap().len(), 50_000_000);
        let error = want.memory_limit(20 * MIB).output().unwrap_err().to_string();
        assert!(error.contains("memory"), "{error}");
        rig.succeed();
    }
}
