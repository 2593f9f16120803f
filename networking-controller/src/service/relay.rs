//! Tells tenant clusters of changes on the under cluster that concern their Services.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kmetal_crds::{
    names::{CLUSTER_UID, SERVICE_UID},
    networking::{EipClaim, service::EIP_CLAIM},
};
use kube::ResourceExt;

use super::{demand::is_over_quota, tenant::is_in};
use crate::{
    claim::{ClaimRef, is_deleting},
    cluster::subnet_claim,
    context::Context,
    names, trigger,
};

/// What changed.
enum News {
    /// This EipClaim, or its address: the Services that ask for it or have it.
    Claim { namespace: String, name: String, has: Option<(String, String)> },
    /// A rule of this Service of this Cluster.
    Rule(String, String),
    /// The EipClaims of this Environment are others: the Services that its quota keeps waiting.
    Quota(String),
    /// The network of some Cluster in this Environment.
    Environment(String),
    /// Something that concerns everybody.
    Everything,
}

/// Relays until the process stops.
pub(super) async fn run(context: Arc<Context>) {
    let stop = context.process.stop.clone();
    let mut news = Box::pin(news(&context));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(news) = news.next() => tell(&context, &news),
        }
    }
}

fn news(context: &Arc<Context>) -> impl Stream<Item = News> + Send + 'static {
    let caches = &context.caches;
    let of_claim = |claim: &EipClaim| {
        let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
        News::Claim {
            namespace: claim.namespace().unwrap_or_default(),
            name: claim.name_any(),
            has: bound.map(|bound| (bound.cluster.uid.clone(), bound.service.uid.clone())),
        }
    };
    let environment = |meta: &ObjectMeta| News::Environment(meta.namespace.clone().unwrap_or_default());
    let by_labels = |meta: &ObjectMeta| {
        std::future::ready(ClaimRef::from_labels(meta).map(|claim| News::Environment(claim.namespace)))
    };
    let by_count = context.clone();
    let by_rule = caches.clone();
    let news_of = |claim: &ClaimRef| News::Claim {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        has: None,
    };
    stream::select_all([
        caches.eip_claims.changes().map(move |claim| of_claim(&claim)).boxed(),
        // One that is gone leaves room; one that was made shows that there is some.
        trigger::distinct(&caches.eip_claims, |claim| claim.metadata.uid.clone())
            .map(move |claim| {
                let namespace = claim.namespace().unwrap_or_default();
                by_count.services.quota.open(&namespace);
                News::Quota(namespace)
            })
            .boxed(),
        trigger::distinct(&caches.eips, |eip| (eip.spec.clone(), eip.status.clone(), is_deleting(eip)))
            .filter_map(move |eip| {
                let claim = ClaimRef::from_labels(&eip.metadata).filter(|claim| claim.kind == "EipClaim");
                std::future::ready(claim.as_ref().map(news_of))
            })
            .boxed(),
        caches
            .dnats
            .changes()
            .filter_map(move |rule| {
                let label = |key| rule.labels().get(key).cloned();
                let served =
                    label(CLUSTER_UID).and_then(|cluster| Some(News::Rule(cluster, label(SERVICE_UID)?)));
                let on_address = || by_rule.eip_claim_of(&rule).as_ref().map(news_of);
                std::future::ready(served.or_else(on_address))
            })
            .boxed(),
        trigger::distinct(&caches.clusters, |cluster| {
            (subnet_claim(cluster).map(str::to_owned), is_deleting(cluster))
        })
        .map(move |cluster| environment(&cluster.metadata))
        .boxed(),
        trigger::distinct(&caches.subnet_claims, |claim| claim.spec.vpc.clone())
            .map(move |claim| environment(&claim.metadata))
            .boxed(),
        trigger::distinct(&caches.vpc_claims, |claim| (claim.metadata.generation, is_deleting(claim)))
            .map(move |claim| environment(&claim.metadata))
            .boxed(),
        trigger::distinct(&caches.vpcs, |vpc| (vpc.spec.clone(), vpc.status.clone(), is_deleting(vpc)))
            .filter_map(move |vpc| by_labels(&vpc.metadata))
            .boxed(),
        trigger::distinct(&caches.subnets, |subnet| (subnet.spec.clone(), is_deleting(subnet)))
            .filter_map(move |subnet| by_labels(&subnet.metadata))
            .boxed(),
        trigger::distinct(&caches.namespaces, is_deleting)
            .map(|namespace| News::Environment(namespace.name_any()))
            .boxed(),
        context.kube_ovn.changes().map(|()| News::Everything).boxed(),
        context.platform.changes().map(|()| News::Everything).boxed(),
    ])
}

fn tell(context: &Context, news: &News) {
    let requests = &context.services.requests;
    for tenant in context.tenants.all() {
        let id = tenant.link.id();
        let concerned = match news {
            News::Claim { namespace, name, has } if is_in(id, namespace) => {
                tenant.seen.which(|service| concerns(service, &id.uid, name, has.as_ref()))
            }
            News::Rule(cluster, service) if id.uid == *cluster => {
                tenant.seen.which(|known| known.metadata.uid.as_ref() == Some(service))
            }
            News::Quota(namespace) if is_in(id, namespace) => tenant.seen.which(is_over_quota),
            News::Environment(namespace) if is_in(id, namespace) => tenant.seen.ours(),
            News::Everything => tenant.seen.ours(),
            _ => continue,
        };
        for service in &concerned {
            requests.ask(&id.uid, service);
        }
    }
}

fn concerns(service: &Service, cluster: &str, claim: &str, has: Option<&(String, String)>) -> bool {
    let uid = service.metadata.uid.as_deref().unwrap_or_default();
    has.is_some_and(|has| has.0 == cluster && has.1 == uid)
        || service
            .annotations()
            .get(EIP_CLAIM)
            .map_or_else(|| names::own_claim(uid) == claim, |name| name == claim)
}
