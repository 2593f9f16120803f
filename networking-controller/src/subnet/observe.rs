//! Every read of a SubnetClaim's pass, and nothing but reads.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use kmetal_crds::{
    foreign::kube_ovn::Subnet,
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_runtime::{Error, Result};
use kube::{Api, ResourceExt, api::PartialObjectMeta, runtime::reflector::ObjectRef};

use super::{demand::Demand, overlap::Candidate, plan::Seen};
use crate::{
    claim::{ClaimRef, Owner, is_deleting, owner, vpc_claim_uid},
    context::Context,
    kube_ovn::KubeOvn,
    names,
    platform::State,
    range::Range,
    teardown::SubnetObjects,
};

/// Reads what [`super::plan`] decides on. `vpc_uid` is the uid of the VpcClaim that the claim names, empty if there
/// is none.
pub(super) async fn observe(context: &Context, claim: &SubnetClaim, vpc_uid: &str) -> Result<Seen> {
    let me = ClaimRef::of(claim);
    let caches = &context.caches;
    let kube_ovn = context.kube_ovn_now();
    let platform = context.platform.now();
    let environment = context.environment(&me.namespace, is_deleting(claim)).await?;
    let vpc_claim = caches
        .vpc_claims
        .read(|claims| claims.get(&ObjectRef::new(&claim.spec.vpc).within(&me.namespace)))?
        .filter(|vpc_claim| vpc_claim.uid().as_deref() == Some(vpc_uid));
    let objects = if matches!(kube_ovn, KubeOvn::Missing(_)) {
        SubnetObjects::default()
    } else {
        objects(context, &me)?
    };
    let stands = objects.subnet.is_some() || objects.snat.is_some();
    if stands && vpc_claim.is_none() && !is_deleting(claim) {
        // Much follows from it that it is gone, so the API server itself must say so.
        let api =
            Api::<PartialObjectMeta<VpcClaim>>::namespaced(context.process.client.clone(), &me.namespace);
        if api.get_opt(&claim.spec.vpc).await?.is_some() {
            let why = "the cache does not have it as it is".into();
            return Err(Error::Unknown { what: format!("VpcClaim {}", claim.spec.vpc), why });
        }
    }
    let vpc = caches
        .vpcs
        .get_named(&names::vpc(&me.namespace, &claim.spec.vpc))
        .filter(|vpc| vpc_claim.as_ref().is_some_and(|claim| owner(&**claim, Some(&**vpc)) == Owner::Ours));
    let router_eip = vpc.as_ref().and_then(|vpc| {
        let subnet = vpc.spec.extra_external_subnets.first()?;
        caches.eips.get_named(&names::router_eip(&vpc.name_any(), subnet))
    });
    Ok(Seen {
        others: others(context, claim, &me, vpc_uid, &platform),
        platform,
        kube_ovn,
        environment,
        vpc_claim: vpc_claim.map(|claim| (*claim).clone()),
        vpc: vpc.map(|vpc| (*vpc).clone()),
        router_eip: router_eip.map(|eip| (*eip).clone()),
        objects,
    })
}

/// The objects that carry a SubnetClaim's names.
pub(crate) fn objects(context: &Context, me: &ClaimRef) -> Result<SubnetObjects> {
    let caches = &context.caches;
    let subnet = names::subnet(&me.namespace, &me.name);
    let snat = names::snat(&me.namespace, &me.name);
    let attachment = ObjectRef::new(&me.name).within(&me.namespace);
    Ok(SubnetObjects {
        subnet: caches
            .subnets
            .read(|subnets| subnets.get(&ObjectRef::new(&subnet)))?
            .map(|found| (*found).clone()),
        snat: caches.snats.read(|snats| snats.get(&ObjectRef::new(&snat)))?.map(|found| (*found).clone()),
        attachment: caches.attachments.read(|nads| nads.get(&attachment))?.map(|found| (*found).clone()),
    })
}

/// Who else wants, or has, addresses in the VPC.
fn others(
    context: &Context,
    claim: &SubnetClaim,
    me: &ClaimRef,
    vpc_uid: &str,
    platform: &State,
) -> Vec<Candidate> {
    let caches = &context.caches;
    // By name as well: a label may have been taken away.
    let vpc = names::vpc(&me.namespace, &claim.spec.vpc);
    let subnets = caches
        .subnets
        .state_filter(|subnet: &Subnet| vpc_claim_uid(subnet) == Some(vpc_uid) || subnet.spec.vpc == vpc);
    let shown: HashSet<String> = subnets.iter().map(|subnet| subnet.name_any()).collect();
    let mut sent = context.sent_subnets.pending(vpc_uid, &shown);
    let mut taken: HashSet<String> = HashSet::new();
    let mut candidates = Vec::new();
    for other in caches.subnet_claims_in(&me.namespace) {
        let other_ref = ClaimRef::of(&*other);
        if other_ref.uid == me.uid || other.spec.vpc != claim.spec.vpc {
            continue;
        }
        let name = names::subnet(&other_ref.namespace, &other_ref.name);
        let has = subnets
            .iter()
            .find(|subnet| subnet.name_any() == name)
            .filter(|subnet| owner(&*other, Some(&***subnet)) == Owner::Ours);
        let sent_range = sent.remove(&name);
        let Some(range) = context.ranges.of(&other) else { continue };
        let reserved = platform.as_ref().is_ok_and(|platform| platform.reserves(&range));
        if has.is_none() && sent_range.is_none() && (is_deleting(&*other) || reserved) {
            continue;
        }
        if has.is_some() {
            taken.insert(name);
        }
        candidates.push(Candidate {
            name: Some(other_ref.name),
            uid: other_ref.uid,
            created: other.metadata.creation_timestamp.as_ref().map(|time| time.0),
            range,
            has_subnet: has.is_some() || sent_range.is_some(),
        });
    }
    let mine = names::subnet(&me.namespace, &me.name);
    let without_claim = subnets
        .iter()
        .filter(|subnet| !taken.contains(&subnet.name_any()) && subnet.name_any() != mine)
        .filter_map(|subnet| Some((subnet.uid()?, Range::parse(&subnet.spec.cidr_block).ok()?)));
    let sent = sent.into_iter().filter(|(name, _)| *name != mine);
    candidates.extend(without_claim.chain(sent).map(|(uid, range)| Candidate {
        name: None,
        uid,
        created: None,
        range,
        has_subnet: true,
    }));
    candidates
}

/// The ranges that claims ask for, checked once for each generation: every pass in a VPC looks at all its claims, and
/// a claim may exclude many addresses.
#[derive(Default)]
pub struct Ranges(Mutex<HashMap<String, Checked>>);

/// The generation that was checked, and what came of it.
type Checked = (Option<i64>, Option<Range>);

impl Ranges {
    /// More than any cluster has claims; then all are checked once again.
    const KEPT: usize = 65_536;

    /// What the claim asks for; none when it cannot be served as it is.
    fn of(&self, claim: &SubnetClaim) -> Option<Range> {
        let uid = claim.uid().unwrap_or_default();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, range)) = known.get(&uid)
            && *generation == claim.metadata.generation
        {
            return range.clone();
        }
        let range = Demand::check(&claim.spec).ok().map(|demand| demand.range);
        if known.len() >= Self::KEPT {
            known.clear();
        }
        known.insert(uid, (claim.metadata.generation, range.clone()));
        range
    }
}
