//! What a VpcClaim that is being deleted needs now. Pure.

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::kube_ovn::Vpc,
    networking::{VpcClaim, reason},
};
use kube::ResourceExt;

use super::plan::Seen;
use crate::{
    change::{Change, Outcome, release},
    kube_ovn::KubeOvn,
    teardown::{self, Step},
};

/// Decides the next step down. `ours` is the Vpc that stands for this claim.
pub(super) fn deletion(claim: &VpcClaim, ours: Option<&Vpc>, seen: &Seen, now: Timestamp) -> Outcome {
    let gone = || {
        Outcome::waiting(reason::DELETING, "nothing is left of this VPC")
            .with(release(claim).into_iter().collect())
    };
    let Some(vpc) = ours.filter(|_| !matches!(seen.kube_ovn, KubeOvn::Missing(_))) else { return gone() };
    if seen.environment.is_finishing() {
        // The Environment is deleted and its workloads are gone: nobody is left to see the waiting, and the sweep
        // takes down what stands on the Kube-OVN side.
        return gone();
    }
    let closed: Vec<Change> = teardown::keep_closed(vpc, seen.last_good.as_deref()).into_iter().collect();
    let named: Vec<&str> = seen.subnets.iter().flatten().map(String::as_str).collect();
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
    let waiting = |what: String| seen.kube_ovn.waiting(reason::DELETING, what);
    if !seen.subnets.is_empty() || !seen.nat_rules.is_empty() {
        return waiting(
            "waiting for Kube-OVN to remove the Subnets of earlier SubnetClaims in this VPC".into(),
        )
        .with(closed);
    }
    let since = claim.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let waited = now.as_second() - since.as_second();
    match teardown::vpc(vpc, &seen.router_eips, waited) {
        Step::Done => gone(),
        Step::Do(changes) => waiting(format!("Vpc {} is being removed", vpc.name_any())).with(changes),
        Step::Wait(what) => waiting(format!("waiting for Kube-OVN to remove {what}")),
    }
}

/// At most eight names, so that a message stays one.
fn listed(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}
