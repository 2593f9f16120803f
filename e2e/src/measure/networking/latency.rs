//! B-P1: from a VpcClaim to its Vpc, at ten claims a second, beside bare creates of the same Vpc in the same seconds.
//!
//! Both are read from the audit log: from when the request of the person came in until the Vpc was stored. The bare
//! driver does the least that could be done, so what is above it is ours.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::kube_ovn::{Vpc, VpcSpec},
    names::{CLAIM_NAME, CLAIM_NAMESPACE},
    networking::VpcClaim,
};
use kube::{Api, ResourceExt, api::ListParams};

use super::{
    CLAIM_GUARD, CLAIM_P50, CLAIM_P99,
    claims::{Claim, Claims, PATIENCE, vpc},
};
use crate::{
    audit::Audit,
    measure::{
        Settings, bare,
        bench::{Bench, STAND_IN},
        figures::{largest, milliseconds, percentile},
        record::Record,
    },
};

/// Ten a second.
const EVERY: Duration = Duration::from_millis(100);
const ENVIRONMENT: &str = "tenant-a";

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("latency").await?;
    let claims = Claims::of(&bench).await?;
    let spec = sample(&bench, &claims, ENVIRONMENT).await?;
    for run in 0..settings.runs {
        let pairs = pairs(&bench, ENVIRONMENT, &format!("r{run}"), settings.pick(200, 30), &spec).await?;
        pairs.record(record);
        claims.clear(ENVIRONMENT).await?;
        bare::remove_vpcs(&bench.client()).await?;
    }
    drop(claims);
    bench.finish();
    Ok(())
}

/// What our process writes into a Vpc, to be written by a bare driver as well.
pub async fn sample(bench: &Bench, claims: &Claims, environment: &str) -> Result<VpcSpec> {
    bench.environment(environment, environment).await?;
    bare::create(&Api::namespaced(bench.client(), environment), &vpc(environment, "sample")).await?;
    claims.vpcs.until_count("the sample is Ready", PATIENCE, 1, Claim::is_ready).await?;
    let vpcs: Api<Vpc> = Api::all(bench.client());
    let all = vpcs.list(&ListParams::default()).await?;
    let ours = all.into_iter().find(|vpc| vpc.labels().contains_key(CLAIM_NAME));
    claims.clear(environment).await?;
    Ok(ours.context("no Vpc carries our labels")?.spec)
}

/// Milliseconds from request to stored Vpc.
pub struct Pairs {
    /// Through a claim.
    pub claims: Vec<f64>,
    /// Straight.
    pub bare: Vec<f64>,
}

/// Every [`EVERY`] one claim and, half way to the next, one bare Vpc; waits until all claims have their Vpc.
pub async fn pairs(
    bench: &Bench,
    environment: &str,
    prefix: &str,
    count: usize,
    spec: &VpcSpec,
) -> Result<Pairs> {
    let since = bench.mark()?;
    let vpcs: Api<Vpc> = Api::all(bench.client());
    let claims: Api<VpcClaim> = Api::namespaced(bench.client(), environment);
    let mut ticks = tokio::time::interval(EVERY / 2);
    let mut requests = tokio::task::JoinSet::new();
    let mut bare_names = HashSet::new();
    for n in 0..count {
        ticks.tick().await;
        let (api, claim) = (claims.clone(), vpc(environment, &format!("{prefix}-{n}")));
        requests.spawn(async move { bare::create(&api, &claim).await });
        ticks.tick().await;
        let (api, object) = (vpcs.clone(), bare::vpc(&format!("bare-{prefix}-{n}"), spec));
        bare_names.insert(object.name_any());
        requests.spawn(async move { bare::create(&api, &object).await });
    }
    while let Some(made) = requests.join_next().await {
        made??;
    }
    let mine = |vpc: &Vpc| vpc.labels().get(CLAIM_NAMESPACE).is_some_and(|of| of == environment);
    let made = bench
        .cluster()
        .wait_for("every claim has its Vpc")
        .await?
        .within(PATIENCE)
        .until(async || {
            let all = vpcs.list(&ListParams::default()).await?;
            let made: HashMap<String, String> = all
                .into_iter()
                .filter(mine)
                .filter_map(|vpc| Some((vpc.name_any(), vpc.labels().get(CLAIM_NAME)?.clone())))
                .collect();
            ensure!(made.len() >= count, "{} of {count}", made.len());
            Ok(Some(made))
        })
        .await?;
    Pairs::read(&since, environment, &made, &bare_names)
}

impl Pairs {
    /// `made` are the names of our Vpcs, each with that of its claim.
    fn read(
        since: &Audit,
        environment: &str,
        made: &HashMap<String, String>,
        bare_names: &HashSet<String>,
    ) -> Result<Self> {
        let entries = since.entries()?;
        let creates = |resource: &'static str| {
            entries.iter().filter(move |entry| {
                entry.verb == "create" && entry.code() == 201 && entry.reference().resource == resource
            })
        };
        let mut asked: HashMap<String, Timestamp> = HashMap::new();
        for entry in creates("vpcclaims") {
            if entry.reference().namespace == environment {
                asked.insert(entry.reference().name, entry.received()?);
            }
        }
        let mut pairs = Self { claims: Vec::new(), bare: Vec::new() };
        for entry in creates("vpcs") {
            let name = entry.reference().name;
            if let Some(claim) = made.get(&name) {
                let asked = asked.get(claim).with_context(|| format!("nobody asked for VpcClaim {claim}"))?;
                pairs.claims.push(milliseconds(*asked, entry.answered()?));
            } else if bare_names.contains(&name) {
                pairs.bare.push(milliseconds(entry.received()?, entry.answered()?));
            }
        }
        ensure!(!pairs.claims.is_empty() && !pairs.bare.is_empty(), "the audit log tells of no creation");
        Ok(pairs)
    }

    fn record(&self, record: &mut Record) {
        let of = |percent| (percentile(&self.claims, percent), percentile(&self.bare, percent));
        let ((claim, bare), note) = (of(50), format!("{STAND_IN}; "));
        record.add(&CLAIM_P50, claim - bare, format!("{note}{claim:.1} ms, bare {bare:.1} ms"));
        let (claim, bare) = of(99);
        record.add(&CLAIM_P99, claim / bare, format!("{note}{claim:.1} ms, bare {bare:.1} ms"));
        let most = largest(&self.claims);
        record.add(&CLAIM_GUARD, claim, format!("{note}the slowest of {} {most:.1} ms", self.claims.len()));
    }
}
