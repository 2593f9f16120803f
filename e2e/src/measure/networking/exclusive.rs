//! B-4: sixty-four clients ask for one address at the same moment, round after round.
//!
//! A round is right when one claim has the address, sixty-three say why they have it not, and one OvnEip was made.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use kmetal_crds::networking::{EipClaim, reason};
use kube::{Api, Client};

use super::{
    EXCLUSIVE,
    claims::{Claim, Claims, eip},
};
use crate::measure::{
    Settings, bare,
    bench::{Bench, LARGE, STAND_IN, our_writes},
    figures::count,
    record::Record,
};

const CLIENTS: usize = 64;
const ENVIRONMENTS: [&str; 2] = ["tenant-a", "tenant-b"];
const ADDRESS: &str = "198.18.7.7";
const PATIENCE: Duration = Duration::from_mins(1);

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("exclusive").await?;
    let claims = Claims::of(&bench).await?;
    for environment in ENVIRONMENTS {
        bench.environment(environment, environment).await?;
    }
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(bench.cluster().client().await?);
    }
    let rounds = settings.pick(200, 5);
    let mut wrong = Vec::new();
    for round in 0..rounds {
        if let Err(error) = one_round(&bench, &claims, &clients).await {
            wrong.push(format!("round {round}: {error:#}"));
        }
        for environment in ENVIRONMENTS {
            claims.clear(environment).await?;
        }
    }
    let right = count(rounds - wrong.len()) / count(rounds) * 100.0;
    let first = wrong.first().map(|wrong| format!("; {wrong}")).unwrap_or_default();
    record.add(&EXCLUSIVE, right, format!("{STAND_IN}; {rounds} rounds of {CLIENTS} clients{first}"));
    drop(claims);
    bench.finish();
    Ok(())
}

async fn one_round(bench: &Bench, claims: &Claims, clients: &[Client]) -> Result<()> {
    let since = bench.mark()?;
    let asks = clients.iter().enumerate().map(|(n, client)| async move {
        let environment = ENVIRONMENTS[n % ENVIRONMENTS.len()];
        let claim = eip(environment, &format!("a-{n}"), LARGE.0, Some(ADDRESS.into()));
        bare::create(&Api::namespaced(client.clone(), environment), &claim).await
    });
    try_join_all(asks).await?;
    let all_told = |all: &[Arc<EipClaim>]| {
        let ready = all.iter().filter(|claim| claim.is_ready()).count();
        let told = all.iter().filter(|claim| is_explained(claim)).count();
        (ready >= 1 && ready + told == CLIENTS).then_some((ready, told))
    };
    let (ready, told) = claims.eips.until("every claim is answered", PATIENCE, all_told).await?;
    ensure!((ready, told) == (1, CLIENTS - 1), "{ready} have the address, {told} say why not");
    let made = our_writes(&since)?
        .iter()
        .filter(|write| write.verb == "create" && write.reference().resource == "ovn-eips")
        .count();
    ensure!(made == 1, "{made} OvnEips were made");
    Ok(())
}

fn is_explained(claim: &EipClaim) -> bool {
    claim.refusal().is_some_and(|(why, text)| why == reason::ADDRESS_UNAVAILABLE && !text.is_empty())
}
