//! B-7: a pool of ten addresses, a hundred claims. One gives its address back, and the oldest that waits has to get
//! it; a new claim takes the last place, and so on.
//!
//! Creation times have whole seconds, so among claims of one second the smaller uid counts as the older one, which is
//! what the product says.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use kmetal_crds::networking::EipClaim;
use kube::{Api, ResourceExt, api::DeleteParams};

use super::{
    OLDEST_FIRST, OLDEST_WITHIN,
    claims::{AT_ONCE, Claim, Claims, api_of, eip},
};
use crate::measure::{
    Settings, bare,
    bench::{Bench, SMALL, STAND_IN},
    figures::{count, largest, median},
    record::Record,
};

/// Addresses of the provider network; some are kept so that ten go round.
const ADDRESSES: usize = 13;
const POOL: usize = 10;
const CLAIMS: usize = 100;
const ENVIRONMENT: &str = "tenant-a";
const PATIENCE: Duration = Duration::from_mins(1);

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("waiters").await?;
    let claims = Claims::of(&bench).await?;
    bench.environment(ENVIRONMENT, ENVIRONMENT).await?;
    bench.environment("keeper", "keeper").await?;
    let api: Api<EipClaim> = Api::namespaced(bench.client(), ENVIRONMENT);
    let wanted = |environment: &'static str, from: usize, to: usize| {
        (from..to).map(move |n| eip(environment, &format!("a-{n}"), SMALL.0, None)).collect()
    };
    let kept = ADDRESSES - POOL;
    bare::create_all(wanted("keeper", 0, kept), AT_ONCE, api_of(&bench.client())).await?;
    claims.eips.until_count("the kept addresses are had", PATIENCE, kept, Claim::is_ready).await?;
    bare::create_all(wanted(ENVIRONMENT, 0, CLAIMS), AT_ONCE, api_of(&bench.client())).await?;
    claims.eips.until_count("all addresses are had", PATIENCE, ADDRESSES, Claim::is_ready).await?;

    let cycles = settings.pick(1000, 50);
    let (mut took, mut passed_over) = (Vec::new(), Vec::new());
    for cycle in 0..cycles {
        let all = of_tenant(&claims.eips.all());
        let oldest_holder = oldest(&all, true).context("nobody has an address")?;
        let next = oldest(&all, false).context("nobody waits")?;
        let had: HashSet<String> =
            all.iter().filter(|claim| claim.is_ready()).filter_map(|c| c.uid()).collect();
        ensure!(had.len() == POOL, "{} claims have one of {POOL} addresses", had.len());
        let began = Instant::now();
        api.delete(&oldest_holder.name_any(), &DeleteParams::default()).await?;
        let got = claims
            .eips
            .until("a waiting claim gets the address", PATIENCE, |all| {
                let mut all = of_tenant(all).into_iter();
                all.find(|claim| claim.is_ready() && claim.uid().is_some_and(|uid| !had.contains(&uid)))
            })
            .await?;
        took.push(began.elapsed().as_secs_f64());
        if got.uid() != next.uid() {
            passed_over.push(format!("{} before {}", got.name_any(), next.name_any()));
        }
        let newest = eip(ENVIRONMENT, &format!("a-{}", CLAIMS + cycle), SMALL.0, None);
        bare::create(&api, &newest).await?;
        let name = newest.name_any();
        claims
            .eips
            .until("the new claim is told to wait, the old one is gone", PATIENCE, |all| {
                let told = all.iter().any(|claim| claim.name_any() == name && claim.refusal().is_some());
                let gone = !all.iter().any(|claim| claim.uid() == oldest_holder.uid());
                (told && gone).then_some(())
            })
            .await?;
    }
    let right = count(cycles - passed_over.len()) / count(cycles) * 100.0;
    let first = passed_over.first().map(|told| format!("; {told}")).unwrap_or_default();
    record.add(&OLDEST_FIRST, right, format!("{STAND_IN}; {cycles} cycles{first}"));
    record.add(&OLDEST_WITHIN, largest(&took), format!("{STAND_IN}; median {:.3} s", median(&took)));
    drop(claims);
    bench.finish();
    Ok(())
}

fn of_tenant(all: &[Arc<EipClaim>]) -> Vec<Arc<EipClaim>> {
    all.iter().filter(|claim| claim.namespace().as_deref() == Some(ENVIRONMENT)).cloned().collect()
}

/// The oldest that has an address, or that has none.
fn oldest(all: &[Arc<EipClaim>], has: bool) -> Option<Arc<EipClaim>> {
    let age =
        |claim: &&Arc<EipClaim>| (claim.metadata.creation_timestamp.as_ref().map(|time| time.0), claim.uid());
    let alive = all.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none());
    alive.filter(|claim| claim.is_ready() == has).min_by_key(age).cloned()
}
