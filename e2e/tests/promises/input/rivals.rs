//! Forty claims for overlapping ranges of one VPC, all at once: the rule decides, also over a kill.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use ipnet::Ipv4Net;
use kmetal_crds::{
    condition::{READY, STALLED, get, is_true},
    foreign::kube_ovn::Subnet,
    names::VPC_CLAIM_UID,
    networking::{SubnetClaim, SubnetClaimSpec, VpcClaim, reason},
};
use kmetal_e2e::{history::History, networking::Networking, wait::PATIENCE};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};

const PLACE: &str = "acme-a";
const RIVALS: u32 = 40;

pub(super) async fn of_a_built_vpc(networking: &Networking) -> Result<()> {
    networking.claim_vpc(PLACE, "one", None).await?;
    networking.vpc_ready(PLACE, "one").await?;
    compete(networking, "one").await?;
    let claims = settled(networking, "one").await?;
    is_as_many_as_fit(&claims)
}

pub(super) async fn while_the_controller_is_killed(networking: &mut Networking) -> Result<()> {
    networking.claim_vpc(PLACE, "two", None).await?;
    networking.vpc_ready(PLACE, "two").await?;
    compete(networking, "two").await?;
    kill_in_the_middle(networking, "two").await?;
    let claims = settled(networking, "two").await?;
    is_as_many_as_fit(&claims)
}

/// All claims are there before their VPC is, so nobody is first by chance.
pub(super) async fn that_all_waited_are_served_by_age(networking: &mut Networking) -> Result<()> {
    compete(networking, "three").await?;
    networking.claim_vpc(PLACE, "three", None).await?;
    kill_in_the_middle(networking, "three").await?;
    let mut claims = settled(networking, "three").await?;
    claims.sort_by_key(|claim| (claim.metadata.creation_timestamp.as_ref().map(|time| time.0), claim.uid()));
    let mut served: Vec<Ipv4Net> = Vec::new();
    for claim in &claims {
        let range = range(&claim.spec.cidr)?;
        let fits = !served.iter().any(|other| touch(*other, range));
        ensure!(fits == is_ready(claim), "{} {range}: fits {fits}, is {:?}", claim.name_any(), claim.status);
        if fits {
            served.push(range);
        }
    }
    Ok(())
}

/// At every moment of the whole story no two Subnets of one VPC have shared an address.
pub(super) fn never_overlapped(history: &History) -> Result<()> {
    let mut living: HashMap<String, (String, Ipv4Net)> = HashMap::new();
    let mut seen = BTreeSet::new();
    for version in history.versions::<Subnet>()? {
        let name = version.object.name_any();
        let Some(vpc) = version.object.labels().get(VPC_CLAIM_UID).cloned() else { continue };
        if version.deleted {
            living.remove(&name);
            continue;
        }
        let mine = range(version.object.data["spec"]["cidrBlock"].as_str().context("no cidrBlock")?)?;
        for (other, (of, theirs)) in &living {
            ensure!(
                *other == name || *of != vpc || !touch(*theirs, mine),
                "{name} {mine} lies over {other} {theirs}"
            );
        }
        seen.insert(name.clone());
        living.insert(name, (vpc, mine));
    }
    ensure!(seen.len() > 20, "only {} Subnets were ever there", seen.len());
    Ok(())
}

/// Ranges of five sizes strewn over a /18, so that a large one is in the way of many small ones.
fn ranges() -> Result<Vec<Ipv4Net>> {
    (0..RIVALS)
        .map(|i| {
            let prefix = 22 + u8::try_from(i % 5)?;
            let address = (10 << 24) + (50 << 16) + (i * 2_749) % (1 << 14);
            Ok(Ipv4Net::new(address.into(), prefix)?.trunc())
        })
        .collect()
}

async fn compete(networking: &Networking, vpc: &str) -> Result<()> {
    let api: Api<SubnetClaim> = Api::namespaced(networking.under().client().await?, PLACE);
    let claims: Vec<SubnetClaim> = ranges()?
        .into_iter()
        .enumerate()
        .map(|(index, range)| {
            let spec =
                SubnetClaimSpec { vpc: vpc.into(), cidr: range.to_string(), ..SubnetClaimSpec::default() };
            SubnetClaim::new(&format!("{vpc}-{index}"), spec)
        })
        .collect();
    let parameters = PostParams::default();
    try_join_all(claims.iter().map(|claim| api.create(&parameters, claim))).await?;
    Ok(())
}

async fn kill_in_the_middle(networking: &mut Networking, vpc: &str) -> Result<()> {
    let client = networking.under().client().await?;
    let uid = Api::<VpcClaim>::namespaced(client.clone(), PLACE).get(vpc).await?.uid().context("no uid")?;
    let subnets: Api<Subnet> = Api::all(client);
    let in_it = ListParams::default().labels(&format!("{VPC_CLAIM_UID}={uid}"));
    let wait = networking.under().cluster().wait_for(format!("some Subnets of {vpc} are there")).await?;
    wait.showing_all::<SubnetClaim>(Some(PLACE))
        .until(async || Ok((subnets.list(&in_it).await?.items.len() >= 3).then_some(())))
        .await?;
    networking.controller_mut().restart()
}

fn in_vpc(claims: Vec<SubnetClaim>, vpc: &str) -> Vec<SubnetClaim> {
    claims.into_iter().filter(|claim| claim.spec.vpc == vpc).collect()
}

/// The claims of the VPC once each is served or refused for good.
async fn settled(networking: &Networking, vpc: &str) -> Result<Vec<SubnetClaim>> {
    let api: Api<SubnetClaim> = Api::namespaced(networking.under().client().await?, PLACE);
    let wait = networking.under().cluster().wait_for(format!("all rivals in {vpc} have an answer")).await?;
    wait.within(PATIENCE * 2)
        .showing_all::<SubnetClaim>(Some(PLACE))
        .until(async || {
            let claims = in_vpc(api.list(&ListParams::default()).await?.items, vpc);
            let answered = |claim: &SubnetClaim| is_ready(claim) || refused(claim).is_some();
            Ok((claims.len() == RIVALS as usize && claims.iter().all(answered)).then_some(claims))
        })
        .await
}

fn is_ready(claim: &SubnetClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| is_true(&status.conditions, READY))
}

/// What a claim that was refused for overlap is told.
fn refused(claim: &SubnetClaim) -> Option<String> {
    let conditions = &claim.status.as_ref()?.conditions;
    let ready = get(conditions, READY)?;
    (is_true(conditions, STALLED) && ready.reason == reason::CIDR_OVERLAP).then(|| ready.message.clone())
}

/// No two of the served overlap, and each refused one is in the way of one that is served, which its answer names.
fn is_as_many_as_fit(claims: &[SubnetClaim]) -> Result<()> {
    let (served, refused_ones): (Vec<_>, Vec<_>) = claims.iter().partition(|claim| is_ready(claim));
    ensure!(served.len() > 3 && refused_ones.len() > 3, "{} of {} are served", served.len(), claims.len());
    let mut ranges: Vec<(String, Ipv4Net)> = Vec::new();
    for claim in served {
        let mine = range(&claim.spec.cidr)?;
        ensure!(
            !ranges.iter().any(|(_, other)| touch(*other, mine)),
            "{} lies over another",
            claim.name_any()
        );
        ranges.push((claim.name_any(), mine));
    }
    for claim in refused_ones {
        let (mine, said) = (range(&claim.spec.cidr)?, refused(claim).context("neither served nor refused")?);
        let named = ranges.iter().any(|(name, other)| {
            touch(*other, mine) && said.contains(&format!("overlaps {other} of SubnetClaim {name} in"))
        });
        ensure!(named, "{} {mine} is told: {said}", claim.name_any());
    }
    Ok(())
}

fn range(text: &str) -> Result<Ipv4Net> {
    Ok(text.parse()?)
}

fn touch(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b) || b.contains(&a)
}
