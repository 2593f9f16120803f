//! What vanished claims left behind. A tenant can take our finalizer off their claim, an Environment that is deleted
//! is not kept waiting, a disaster can lose claims: in each case the objects that stood for the claim are still
//! labelled with it, and this loop takes them down, step by step, like those of a claim that is being deleted.
//!
//! It looks at the whole world each time, because there is no claim to queue. A claim counts as vanished only when
//! the API server itself says so: a cache may be old.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kmetal_crds::{
    foreign::kube_ovn::{OvnDnatRule, Vpc},
    networking::{EipClaim, SubnetClaim, VpcClaim},
};
use kmetal_runtime::{Presence, Result, repeat};
use kube::{
    Api, Resource, ResourceExt,
    api::PartialObjectMeta,
    core::NamespaceResourceScope,
    runtime::reflector::{ObjectRef, Store},
};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use crate::{
    apply::apply_without_claim,
    change::{Change, Target},
    claim::{ClaimRef, Owner, is_deleting, remembers, vpc_claim_uid},
    context::Context,
    kube_ovn::KubeOvn,
    names, service, subnet,
    teardown::{self, Step, SubnetObjects},
};

/// Without any change the world is looked at so often.
const INTERVAL: Duration = Duration::from_secs(30);

/// Seconds for which a Service is left to let an address go by itself.
const SERVICE: i64 = 30;

/// Sweeps until the process stops.
pub async fn run(context: Arc<Context>) {
    let caches = &context.caches;
    let triggers = stream::select_all([
        caches.vpc_claims.changes().map(|_| ()).boxed(),
        caches.subnet_claims.changes().map(|_| ()).boxed(),
        caches.eip_claims.changes().map(|_| ()).boxed(),
        caches.vpcs.changes().map(|_| ()).boxed(),
        caches.subnets.changes().map(|_| ()).boxed(),
        caches.snats.changes().map(|_| ()).boxed(),
        caches.dnats.changes().map(|_| ()).boxed(),
        caches.attachments.changes().map(|_| ()).boxed(),
        caches.eips.changes().map(|_| ()).boxed(),
        context.kube_ovn.changes().boxed(),
        context.platform.changes().boxed(),
    ]);
    let process = context.process.clone();
    let since = Mutex::new(BTreeMap::new());
    repeat(&process, "orphans", triggers, INTERVAL, async || sweep(&context, &mut *since.lock().await).await)
        .await;
}

async fn sweep(context: &Context, since: &mut BTreeMap<ClaimRef, Instant>) -> Result<()> {
    // While the claims' own kinds are not served, no claim can be said to be gone.
    let caches = &context.caches;
    let claims =
        [caches.vpc_claims.presence(), caches.subnet_claims.presence(), caches.eip_claims.presence()];
    if claims.iter().any(|kind| *kind != Presence::Present)
        || matches!(context.kube_ovn_now(), KubeOvn::Missing(_))
    {
        return Ok(());
    }
    let mut outcome = Ok(());
    let suspects = suspects(context)?;
    since.retain(|claim, _| suspects.contains(claim));
    for claim in suspects {
        if !vanished(context, &claim).await? {
            continue;
        }
        let waited = since.entry(claim.clone()).or_insert_with(Instant::now).elapsed();
        let waited = i64::try_from(waited.as_secs()).unwrap_or(i64::MAX);
        let (changes, _) = context.pace.due(remains(context, &claim, waited)?, Instant::now());
        if !changes.is_empty() {
            // What is waited for begins anew with each step.
            since.insert(claim.clone(), Instant::now());
            tracing::info!(
                kind = claim.kind,
                namespace = claim.namespace,
                name = claim.name,
                "claim is gone; taking down what it left"
            );
        }
        // One that cannot be taken down now must not keep the others.
        outcome = outcome.and(apply_without_claim(&context.process.client, &changes).await);
    }
    outcome.and(give_back_router_addresses(context).await)
}

/// Addresses of routers whose Vpc is gone: Kube-OVN 1.16 forgets one when it ends between letting the Vpc go and
/// handling that.
async fn give_back_router_addresses(context: &Context) -> Result<()> {
    let client = &context.process.client;
    let vpcs = Api::<PartialObjectMeta<Vpc>>::all(client.clone());
    for eip in context.caches.eips.all() {
        let name = eip.name_any();
        let Some(vpc) = names::vpc_of_router_eip(&name, &eip.spec.external_subnet) else { continue };
        let is_cached = context.caches.vpcs.read(|vpcs| vpcs.get(&ObjectRef::new(vpc)).is_some())?;
        if eip.spec.type_ != "lrp" || is_cached || vpcs.get_opt(vpc).await?.is_some() {
            continue;
        }
        let change = if is_deleting(&*eip) {
            teardown::nudge_eip(&eip, context.now())
        } else {
            tracing::info!(vpc, eip = name, "Vpc is gone; giving its router's address back");
            Some(Change::DeleteEip(Target::of(&*eip)))
        };
        apply_without_claim(client, change.as_slice()).await?;
    }
    Ok(())
}

/// Claims that objects of ours name and the caches do not have.
fn suspects(context: &Context) -> Result<BTreeSet<ClaimRef>> {
    let caches = &context.caches;
    let mut named = BTreeSet::new();
    named.extend(
        caches.vpcs.read(Store::state)?.iter().filter_map(|object| ClaimRef::from_labels(&object.metadata)),
    );
    named.extend(
        caches
            .subnets
            .read(Store::state)?
            .iter()
            .filter_map(|object| ClaimRef::from_labels(&object.metadata)),
    );
    named.extend(
        caches.snats.read(Store::state)?.iter().filter_map(|object| ClaimRef::from_labels(&object.metadata)),
    );
    named.extend(
        caches.dnats.read(Store::state)?.iter().filter_map(|object| ClaimRef::from_labels(&object.metadata)),
    );
    named.extend(
        caches
            .attachments
            .read(Store::state)?
            .iter()
            .filter_map(|object| ClaimRef::from_labels(&object.metadata)),
    );
    named.extend(
        caches.eips.read(Store::state)?.iter().filter_map(|object| ClaimRef::from_labels(&object.metadata)),
    );
    named.retain(|claim| {
        let known = match claim.kind.as_str() {
            "VpcClaim" => {
                caches.vpc_claims.get_in(&claim.namespace, &claim.name).and_then(|found| found.uid())
            }
            "SubnetClaim" => {
                caches.subnet_claims.get_in(&claim.namespace, &claim.name).and_then(|found| found.uid())
            }
            "EipClaim" => {
                caches.eip_claims.get_in(&claim.namespace, &claim.name).and_then(|found| found.uid())
            }
            // Another kind's objects are another loop's.
            _ => return false,
        };
        known.as_deref() != Some(&claim.uid)
    });
    Ok(named)
}

async fn vanished(context: &Context, claim: &ClaimRef) -> Result<bool> {
    async fn live_uid<K>(context: &Context, claim: &ClaimRef) -> Result<Option<String>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        // Metadata only: a claim that does not decode is there all the same.
        let api = Api::<PartialObjectMeta<K>>::namespaced(context.process.client.clone(), &claim.namespace);
        Ok(api.get_opt(&claim.name).await?.and_then(|found| found.uid()))
    }
    let live = match claim.kind.as_str() {
        "VpcClaim" => live_uid::<VpcClaim>(context, claim).await?,
        "EipClaim" => live_uid::<EipClaim>(context, claim).await?,
        _ => live_uid::<SubnetClaim>(context, claim).await?,
    };
    Ok(live.as_deref() != Some(&claim.uid))
}

/// Whether an object is what a vanished claim left, and not one of a living claim of that name with a changed label: that
/// claim remembers it, and puts the label right.
fn is_left<K: Resource>(context: &Context, claim: &ClaimRef, object: &K) -> bool {
    let (caches, namespace, name) = (&context.caches, &claim.namespace, &claim.name);
    let meta = object.meta();
    let is_remembered = match claim.kind.as_str() {
        "VpcClaim" => caches.vpc_claims.get_in(namespace, name).is_some_and(|live| remembers(&*live, meta)),
        "EipClaim" => caches.eip_claims.get_in(namespace, name).is_some_and(|live| remembers(&*live, meta)),
        _ => caches.subnet_claims.get_in(namespace, name).is_some_and(|live| remembers(&*live, meta)),
    };
    claim.owner(Some(object)) == Owner::Ours && !is_remembered
}

/// The next step down for a claim that is gone.
fn remains(context: &Context, claim: &ClaimRef, waited: i64) -> Result<Vec<Change>> {
    let caches = &context.caches;
    if claim.kind == "VpcClaim" {
        let name = names::vpc(&claim.namespace, &claim.name);
        let vpc = caches.vpcs.read(|vpcs| vpcs.get(&ObjectRef::new(&name)))?;
        let Some(vpc) = vpc.filter(|vpc| is_left(context, claim, &**vpc)) else {
            return Ok(Vec::new());
        };
        let inside = |uid: Option<&str>, vpc: &str| uid == Some(claim.uid.as_str()) || vpc == name;
        let subnets = caches.subnets.state_filter(|subnet| inside(vpc_claim_uid(subnet), &subnet.spec.vpc));
        let dnats = caches.dnats_in(claim)?;
        if !dnats.is_empty() {
            let now = context.now();
            let closed = teardown::keep_closed(claim, &vpc, context.platform.last_good().as_deref());
            return Ok(closed
                .into_iter()
                .chain(dnats.iter().filter_map(|rule| teardown::dnat(rule, now)))
                .collect());
        }
        let has_nat_rules =
            !caches.snats.state_filter(|rule| inside(vpc_claim_uid(rule), &rule.spec.vpc)).is_empty();
        if !subnets.is_empty() || has_nat_rules {
            let Some(platform) = context.platform.last_good() else {
                return Ok(Vec::new());
            };
            // Without machines the Subnets go in a moment, and then the Vpc as it is attached.
            let has_machines = subnets.iter().any(|subnet| teardown::used(subnet) > 0);
            let way_out = (has_machines && !has_nat_rules)
                .then(|| teardown::withdraw(claim, &vpc, &context.router_eips(&vpc), waited, &platform))
                .flatten();
            return Ok(way_out
                .or_else(|| teardown::keep_closed(claim, &vpc, Some(&platform)))
                .into_iter()
                .collect());
        }
        return Ok(steps(teardown::vpc(claim, &vpc, &context.router_eips(&vpc), waited)));
    }
    if claim.kind == "EipClaim" {
        let rules = caches.dnats_of(claim)?;
        if !rules.is_empty() {
            let now = context.now();
            // The Service has to say first that it has the address no more; a tenant's API server may keep it from that.
            let may_go = |rule: &&OvnDnatRule| waited >= SERVICE || !service::is_kept(context, rule);
            return Ok(rules.iter().filter(may_go).filter_map(|rule| teardown::dnat(rule, now)).collect());
        }
        let name = names::eip(&claim.namespace, &claim.name);
        let eip = caches.eips.read(|eips| eips.get(&ObjectRef::new(&name)))?;
        let ours = eip.filter(|eip| is_left(context, claim, &**eip));
        let change = ours.and_then(|eip| {
            if is_deleting(&*eip) {
                teardown::nudge_eip(&eip, context.now())
            } else {
                Some(Change::DeleteEip(Target::of(&*eip)))
            }
        });
        return Ok(change.into_iter().collect());
    }
    let objects = subnet::objects_of(context, claim)?;
    let ours = SubnetObjects {
        subnet: objects.subnet.filter(|object| is_left(context, claim, object)),
        snat: objects.snat.filter(|object| is_left(context, claim, object)),
        attachment: objects.attachment.filter(|object| is_left(context, claim, object)),
    };
    // Nobody is left to see a wait for addresses in use. Kube-OVN itself keeps the Subnet until they are given back,
    // and the attachment is the last to go.
    Ok(steps(teardown::subnet(&ours, context.now())))
}

fn steps(step: Step) -> Vec<Change> {
    match step {
        Step::Do(changes) => changes,
        Step::Done | Step::Wait(_) => Vec::new(),
    }
}
