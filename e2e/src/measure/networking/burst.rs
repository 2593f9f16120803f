//! B-P2: a thousand claims at once, beside bare creates of the same claims and the same Vpcs by as many clients.
//!
//! The bare driver has the API server for itself: our process and the actor stand still meanwhile. Whoever wants a
//! thousand networks must create the claims, and somebody their Vpcs, so those two thousand objects are the least
//! there is to do. How often we write is counted for each kind of claim.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use kmetal_crds::foreign::kube_ovn::VpcSpec;
use kube::Api;

use super::{
    BURST, BURST_READY, EIP_WRITES, SUBNET_WRITES, VPC_WRITES,
    claims::{AT_ONCE, Claims, Count, api_of, eip, subnet, vpc},
    latency,
};
use crate::{
    audit::{Audit, Entry},
    measure::{
        Settings,
        bar::Bar,
        bare,
        bench::{Bench, LARGE, STAND_IN, our_writes},
        figures::{count, milliseconds},
        record::Record,
    },
};

const ENVIRONMENT: &str = "tenant-a";
/// Where the bare driver works.
const NOBODYS: &str = "bare";
/// What is still being written when all are Ready: Events.
const SETTLED: Duration = Duration::from_secs(2);

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let mut bench = Bench::start("burst").await?;
    let claims = Claims::of(&bench).await?;
    let spec = latency::sample(&bench, &claims, ENVIRONMENT).await?;
    bench.environment("nobody", NOBODYS).await?;
    let size = settings.pick(1000, 100);
    for _ in 0..settings.runs {
        let bare = bare_burst(&mut bench, &claims, size, &spec).await?;
        burst(&bench, &claims, size, bare, record).await?;
    }
    others(&bench, &claims, settings.pick(200, 40), record).await?;
    drop(claims);
    bench.finish();
    Ok(())
}

/// Both kinds of objects, written by nobody but the driver; then all are removed and our process is back.
async fn bare_burst(bench: &mut Bench, claims: &Claims, size: usize, spec: &VpcSpec) -> Result<Duration> {
    bench.stop().await?;
    bench.stop_ovn();
    let wanted = (0..size).map(|n| vpc(NOBODYS, &format!("bare-{n}"))).collect();
    let vpcs = (0..size).map(|n| bare::vpc(&format!("bare-{n}"), spec)).collect();
    let api = Api::all(bench.client());
    let took = bare::create_all(wanted, AT_ONCE, api_of(&bench.client())).await?
        + bare::create_all(vpcs, AT_ONCE, |_| api.clone()).await?;
    bare::remove_vpcs(&bench.client()).await?;
    claims.clear(NOBODYS).await?;
    bench.start_ovn().await?;
    bench.start_again()?;
    bench.controller().ready(bench.cluster()).await?;
    Ok(took)
}

async fn burst(
    bench: &Bench,
    claims: &Claims,
    size: usize,
    bare: Duration,
    record: &mut Record,
) -> Result<()> {
    let since = bench.mark()?;
    let wanted = (0..size).map(|n| vpc(ENVIRONMENT, &format!("net-{n}"))).collect();
    bare::create_all(wanted, AT_ONCE, api_of(&bench.client())).await?;
    claims.ready(Count { vpcs: size, subnets: 0, eips: 0 }).await?;
    tokio::time::sleep(SETTLED).await;
    let moments = Moments::read(&since)?;
    let bare = bare.as_secs_f64() * 1000.0;
    let each = |took: f64| count(size) / took * 1000.0;
    record.add(
        &BURST,
        bare / moments.vpcs,
        format!("{STAND_IN}; {:.0} claims/s, bare {:.0}/s", each(moments.vpcs), each(bare)),
    );
    record.add(
        &BURST_READY,
        moments.ready / 1000.0,
        format!("{STAND_IN}; {:.0} claims/s", each(moments.ready)),
    );
    note_writes(&since, &VPC_WRITES, size, record)?;
    claims.clear(ENVIRONMENT).await
}

/// Writes for each claim of the other two kinds.
async fn others(bench: &Bench, claims: &Claims, size: usize, record: &mut Record) -> Result<()> {
    let none = Count { vpcs: 0, subnets: 0, eips: 0 };
    let since = bench.mark()?;
    let wanted = (0..size).map(|n| eip(ENVIRONMENT, &format!("a-{n}"), LARGE.0, None)).collect();
    bare::create_all(wanted, AT_ONCE, api_of(&bench.client())).await?;
    claims.ready(Count { eips: size, ..none }).await?;
    tokio::time::sleep(SETTLED).await;
    note_writes(&since, &EIP_WRITES, size, record)?;
    claims.clear(ENVIRONMENT).await?;

    // Spread over VPCs as tenants' are, and those are there already.
    let vpcs = size / 10;
    let wanted = (0..vpcs).map(|n| vpc(ENVIRONMENT, &format!("net-{n}"))).collect();
    bare::create_all(wanted, AT_ONCE, api_of(&bench.client())).await?;
    claims.ready(Count { vpcs, ..none }).await?;
    tokio::time::sleep(SETTLED).await;
    let since = bench.mark()?;
    let wanted = (0..size).map(|n| subnet(ENVIRONMENT, &format!("s-{n}"), &format!("net-{}", n % vpcs), n));
    bare::create_all(wanted.collect(), AT_ONCE, api_of(&bench.client())).await?;
    claims.ready(Count { vpcs, subnets: size, ..none }).await?;
    tokio::time::sleep(SETTLED).await;
    note_writes(&since, &SUBNET_WRITES, size, record)?;
    claims.clear(ENVIRONMENT).await
}

/// Milliseconds from the first claim's request.
struct Moments {
    /// To the last Vpc.
    vpcs: f64,
    /// To the last status.
    ready: f64,
}

impl Moments {
    fn read(since: &Audit) -> Result<Self> {
        let entries = since.entries()?;
        let of = |verb: &'static str, resource: &'static str, subresource: &'static str| {
            entries.iter().filter(move |entry| {
                let about = entry.reference();
                entry.verb == verb && about.resource == resource && about.subresource == subresource
            })
        };
        let first =
            of("create", "vpcclaims", "").map(Entry::received).next().context("no claim was made")??;
        let last = |entries: Vec<&Entry>| -> Result<f64> {
            let answers = entries.into_iter().map(Entry::answered).collect::<Result<Vec<_>>>()?;
            Ok(milliseconds(first, answers.into_iter().max().context("nothing was written")?))
        };
        Ok(Self {
            vpcs: last(of("create", "vpcs", "").collect())?,
            ready: last(of("patch", "vpcclaims", "status").collect())?,
        })
    }
}

/// Our writes for each of so many claims, and which they were.
fn note_writes(since: &Audit, bar: &'static Bar, claims: usize, record: &mut Record) -> Result<()> {
    let writes = our_writes(since)?;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for write in &writes {
        let about = write.reference();
        let slash = if about.subresource.is_empty() { "" } else { "/" };
        let what = format!("{} {}{slash}{}", write.verb, about.resource, about.subresource);
        *kinds.entry(what).or_default() += 1;
    }
    let each = |number: usize| count(number) / count(claims);
    let kinds = kinds.iter().map(|(what, number)| format!("{:.2} {what}", each(*number)));
    record.add(bar, each(writes.len()), kinds.collect::<Vec<_>>().join(", "));
    Ok(())
}
