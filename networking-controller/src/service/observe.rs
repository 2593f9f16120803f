//! Every read of a Service's pass, and nothing but reads.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::Service;
use kmetal_crds::{
    foreign::kube_ovn::{OvnDnatRule, OvnEip, Subnet},
    networking::{EipClaim, service::reason},
};
use kmetal_runtime::Result;
use kube::{ResourceExt, runtime::reflector::ObjectRef};

use super::{
    demand::{Demand, Refused, Wish, is_asked},
    network::{Found, Network, network},
    plan::{InCluster, Seen, is_own},
    rules::is_of,
    tenant::Tenant,
};
use crate::{
    claim::{ClaimRef, Owner, is_deleting, vpc_claim_uid},
    cluster::subnet_claim,
    context::Context,
    kube_ovn::KubeOvn,
    names,
};

/// Name of the EipClaim that a Service asks for; none when it asks for none.
pub(super) fn wanted(service: &Service) -> Option<String> {
    if !is_asked(service) || is_deleting(service) {
        return None;
    }
    Some(match Demand::check(service).ok()?.wish {
        Wish::Named(name) => name,
        Wish::Own(_) => names::own_claim(&service.uid().unwrap_or_default()),
    })
}

/// Reads what [`super::plan`] decides on.
pub(super) fn observe(context: &Context, tenant: &Tenant, service: &Service) -> Result<Seen> {
    let caches = &context.caches;
    let id = tenant.link.id();
    let namespace = id.namespace.as_str();
    let uid = service.uid().unwrap_or_default();
    let kube_ovn = context.kube_ovn_now();
    let known = !matches!(kube_ovn, KubeOvn::Missing(_));
    let wanted = wanted(service);
    let claim = match &wanted {
        Some(name) => caches.eip_claims.read(|all| all.get(&ObjectRef::new(name).within(namespace)))?,
        None => None,
    };
    let eip = claim.as_ref().filter(|_| known).and_then(|claim| eip_of(context, claim));
    let uses = |rule: &OvnDnatRule| {
        is_of(rule, &id.uid, &uid) || eip.as_ref().is_some_and(|eip| rule.spec.ovn_eip == eip.name_any())
    };
    let rules = if known { caches.dnats.read(|all| all.state_filter(uses))? } else { Vec::new() };
    let shown: HashSet<String> = rules.iter().map(|rule| rule.name_any()).collect();
    let sent = claim.as_ref().and_then(|claim| claim.uid()).unwrap_or_default();
    let pending = context.services.sent.pending(&sent, &shown);
    let belongs = |claim: &EipClaim| {
        let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
        let is_bound = bound.is_some_and(|b| b.cluster.uid == id.uid && b.service.uid == uid);
        claim.metadata.namespace.as_deref() == Some(namespace) && (is_bound || is_own(claim, &id.uid, &uid))
    };
    let ties = caches.eip_claims.read(|all| all.state_filter(belongs))?;
    let way_in = way_in(context, tenant);
    Ok(Seen {
        cluster: InCluster { namespace: id.namespace.clone(), name: id.name.clone(), uid: id.uid.clone() },
        provider_network: way_in.as_ref().ok().and_then(|network| provider_network(context, network)),
        network: way_in,
        kube_ovn,
        own_waiting: if wanted.is_some() && claim.is_none() {
            own_waiting(context, namespace, &id.uid)
        } else {
            0
        },
        claim: claim.map(|claim| (*claim).clone()),
        eip,
        ties: ties.iter().map(|claim| (**claim).clone()).collect(),
        rules: rules.iter().map(|rule| (**rule).clone()).collect(),
        pending: pending.into_values().collect::<BTreeSet<_>>(),
        workers: tenant.seen.workers(),
        endpoints: if is_local(service) { tenant.seen.endpoints(service) } else { None },
        over_quota: context.services.quota.is_closed(namespace),
    })
}

/// Whether it matters where endpoints are.
fn is_local(service: &Service) -> bool {
    service.spec.as_ref().is_some_and(|spec| spec.external_traffic_policy.as_deref() == Some("Local"))
}

/// The OvnEip of an EipClaim.
fn eip_of(context: &Context, claim: &EipClaim) -> Option<OvnEip> {
    let me = ClaimRef::of(claim);
    let eip = context.caches.eips.get_named(&names::eip(&me.namespace, &me.name))?;
    (me.owner(Some(&*eip)) == Owner::Ours).then(|| (*eip).clone())
}

/// By which VPC the Cluster's Services come in.
fn way_in(context: &Context, tenant: &Tenant) -> Result<Network, Refused> {
    let caches = &context.caches;
    let id = tenant.link.id();
    let refused = |reason, message: String| Err(Refused { reason, message });
    let cluster = caches.clusters.get_in(&id.namespace, &id.name);
    let Some(cluster) = cluster.filter(|cluster| cluster.uid().as_deref() == Some(&id.uid)) else {
        return refused(reason::NETWORK_NOT_READY, format!("Cluster {} cannot be read now", id.name));
    };
    let environment = caches.namespaces.get_named(&id.namespace);
    if is_deleting(&*cluster) || environment.is_some_and(|environment| is_deleting(&*environment)) {
        return refused(
            reason::CLUSTER_DELETING,
            format!("Cluster {} or its Environment is being deleted; nothing new is made for it", id.name),
        );
    }
    let subnet_claim =
        subnet_claim(&cluster).and_then(|name| caches.subnet_claims.get_in(&id.namespace, name));
    let vpc_claim =
        subnet_claim.as_ref().and_then(|claim| caches.vpc_claims.get_in(&id.namespace, &claim.spec.vpc));
    let uid = vpc_claim.as_ref().and_then(|claim| claim.uid());
    let vpc = vpc_claim
        .as_ref()
        .and_then(|claim| caches.vpcs.get_named(&names::vpc(&id.namespace, &claim.name_any())));
    let inside = |subnet: &Subnet| uid.is_some() && vpc_claim_uid(subnet) == uid.as_deref();
    let subnets: Vec<Subnet> =
        caches.subnets.state_filter(inside).iter().map(|subnet| (**subnet).clone()).collect();
    network(&Found {
        cluster: &cluster,
        subnet_claim: subnet_claim.as_deref(),
        vpc_claim: vpc_claim.as_deref(),
        vpc: vpc.as_deref(),
        subnets: &subnets,
    })
}

fn provider_network(context: &Context, network: &Network) -> Option<String> {
    let platform = context.platform.now().ok()?;
    Some(platform.by_external_subnet(&network.external_subnet)?.name.clone())
}

/// How many EipClaims that were made for Services of the Cluster have no address yet.
fn own_waiting(context: &Context, namespace: &str, cluster_uid: &str) -> usize {
    let waits = |claim: &EipClaim| {
        claim.metadata.namespace.as_deref() == Some(namespace)
            && claim.labels().get(kmetal_crds::names::CLUSTER_UID).is_some_and(|uid| uid == cluster_uid)
            && claim.status.as_ref().is_none_or(|status| status.address.is_none())
    };
    context.caches.eip_claims.state_filter(waits).len()
}
