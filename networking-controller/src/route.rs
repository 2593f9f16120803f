//! Tells the owner of a Cluster whose VPC has no way out that its workers will never appear: they cannot reach their own
//! API server, and nothing else would say so.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use kmetal_crds::{
    foreign::capi::Cluster,
    networking::{VpcClaim, service::reason},
};
use kmetal_runtime::{Drive, Result, drive, event::EventType};
use kube::{
    Resource, ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};

use crate::{
    cluster::subnet_claim,
    context::{Caches, Context},
    report::spread,
    trigger,
};

/// How often it is told again: Kubernetes forgets Events after an hour.
const AGAIN: Duration = Duration::from_mins(20);

/// Tells until the process stops.
pub async fn run(context: Arc<Context>) {
    let process = context.process.clone();
    let loops = Drive::new("cluster", &context.caches.clusters).on(triggers(&context)).concurrency(2);
    drive(&process, loops, context, reconcile).await;
}

async fn reconcile(cluster: Arc<Cluster>, context: Arc<Context>) -> Result<Action> {
    let namespace = cluster.namespace().unwrap_or_default();
    let subnet_claim =
        subnet_claim(&cluster).and_then(|name| context.caches.subnet_claims.get_in(&namespace, name));
    let vpc_claim =
        subnet_claim.and_then(|claim| context.caches.vpc_claims.get_in(&namespace, &claim.spec.vpc));
    let Some(note) = vpc_claim.and_then(|vpc_claim| no_route(&cluster, &vpc_claim)) else {
        return Ok(Action::await_change());
    };
    let events = &context.process.events;
    let regarding = cluster.object_ref(&());
    events.publish(&regarding, EventType::Warning, reason::NO_ROUTE_TO_CONTROL_PLANE, &note, "Route").await;
    Ok(Action::requeue(spread(&cluster.uid().unwrap_or_default(), AGAIN)))
}

/// What is told of a Cluster on this VPC, if anything.
fn no_route(cluster: &Cluster, vpc_claim: &VpcClaim) -> Option<String> {
    let concerns = vpc_claim.spec.egress.is_none() && !cluster.is_deleting();
    concerns.then(|| {
        let vpc_claim = vpc_claim.name_any();
        format!(
            "the workers of Cluster {} cannot reach their API server, because VpcClaim {vpc_claim} has no egress; add spec.egress to VpcClaim {vpc_claim}",
            cluster.name_any()
        )
    })
}

fn triggers(context: &Arc<Context>) -> impl Stream<Item = ObjectRef<Cluster>> + Send + 'static {
    let caches = &context.caches;
    let (by_vpc, by_subnet) = (caches.clone(), caches.clone());
    stream::select(
        trigger::distinct(&caches.vpc_claims, |claim| claim.spec.egress.is_some())
            .flat_map(move |claim| stream::iter(clusters_in(&by_vpc, claim.namespace()))),
        trigger::distinct(&caches.subnet_claims, |claim| claim.spec.vpc.clone())
            .flat_map(move |claim| stream::iter(clusters_in(&by_subnet, claim.namespace()))),
    )
}

fn clusters_in(caches: &Caches, namespace: Option<String>) -> Vec<ObjectRef<Cluster>> {
    let clusters = caches.clusters_in(&namespace.unwrap_or_default());
    clusters.iter().map(|cluster| ObjectRef::from_obj(&**cluster)).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use kmetal_crds::{
        foreign::capi::ClusterSpec,
        networking::{Egress, VpcClaimSpec},
    };

    use super::*;

    #[test]
    fn only_a_living_cluster_on_a_vpc_without_a_way_out_is_told() {
        let vpc = |egress: bool| {
            let egress = egress.then_some(Egress { provider_network: None });
            VpcClaim::new("prod", VpcClaimSpec { egress })
        };
        let mut cluster = Cluster::new("blue", ClusterSpec::default());
        let note = no_route(&cluster, &vpc(false)).unwrap();
        assert!(note.contains("Cluster blue") && note.contains("VpcClaim prod"), "{note}");
        assert_eq!(no_route(&cluster, &vpc(true)), None);
        cluster.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
        assert_eq!(no_route(&cluster, &vpc(false)), None);
    }
}
