//! The one status write of a pass, and what is told besides: an Event when the claim's standing changes.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kmetal_crds::{
    condition::{self, READY, STALLED},
    names::manager::NETWORKING,
};
use kmetal_runtime::{
    Result,
    apply::{Guard, write_status},
};
use kube::{
    Api, Resource, ResourceExt,
    core::NamespaceResourceScope,
    runtime::{controller::Action, events::EventType},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::context::Context;

/// How long a claim in order is left alone; every change that matters is watched, this is for what a watch may miss.
const CALM: Duration = Duration::from_mins(10);
/// The same for one that waits or is stalled.
const ANXIOUS: Duration = Duration::from_secs(30);

/// Writes `after` if it differs from `before`, and says when to look again.
pub async fn report<K, S>(
    context: &Context,
    claim: &K,
    before: Option<&S>,
    after: &S,
    conditions: impl Fn(&S) -> &Vec<Condition>,
) -> Result<Action>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
    S: Serialize + PartialEq,
{
    let after_conditions = conditions(after);
    if before != Some(after) {
        let namespace = claim.namespace().unwrap_or_default();
        let api = Api::<K>::namespaced(context.process.client.clone(), &namespace);
        write_status(&api, NETWORKING, claim, Guard::Uid, after).await?;
        let standing = |all: &[Condition]| {
            condition::get(all, READY).map(|ready| (ready.status.clone(), ready.reason.clone()))
        };
        if before.and_then(|status| standing(conditions(status))) != standing(after_conditions) {
            tell(context, claim, after_conditions).await;
        }
    }
    let calm = condition::is_true(after_conditions, READY);
    let pause = if calm { CALM } else { ANXIOUS };
    Ok(Action::requeue(spread(&claim.uid().unwrap_or_default(), pause)))
}

/// The pause and up to a tenth more, so that objects that were converged together are not looked at together for ever.
pub fn spread(uid: &str, pause: Duration) -> Duration {
    let spread = uid.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    pause + Duration::from_millis(spread % (pause.as_secs() * 100).max(1))
}

async fn tell<K>(context: &Context, claim: &K, conditions: &[Condition])
where
    K: Resource<DynamicType = ()>,
{
    let Some(ready) = condition::get(conditions, READY) else { return };
    tracing::info!(kind = %K::kind(&()), namespace = claim.namespace(), name = claim.name_any(), reason = ready.reason, message = ready.message, "claim");
    let kind = if condition::is_true(conditions, STALLED) { EventType::Warning } else { EventType::Normal };
    context
        .process
        .events
        .publish(&claim.object_ref(&()), kind, &ready.reason, &ready.message, "Reconcile")
        .await;
}
