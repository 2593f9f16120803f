//! Keeps reading the platform file, so that a new provider network needs no restart.
//!
//! A mounted ConfigMap changes by a swap of symbolic links, which no portable file notification reports well;
//! the file is small, so it is read every two seconds.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Fault, Platform};

/// What is known of the platform now: its content, or what is wrong with the file, in words that any tenant may read.
pub type State = Result<Arc<Platform>, Arc<str>>;

/// The platform file as the reconciles see it.
#[derive(Clone)]
pub struct PlatformFile {
    state: watch::Receiver<State>,
    last_good: watch::Receiver<Option<Arc<Platform>>>,
}

impl PlatformFile {
    /// Reads the file once, then keeps reading it until `stop`.
    pub fn watch(path: PathBuf, stop: CancellationToken) -> Self {
        let mut content = read(&path);
        log(&content);
        let (sender, receiver) = watch::channel(state(&content));
        let (good, last_good) = watch::channel(content.as_ref().ok().cloned());
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(2));
            while stop.run_until_cancelled(tick.tick()).await.is_some() {
                let now = read(&path);
                if now == content {
                    continue;
                }
                log(&now);
                content = now;
                if let Ok(platform) = &content {
                    good.send_replace(Some(platform.clone()));
                }
                sender.send_if_modified(|known| {
                    let state = state(&content);
                    let changed = *known != state;
                    *known = state;
                    changed
                });
            }
        });
        Self { state: receiver, last_good }
    }

    /// What is known now.
    pub fn now(&self) -> State {
        self.state.borrow().clone()
    }

    /// The last file that could be used since the process started: what exists is kept closed by it while the present
    /// one cannot be.
    pub fn last_good(&self) -> Option<Arc<Platform>> {
        self.last_good.borrow().clone()
    }

    /// One item for each change.
    pub fn changes(&self) -> impl futures::Stream<Item = ()> + Send + 'static {
        futures::stream::unfold(self.state.clone(), |mut receiver| async move {
            receiver.changed().await.ok()?;
            Some(((), receiver))
        })
    }
}

type Content = Result<Arc<Platform>, Fault>;

fn read(path: &PathBuf) -> Content {
    let text = std::fs::read_to_string(path).map_err(|error| Fault {
        told: "it cannot be read",
        detail: format!("the platform file {} cannot be read: {error}", path.display()),
    })?;
    Platform::parse(&text).map(Arc::new)
}

fn state(content: &Content) -> State {
    content.clone().map_err(|fault| format!("{}, as the log of kmetal-networking tells", fault.told).into())
}

fn log(content: &Content) {
    match content {
        Ok(platform) => tracing::info!(
            provider_networks = platform.provider_networks.len(),
            dropped_ranges = platform.dropped().len(),
            "platform file read"
        ),
        Err(error) => {
            tracing::error!(%error, "platform file refused; no network is made or changed until it is mended");
        }
    }
}
