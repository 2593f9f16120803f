//! Keeps reading the platform file, so that a new provider network needs no restart.
//!
//! A mounted ConfigMap changes by a swap of symbolic links, which no portable file notification reports well;
//! the file is small, so it is read every two seconds.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Platform;

/// What is known of the platform now: its content, or what is wrong with the file.
pub type State = Result<Arc<Platform>, Arc<str>>;

/// The platform file as the reconciles see it.
#[derive(Clone)]
pub struct PlatformFile(watch::Receiver<State>);

impl PlatformFile {
    /// Reads the file once, then keeps reading it until `stop`.
    pub fn watch(path: PathBuf, stop: CancellationToken) -> Self {
        let (sender, receiver) = watch::channel(read(&path));
        log(&receiver.borrow());
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(2));
            while stop.run_until_cancelled(tick.tick()).await.is_some() {
                let state = read(&path);
                let changed = sender.send_if_modified(|known| {
                    let changed = *known != state;
                    *known = state;
                    changed
                });
                if changed {
                    log(&sender.borrow());
                }
            }
        });
        Self(receiver)
    }

    /// What is known now.
    pub fn now(&self) -> State {
        self.0.borrow().clone()
    }

    /// One item for each change.
    pub fn changes(&self) -> impl futures::Stream<Item = ()> + Send + 'static {
        futures::stream::unfold(self.0.clone(), |mut receiver| async move {
            receiver.changed().await.ok()?;
            Some(((), receiver))
        })
    }
}

fn read(path: &PathBuf) -> State {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Arc::from(format!("the platform file {} cannot be read: {error}", path.display()))
    })?;
    Platform::parse(&text).map(Arc::new).map_err(Arc::from)
}

fn log(state: &State) {
    match state {
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
