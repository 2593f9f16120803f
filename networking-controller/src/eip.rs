//! EipClaim → OvnEip. The driver: read, decide, write, say.

mod observe;
mod plan;
mod pool;

use std::{future::ready, sync::Arc, time::Instant};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kmetal_crds::{
    condition::{self, READY},
    networking::{EipClaim, EipClaimStatus, reason},
};
use kmetal_runtime::{Drive, Error, Result, drive};
use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

pub(crate) use self::observe::pool_of;
use crate::{
    apply::apply,
    change::Change,
    claim::{ClaimRef, is_deleting},
    context::{Caches, Context},
    report::report,
    trigger,
};

/// Reconciles every EipClaim until the process stops.
pub async fn run(context: Arc<Context>) {
    let process = context.process.clone();
    let loops = Drive::new("eip-claim", &context.caches.eip_claims)
        .on(triggers(&context))
        .everything_on(trigger::platform(&context))
        .concurrency(8);
    drive(&process, loops, context, reconcile).await;
}

async fn reconcile(claim: Arc<EipClaim>, context: Arc<Context>) -> Result<Action> {
    // From reading to writing one claim at a time: two must not both take the last address.
    let turn = context.sent_eips.turn("").await;
    let seen = observe::observe(&context, &claim).await?;
    if let Some(eip) = &seen.eip {
        // Before it may be deleted: gone again before the pool is looked at, it would hold its address for a while.
        context.sent_eips.forget(&eip.spec.external_subnet, &eip.name_any());
    }
    let plan = plan::plan(&claim, &seen, context.now());
    let (changes, later) = context.pace.due(plan.changes, Instant::now());
    for change in &changes {
        if let Change::CreateEip(eip) = change {
            context.sent_eips.note(&eip.spec.external_subnet, &eip.name_any(), plan::address(eip));
        }
    }
    let done = apply(&context.process.client, &*claim, &changes).await;
    // Refused, so it was not made: the claim may be gone already. One that was not answered may be there.
    let is_refusal =
        |error: &Error| matches!(error, Error::Conflict(_)) || error.code().is_some_and(|code| code < 500);
    if done.as_ref().is_err_and(is_refusal) {
        for change in &changes {
            if let Change::CreateEip(eip) = change {
                context.sent_eips.forget(&eip.spec.external_subnet, &eip.name_any());
            }
        }
    }
    drop(turn);
    // What the binder writes is not ours to compare.
    let mine = claim.status.clone().map(|status| EipClaimStatus {
        bound_to: None,
        conditions: condition::ours(status.conditions),
        ..status
    });
    let next = report(&context, &*claim, mine.as_ref(), &plan.status, |status| &status.conditions).await?;
    done.map(|()| later.map_or(next, Action::requeue))
}

/// What else than the claim itself makes an EipClaim worth a look.
fn triggers(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<EipClaim>> + Send + 'static {
    let caches = &context.caches;
    let by_eip = caches.clone();
    let by_claim = caches.clone();
    let own = |meta: &ObjectMeta| {
        let claim = ClaimRef::from_labels(meta).filter(|claim| claim.kind == "EipClaim");
        ready(claim.map(|claim| ObjectRef::new(&claim.name).within(&claim.namespace)))
    };
    stream::select_all([
        caches.eips.changes().filter_map(move |eip| own(&eip.metadata)).boxed(),
        // A claim that goes waits for the last rule of its address.
        trigger::distinct(&caches.dnats, is_deleting).filter_map(move |dnat| own(&dnat.metadata)).boxed(),
        // An address may have been given back: those that wait for one.
        trigger::distinct(&caches.eips, is_deleting)
            .flat_map(move |_| stream::iter(waiting(&by_eip)))
            .boxed(),
        trigger::distinct(&caches.eip_claims, |claim| (claim.metadata.generation, is_deleting(claim)))
            .flat_map(move |_| stream::iter(waiting(&by_claim)))
            .boxed(),
        trigger::namespaces(context, |caches, namespace| {
            caches.eip_claims_in(namespace).iter().map(|claim| ObjectRef::from_obj(&**claim)).collect()
        })
        .boxed(),
    ])
}

/// The claims that were told that no address is left, or that theirs is not to be had.
fn waiting(caches: &Caches) -> Vec<ObjectRef<EipClaim>> {
    let waits = |claim: &EipClaim| {
        let conditions = claim.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        condition::get(conditions, READY).is_some_and(|ready| {
            [reason::POOL_EXHAUSTED, reason::ADDRESS_UNAVAILABLE].contains(&ready.reason.as_str())
        })
    };
    caches.eip_claims.state_filter(waits).iter().map(|claim| ObjectRef::from_obj(&**claim)).collect()
}
