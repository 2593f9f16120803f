//! SubnetClaim → Subnet, NetworkAttachmentDefinition and source NAT. The driver: read, decide, write, say.

mod deletion;
mod demand;
mod objects;
mod observe;
mod overlap;
mod plan;

pub(crate) use observe::{Ranges, objects as objects_of};

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kmetal_crds::{
    condition::{self, READY},
    networking::{SubnetClaim, SubnetClaimStatus, reason},
};
use kmetal_runtime::{Drive, Result, drive};
use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

use crate::{
    apply::apply,
    change::Change,
    claim::{ClaimRef, is_deleting},
    context::{Caches, Context},
    range::Range,
    report::report,
    trigger,
};

/// Reconciles every SubnetClaim until the process stops.
pub async fn run(context: Arc<Context>) {
    let process = context.process.clone();
    let loops = Drive::new("subnet-claim", &context.caches.subnet_claims)
        .on(triggers(&context))
        .everything_on(trigger::platform(&context))
        .concurrency(8);
    drive(&process, loops, context, reconcile).await;
}

async fn reconcile(claim: Arc<SubnetClaim>, context: Arc<Context>) -> Result<Action> {
    let vpc_claim = context.caches.vpc_claims.get_in(&claim.namespace().unwrap_or_default(), &claim.spec.vpc);
    let vpc_uid = vpc_claim.and_then(|vpc_claim| vpc_claim.uid()).unwrap_or_default();
    // From reading to writing one claim of a VPC at a time: two must not both find their common range free.
    // Who finds the VPC busy comes back: all workers waiting for one VPC would keep every other tenant waiting, too.
    let Some(turn) = context.sent_subnets.try_turn(&vpc_uid) else {
        return Ok(Action::requeue(Duration::from_millis(100)));
    };
    let seen = observe::observe(&context, &claim, &vpc_uid).await?;
    let plan = plan::plan(&claim, &seen, context.now());
    let (changes, later) = context.pace.due(plan.changes, Instant::now());
    for change in &changes {
        if let Change::CreateSubnet(subnet) = change
            && let Ok(range) = Range::parse(&subnet.spec.cidr_block)
        {
            context.sent_subnets.note(&vpc_uid, &subnet.name_any(), range);
        }
    }
    let done = apply(&context.process.client, &*claim, &changes).await;
    drop(turn);
    let before = claim
        .status
        .clone()
        .map(|status| SubnetClaimStatus { conditions: condition::ours(status.conditions), ..status });
    let next = report(&context, &*claim, before.as_ref(), &plan.status, |status| &status.conditions).await?;
    done.map(|()| later.map_or(next, Action::requeue))
}

/// What else than the claim itself makes a SubnetClaim worth a look.
fn triggers(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<SubnetClaim>> + Send + 'static {
    let caches = &context.caches;
    let by_vpc_claim = caches.clone();
    let by_vpc = caches.clone();
    let by_eip = caches.clone();
    let by_subnet = caches.clone();
    let by_claim = caches.clone();
    let own = |meta: &ObjectMeta| std::future::ready(claim_of(meta));
    stream::select_all([
        caches.subnets.changes().filter_map(move |subnet| own(&subnet.metadata)).boxed(),
        caches.snats.changes().filter_map(move |snat| own(&snat.metadata)).boxed(),
        caches.attachments.changes().filter_map(move |nad| own(&nad.metadata)).boxed(),
        // The VPC: its claim's wish and end, and what Kube-OVN says of it, but not its count of subnets.
        trigger::distinct(&caches.vpc_claims, |claim| (claim.metadata.generation, is_deleting(claim)))
            .flat_map(move |claim| {
                stream::iter(claims_in_vpc(
                    &by_vpc_claim,
                    &claim.namespace().unwrap_or_default(),
                    &claim.name_any(),
                ))
            })
            .boxed(),
        trigger::distinct(&caches.vpcs, |vpc| {
            (
                vpc.spec.clone(),
                is_deleting(vpc),
                vpc.status.as_ref().map(|status| (status.standby, status.enable_external)),
            )
        })
        .flat_map(move |vpc| stream::iter(claims_of_vpc_object(&by_vpc, &vpc.metadata)))
        .boxed(),
        trigger::distinct(&caches.eips, |eip| (eip.status.clone(), is_deleting(eip)))
            .flat_map(move |eip| {
                let name = eip.name_any();
                let vpc =
                    name.strip_suffix(&eip.spec.external_subnet).and_then(|name| name.strip_suffix('-'));
                let vpc = vpc.and_then(|vpc| by_eip.vpcs.get_named(vpc));
                stream::iter(vpc.map(|vpc| claims_of_vpc_object(&by_eip, &vpc.metadata)).unwrap_or_default())
            })
            .boxed(),
        // A range may have become free: those that wait for one.
        trigger::distinct(&caches.subnets, is_deleting)
            .flat_map(move |subnet| stream::iter(waiting_for_range(&by_subnet, &subnet.metadata)))
            .boxed(),
        trigger::distinct(&caches.subnet_claims, |claim| (claim.metadata.generation, is_deleting(claim)))
            .flat_map(move |claim| stream::iter(freed_by(&by_claim, &claim)))
            .boxed(),
        trigger::namespaces(context, |caches, namespace| {
            caches.subnet_claims_in(namespace).iter().map(|claim| ObjectRef::from_obj(&**claim)).collect()
        })
        .boxed(),
    ])
}

fn claim_of(meta: &ObjectMeta) -> Option<ObjectRef<SubnetClaim>> {
    let claim = ClaimRef::from_labels(meta)?;
    (claim.kind == "SubnetClaim").then(|| ObjectRef::new(&claim.name).within(&claim.namespace))
}

fn claims_in_vpc(caches: &Caches, namespace: &str, vpc: &str) -> Vec<ObjectRef<SubnetClaim>> {
    let claims = caches.subnet_claims_in(namespace);
    claims.iter().filter(|claim| claim.spec.vpc == vpc).map(|claim| ObjectRef::from_obj(&**claim)).collect()
}

fn claims_of_vpc_object(caches: &Caches, meta: &ObjectMeta) -> Vec<ObjectRef<SubnetClaim>> {
    ClaimRef::from_labels(meta)
        .map(|claim| claims_in_vpc(caches, &claim.namespace, &claim.name))
        .unwrap_or_default()
}

/// The claims that a claim which goes may have kept from a range; one that has come keeps others from theirs.
fn freed_by(caches: &Caches, claim: &SubnetClaim) -> Vec<ObjectRef<SubnetClaim>> {
    let namespace = claim.namespace().unwrap_or_default();
    let stays = caches
        .subnet_claims
        .get_in(&namespace, &claim.name_any())
        .is_some_and(|now| now.uid() == claim.uid() && !is_deleting(&*now));
    if stays { Vec::new() } else { waiting_for_range(caches, &claim.metadata) }
}

/// The claims in the namespace of a claim, or of the claim that an object stands for, that were refused for overlap.
fn waiting_for_range(caches: &Caches, meta: &ObjectMeta) -> Vec<ObjectRef<SubnetClaim>> {
    let namespace =
        ClaimRef::from_labels(meta).map(|claim| claim.namespace).or_else(|| meta.namespace.clone());
    let Some(namespace) = namespace else { return Vec::new() };
    let waits = |claim: &SubnetClaim| {
        let conditions = claim.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        condition::get(conditions, READY).is_some_and(|ready| ready.reason == reason::CIDR_OVERLAP)
    };
    let claims = caches.subnet_claims_in(&namespace);
    claims.iter().filter(|claim| waits(claim)).map(|claim| ObjectRef::from_obj(&**claim)).collect()
}
