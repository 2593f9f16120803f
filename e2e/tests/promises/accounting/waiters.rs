//! Who waits for an address gets one in the order of age, however many come later.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use kmetal_crds::{
    foreign::kube_ovn::OvnEip,
    names,
    networking::{EipClaim, reason},
};
use kmetal_e2e::history::Moment;
use kube::{ResourceExt, core::DynamicObject};

use super::{
    ACME, GLOBEX, INTERNET, POOL, World, created, every_address_had_one_owner, id, is_deleting, is_ready,
    nobody_was_overtaken, waits,
};
use crate::chance::chance;

/// What others have for good, so that ten addresses go round.
const LODGERS: usize = 3;
/// The addresses that go round.
const ROUND: usize = POOL - LODGERS;
/// Forty claims come in so many bursts, each of another second: that is as fine as the age of an object is.
const BURSTS: usize = 8;
const BURST: usize = 5;
/// Addresses that are given back one by one.
const CYCLES: usize = 15;

type Id = (String, String);

/// The whole story.
pub async fn the_oldest_is_next_and_nobody_starves(world: &World) -> Result<()> {
    let mut chance = chance("waiters")?;
    let history = world.record().await?;
    for lodger in 0..LODGERS {
        world.claim(GLOBEX, &format!("lodger-{lodger}"), None).await?;
    }
    for holder in 0..ROUND {
        world.claim(ACME, &format!("holder-{holder}"), None).await?;
    }
    holds(world, "the pool is given out", |claims| claims.iter().all(is_ready)).await?;

    for _ in 0..BURSTS {
        for _ in 0..BURST {
            come(world, &mut chance, "waits").await?;
        }
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let known = |claims: &[EipClaim]| {
        claims.iter().filter(|claim| waits(claim, reason::POOL_EXHAUSTED)).count() == BURSTS * BURST
    };
    let claims = holds(world, "all others know that they wait", known).await?;
    let patient: BTreeSet<Id> = claims.iter().filter(|claim| !is_ready(claim)).map(id).collect();

    let mut served = BTreeSet::new();
    for _ in 0..CYCLES {
        // Somebody comes and must not be before those who are there.
        come(world, &mut chance, "late").await?;
        served.extend(one_goes(world, &mut chance).await?);
    }
    ensure!(served.len() == CYCLES && served.is_subset(&patient), "of {patient:?} were served {served:?}");
    while !patient.is_subset(&served) {
        let before = served.len();
        served.extend(all_go(world).await?);
        ensure!(
            served.len() > before,
            "nobody is served any more; {patient:?} waited, {served:?} were served"
        );
    }
    every_address_had_one_owner(&history).await?;
    nobody_was_overtaken(&history, POOL + patient.len())?;
    world.give_all_back().await
}

/// A claim under a name and in an Environment that say nothing of when it came.
async fn come(world: &World, chance: &mut Rng, what: &str) -> Result<()> {
    let namespace = if chance.bool() { ACME } else { GLOBEX };
    world.claim(namespace, &format!("{what}-{:08x}", chance.u32(..)), None).await
}

/// Waits until this is true of all claims, and returns them.
async fn holds(world: &World, what: &str, true_of: impl Fn(&[EipClaim]) -> bool) -> Result<Vec<EipClaim>> {
    let wait = world.wait_for(what).await?;
    wait.until(async || Ok(Some(world.claims().await?).filter(|claims| true_of(claims)))).await
}

/// Who has an address that goes round.
fn holders(claims: &[EipClaim]) -> BTreeSet<Id> {
    let holders = claims.iter().filter(|claim| is_ready(claim)).map(id);
    holders.filter(|(_, name)| !name.starts_with("lodger")).collect()
}

/// Who has none.
fn waiting(claims: &[EipClaim]) -> impl Iterator<Item = &EipClaim> {
    claims.iter().filter(|claim| !is_ready(claim) && !is_deleting(claim))
}

fn age(claim: &EipClaim) -> i64 {
    claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// One address is given back; waits for who gets it, which must be one of the oldest.
async fn one_goes(world: &World, chance: &mut Rng) -> Result<BTreeSet<Id>> {
    let claims = world.claims().await?;
    let had: Vec<Id> = holders(&claims).into_iter().collect();
    let (namespace, name) = &had[chance.usize(..had.len())];
    let oldest = waiting(&claims).map(age).min().context("nobody waits")?;
    world.give_back(namespace, name).await?;
    let (others, before) = (ROUND - 1, had.iter().cloned().collect::<BTreeSet<Id>>());
    let handed_over = |claims: &[EipClaim]| {
        let now = holders(claims);
        now.len() == ROUND && now.intersection(&before).count() == others
    };
    let claims = holds(world, "another claim has the address that was given back", handed_over).await?;
    let next: BTreeSet<Id> = holders(&claims).difference(&before).cloned().collect();
    for claim in claims.iter().filter(|claim| next.contains(&id(claim))) {
        ensure!(age(claim) == oldest, "{:?} of {} is served before one of {oldest}", id(claim), age(claim));
    }
    Ok(next)
}

/// All that go round are given back at once; waits for who gets them.
async fn all_go(world: &World) -> Result<BTreeSet<Id>> {
    let claims = world.claims().await?;
    let (had, others) = (holders(&claims), waiting(&claims).count().min(ROUND));
    for (namespace, name) in &had {
        world.give_back(namespace, name).await?;
    }
    let handed_over = |claims: &[EipClaim]| {
        let now = holders(claims);
        now.len() == others && now.is_disjoint(&had)
    };
    Ok(holders(&holds(world, "others have the addresses that were given back", handed_over).await?))
}

/// The uid of the claim that an OvnEip stands for; a router's stands for none.
pub fn claim_of(eip: &DynamicObject) -> Option<&String> {
    eip.labels().get(names::CLAIM_UID)
}

/// Whether so many addresses are left as older claims wait, now that this OvnEip has been made.
pub fn leaves_room_for_the_older(moment: &Moment<'_>, made: &DynamicObject) -> Result<()> {
    let on_it = |eip: &&DynamicObject| eip.data["spec"]["externalSubnet"] == INTERNET;
    let had = moment.all::<OvnEip>().filter(on_it).count();
    let served: BTreeSet<&String> = moment.all::<OvnEip>().filter_map(claim_of).collect();
    let of = |claim: &&DynamicObject| claim.metadata.uid.as_ref() == claim_of(made);
    let claim = moment.all::<EipClaim>().find(of).context("an OvnEip without its claim")?;
    let mut older = Vec::new();
    for other in moment.all::<EipClaim>() {
        let is_served = other.metadata.uid.as_ref().is_some_and(|uid| served.contains(uid));
        let is_going = other.metadata.deletion_timestamp.is_some();
        if !is_served && !is_going && created(other)? < created(claim)? {
            older.push(other.name_any());
        }
    }
    let left = POOL.checked_sub(had).with_context(|| format!("{had} OvnEips of {POOL} addresses"))?;
    ensure!(older.len() <= left, "{} overtakes some of {older:?}: {left} are left", claim.name_any());
    Ok(())
}
