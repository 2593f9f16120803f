//! Every read of an EipClaim's pass, and nothing but reads.

use std::{
    collections::{BTreeSet, HashSet},
    net::Ipv4Addr,
};

use kmetal_crds::networking::EipClaim;
use kmetal_runtime::Result;
use kube::{ResourceExt, runtime::reflector::ObjectRef};

use super::{
    plan::{self, Seen},
    pool::{Pool, Waiter},
};
use crate::{
    claim::{ClaimRef, Owner, is_deleting},
    context::Context,
    kube_ovn::KubeOvn,
    names,
    platform::ProviderNetwork,
    vpc::mend::held,
};

/// Reads what [`super::plan`] decides on.
pub(super) async fn observe(context: &Context, claim: &EipClaim) -> Result<Seen> {
    let me = ClaimRef::of(claim);
    let platform = context.platform.now();
    let kube_ovn = context.kube_ovn_now();
    let environment = context.environment(&me.namespace, is_deleting(claim)).await?;
    let known = !matches!(kube_ovn, KubeOvn::Missing(_));
    let eip = if known {
        let name = names::eip(&me.namespace, &me.name);
        context.caches.eips.read(|eips| eips.get(&ObjectRef::new(&name)))?
    } else {
        None
    };
    let rules = if known && is_deleting(claim) { context.caches.dnats_of(&me)? } else { Vec::new() };
    let network = platform
        .as_ref()
        .ok()
        .filter(|_| eip.is_none())
        .and_then(|platform| plan::network(claim, environment.tenant.as_deref(), platform));
    Ok(Seen {
        pool: network.and_then(|network| pool_of(context, network, None)),
        waiters: network.map(|network| waiters(context, &me, network)).unwrap_or_default(),
        unsettled: context.unsettled(&platform, None),
        rules: rules.iter().map(ResourceExt::name_any).collect(),
        eip: eip.map(|eip| (*eip).clone()),
        platform,
        kube_ovn,
        environment,
    })
}

/// The pool as the caches and what was just sent show it, all but what is held for the Vpc `but`; none while the
/// external Subnet is not there.
pub(crate) fn pool_of(context: &Context, network: &ProviderNetwork, but: Option<&str>) -> Option<Pool> {
    let caches = &context.caches;
    let net = network.range.v4?;
    let subnet = caches.subnets.get_named(&network.external_subnet)?;
    let eips = caches.eips.state_filter(|eip| eip.spec.external_subnet == network.external_subnet);
    let shown: HashSet<String> = eips.iter().map(|eip| eip.name_any()).collect();
    let mut sent = context.sent_eips.pending(&network.external_subnet, &shown);
    let router_eip = |vpc: &str| names::router_eip(vpc, &network.external_subnet);
    if let Some(but) = but {
        sent.remove(&router_eip(but));
    }
    let without = caches.vpcs.state_filter(|vpc| {
        let name = vpc.name_any();
        but != Some(&name) && !shown.contains(&router_eip(&name))
    });
    // Routers that are to have an address again, and those that Kube-OVN is about to give any.
    let held = without.iter().filter_map(|vpc| held(vpc)).filter(|address| net.contains(address)).map(Some);
    let routers = without.iter().filter(|vpc| {
        vpc.spec.enable_external && vpc.spec.extra_external_subnets.contains(&network.external_subnet)
    });
    let known = eips.iter().map(|eip| plan::address(eip)).chain(sent.into_values()).chain(held);
    let (addressed, unknown): (Vec<_>, Vec<_>) = known.partition(Option::is_some);
    let taken: BTreeSet<Ipv4Addr> = addressed.into_iter().flatten().collect();
    Some(Pool {
        net,
        excluded: subnet.spec.exclude_ips.iter().filter_map(|entry| interval(entry)).collect(),
        taken,
        promised: u64::try_from(unknown.len() + routers.count()).unwrap_or(u64::MAX),
    })
}

fn interval(entry: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = entry.split_once("..").unwrap_or((entry, entry));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The other claims without an OvnEip that would get an address of this network.
fn waiters(context: &Context, me: &ClaimRef, network: &ProviderNetwork) -> Vec<Waiter> {
    let caches = &context.caches;
    let Ok(platform) = context.platform.now() else { return Vec::new() };
    let sent = context.sent_eips.pending(&network.external_subnet, &HashSet::new());
    caches
        .eip_claims
        .all()
        .into_iter()
        .filter(|other| other.uid().as_deref() != Some(&me.uid) && !is_deleting(&**other))
        .filter(|other| {
            let namespace = other.namespace().unwrap_or_default();
            let tenant = context.tenant(&namespace);
            let same =
                plan::network(other, tenant.as_deref(), &platform).is_some_and(|n| n.name == network.name);
            let name = names::eip(&namespace, &other.name_any());
            // An OvnEip of an earlier claim of that name holds this one up, too: it does not wait for an address.
            let has = caches.eips.get_named(&name);
            same && ClaimRef::of(&**other).owner(has.as_deref()) == Owner::Absent && !sent.contains_key(&name)
        })
        .map(|other| plan::waiter(&other, network))
        .collect()
}
