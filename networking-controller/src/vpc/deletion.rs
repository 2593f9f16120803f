//! What a VpcClaim that is being deleted needs now. Pure.

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::kube_ovn::Vpc,
    networking::{VpcClaim, reason},
};
use kube::ResourceExt;

use super::{egress::listed, plan::Seen};
use crate::{
    change::{Change, Outcome, release},
    claim::ClaimRef,
    kube_ovn::KubeOvn,
    teardown::{self, Step},
};

/// Decides the next step down. `ours` is the Vpc that stands for this claim.
pub(super) fn deletion(claim: &VpcClaim, ours: Option<&Vpc>, seen: &Seen, now: Timestamp) -> Outcome {
    let gone = || {
        let message = format!("nothing is left of VpcClaim {}, which is being let go", claim.name_any());
        Outcome::waiting(reason::DELETING, message).with(release(claim).into_iter().collect())
    };
    let Some(vpc) = ours.filter(|_| !matches!(seen.kube_ovn, KubeOvn::Missing(_))) else { return gone() };
    if seen.environment.is_finishing() {
        // The Environment is deleted and its workloads are gone: nobody is left to see the waiting, and the sweep
        // takes down what stands on the Kube-OVN side.
        return gone();
    }
    let me = ClaimRef::of(claim);
    let closed: Vec<Change> =
        teardown::keep_closed(&me, vpc, seen.last_good.as_deref()).into_iter().collect();
    let named: Vec<&String> = seen.subnets.iter().flatten().collect();
    if !named.is_empty() {
        return Outcome::waiting(
            reason::IN_USE,
            format!(
                "VpcClaim {} is kept while these SubnetClaims lie in it: {}; delete them first",
                claim.name_any(),
                listed(&named)
            ),
        )
        .with(closed);
    }
    if !seen.bound.is_empty() {
        return Outcome::waiting(
            reason::IN_USE,
            format!(
                "VpcClaim {} is kept while Services behind it have the addresses of these EipClaims: {}; delete those Services first",
                claim.name_any(),
                listed(&seen.bound)
            ),
        )
        .with(closed);
    }
    let waiting = |what: String| seen.kube_ovn.waiting(reason::DELETING, what);
    if !seen.subnets.is_empty() || !seen.nat_rules.is_empty() {
        return waiting(
            "waiting for Kube-OVN to remove the Subnets and NAT rules that earlier claims left in this VPC"
                .into(),
        )
        .with(closed);
    }
    let since = claim.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let waited = now.as_second() - since.as_second();
    match teardown::vpc(&me, vpc, &seen.router_eips, waited) {
        Step::Done => gone(),
        Step::Do(changes) => waiting(format!("Vpc {} is being removed", vpc.name_any())).with(changes),
        Step::Wait(what) => waiting(format!("waiting for Kube-OVN to remove {what}")),
    }
}
