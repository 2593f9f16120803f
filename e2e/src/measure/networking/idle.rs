//! what a hundred claims of each kind cost while nothing changes.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use super::{
    IDLE_CPU, IDLE_REQUESTS, IDLE_WRITES,
    claims::{Claims, Count},
};
use crate::{
    audit::Entry,
    measure::{
        Settings,
        bench::{Bench, STAND_IN, our_writes},
        figures::count,
        record::Record,
    },
    networking::{NAME, NAMESPACE},
};

const CLAIMS: Count = Count { vpcs: 100, subnets: 100, eips: 100 };
/// What was under way when the last claim became Ready.
const SETTLED: Duration = Duration::from_secs(15);

/// Measures it.
pub async fn measure(settings: Settings, record: &mut Record) -> Result<()> {
    let bench = Bench::start("idle").await?;
    let claims = Claims::of(&bench).await?;
    claims.populate(&bench, "tenant-a", CLAIMS).await?;
    claims.ready(CLAIMS).await?;
    drop(claims);
    tokio::time::sleep(SETTLED).await;

    let process = bench.controller().child();
    let (since, began, before) = (bench.mark()?, Instant::now(), process.usage()?.cpu);
    tokio::time::sleep(Duration::from_mins(settings.pick(10, 1))).await;
    let (took, used) = (began.elapsed(), process.usage()?.cpu.saturating_sub(before));

    let writes = our_writes(&since)?;
    let first = writes.first().map(Entry::line).unwrap_or_default();
    record.add(&IDLE_WRITES, count(writes.len()), first);
    let entries: Vec<Entry> = since
        .entries()?
        .into_iter()
        .filter(|entry| entry.is_by(NAMESPACE, NAME) && !entry.is_write())
        .collect();
    let minutes = took.as_secs_f64() / 60.0;
    let allowed = 2.0 * watches_a_minute(&entries)?;
    let each = count(entries.len()) / minutes;
    record.add(&IDLE_REQUESTS, each / allowed, format!("{each:.1} a minute, {allowed:.1} allowed"));
    let percent = used.as_secs_f64() / took.as_secs_f64() * 100.0;
    record.add(&IDLE_CPU, percent, format!("{STAND_IN}; {used:.2?} in {:.0} s", took.as_secs_f64()));
    bench.finish();
    Ok(())
}

/// How often the watches of these requests end by themselves: their number over the time-out that they ask for.
fn watches_a_minute(entries: &[Entry]) -> Result<f64> {
    let mut watches = BTreeSet::new();
    let mut rate = 0.0;
    for entry in entries.iter().filter(|entry| entry.verb == "watch") {
        let (path, query) = entry.request_uri.split_once('?').unwrap_or((&entry.request_uri, ""));
        let value = |key: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default()
        };
        if watches.insert((path.to_owned(), value("fieldSelector").to_owned())) {
            rate += 60.0 / value("timeoutSeconds").parse::<f64>()?;
        }
    }
    ensure!(!watches.is_empty(), "no watch has ended");
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(verb: &str, uri: &str) -> Entry {
        serde_json::from_value(serde_json::json!({
            "verb": verb,
            "user": {"username": "u"},
            "requestURI": uri,
            "requestReceivedTimestamp": "",
            "stageTimestamp": "",
            "stage": "ResponseComplete",
        }))
        .unwrap()
    }

    #[test]
    fn a_watch_counts_once_however_often_it_was_begun() {
        let log = [
            entry("watch", "/api/v1/nodes?watch=true&timeoutSeconds=40&resourceVersion=1"),
            entry("watch", "/api/v1/nodes?watch=true&timeoutSeconds=40&resourceVersion=9"),
            entry("watch", "/a/leases?watch=true&fieldSelector=metadata.name%3Da&timeoutSeconds=30"),
            entry("watch", "/a/leases?watch=true&fieldSelector=metadata.name%3Db&timeoutSeconds=30"),
            entry("get", "/api/v1/nodes"),
        ];
        assert!((watches_a_minute(&log).unwrap() - (1.5 + 2.0 + 2.0)).abs() < 1e-9);
        assert!(watches_a_minute(&[]).is_err());
    }
}
