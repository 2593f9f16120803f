//! Looks after EipClaims whose Service nobody looks after: the driver of [`super::binding`].

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use kmetal_crds::{
    foreign::{capi::Cluster, kube_ovn::OvnDnatRule},
    networking::EipClaim,
};
use kmetal_runtime::{Drive, Result, drive};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PartialObjectMeta},
    runtime::{controller::Action, reflector::ObjectRef},
};

use super::{
    apply,
    binding::{Keeper, Seen, Trace, own, plan},
    tenant::is_ours,
};
use crate::{
    bound::is_torn,
    claim::{ClaimRef, is_deleting},
    context::Context,
    kube_ovn::KubeOvn,
    report::spread,
    trigger,
};

/// How soon one that is on its way out, or was found busy, is looked at again.
const SOON: Duration = Duration::from_secs(5);
/// The same for one of which nothing can be said now.
const LATER: Duration = Duration::from_secs(30);
/// The same for all others.
const CALM: Duration = Duration::from_mins(10);

/// Looks until the process stops. `gone` names EipClaims of Services that are gone.
pub(super) async fn run(
    context: Arc<Context>,
    gone: impl Stream<Item = ObjectRef<EipClaim>> + Send + 'static,
) {
    let caches = &context.caches;
    let process = context.process.clone();
    let by_cluster = caches.clone();
    let by_rule = caches.clone();
    let of_rules = trigger::distinct(&caches.dnats, |rule| (is_deleting(rule), rule.metadata.labels.clone()))
        .filter_map(move |rule| {
            let claim = by_rule.eip_claim_of(&rule);
            std::future::ready(claim.map(|claim| ObjectRef::new(&claim.name).within(&claim.namespace)))
        });
    let of_clusters = trigger::distinct(&caches.clusters, is_deleting).flat_map(move |cluster| {
        let claims = by_cluster.eip_claims_in(&cluster.namespace().unwrap_or_default());
        stream::iter(claims.into_iter().map(|claim| ObjectRef::from_obj(&*claim)))
    });
    let loops =
        Drive::new("binding", &caches.eip_claims).on(of_rules).on(of_clusters).on(gone).concurrency(4);
    drive(&process, loops, context, reconcile).await;
}

async fn reconcile(claim: Arc<EipClaim>, context: Arc<Context>) -> Result<Action> {
    let me = ClaimRef::of(&*claim);
    let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref()).map(Trace::of_binding);
    let known = !matches!(context.kube_ovn_now(), KubeOvn::Missing(_));
    let rules = if known { context.caches.dnats_of(&me)? } else { Vec::new() };
    let made_for = own(&claim);
    if (bound.is_none() && made_for.is_none() && rules.is_empty()) || !known {
        return Ok(Action::await_change());
    }
    let Some(turn) = context.services.turn(&me.namespace, &me.name) else {
        return Ok(Action::requeue(SOON));
    };
    let mut keepers = Keepers { context: &context, namespace: &me.namespace, known: BTreeMap::new() };
    let seen = Seen {
        bound: keepers.of(bound.as_ref()).await?,
        made_for: keepers.of(made_for.as_ref()).await?,
        rules: keepers.of_rules(rules).await?,
        pending: !context.services.sent.pending(&me.uid, &HashSet::new()).is_empty(),
    };
    let changes = plan(&claim, &seen, context.now());
    if !changes.is_empty() {
        tracing::info!(
            namespace = me.namespace,
            name = me.name,
            "nobody looks after the Service of this EipClaim"
        );
    }
    apply::apply(&context, None, &changes).await?;
    drop(turn);
    let all = || [seen.bound, seen.made_for].into_iter().chain(seen.rules.iter().map(|(_, keeper)| *keeper));
    let pause = if all().any(|keeper| keeper == Keeper::Nobody) {
        SOON
    } else if all().any(|keeper| keeper == Keeper::Unknown) {
        LATER
    } else {
        CALM
    };
    Ok(Action::requeue(spread(&me.uid, pause)))
}

/// Finds out who looks after Services, each once a pass.
struct Keepers<'a> {
    context: &'a Context,
    namespace: &'a str,
    known: BTreeMap<(String, String), Keeper>,
}

impl Keepers<'_> {
    /// Of a Service that there is none of, its own passes may be said to look after it: nothing is to be done for it.
    async fn of(&mut self, trace: Option<&Trace>) -> Result<Keeper> {
        let Some(trace) = trace else { return Ok(Keeper::Service) };
        let key = (trace.cluster_uid.clone(), trace.service_uid.clone());
        if let Some(keeper) = self.known.get(&key) {
            return Ok(*keeper);
        }
        let keeper = keeper(self.context, self.namespace, trace).await?;
        self.known.insert(key, keeper);
        Ok(keeper)
    }

    async fn of_rules(&mut self, rules: Vec<OvnDnatRule>) -> Result<Vec<(OvnDnatRule, Keeper)>> {
        let mut kept = Vec::new();
        for rule in rules {
            // One that does not say whom it serves serves nobody: who it served makes another.
            let keeper = match Trace::of_labels(&rule).filter(|_| !is_torn(&rule)) {
                Some(trace) => self.of(Some(&trace)).await?,
                None => Keeper::Nobody,
            };
            kept.push((rule, keeper));
        }
        Ok(kept)
    }
}

/// Who looks after a Service. That nobody does is said only when the API server that would know says so.
async fn keeper(context: &Context, namespace: &str, trace: &Trace) -> Result<Keeper> {
    let is_cluster = |cluster: &Cluster| cluster.metadata.uid.as_ref() == Some(&trace.cluster_uid);
    let Ok(cached) = context.caches.clusters.read(|all| all.state_filter(is_cluster)) else {
        return Ok(Keeper::Unknown);
    };
    if cached.is_empty() {
        let api = Api::<PartialObjectMeta<Cluster>>::namespaced(context.process.client.clone(), namespace);
        let live = api.list(&ListParams::default()).await?;
        let is_there =
            live.items.iter().any(|cluster| cluster.metadata.uid.as_ref() == Some(&trace.cluster_uid));
        return Ok(if is_there { Keeper::Unknown } else { Keeper::Nobody });
    }
    let Some(tenant) = context.tenants.get(&trace.cluster_uid) else { return Ok(Keeper::Unknown) };
    let is_service = |service: &Service| service.metadata.uid.as_ref() == Some(&trace.service_uid);
    let Ok(cached) = tenant.seen.services.read(|all| all.state_filter(is_service)) else {
        return Ok(Keeper::Unknown);
    };
    if cached.iter().any(|service| is_ours(service)) {
        return Ok(Keeper::Service);
    }
    let Some((namespace, name)) = &trace.name else {
        return Ok(if tenant.link.is_reachable() { Keeper::Nobody } else { Keeper::Unknown });
    };
    // What a tenant's API server fails to say is a fact, not an error of ours.
    match Api::<Service>::namespaced(tenant.link.client(), namespace).get_opt(name).await {
        Ok(live) => {
            let is_there = live.is_some_and(|service| is_service(&service) && is_ours(&service));
            Ok(if is_there { Keeper::Service } else { Keeper::Nobody })
        }
        Err(_) => Ok(Keeper::Unknown),
    }
}

/// Whether the Service that a rule serves will take the rule away itself, and say so first.
pub(crate) fn is_kept(context: &Context, rule: &OvnDnatRule) -> bool {
    let Some(trace) = Trace::of_labels(rule) else { return false };
    let Some(tenant) = context.tenants.get(&trace.cluster_uid).filter(|tenant| tenant.link.is_reachable())
    else {
        return false;
    };
    let is_service = |service: &Service| service.metadata.uid.as_ref() == Some(&trace.service_uid);
    !tenant.seen.which(is_service).is_empty()
}
