//! The folder and the process list of one test, demo or command.
//!
//! Everything a test starts belongs to one rig, so that a failure can show every log and so that nothing of two
//! tests meets. The folder is removed only after [`Rig::succeed`]: a rig that is merely dropped (a `?`, a panic)
//! keeps its folder and prints where it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};

use crate::{audit::permissions::Permission, places};

/// A failed rig's folder is kept this long.
const KEPT_FOR: Duration = Duration::from_hours(24);

/// The folder and the process list of one test; see the module's text.
#[derive(Debug)]
pub struct Rig {
    name: String,
    folder: PathBuf,
    logs: Mutex<Vec<(String, PathBuf)>>,
    accounts: Mutex<BTreeMap<(String, String), BTreeSet<Permission>>>,
    succeeded: AtomicBool,
    /// Locked as long as the rig lives; tells a living rig's folder from a dead one's.
    _alive: File,
}

impl Rig {
    /// A new rig with a folder of its own.
    pub fn new(name: &str) -> Result<Arc<Self>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        remove_forgotten(&places::runs());
        let unique = format!("{name}-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = places::runs().join(unique);
        if folder.exists() {
            fs::remove_dir_all(&folder).context("clear the folder of an older run with our process id")?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        let alive = File::create(folder.join("alive"))?;
        alive.lock()?;
        Ok(Arc::new(Self {
            name: name.to_owned(),
            folder,
            logs: Mutex::default(),
            accounts: Mutex::default(),
            succeeded: AtomicBool::new(false),
            _alive: alive,
        }))
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rig's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A sub-folder, created if need be.
    pub fn subfolder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        Ok(folder)
    }

    /// Where the process of this name writes; remembered for [`Rig::log_tails`].
    pub fn log_of(&self, process: &str) -> PathBuf {
        let path = self.folder.join(format!("{process}.log"));
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        if !logs.iter().any(|(name, _)| name == process) {
            logs.push((process.to_owned(), path.clone()));
        }
        path
    }

    /// The last `lines` lines of every process' log, under a heading each.
    pub fn log_tails(&self, lines: usize) -> String {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let tails: Vec<String> = logs
            .iter()
            .map(|(name, path)| format!("--- log of {name} ({})\n{}\n", path.display(), tail(path, lines)))
            .collect();
        tails.concat()
    }

    /// Notes that a process of ours runs as this ServiceAccount, to which its chart grants this.
    pub fn runs_as(&self, namespace: &str, account: &str, granted: BTreeSet<Permission>) {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.entry((namespace.to_owned(), account.to_owned())).or_default().extend(granted);
    }

    /// The namespaces and names of the ServiceAccounts that were noted, and what is granted to them.
    pub fn accounts(&self) -> Vec<(String, String, BTreeSet<Permission>)> {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        accounts.into_iter().map(|((namespace, name), granted)| (namespace, name, granted)).collect()
    }

    /// Says that the test went well: the folder may go when the rig does.
    pub fn succeed(&self) {
        self.succeeded.store(true, Ordering::Relaxed);
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.succeeded.load(Ordering::Relaxed) && !std::thread::panicking() {
            if let Err(error) = fs::remove_dir_all(&self.folder) {
                eprintln!("kit: cannot remove {}: {error}", self.folder.display());
            }
        } else {
            eprintln!("kit: logs and files of {} are kept in {}", self.name, self.folder.display());
        }
    }
}

/// The last `lines` lines of a file; empty when it cannot be read.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Removes the folders of rigs that are dead and older than [`KEPT_FOR`].
fn remove_forgotten(runs: &Path) {
    let Ok(entries) = fs::read_dir(runs) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let alive = folder.join("alive");
        let old = fs::metadata(&alive)
            .and_then(|meta| meta.modified())
            .is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > KEPT_FOR));
        if old && File::open(&alive).is_ok_and(|file| file.try_lock().is_ok()) {
            // Someone else may be removing it at the same moment; either of us will do.
            let _ = fs::remove_dir_all(&folder);
        }
    }
}
