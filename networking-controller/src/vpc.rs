//! VpcClaim → Vpc. The driver: read, decide, write, say.

mod deletion;
mod egress;
pub(crate) mod mend;
mod observe;
mod plan;

pub(crate) use egress::attached;

use std::{sync::Arc, time::Instant};

use futures::{Stream, StreamExt, stream};
use kmetal_crds::{
    condition,
    networking::{VpcClaim, VpcClaimStatus},
};
use kmetal_runtime::{Drive, Result, drive};
use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

use crate::{
    apply::apply,
    change::Change,
    claim::ClaimRef,
    cluster::subnet_claim,
    context::{Caches, Context},
    report::report,
    trigger,
};

/// Reconciles every VpcClaim until the process stops.
pub async fn run(context: Arc<Context>) {
    let process = context.process.clone();
    let loops = Drive::new("vpc-claim", &context.caches.vpc_claims)
        .on(triggers(&context))
        .everything_on(trigger::platform(&context))
        .concurrency(8);
    drive(&process, loops, context, reconcile).await;
}

async fn reconcile(claim: Arc<VpcClaim>, context: Arc<Context>) -> Result<Action> {
    let seen = observe::observe(&context, &claim).await?;
    let plan = plan::plan(&claim, &seen, context.now());
    let (changes, late) = context.pace.due(plan.changes, Instant::now());
    let later = late.or(seen.address_lost.map(|_| mend::SETTLED));
    // A router's address is taken from the same pool as those of EipClaims, one at a time.
    let mut turn = None;
    for change in &changes {
        if let Change::CreateEip(eip) = change {
            turn = Some(context.sent_eips.turn("").await);
            let address = eip.spec.v4_ip.as_deref().and_then(|address| address.parse().ok());
            context.sent_eips.note(&eip.spec.external_subnet, &eip.name_any(), address);
        }
    }
    let done = apply(&context.process.client, &*claim, &changes).await;
    drop(turn);
    let before = claim
        .status
        .clone()
        .map(|status| VpcClaimStatus { conditions: condition::ours(status.conditions), ..status });
    let next = report(&context, &*claim, before.as_ref(), &plan.status, |status| &status.conditions).await?;
    done.map(|()| later.map_or(next, Action::requeue))
}

/// What else than the claim itself makes a VpcClaim worth a look.
fn triggers(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<VpcClaim>> + Send + 'static {
    let caches = &context.caches;
    let of_vpc = {
        let caches = caches.clone();
        move |vpc: &str| {
            let vpc = caches.vpcs.get_named(vpc)?;
            claim_of(&vpc.metadata)
        }
    };
    let by_vpc = of_vpc.clone();
    let by_rule = of_vpc.clone();
    let (by_binding, by_cluster) = (caches.clone(), caches.clone());
    let by_subnet = of_vpc.clone();
    let by_eip = of_vpc;
    stream::select_all([
        caches.vpcs.changes().filter_map(|vpc| std::future::ready(claim_of(&vpc.metadata))).boxed(),
        caches.snats.changes().filter_map(move |snat| std::future::ready(by_vpc(&snat.spec.vpc))).boxed(),
        caches.dnats.changes().filter_map(move |dnat| std::future::ready(by_rule(&dnat.spec.vpc))).boxed(),
        // Which addresses are bound behind it.
        trigger::distinct(&caches.eip_claims, |claim| {
            claim.status.as_ref().and_then(|status| status.bound_to.clone())
        })
        .flat_map(move |claim| stream::iter(claims_in(&by_binding, claim.namespace())))
        .boxed(),
        trigger::distinct(&caches.clusters, |cluster| subnet_claim(cluster).map(str::to_owned))
            .flat_map(move |cluster| stream::iter(claims_in(&by_cluster, cluster.namespace())))
            .boxed(),
        trigger::distinct(&caches.subnets, |subnet| {
            (subnet.spec.vpc.clone(), subnet.metadata.deletion_timestamp.is_some())
        })
        .filter_map(move |subnet| std::future::ready(by_subnet(&subnet.spec.vpc)))
        .boxed(),
        caches
            .eips
            .changes()
            .filter_map(move |eip| {
                let name = eip.name_any();
                let vpc =
                    name.strip_suffix(&eip.spec.external_subnet).and_then(|name| name.strip_suffix('-'));
                std::future::ready(vpc.and_then(&by_eip))
            })
            .boxed(),
        trigger::namespaces(context, |caches, namespace| claims_in(caches, Some(namespace.to_owned())))
            .boxed(),
    ])
}

fn claims_in(caches: &Caches, namespace: Option<String>) -> Vec<ObjectRef<VpcClaim>> {
    let claims = caches.vpc_claims_in(&namespace.unwrap_or_default());
    claims.iter().map(|claim| ObjectRef::from_obj(&**claim)).collect()
}

fn claim_of(
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<ObjectRef<VpcClaim>> {
    let claim = ClaimRef::from_labels(meta)?;
    (claim.kind == "VpcClaim").then(|| ObjectRef::new(&claim.name).within(&claim.namespace))
}
