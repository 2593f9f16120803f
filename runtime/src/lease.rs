//! Leadership on a `coordination.k8s.io` Lease.
//!
//! - Every write is a PUT with the resourceVersion that was observed, so of two candidates one is refused.
//! - Whether a holder is alive is judged by *observing* its renewals with the local monotonic clock; the times written
//!   in the Lease are for people. A wrong clock anywhere changes nothing.
//! - The holder stops believing in itself ([`renew deadline`](Terms::deadline)) a third of the duration before a
//!   candidate may take over, counted from the moment before its last successful renewal was *sent*.
//! - A candidate follows the Lease with a watch: taking over begins right when the holder has been silent for the
//!   duration, and at once when it was released.
//! - The client used here is its own, outside the fence and with its own connections: a busy process still renews.
//!
//! RBAC: `get`, `list`, `watch`, `update` on the named Lease, `create` on `leases` in that namespace.
//! Chosen over an existing crate because none of them is built on this version of kube, and because the usual ones
//! renew by patch, which lets two leaders be.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, ResourceExt,
    api::PostParams,
    runtime::watcher::{self, Event, watcher},
};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::{client::WATCH_SECONDS, error::describe, fence::Fence};

/// The longest that one renewal may take before it is tried again.
const ATTEMPT: Duration = Duration::from_secs(4);

/// The times of a lease, all from its duration, in the proportions of client-go (15 s, 10 s, 2 s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// A candidate takes over after not having seen a renewal for this long.
    pub duration: Duration,
}

impl Terms {
    /// The holder gives up when its last successful renewal is this old.
    pub fn deadline(self) -> Duration {
        self.duration * 2 / 3
    }

    /// Time between two renewals.
    pub fn retry(self) -> Duration {
        self.duration * 2 / 15
    }
}

/// What a candidate should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no Lease.
    Create,
    /// It was released, or its holder has been silent for too long.
    Take,
    /// Somebody holds it; look again after this long unless it changes.
    Wait(Duration),
}

/// The pure decision of a candidate that has seen `spec` unchanged for `unchanged`.
pub(crate) fn decide(spec: Option<&LeaseSpec>, unchanged: Duration, terms: Terms) -> Step {
    let Some(spec) = spec else { return Step::Create };
    if spec.holder_identity.as_deref().unwrap_or_default().is_empty() {
        return Step::Take;
    }
    // The holder may have been configured with a longer duration than we are.
    let theirs = Duration::from_secs(u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0));
    match terms.duration.max(theirs).checked_sub(unchanged) {
        None | Some(Duration::ZERO) => Step::Take,
        Some(left) => Step::Wait(left),
    }
}

/// How holding a lease ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// We gave it back.
    Released,
    /// We may not lead any more, with the reason. The fence is closed.
    Lost(String),
}

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
    api: Api<Lease>,
    name: String,
    identity: String,
    terms: Terms,
    fence: Fence,
}

/// A lease that was taken; [`Held::keep`] it.
pub struct Held {
    candidate: Candidate,
    lease: Lease,
    renewed: Instant,
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
                let step = decide(
                    seen.lease
                        .as_ref()
                        .and_then(|lease| lease.spec.as_ref())
                        .or(seen.lease.as_ref().map(|_| &EMPTY)),
                    seen.since.elapsed(),
                    self.terms,
                );
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
                let spec = lease.spec.as_ref().unwrap_or(&EMPTY);
                if let Step::Wait(_) = decide(Some(spec), observed.since.elapsed(), self.terms) {
                    return None;
                }
                let lease = Lease { spec: Some(self.taken(Some(spec))), ..lease.clone() };
                self.api.replace(&self.name, &params, &lease).await
            }
        };
        match outcome {
            // Too slow an answer is no leadership: another may count from before it.
            Ok(lease) if sent.elapsed() < self.terms.deadline() => {
                tracing::info!(lease = self.name, identity = self.identity, "leading");
                self.fence.allow_until(sent + self.terms.deadline());
                return Some(Held { candidate: self.clone(), lease, renewed: sent });
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

/// A Lease object without a spec is free.
static EMPTY: LeaseSpec = LeaseSpec {
    acquire_time: None,
    holder_identity: None,
    lease_duration_seconds: None,
    lease_transitions: None,
    preferred_holder: None,
    renew_time: None,
    strategy: None,
};

impl Held {
    /// Renews until `release` is cancelled (then it is given back) or until it is lost. The fence is closed on return.
    pub async fn keep(mut self, release: CancellationToken) -> Ended {
        let terms = self.candidate.terms;
        let mut next = self.renewed + terms.retry();
        loop {
            let given_up = self.renewed + terms.deadline();
            tokio::select! {
                biased;
                () = sleep_until(given_up) => {
                    self.candidate.fence.close();
                    return Ended::Lost(format!("not renewed for {} s", terms.deadline().as_secs()));
                }
                () = release.cancelled() => return self.release().await,
                () = sleep_until(next) => {}
            }
            let sent = Instant::now();
            match timeout_at(given_up.min(sent + ATTEMPT), self.renew()).await {
                Ok(Ok(())) => {
                    self.renewed = sent;
                    self.candidate.fence.allow_until(sent + terms.deadline());
                    next = sent + terms.retry();
                }
                Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {
                    match timeout_at(given_up, self.candidate.api.get_opt(&self.candidate.name)).await {
                        // An earlier renewal arrived after all, or somebody labelled the Lease: go on from there.
                        Ok(Ok(Some(lease))) if self.is_ours(&lease) => {
                            self.lease = lease;
                            next = Instant::now() + terms.retry() / 8;
                        }
                        Ok(Ok(other)) => {
                            self.candidate.fence.close();
                            return Ended::Lost(match other.and_then(|lease| lease.spec?.holder_identity) {
                                Some(holder) => format!("{holder} holds it"),
                                None => "it was deleted or released by somebody else".to_owned(),
                            });
                        }
                        Ok(Err(_)) | Err(_) => next = Instant::now() + terms.retry() / 4,
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = describe(&error), "the lease was not renewed; trying again");
                    next = Instant::now() + terms.retry() / 2;
                }
                Err(_) => {
                    tracing::warn!("the lease was not renewed in time; trying again");
                    next = Instant::now();
                }
            }
        }
    }

    async fn renew(&mut self) -> Result<(), kube::Error> {
        let mut lease = self.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        self.lease = self.replace(&lease).await?;
        Ok(())
    }

    /// From here on nothing of ours is written, so the next leader may begin at once.
    async fn release(mut self) -> Ended {
        self.candidate.fence.close();
        let spec = self.lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        match self.replace(&self.lease.clone()).await {
            Ok(_) => tracing::info!(lease = self.candidate.name, "released"),
            Err(error) => {
                tracing::warn!(error = describe(&error), "the lease was not released; it will expire");
            }
        }
        Ended::Released
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, kube::Error> {
        let params = PostParams { field_manager: Some(self.candidate.name.clone()), ..PostParams::default() };
        self.candidate.api.replace(&lease.name_any(), &params, lease).await
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder == Some(self.candidate.identity.as_str())
    }
}

#[cfg(test)]
mod tests;
