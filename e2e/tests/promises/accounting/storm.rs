//! Claims come and go in any order and kmetal-networking is killed again and again: in the end every address is free or
//! one claim's, and there is what the living claims stand for and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use k8s_openapi::ClusterResourceScope;
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnDnatRule, OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names::CLAIM_UID,
    networking::{EipClaim, SubnetClaim, VpcClaim, reason},
};
use kmetal_e2e::wait::{Expected, READY};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
    core::{ApiResource, DynamicObject},
};

use super::{
    ACME, GLOBEX, INTERNET, PARTNER, POOL, World, address, every_address_had_one_owner, is_ready, waits,
};
use crate::chance::chance;

/// What tenants do.
const STEPS: usize = 80;
/// How often the process is killed meanwhile.
const KILLS: usize = 8;
/// More than there are addresses, so that some wait.
const MANY: usize = 18;
/// VPCs with a way out, a subnet in each: they cost Kube-OVN a second or two each.
const VPCS: usize = 3;
/// All that was begun may take Kube-OVN a while.
const SETTLED_WITHIN: Duration = Duration::from_mins(3);

/// The claims that tenants have and did not delete.
#[derive(Debug, Default)]
struct Living {
    count: usize,
    eips: Vec<(&'static str, String)>,
    vpcs: Vec<usize>,
}

/// The storm, the books after it, and the proof that what the books call free can be had.
pub async fn free_and_had_make_up_the_pool(world: &mut World) -> Result<()> {
    let mut chance = chance("storm")?;
    let history = world.record().await?;
    let mut living = Living::default();
    let mut kills: BTreeSet<usize> = BTreeSet::new();
    while kills.len() < KILLS {
        kills.insert(chance.usize(1..STEPS));
    }
    for step in 0..STEPS {
        if kills.contains(&step) {
            tokio::time::sleep(Duration::from_millis(chance.u64(..150))).await;
            world.networking.start_again().await?;
        }
        living.step(world, &mut chance).await?;
        tokio::time::sleep(Duration::from_millis(chance.u64(..80))).await;
    }
    let free = settled(world, &living).await?;
    for extra in 0..free {
        world.claim(GLOBEX, &format!("free-{extra}"), None).await?;
    }
    let wait = world.wait_for("what is free can be had").await?;
    let extra = |claim: &&EipClaim| claim.name_any().starts_with("free-") && is_ready(claim);
    wait.until(async || Ok((world.claims().await?.iter().filter(extra).count() == free).then_some(())))
        .await?;
    world.claim(GLOBEX, "beyond", None).await?;
    let wait = world.wait_for("nothing beyond that can be had").await?;
    let beyond = |claim: &EipClaim| claim.name_any() == "beyond" && waits(claim, reason::POOL_EXHAUSTED);
    wait.until(async || Ok(world.claims().await?.iter().any(beyond).then_some(()))).await?;

    every_address_had_one_owner(&history).await?;
    world.give_all_back().await?;
    for number in living.vpcs {
        end_vpc(world, &mut chance, number).await?;
    }
    world.before.nothing_is_left(&world.networking).await
}

impl Living {
    /// Something that tenants may do.
    async fn step(&mut self, world: &World, chance: &mut Rng) -> Result<()> {
        self.count += 1;
        match chance.u8(..100) {
            ..45 if self.eips.len() < MANY => {
                let namespace = if chance.bool() { ACME } else { GLOBEX };
                let name = format!("storm-{}", self.count);
                let network = (chance.u8(..4) == 0).then_some(PARTNER);
                // Now and then one that somebody else may have.
                let wish = format!("203.0.113.{}", chance.usize(2..2 + POOL));
                let wish = Some(&*wish).filter(|_| network.is_none() && chance.u8(..4) == 0);
                world.claim_on(network, namespace, &name, wish).await?;
                self.eips.push((namespace, name));
            }
            ..80 if !self.eips.is_empty() => {
                let (namespace, name) = self.eips.swap_remove(chance.usize(..self.eips.len()));
                world.give_back(namespace, &name).await?;
            }
            _ if self.vpcs.len() < VPCS => {
                let (net, front) = names(self.count);
                world.networking.claim_vpc(ACME, &net, Some(PARTNER)).await?;
                world.networking.claim_subnet(ACME, &front, &net, "10.1.0.0/24").await?;
                self.vpcs.push(self.count);
            }
            _ => {
                let number = self.vpcs.swap_remove(chance.usize(..self.vpcs.len()));
                end_vpc(world, chance, number).await?;
            }
        }
        Ok(())
    }
}

fn names(number: usize) -> (String, String) {
    (format!("net-{number}"), format!("front-{number}"))
}

/// Deletes a VPC and the subnet in it, whichever first.
async fn end_vpc(world: &World, chance: &mut Rng, number: usize) -> Result<()> {
    let (net, front) = names(number);
    let vpcs: Api<VpcClaim> = Api::namespaced(world.client.clone(), ACME);
    let subnets: Api<SubnetClaim> = Api::namespaced(world.client.clone(), ACME);
    let vpc_first = chance.bool();
    if vpc_first {
        vpcs.delete(&net, &DeleteParams::default()).await?;
    }
    subnets.delete(&front, &DeleteParams::default()).await?;
    if !vpc_first {
        vpcs.delete(&net, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// Waits until every claim has what it can have and the books are right. Returns how many addresses are free.
async fn settled(world: &World, living: &Living) -> Result<usize> {
    let wait = world.wait_for("free and had make up the pool, and claims and objects each other").await?;
    wait.within(SETTLED_WITHIN)
        .showing_all::<VpcClaim>(None)
        .showing_all::<SubnetClaim>(None)
        .showing_all::<OvnEip>(None)
        .until(async || {
            let claims = world.claims().await?;
            let names: BTreeSet<(String, String)> = claims.iter().map(super::id).collect();
            let wanted: BTreeSet<(String, String)> =
                living.eips.iter().map(|(namespace, name)| ((*namespace).to_owned(), name.clone())).collect();
            ensure!(names == wanted, "EipClaims {names:?} instead of {wanted:?}");
            each_stands_for_its_claim(world, &claims, living.vpcs.len()).await?;
            let free = free(world, INTERNET).await?;
            let exhausted = claims.iter().filter(|claim| waits(claim, reason::POOL_EXHAUSTED)).count();
            ensure!(exhausted == 0 || free == 0, "{exhausted} wait, and {free} addresses are free");
            free_in_kube_ovn(world, INTERNET, free).await?;
            Ok(Some(free))
        })
        .await
}

/// One object of each kind for each claim that is to have one, and no other.
async fn each_stands_for_its_claim(world: &World, claims: &[EipClaim], vpcs: usize) -> Result<()> {
    let all = ListParams::default();
    let of_vpcs = ready::<VpcClaim>(world).await?;
    let of_subnets = ready::<SubnetClaim>(world).await?;
    ensure!((of_vpcs.len(), of_subnets.len()) == (vpcs, vpcs), "of {vpcs} VPCs are Ready {of_vpcs:?}");
    let mut of_eips: Vec<String> = Vec::new();
    for claim in claims {
        let decided = is_ready(claim)
            || [reason::POOL_EXHAUSTED, reason::ADDRESS_UNAVAILABLE].iter().any(|why| waits(claim, why));
        ensure!(decided, "EipClaim {:?} is {:?}", super::id(claim), super::told(claim));
        if is_ready(claim) {
            ensure!(address(claim).is_some(), "{:?} is Ready without an address", super::id(claim));
            of_eips.extend(claim.uid());
        }
    }
    of_eips.sort();
    ensure!(owners::<Vpc>(world).await? == of_vpcs, "Vpcs are not those of {of_vpcs:?}");
    ensure!(owners::<Subnet>(world).await? == of_subnets, "Subnets are not those of {of_subnets:?}");
    ensure!(owners::<OvnSnatRule>(world).await? == of_subnets, "source NAT is not that of {of_subnets:?}");
    ensure!(owners::<OvnEip>(world).await? == of_eips, "OvnEips are not those of {of_eips:?}");
    ensure!(owners::<OvnDnatRule>(world).await?.is_empty(), "nothing is bound");
    let attachments: Api<NetworkAttachmentDefinition> = Api::all(world.client.clone());
    let attachments = attachments.list(&all.clone().labels(CLAIM_UID)).await?;
    ensure!(attachments.items.len() == vpcs, "{} attachments of {vpcs} subnets", attachments.items.len());
    let eips: Api<OvnEip> = Api::all(world.client.clone());
    let routers = eips.list(&all).await?.iter().filter(|eip| !eip.labels().contains_key(CLAIM_UID)).count();
    ensure!(routers == vpcs, "{routers} routers' addresses of {vpcs} VPCs");
    Ok(())
}

/// The uids of all claims of a kind, sorted; an error unless each is Ready.
async fn ready<K: Resource<DynamicType = ()>>(world: &World) -> Result<Vec<String>> {
    let claims: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::erase::<K>(&()));
    let claims = claims.list(&ListParams::default()).await?;
    let is_ready =
        |claim: &DynamicObject| claim.metadata.deletion_timestamp.is_none() && Expected::holds(&READY, claim);
    let other = claims.iter().find(|claim| !is_ready(claim));
    ensure!(
        other.is_none(),
        "{} {} is not Ready",
        K::kind(&()),
        other.map_or(String::new(), ResourceExt::name_any)
    );
    let mut uids: Vec<String> = claims.iter().filter_map(ResourceExt::uid).collect();
    uids.sort();
    Ok(uids)
}

/// The uids of the claims that the objects of a kind stand for, sorted, each as often as there are objects of it.
async fn owners<K>(world: &World) -> Result<Vec<String>>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope>,
{
    let objects: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::erase::<K>(&()));
    let objects = objects.list(&ListParams::default().labels(CLAIM_UID)).await?;
    let mut uids: Vec<String> =
        objects.iter().filter_map(|object| object.labels().get(CLAIM_UID).cloned()).collect();
    uids.sort();
    Ok(uids)
}

/// How many addresses of a provider network no OvnEip has; each that is had must be had once.
async fn free(world: &World, network: &str) -> Result<usize> {
    let eips: Api<OvnEip> = Api::all(world.client.clone());
    let mut had: BTreeMap<String, String> = BTreeMap::new();
    for eip in eips.list(&ListParams::default()).await?.items {
        let name = eip.name_any();
        if eip.spec.external_subnet == network {
            let address = eip.status.map(|status| status.v4_ip).filter(|address| !address.is_empty());
            let address = address.with_context(|| format!("OvnEip {name} has no address"))?;
            let other = had.insert(address, name);
            ensure!(other.is_none(), "{other:?} is not the only one with its address");
        }
    }
    POOL.checked_sub(had.len()).with_context(|| format!("{POOL} addresses, and these are had: {had:?}"))
}

/// Kube-OVN's own books say the same.
async fn free_in_kube_ovn(world: &World, network: &str, free: usize) -> Result<()> {
    let subnets: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::erase::<Subnet>(&()));
    let status = subnets.get(network).await?.data["status"].clone();
    let number = |field: &str| status[field].as_u64().and_then(|number| usize::try_from(number).ok());
    let books = (number("v4availableIPs"), number("v4usingIPs"));
    ensure!(
        books == (Some(free), Some(POOL - free)),
        "{free} are free, and Kube-OVN says {books:?}: {status}"
    );
    Ok(())
}
