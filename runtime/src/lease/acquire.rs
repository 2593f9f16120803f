//! A candidate: follows the Lease and takes it when it is free.

use futures::StreamExt;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::PostParams,
    runtime::watcher::{self, Event, watcher},
};
use tokio::time::{Instant, sleep_until};

use super::{Held, Step, Terms, decide};
use crate::{client::WATCH_SECONDS, error::describe, fence::Fence};

/// The Lease as last seen, and since when its spec is unchanged.
struct Observed {
    lease: Option<Lease>,
    since: Instant,
}

impl Observed {
    fn see(seen: &mut Option<Self>, lease: Option<Lease>, now: Instant) {
        let spec = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.spec.clone());
        let since = match seen {
            Some(before) if spec(&before.lease) == spec(&lease) => before.since,
            _ => now,
        };
        *seen = Some(Self { lease, since });
    }
}

/// One replica's part in the election of a process.
#[derive(Clone)]
pub struct Candidate {
    pub(super) api: Api<Lease>,
    pub(super) name: String,
    pub(super) identity: String,
    pub(super) terms: Terms,
    pub(super) fence: Fence,
}

impl Candidate {
    /// `identity` must be of this one process alone, not of its pod. Closes the fence until the lease is taken.
    pub fn new(api: Api<Lease>, name: &str, identity: &str, terms: Terms, fence: Fence) -> Self {
        fence.close();
        Self { api, name: name.to_owned(), identity: identity.to_owned(), terms, fence }
    }

    /// Waits until the lease is ours; the fence is open from then on. Dropping the future is safe.
    pub async fn acquire(&self) -> Held {
        let config =
            watcher::Config::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        let mut events = watcher(self.api.clone(), config).boxed();
        let mut seen: Option<Observed> = None;
        let mut listed = None;
        let mut not_before = Instant::now();
        loop {
            let attempt = seen.as_ref().map(|seen| {
                let step = decide(seen.lease.as_ref(), seen.since.elapsed(), self.terms);
                let at = match step {
                    Step::Wait(left) => Instant::now() + left,
                    Step::Create | Step::Take => Instant::now(),
                };
                at.max(not_before)
            });
            let due = async {
                match attempt {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => listed = None,
                    Some(Ok(Event::InitApply(lease))) => listed = Some(lease),
                    Some(Ok(Event::InitDone)) => Observed::see(&mut seen, listed.take(), Instant::now()),
                    Some(Ok(Event::Apply(lease))) => Observed::see(&mut seen, Some(lease), Instant::now()),
                    Some(Ok(Event::Delete(_))) => Observed::see(&mut seen, None, Instant::now()),
                    Some(Err(error)) => {
                        tracing::warn!(%error, lease = self.name, "cannot follow the lease; trying again");
                        tokio::time::sleep(self.terms.retry()).await;
                    }
                    None => return std::future::pending().await,
                },
                () = due => {
                    not_before = Instant::now() + self.terms.retry();
                    if let Some(held) = self.attempt(&mut seen).await {
                        return held;
                    }
                }
            }
        }
    }

    /// Tries to take the lease if it is free by what was seen; a refusal refreshes what is seen.
    async fn attempt(&self, seen: &mut Option<Observed>) -> Option<Held> {
        let observed = seen.as_ref()?;
        let sent = Instant::now();
        let params = PostParams { field_manager: Some(self.name.clone()), ..PostParams::default() };
        let outcome = match &observed.lease {
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(self.taken(None)) };
                self.api.create(&params, &lease).await
            }
            Some(lease) => {
                if let Step::Wait(_) = decide(Some(lease), observed.since.elapsed(), self.terms) {
                    return None;
                }
                let lease = Lease { spec: Some(self.taken(lease.spec.as_ref())), ..lease.clone() };
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        match outcome {
            // Too slow an answer is no leadership: another may count from before it.
            Ok(lease) if sent.elapsed() < self.terms.deadline() => {
                tracing::info!(lease = self.name, identity = self.identity, "leading");
                self.fence.allow_until(sent + self.terms.deadline());
                return Some(Held::new(self.clone(), lease, sent));
            }
            Ok(lease) => Observed::see(seen, Some(lease), Instant::now()),
            Err(error) => {
                tracing::debug!(error = describe(&error), lease = self.name, "the lease was not taken");
                if let Ok(lease) = self.api.get_opt(&self.name).await {
                    Observed::see(seen, lease, Instant::now());
                }
            }
        }
        None
    }

    /// The spec with which we take over from `before`.
    fn taken(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.terms.duration.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(
                before.and_then(|spec| spec.lease_transitions).unwrap_or(0).saturating_add(1),
            ),
            ..LeaseSpec::default()
        }
    }
}
