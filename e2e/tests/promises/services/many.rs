//! Three hundred clusters, all but a few silent: none delays another.
//!
//! One cluster is real. The others are stand-ins, each behind a proxy of its own: what a silent one costs is its
//! connections and what the process does about them, and those are real.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kmetal_e2e::{
    faults::Door,
    services::Services,
    stand_in::{StandIn, StandIns},
    tenant_cluster::{Options, Worker},
};
use serde_json::{Value, json};

use super::{ENVIRONMENT, Stage};

/// How many stand-ins, and how many of them answer.
const CROWD: usize = 300;
const LIVE: usize = 20;
/// Long enough for every time-out of a request to a silent cluster to have passed, and for the next attempt.
const SILENT_FOR: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "exhaustive: cargo e2e --full"]
async fn of_three_hundred_clusters_the_silent_ones_delay_nobody() -> Result<()> {
    let stage = Stage::start("many").await?;
    let blue = stage.cluster(ENVIRONMENT, "blue").await?;
    let worker = blue.worker(stage.under(), "front", "blue-1").await?;
    let services = Services::of(&blue).await?;
    let alone = served(&services, "alone").await?;

    let began = Instant::now();
    let stand_ins = &StandIns::new(stage.under().cluster()).await?;
    let crowd: Vec<StandIn> = stream::iter(0..CROWD)
        .map(|number| start(stand_ins, &stage, &worker, number))
        .buffer_unordered(8)
        .try_collect()
        .await?;
    eprintln!("many: {CROWD} stand-ins after {:.1} s", began.elapsed().as_secs_f32());
    let among = served(&services, "among").await?;
    let (live, silent) = crowd.split_at(LIVE);
    for (number, stand_in) in live.iter().enumerate() {
        stand_in.put(service(&format!("web-{number}")))?;
    }
    for (number, stand_in) in live.iter().enumerate() {
        address(&stage, stand_in, &format!("web-{number}")).await?;
    }

    // The first look finds the connections dead under it, the later ones find new ones silent from the start.
    for stand_in in silent {
        stand_in.proxy().silence_all();
        stand_in.proxy().door(Door::Silent);
        // What it would have to tell is never heard.
        stand_in.put(service("unheard"))?;
    }
    let at_once = served(&services, "at-once").await?;
    tokio::time::sleep(SILENT_FOR).await;
    let later = served(&services, "later").await?;
    for stand_in in live {
        stand_in.put(service("second"))?;
        address(&stage, stand_in, "second").await?;
    }
    eprintln!(
        "many: an address after {alone:?} alone, {among:?} among {CROWD}, {at_once:?} and {later:?} while they are silent"
    );

    // They are heard when they speak again.
    let back = silent.first().context("a crowd")?;
    back.proxy().clear();
    address(&stage, back, "unheard").await?;
    drop(crowd);
    drop(blue);
    stage.finish();
    Ok(())
}

/// A stand-in whose worker is another's: an address of the VPC is all that matters here.
async fn start(stand_ins: &StandIns, stage: &Stage, worker: &Worker, number: usize) -> Result<StandIn> {
    let under = stage.under().cluster();
    let name = format!("crowd-{number}");
    let stand_in = stand_ins.start(under, ENVIRONMENT, &name, &Options::on("front")).await?;
    stand_in.put(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "worker"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": worker.address()?}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))?;
    Ok(stand_in)
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 443, "nodePort": 30443}],
        },
    })
}

/// How long a Service of the real cluster takes to get its address.
async fn served(services: &Services<'_>, name: &str) -> Result<Duration> {
    let began = Instant::now();
    services.apply(name, None, json!({})).await?;
    services.address(name).await?;
    Ok(began.elapsed())
}

/// Waits for the address of a stand-in's Service.
async fn address(stage: &Stage, stand_in: &StandIn, name: &str) -> Result<()> {
    let wait =
        stage.under().cluster().wait_for(format!("a stand-in's Service {name} has an address")).await?;
    wait.until(async || {
        let service = stand_in.get("services", "default", name).context("no Service")?;
        Ok(service.pointer("/status/loadBalancer/ingress/0/ip").map(drop))
    })
    .await
}
