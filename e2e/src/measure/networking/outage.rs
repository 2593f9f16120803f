//! the API server is killed, again and again, while claims are being made; each time we must catch up, and no
//! claim may get two Vpcs.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Result;
use kmetal_crds::{foreign::kube_ovn::Vpc, names::CLAIM_UID, networking::VpcClaim};
use kube::{Api, ResourceExt, api::ListParams};
use tokio::task::JoinSet;

use super::{
    OUTAGE_CAUGHT_UP, OUTAGE_TWICE,
    claims::{Claim, Claims, PATIENCE, vpc},
};
use crate::measure::{
    Settings, bare,
    bench::{Bench, STAND_IN},
    figures::{count, largest, median},
    record::Record,
};

const ENVIRONMENT: &str = "tenant-a";
/// Claims under way when the API server dies.
const UNDER_WAY: usize = 20;
/// Into which it is killed.
const BEFORE: Duration = Duration::from_millis(40);

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("outage").await?;
    let claims = Claims::of(&bench).await?;
    bench.environment(ENVIRONMENT, ENVIRONMENT).await?;
    let api: Api<VpcClaim> = Api::namespaced(bench.client(), ENVIRONMENT);
    let times = settings.pick(20, 2);
    let mut took = Vec::new();
    for nth in 0..times {
        let mut requests = JoinSet::new();
        for n in 0..UNDER_WAY {
            let (api, claim) = (api.clone(), vpc(ENVIRONMENT, &format!("net-{nth}-{n}")));
            requests.spawn(async move { bare::create(&api, &claim).await });
        }
        tokio::time::sleep(BEFORE).await;
        bench.cluster().kill_apiserver()?;
        // Whatever was not made by then was never asked for.
        requests.join_all().await;
        bench.cluster().start_apiserver().await?;
        let began = Instant::now();
        bare::create(&api, &vpc(ENVIRONMENT, &format!("net-{nth}-after"))).await?;
        let stored = api.list(&ListParams::default()).await?.items.len();
        claims.vpcs.until_count("every claim is Ready again", PATIENCE, stored, Claim::is_ready).await?;
        took.push(began.elapsed().as_secs_f64());
    }
    let mut made: BTreeMap<String, usize> = BTreeMap::new();
    for vpc in Api::<Vpc>::all(bench.client()).list(&ListParams::default()).await? {
        if let Some(claim) = vpc.labels().get(CLAIM_UID) {
            *made.entry(claim.clone()).or_default() += 1;
        }
    }
    let twice = made.values().filter(|number| **number > 1).count();
    let note = format!("{STAND_IN}; {times} times, median {:.2} s", median(&took));
    record.add(&OUTAGE_CAUGHT_UP, largest(&took), note);
    record.add(&OUTAGE_TWICE, count(twice), format!("of {} claims", made.len()));
    drop(claims);
    bench.finish();
    Ok(())
}
