//! Whether Kube-OVN is there and alive: what the claims say, and a readiness gate, depend on it; no decision to
//! delete does.
//!
//! Installed is what its kinds say. Alive is what the Lease of kube-ovn-controller says: it renews every few seconds,
//! and a change seen on our own clock is the proof. (A controller that waits for a missing kind renews as well, so
//! both are asked.)

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kmetal_crds::networking::reason;
use kmetal_runtime::{Presence, Process};
use tokio::sync::watch;

use crate::{change::Outcome, context::Caches};

/// Name of the Lease of kube-ovn-controller.
pub const LEASE: &str = "kube-ovn-controller";

/// Without a renewal for so long it is taken for dead: its lease lasts 30 s and is renewed every 6 s.
const SILENCE: Duration = Duration::from_secs(40);

/// How often silence is looked for.
const CHECK: Duration = Duration::from_secs(2);

/// Kube-OVN's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubeOvn {
    /// Installed and alive.
    Running,
    /// Installed, but its controller shows no sign of life; the text says which sign.
    Silent(String),
    /// A kind that is needed is not installed; the text says which.
    Missing(String),
}

impl KubeOvn {
    /// For a claim.
    pub fn missing_message(why: &str) -> String {
        format!(
            "Kube-OVN is not installed on the under cluster ({why}); nothing can be built before the platform's engineers install it"
        )
    }

    /// Waiting for Kube-OVN to do `what`, for this reason; or for it to come back, where it shows no sign of life.
    pub fn waiting(&self, reason: &'static str, what: impl Into<String>) -> Outcome {
        match self {
            Self::Silent(why) => Outcome::waiting(
                reason::KUBE_OVN_NOT_RUNNING,
                format!(
                    "{}, but Kube-OVN's controller is not running ({why}); the platform's engineers must start it",
                    what.into()
                ),
            ),
            Self::Running | Self::Missing(_) => Outcome::waiting(reason, what),
        }
    }
}

/// Kube-OVN's state as everybody in the process sees it.
#[derive(Clone)]
pub struct Health(watch::Receiver<KubeOvn>);

impl Health {
    /// Keeps judging until the process stops, and keeps the gate `kube-ovn`.
    pub fn watch(process: &Process, caches: Arc<Caches>) -> Self {
        let pulse = Arc::new(Pulse::new());
        let gate = process.gates.gate("kube-ovn");
        let (sender, receiver) = watch::channel(pulse.judge(&caches, Timestamp::now()));
        let stop = process.stop.clone();
        tokio::spawn(async move {
            let mut beats = Box::pin(caches.lease.changes());
            let mut kinds = Box::pin(caches.presence_changes());
            let mut tick = tokio::time::interval(CHECK);
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    Some(lease) = beats.next() => pulse.felt(&lease),
                    Some(()) = kinds.next() => {}
                    _ = tick.tick() => {}
                }
                let state = pulse.judge(&caches, Timestamp::now());
                match &state {
                    KubeOvn::Running => gate.open(),
                    KubeOvn::Silent(why) => {
                        gate.close(format!("kube-ovn-controller is not running: {why}; start it"));
                    }
                    KubeOvn::Missing(why) => {
                        gate.close(format!("Kube-OVN is not installed: {why}; install it"));
                    }
                }
                sender.send_if_modified(|known| {
                    let changed = *known != state;
                    if changed {
                        tracing::info!(?state, "Kube-OVN");
                        *known = state;
                    }
                    changed
                });
            }
        });
        Self(receiver)
    }

    /// The state now.
    pub fn now(&self) -> KubeOvn {
        self.0.borrow().clone()
    }

    /// One item for each change.
    pub fn changes(&self) -> impl Stream<Item = ()> + Send + 'static {
        stream::unfold(self.0.clone(), |mut receiver| async move {
            receiver.changed().await.ok()?;
            Some(((), receiver))
        })
    }
}

/// The last renewal that was seen.
struct Pulse(Mutex<Option<(Timestamp, Option<Instant>)>>);

impl Pulse {
    fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn felt(&self, lease: &Lease) {
        let Some(renewed) = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref()) else { return };
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = match *last {
            // The first one may be old: only its own time says.
            None => Some((renewed.0, None)),
            Some((known, at)) if known == renewed.0 => Some((known, at)),
            Some(_) => Some((renewed.0, Some(Instant::now()))),
        };
    }

    fn judge(&self, caches: &Caches, now: Timestamp) -> KubeOvn {
        if let Some(why) = caches.missing() {
            return KubeOvn::Missing(why);
        }
        if let Presence::Missing(why) = caches.lease.presence() {
            return KubeOvn::Silent(why);
        }
        let Some(lease) = caches.lease.all().into_iter().next() else {
            return KubeOvn::Silent(format!("there is no Lease {LEASE}"));
        };
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
        if holder.is_empty() {
            return KubeOvn::Silent(format!("nobody holds the Lease {LEASE}"));
        }
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = match last {
            None => true,
            Some((_, Some(seen))) => seen.elapsed() < SILENCE,
            Some((renewed, None)) => now.as_second().abs_diff(renewed.as_second()) < SILENCE.as_secs(),
        };
        if alive {
            KubeOvn::Running
        } else {
            KubeOvn::Silent(format!("the Lease {LEASE} of {holder} is not renewed"))
        }
    }
}
