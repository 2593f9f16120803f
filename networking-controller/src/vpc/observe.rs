//! Every read of a VpcClaim's pass, and nothing but reads.

use std::time::Instant;

use kmetal_crds::{
    foreign::kube_ovn::{OvnEip, Subnet, Vpc},
    names::EXTERNAL_GATEWAY,
    networking::VpcClaim,
};
use kmetal_runtime::Result;
use kube::{Api, ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

use super::{egress, mend, plan::Seen};
use crate::{
    claim::{ClaimRef, Owner, is_deleting, owner, vpc_claim_uid},
    context::Context,
    eip,
    kube_ovn::KubeOvn,
    names,
    platform::State,
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
    let router_eips: Vec<OvnEip> = vpc.iter().flat_map(|vpc| context.router_eips(vpc)).collect();
    let address_lost = match &vpc {
        Some(vpc) => {
            let may_be = router_eips.is_empty() && snats.is_empty();
            let is_lost = may_be && address_lost(context, vpc).await?;
            context.lost.saw(&vpc.uid().unwrap_or_default(), is_lost, Instant::now())
        }
        None => None,
    };
    let address_free = vpc.as_ref().is_some_and(|vpc| address_free(context, vpc, &platform));
    Ok(Seen {
        address_lost,
        address_free,
        platform,
        last_good: context.platform.last_good(),
        kube_ovn,
        environment,
        router_eips,
        vpc: vpc.map(|vpc| (*vpc).clone()),
        subnets: subnets.iter().map(|subnet| live_claim(context, &me.namespace, subnet)).collect(),
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

/// Whether an attached Vpc is without its router's address. Much follows from it, so the API server itself must say so.
async fn address_lost(context: &Context, vpc: &Vpc) -> Result<bool> {
    let is_attached = vpc.status.as_ref().is_some_and(|status| status.enable_external);
    let Some(subnet) = egress::attached(Some(vpc)).filter(|_| is_attached) else { return Ok(false) };
    let eips = Api::<PartialObjectMeta<OvnEip>>::all(context.process.client.clone());
    Ok(eips.get_opt(&names::router_eip(&vpc.name_any(), subnet)).await?.is_none())
}

/// Whether nobody else has the address that the router of a Vpc is to have again.
fn address_free(context: &Context, vpc: &Vpc, platform: &State) -> bool {
    let (Some(address), Ok(platform)) = (mend::held(vpc), platform) else { return false };
    let network = platform
        .provider_networks
        .iter()
        .find(|network| network.range.v4.is_some_and(|net| net.contains(&address)));
    network
        .and_then(|network| eip::pool_of(context, network, Some(&vpc.name_any())))
        .is_some_and(|pool| pool.has(address) && pool.is_available(address))
}

/// The name of the SubnetClaim that a Subnet stands for, while that claim exists.
fn live_claim(context: &Context, namespace: &str, subnet: &Subnet) -> Option<String> {
    let claims = context.caches.subnet_claims_in(namespace);
    claims.iter().find(|claim| owner(&***claim, Some(subnet)) == Owner::Ours).map(|claim| claim.name_any())
}
