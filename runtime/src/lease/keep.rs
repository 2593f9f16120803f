//! The holder: renews, gives back, or notices that it has lost.

use std::time::Duration;

use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
};
use kube::{ResourceExt, api::PostParams};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Candidate, Ended};
use crate::error::describe;

/// The longest that one renewal may take before it is tried again.
const ATTEMPT: Duration = Duration::from_secs(4);

/// A lease that was taken; [`Held::keep`] it.
pub struct Held {
    candidate: Candidate,
    lease: Lease,
    renewed: Instant,
}

impl Held {
    /// `renewed` is the moment before the request that took the lease was sent.
    pub(super) fn new(candidate: Candidate, lease: Lease, renewed: Instant) -> Self {
        Self { candidate, lease, renewed }
    }

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
