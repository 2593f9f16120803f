//! The one thread that starts children.
//!
//! The kernel sends a child its parent-death signal when the *thread* that started it ends, not the process. Test
//! threads come and go, so children are started by a thread that lives as long as the process.

use std::{
    process::{Child, Command},
    sync::{
        OnceLock,
        mpsc::{Sender, channel},
    },
    thread,
};

use anyhow::{Context, Result};

struct Request {
    command: Command,
    answer: Sender<std::io::Result<Child>>,
}

/// Starts the command from the long-lived thread.
pub(super) fn spawn(command: Command) -> Result<Child> {
    static REQUESTS: OnceLock<Sender<Request>> = OnceLock::new();
    let requests = REQUESTS.get_or_init(|| {
        let (requests, queue) = channel::<Request>();
        thread::spawn(move || {
            for Request { mut command, answer } in queue {
                // Nobody listens only if the asking thread is gone; then the child is dropped, not forgotten.
                if let Err(unheard) = answer.send(command.spawn())
                    && let Ok(mut child) = unheard.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        requests
    });
    let (answer, result) = channel();
    requests.send(Request { command, answer }).context("the spawner thread is gone")?;
    Ok(result.recv().context("the spawner thread is gone")??)
}
