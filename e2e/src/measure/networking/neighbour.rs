//! The noisy neighbour: one tenant claims six hundred subnets in one VPC at once, and another one, who has nothing to
//! do with it, claims VPCs meanwhile. Beside bare creates in the same seconds, so that what the API server itself
//! loses by the noise is not held against us.

use std::time::Instant;

use anyhow::Result;

use super::{
    NOISY_P99, NOISY_READY, NOISY_WORST,
    claims::{AT_ONCE, Claim, Claims, PATIENCE, api_of, subnet, vpc},
    latency,
};
use crate::measure::{
    Settings, bare,
    bench::{Bench, STAND_IN},
    figures::{count, largest, percentile},
    record::Record,
};

const NOISY: &str = "noisy";
const QUIET: &str = "quiet";

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("neighbour").await?;
    let claims = Claims::of(&bench).await?;
    let spec = latency::sample(&bench, &claims, QUIET).await?;
    bench.environment("other", NOISY).await?;
    let (subnets, pairs) = settings.pick((600, 60), (100, 10));
    // The noise is long: fewer runs tell as much.
    for run in 0..settings.runs.min(3) {
        bare::create_all(vec![vpc(NOISY, "net")], 1, api_of(&bench.client())).await?;
        claims.vpcs.until_count("the VPC is Ready", PATIENCE, 1, Claim::is_ready).await?;
        let noise = async {
            let began = Instant::now();
            let wanted = (0..subnets).map(|n| subnet(NOISY, &format!("s-{n}"), "net", n)).collect();
            bare::create_all(wanted, AT_ONCE, api_of(&bench.client())).await?;
            claims.subnets.until_count("all subnets are Ready", PATIENCE, subnets, Claim::is_ready).await?;
            anyhow::Ok(began.elapsed())
        };
        let prefix = format!("r{run}");
        let others = latency::pairs(&bench, QUIET, &prefix, pairs, &spec);
        let (took, others) = tokio::try_join!(noise, others)?;
        let (claim, bare) = (percentile(&others.claims, 99), percentile(&others.bare, 99));
        record.add(&NOISY_P99, claim / bare, format!("{STAND_IN}; {claim:.1} ms, bare {bare:.1} ms"));
        record.add(&NOISY_WORST, largest(&others.claims), format!("of {pairs} VpcClaims"));
        let each = took.as_secs_f64() / count(subnets) * 1000.0;
        record.add(&NOISY_READY, took.as_secs_f64(), format!("{STAND_IN}; {each:.1} ms a subnet"));
        claims.clear(NOISY).await?;
        claims.clear(QUIET).await?;
        bare::remove_vpcs(&bench.client()).await?;
    }
    drop(claims);
    bench.finish();
    Ok(())
}
