//! Labels of ours that somebody tears or changes, while the process runs, while it does not, and against one who never
//! stops.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names::{CLAIM_KIND, CLAIM_NAME, CLAIM_NAMESPACE, CLAIM_UID, VPC_CLAIM_UID},
    networking::{EipClaim, SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    audit::{Audit, Entry},
    history::History,
    networking::{NAME, NAMESPACE, Networking},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{ENVIRONMENT, claim_address, internet, subnet, way_out};
use crate::remains::Before;

const OURS: [&str; 5] = [CLAIM_KIND, CLAIM_NAMESPACE, CLAIM_NAME, CLAIM_UID, VPC_CLAIM_UID];
/// What the administrator has on the same objects.
const THEIRS: &str = "example.com/ticket";
/// How often somebody who never stops writes, and for how long.
const OFTEN: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(12);

/// No more of our writes to so many objects in this time, whatever the other does: a few at once, then a steady rate.
fn calm(objects: usize, time: Duration) -> usize {
    let mended = 7 + usize::try_from(time.as_secs()).unwrap_or(usize::MAX) / 2;
    3 * objects * mended
}

/// One object that stands for a claim.
#[derive(Clone)]
struct Object {
    api: Api<DynamicObject>,
    kind: ApiResource,
    name: String,
    labels: BTreeMap<String, String>,
    uid: String,
}

fn of<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

fn kinds() -> [ApiResource; 5] {
    [of::<Vpc>(), of::<Subnet>(), of::<OvnSnatRule>(), of::<OvnEip>(), of::<NetworkAttachmentDefinition>()]
}

/// Every object that carries our labels.
async fn objects(client: &Client) -> Result<Vec<Object>> {
    let mut found = Vec::new();
    for kind in kinds() {
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        for object in all.list(&ListParams::default().labels(CLAIM_UID)).await?.items {
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
                None => all.clone(),
            };
            found.push(Object {
                api,
                name: object.name_any(),
                labels: ours(&object),
                uid: object.uid().context("no uid")?,
                kind: kind.clone(),
            });
        }
    }
    Ok(found)
}

fn ours(object: &DynamicObject) -> BTreeMap<String, String> {
    let labels = object.labels().iter().filter(|(key, _)| OURS.contains(&key.as_str()));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Takes our labels off, or gives one of them another value, and leaves something of the administrator's own there.
fn torn(all: bool, ticket: usize) -> Value {
    let labels: BTreeMap<&str, Value> = if all {
        OURS.into_iter().map(|key| (key, Value::Null)).collect()
    } else {
        BTreeMap::from([(CLAIM_UID, json!("00000000-0000-0000-0000-000000000000"))])
    };
    let mut patch = json!({"metadata": {"labels": labels, "annotations": {THEIRS: ticket.to_string()}}});
    patch["metadata"]["labels"][THEIRS] = json!(ticket.to_string());
    patch
}

impl Object {
    async fn tear(&self, all: bool, ticket: usize) -> Result<()> {
        self.api.patch(&self.name, &PatchParams::default(), &Patch::Merge(torn(all, ticket))).await?;
        Ok(())
    }

    /// Waits until the labels are back on the same object, beside what the administrator put there.
    async fn mended(&self, networking: &Networking, ticket: usize) -> Result<()> {
        let what = format!("{} {} has its labels back", self.kind.kind, self.name);
        let wait = networking.under().cluster().wait_for(what).await?;
        wait.showing_resource(&self.kind, self.api_namespace(), Some(&self.name))
            .until(async || {
                let now = self.api.get(&self.name).await?;
                ensure!(now.uid().as_ref() == Some(&self.uid), "it was made anew");
                ensure!(now.metadata.deletion_timestamp.is_none(), "it is being deleted");
                let ticket = Some(ticket.to_string());
                ensure!(now.labels().get(THEIRS).cloned() == ticket, "the other label: {:?}", now.labels());
                ensure!(now.annotations().get(THEIRS).cloned() == ticket, "{:?}", now.annotations());
                Ok((ours(&now) == self.labels).then_some(()))
            })
            .await
    }

    fn api_namespace(&self) -> Option<&'static str> {
        (self.kind.kind == "NetworkAttachmentDefinition").then_some(ENVIRONMENT)
    }
}

fn written(since: &Audit) -> Result<Vec<Entry>> {
    let all = since.writes_by(NAMESPACE, NAME)?.into_iter();
    Ok(all.filter(|entry| entry.reference().resource != "leases").collect())
}

fn lines(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(Entry::line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_labels_come_back_and_what_others_put_there_stays() -> Result<()> {
    let mut networking = Networking::start("labels", &[internet()]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;
    networking.claim_vpc(ENVIRONMENT, "net", Some("")).await?;
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    way_out(&networking, "net").await?;
    subnet(&networking, "front").await?;
    claim_address(&networking, "shop").await?;
    networking.under().workload(ENVIRONMENT, "machine", "front").await?;

    let client = networking.under().client().await?;
    let objects = objects(&client).await?;
    let found: BTreeSet<&str> = objects.iter().map(|object| object.kind.kind.as_str()).collect();
    ensure!(found.len() == 5 && objects.len() == 5, "{found:?}");
    let mut recorded = kinds().to_vec();
    recorded.extend([of::<VpcClaim>(), of::<SubnetClaim>(), of::<EipClaim>()]);
    let history = History::record(&client, &recorded).await?;

    while_it_runs(&networking, &objects).await?;
    while_it_does_not(&mut networking, &objects).await?;
    against_one_who_never_stops(&networking, &objects, &history).await?;
    no_claim_was_ever_not_ready(&history)?;

    networking.under().stop_workload(ENVIRONMENT, "machine").await?;
    for (kind, name) in [("vpcclaim", "net"), ("subnetclaim", "front"), ("eipclaim", "shop")] {
        let delete = ["-n", ENVIRONMENT, "delete", kind, name, "--wait=false"];
        networking.under().cluster().kubectl(&delete).await?;
    }
    before.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}

async fn while_it_runs(networking: &Networking, objects: &[Object]) -> Result<()> {
    for (ticket, all) in [(1, true), (2, false)] {
        for object in objects {
            let mark = networking.under().cluster().audit().mark()?;
            object.tear(all, ticket).await?;
            object.mended(networking, ticket).await?;
            let written = written(&mark)?;
            ensure!(written.len() <= 3, "for one write of somebody's: {:#?}", lines(&written));
        }
    }
    Ok(())
}

/// No process has seen the labels go: only the claims remember whose the objects are.
async fn while_it_does_not(networking: &mut Networking, objects: &[Object]) -> Result<()> {
    for (ticket, all) in [(3, true), (4, false)] {
        networking.controller().terminate(Duration::from_secs(10)).await?;
        for object in objects {
            object.tear(all, ticket).await?;
        }
        networking.controller_mut().restart()?;
        for object in objects {
            object.mended(networking, ticket).await?;
        }
    }
    Ok(())
}

async fn against_one_who_never_stops(
    networking: &Networking,
    objects: &[Object],
    history: &History,
) -> Result<()> {
    let torn: Vec<&Object> =
        objects.iter().filter(|object| ["Vpc", "Subnet"].contains(&object.kind.kind.as_str())).collect();
    let mark = networking.under().cluster().audit().mark()?;
    let mut clock = interval(OFTEN);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (begun, mut ticket) = (Instant::now(), 100);
    while begun.elapsed() < LONG {
        clock.tick().await;
        ticket += 1;
        for object in &torn {
            object.tear(ticket % 2 == 0, ticket).await?;
        }
    }
    for object in &torn {
        object.mended(networking, ticket).await?;
    }
    let (theirs, ours) = (torn.len() * (ticket - 100), written(&mark)?);
    println!("{theirs} writes of theirs, {} of ours", ours.len());
    let bound = calm(torn.len(), begun.elapsed()).min(3 * theirs);
    ensure!(ours.len() <= bound, "{} of ours for {theirs} of theirs: {:#?}", ours.len(), lines(&ours));

    // In the order in which they were stored: nothing of theirs ever fell back to an older value.
    history.caught_up().await?;
    for object in &torn {
        let mut newest = 0;
        for version in history.versions_of(&object.kind)? {
            if version.object.uid().as_ref() != Some(&object.uid) {
                continue;
            }
            for found in [version.object.labels(), version.object.annotations()] {
                let ticket: usize = found.get(THEIRS).map_or(Ok(0), |text| text.parse())?;
                ensure!(ticket >= newest, "{} fell back from {newest} to {ticket}", object.name);
                newest = ticket;
            }
        }
        ensure!(newest == ticket, "{newest}");
    }
    Ok(())
}

fn no_claim_was_ever_not_ready(history: &History) -> Result<()> {
    for kind in [of::<VpcClaim>(), of::<SubnetClaim>(), of::<EipClaim>()] {
        for version in history.versions_of(&kind)? {
            let conditions = &version.object.data["status"]["conditions"];
            let ready = conditions.as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
            let is_ready = ready.is_some_and(|ready| ready["status"] == "True");
            ensure!(is_ready, "{} {}: {conditions:#}", kind.kind, version.object.name_any());
        }
    }
    Ok(())
}
