//! What a SubnetClaim that is being deleted needs now. Pure.

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::networking::{SubnetClaim, reason};
use kube::ResourceExt;

use super::plan::Seen;
use crate::{
    change::{Change, Outcome, release},
    kube_ovn::KubeOvn,
    teardown::{self, Step, SubnetObjects},
};

/// How long an attachment is kept in an Environment that is going, after its last Pod, for Kube-OVN to give the
/// addresses back. In seconds.
const ATTACHMENT_GRACE: i64 = 30;

/// Decides the next step down. `ours` is what stands for this claim.
pub(super) fn deletion(claim: &SubnetClaim, ours: &SubnetObjects, seen: &Seen, now: Timestamp) -> Outcome {
    let name = claim.name_any();
    let gone = |mut changes: Vec<Change>| {
        changes.extend(release(claim));
        let message = format!("nothing is left of SubnetClaim {name}, which is being let go");
        Outcome::waiting(reason::DELETING, message).with(changes)
    };
    if matches!(seen.kube_ovn, KubeOvn::Missing(_)) {
        return gone(ours.attachment.as_ref().map(teardown::release).unwrap_or_default());
    }
    let used = ours.used();
    if seen.environment.is_finishing() {
        let since = claim.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
        let patience_over = now.as_second() - since.as_second() >= ATTACHMENT_GRACE;
        if used > 0 && !patience_over && !matches!(seen.kube_ovn, KubeOvn::Silent(_)) {
            return Outcome::waiting(
                reason::DELETING,
                format!(
                    "waiting for Kube-OVN to give back {used} addresses of SubnetClaim {name}, whose machines are gone"
                ),
            );
        }
        return gone(ours.attachment.as_ref().map(teardown::release).unwrap_or_default());
    }
    if used > 0 {
        return Outcome::waiting(
            reason::IN_USE,
            format!(
                "SubnetClaim {name} is kept while machines hold {used} of its addresses; delete or detach them first"
            ),
        );
    }
    let waiting = |what: String| seen.kube_ovn.waiting(reason::DELETING, what);
    match teardown::subnet(ours, now) {
        Step::Done => gone(Vec::new()),
        Step::Do(changes) => {
            waiting(format!("the network of SubnetClaim {name} is being removed")).with(changes)
        }
        Step::Wait(what) => waiting(format!("waiting for Kube-OVN to remove {what}")),
    }
}
