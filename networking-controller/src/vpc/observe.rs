//! Every read of a VpcClaim's pass, and nothing but reads.

use kmetal_crds::{names::EXTERNAL_GATEWAY, networking::VpcClaim};
use kmetal_runtime::Result;
use kube::{Resource, ResourceExt, runtime::reflector::ObjectRef};

use super::{egress, plan::Seen};
use crate::{
    claim::{ClaimRef, is_deleting, vpc_claim_uid},
    context::Context,
    kube_ovn::KubeOvn,
    names,
};

/// Reads what [`super::plan`] decides on.
pub(super) async fn observe(context: &Context, claim: &VpcClaim) -> Result<Seen> {
    let me = ClaimRef::of(claim);
    let caches = &context.caches;
    let platform = context.platform.now();
    let kube_ovn = context.kube_ovn_now();
    let environment = context.environment(&me.namespace, is_deleting(claim)).await?;
    let name = names::vpc(&me.namespace, &me.name);
    let known = !matches!(kube_ovn, KubeOvn::Missing(_));
    let vpc = if known { caches.vpcs.read(|vpcs| vpcs.get(&ObjectRef::new(&name)))? } else { None };
    // By name as well: a label may have been taken away, and what lies in a Vpc must not lose it.
    let inside = |uid: Option<&str>, vpc: &str| uid == Some(me.uid.as_str()) || vpc == name;
    let subnets = caches.subnets.state_filter(|subnet| inside(vpc_claim_uid(subnet), &subnet.spec.vpc));
    let snats = caches.snats.state_filter(|rule| inside(vpc_claim_uid(rule), &rule.spec.vpc));
    let dnats = if known { caches.dnats_in(&me)? } else { Vec::new() };
    let unsettled = if claim.spec.egress.is_some() && egress::attached(vpc.as_deref()).is_none() {
        context.unsettled(&platform, Some(&me))
    } else {
        Vec::new()
    };
    let router_eips = vpc.iter().flat_map(|vpc| context.router_eips(vpc)).collect();
    Ok(Seen {
        platform,
        last_good: context.platform.last_good(),
        kube_ovn,
        environment,
        router_eips,
        vpc: vpc.map(|vpc| (*vpc).clone()),
        subnets: subnets.iter().map(|subnet| live_claim(context, &**subnet)).collect(),
        nat_rules: snats
            .iter()
            .map(|rule| rule.name_any())
            .chain(dnats.iter().map(ResourceExt::name_any))
            .collect(),
        bound: caches.bound_behind(&me, &dnats),
        unsettled,
        gateway_nodes: !caches
            .nodes
            .state_filter(|node| {
                node.metadata
                    .labels
                    .as_ref()
                    .is_some_and(|l| l.get(EXTERNAL_GATEWAY).is_some_and(|v| v == "true"))
            })
            .is_empty(),
    })
}

/// The name of the SubnetClaim that an object stands for, while that claim exists.
fn live_claim<K: Resource>(context: &Context, object: &K) -> Option<String> {
    let claim = ClaimRef::from_labels(object.meta())?;
    let found = context.caches.subnet_claims.get_in(&claim.namespace, &claim.name)?;
    (found.uid().as_deref() == Some(&claim.uid)).then_some(claim.name)
}
