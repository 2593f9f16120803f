//! Both orders of deletion, with kmetal-networking killed after its writes.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kmetal_e2e::{
    audit::{Audit, Entry},
    networking::{NAME, NAMESPACE, Networking},
    wait::{PATIENCE, eventually},
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio::time::Instant;

use super::{delete_subnet, delete_vpc, internet, machine_in_vpc, stop_machine};
use crate::remains::Before;

const ENVIRONMENT: &str = "acme-prod";
/// A living process has something to say of a fresh claim within this time, a stranded one never has.
const QUIET: Duration = Duration::from_secs(4);

/// What of the process a kill can fall between: Events tell and the Lease is another story.
fn counts(entry: &Entry) -> bool {
    let about = entry.reference();
    entry.is_by(NAMESPACE, NAME)
        && (200..300).contains(&entry.code())
        && !["leases", "events"].contains(&about.resource.as_str())
}

fn writes(since: &Audit) -> Result<Vec<Entry>> {
    Ok(since.writes()?.into_iter().filter(counts).collect())
}

/// Starts the killed process again. Its Lease is emptied, which time alone would do as well: that wait is proven
/// elsewhere.
pub async fn start_again(networking: &mut Networking) -> Result<()> {
    networking.controller().kill()?;
    let leases: Api<Lease> = Api::namespaced(networking.under().client().await?, NAMESPACE);
    let empty = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
    leases.patch(NAME, &PatchParams::default(), &empty).await?;
    networking.controller_mut().restart()
}

/// Kills the process right after its `nth` write since `mark` and starts it again; whether there was such a write.
async fn killed_after(networking: &mut Networking, mark: &Audit, nth: usize) -> Result<bool> {
    let mut last = Instant::now();
    let mut seen = 0;
    loop {
        let now = writes(mark)?.len();
        if now >= nth {
            start_again(networking).await?;
            return Ok(true);
        }
        if now > seen {
            (seen, last) = (now, Instant::now());
        }
        if last.elapsed() > QUIET {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_every_write_it_builds_and_removes_the_same() -> Result<()> {
    let mut networking = Networking::start("killed", &[internet()]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;

    let mark = networking.under().cluster().audit().mark()?;
    networking.claim_vpc(ENVIRONMENT, "net1", Some("")).await?;
    networking.claim_subnet(ENVIRONMENT, "front1", "net1", "10.1.0.0/24").await?;
    let building = kills(&mut networking, mark).await?;
    networking.vpc_ready(ENVIRONMENT, "net1").await?;
    networking.subnet_ready(ENVIRONMENT, "front1").await?;
    networking.under().workload(ENVIRONMENT, "machine1", "front1").await?;
    // The same range again: another VPC is another world.
    machine_in_vpc(&networking, ENVIRONMENT, 2).await?;

    // One VPC goes first, of the other the subnet.
    delete_vpc(&networking, ENVIRONMENT, "net1").await?;
    let told = networking.vpc_says(ENVIRONMENT, "net1", "InUse").await?;
    ensure!(told.contains("front1"), "{told}");
    delete_subnet(&networking, ENVIRONMENT, "front1").await?;
    delete_subnet(&networking, ENVIRONMENT, "front2").await?;
    delete_vpc(&networking, ENVIRONMENT, "net2").await?;
    for subnet in ["front1", "front2"] {
        let told = networking.subnet_says(ENVIRONMENT, subnet, "InUse").await?;
        ensure!(told.contains("hold 1 of its addresses"), "{told}");
    }
    let mark = networking.under().cluster().audit().mark()?;
    stop_machine(&networking, ENVIRONMENT, "machine1").await?;
    stop_machine(&networking, ENVIRONMENT, "machine2").await?;
    let removing = kills(&mut networking, mark).await?;
    // How many writes slip in between a write and the kill is chance; that some are hit is not.
    ensure!(building >= 3 && removing >= 4, "killed only {building} and {removing} times");
    before.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}

/// Kills the process after each of its writes until it has no more to do; how often that was.
async fn kills(networking: &mut Networking, mut mark: Audit) -> Result<usize> {
    let mut kills = 0;
    while killed_after(networking, &mark, 1).await? {
        kills += 1;
        mark = networking.under().cluster().audit().mark()?;
    }
    eventually("it is ready again", PATIENCE, async || {
        let (code, _) = networking.controller().readyz().await?;
        Ok((code == 200).then_some(()))
    })
    .await?;
    Ok(kills)
}

/// The order in which the two claims are deleted, and when the machine goes.
#[derive(Debug, Clone, Copy)]
struct Story {
    vpc_first: bool,
    machine_last: bool,
}

async fn play(networking: &Networking, story: Story) -> Result<()> {
    if !story.machine_last {
        stop_machine(networking, ENVIRONMENT, "machine1").await?;
    }
    if story.vpc_first {
        delete_vpc(networking, ENVIRONMENT, "net1").await?;
        delete_subnet(networking, ENVIRONMENT, "front1").await?;
    } else {
        delete_subnet(networking, ENVIRONMENT, "front1").await?;
        delete_vpc(networking, ENVIRONMENT, "net1").await?;
    }
    if story.machine_last {
        // After something has been said of it.
        tokio::time::sleep(Duration::from_millis(500)).await;
        stop_machine(networking, ENVIRONMENT, "machine1").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "exhaustive: cargo e2e --full"]
async fn killed_after_any_one_write_of_any_order_it_removes_the_same() -> Result<()> {
    let mut networking = Networking::start("killed-full", &[internet()]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;
    for vpc_first in [true, false] {
        for machine_last in [true, false] {
            let story = Story { vpc_first, machine_last };
            let mut nth = 1;
            loop {
                machine_in_vpc(&networking, ENVIRONMENT, 1).await?;
                let mark = networking.under().cluster().audit().mark()?;
                play(&networking, story).await?;
                let was_killed = killed_after(&mut networking, &mark, nth).await?;
                before
                    .nothing_is_left(&networking)
                    .await
                    .map_err(|error| error.context(format!("{story:?}, killed after write {nth}")))?;
                if !was_killed {
                    break;
                }
                nth += 1;
            }
            ensure!(nth > 3, "{story:?} had {nth} writes only");
        }
    }
    networking.finish();
    Ok(())
}
