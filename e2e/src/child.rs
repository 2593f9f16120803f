//! Child processes that cannot outlive us.
//!
//! Every child is started through `setpriv --pdeathsig KILL` by one long-lived thread ([`spawner`]), so the kernel
//! kills it when this process ends in whatever way: normally, by panic, by SIGKILL, by Ctrl-C. Dropping a [`Child`]
//! kills and reaps it. Signals go only to processes started here that are not yet reaped, so a pid can never be
//! someone else's.

mod spawner;
mod usage;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{self, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

pub use self::usage::Usage;
use crate::rig::{Rig, tail};

/// Guards the moment between fork and the parent-death signal's taking effect: if the parent is already another
/// one, nothing is started.
const ONLY_UNDER_PARENT: &str = r#"test "$PPID" = "$0" && exec "$@""#;

/// What to start, and how; cloned and started again for a restart.
#[derive(Debug, Clone)]
pub struct Launch {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: BTreeMap<OsString, OsString>,
    without: Vec<OsString>,
    only_env: bool,
    folder: Option<PathBuf>,
    memory: Option<u64>,
}

impl Launch {
    /// `name` is the name of its log and what messages call it.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            without: Vec::new(),
            only_env: false,
            folder: None,
            memory: None,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable on top of ours.
    #[must_use]
    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(key.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Hides one variable of our own environment from it.
    #[must_use]
    pub fn without(mut self, key: impl AsRef<OsStr>) -> Self {
        self.without.push(key.as_ref().to_owned());
        self
    }

    /// Hides our own environment from it, but for `PATH`.
    #[must_use]
    pub fn without_our_env(mut self) -> Self {
        self.only_env = true;
        self
    }

    /// The working folder.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// How many bytes of private memory it may reserve (`RLIMIT_DATA`); beyond, allocations fail. It needs no rights
    /// and no cgroup; what is reserved and never touched counts too, program text does not.
    #[must_use]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Starts it; both outputs are appended to its log in the rig's folder.
    pub fn start(&self, rig: &Rig) -> Result<Child> {
        self.start_into(&rig.log_of(&self.name))
    }

    /// Starts it; both outputs are appended to this file.
    pub fn start_into(&self, log: &Path) -> Result<Child> {
        let out = File::options().create(true).append(true).open(log).context("open the log")?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        // A group of its own: Ctrl-C reaches us alone, and we stop the children in order (or the kernel does).
        command.process_group(0);
        let process = spawner::spawn(command).with_context(|| format!("start {}", self.name))?;
        Ok(Child {
            name: self.name.clone(),
            pid: process.id(),
            log: log.to_owned(),
            process: Mutex::new(process),
        })
    }

    /// Runs it to its end with our own outputs, as a command line tool does.
    pub fn run(&self) -> Result<ExitStatus> {
        let mut process =
            spawner::spawn(self.command()).with_context(|| format!("start {}", self.program.display()))?;
        Ok(process.wait()?)
    }

    /// Runs it to its end and returns its standard output; an error carries both outputs.
    pub fn output(&self) -> Result<String> {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = spawner::spawn(command).with_context(|| format!("start {}", self.program.display()))?;
        let output = process.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("{} {:?}: {}\n{text}{errors}", self.name, self.args, output.status);
        }
        Ok(text)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", "sh", "-c", ONLY_UNDER_PARENT]);
        if self.only_env {
            command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        }
        for key in &self.without {
            command.env_remove(key);
        }
        command.arg(process::id().to_string());
        if let Some(bytes) = self.memory {
            command.args(["prlimit", &format!("--data={bytes}"), "--"]);
        }
        command.arg(&self.program).args(&self.args).envs(&self.env);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }
}

/// A running (or ended) child process.
#[derive(Debug)]
pub struct Child {
    name: String,
    pid: u32,
    log: PathBuf,
    process: Mutex<process::Child>,
}

impl Child {
    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The file it writes to.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.lock().try_wait().ok().flatten()
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.ended().is_none()
    }

    /// An error with the end of its log when it has ended; for loops that wait for it to become ready.
    pub fn must_run(&self) -> Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => bail!("{} ended by itself ({status}):\n{}", self.name, self.log_tail(20)),
        }
    }

    /// SIGKILL; returns when it is reaped.
    pub fn kill(&self) -> Result<ExitStatus> {
        let mut process = self.lock();
        process.kill()?;
        Ok(process.wait()?)
    }

    /// SIGTERM, then SIGKILL if it takes longer than `patience`; returns when it is reaped.
    pub async fn terminate(&self, patience: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        match self.wait(patience).await {
            Some(status) => Ok(status),
            None => self.kill(),
        }
    }

    /// Waits for its end; `None` when it still runs after `patience`.
    pub async fn wait(&self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// SIGSTOP: it stands still, its connections stay open.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT after [`Child::pause`].
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let mut process = self.lock();
        if process.try_wait()?.is_some() {
            return Ok(());
        }
        // Not reaped while we hold the lock, so the pid is still this child's.
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw).context("pid out of range")?;
        kill_process(pid, signal).with_context(|| format!("signal {}", self.name))
    }

    fn lock(&self) -> MutexGuard<'_, process::Child> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
