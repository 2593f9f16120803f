//! others who write where we write, and objects that nobody in their senses would make.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::{
    check::{foreign, quiet},
    kind::Role,
    scenario::{Scenario, Story, Tamper},
    snapshot::Snapshot,
    stage::Stage,
};
use crate::{apply, controller::Circumstances};

/// The rival's field manager.
const RIVAL: &str = "rival";
/// It strikes so often
const STROKE: Duration = Duration::from_millis(20);
/// for so long.
const LASTING: Duration = Duration::from_secs(8);
/// How often it does each of the things that concern us.
const TIMES: usize = 4;
/// The most that we write for one write of a rival's that concerns us.
const ANSWERS: usize = 3;
/// Peers that lose something by it take their time to find out.
const PUT_BACK: Duration = Duration::from_mins(2);
/// How many good stories are told beside the poison.
const GOOD: usize = 8;
/// For so long the process is watched for trying the same again and again.
const RETRIES: Duration = Duration::from_secs(10);
/// As much as an API server lets through: 256 KiB over all annotations of an object.
const HEAVY: usize = 200 * 1024;
/// Written from right to left, outside of the first plane, combining, and invisible.
const STRANGE: &str = "שלום 🦀 e\u{301} \u{200b}\u{202e}";

/// in one world.
pub async fn x10_x12<S: Scenario>(name: &str) -> Result<()> {
    let stage = Stage::<S>::set(name).await?;
    let process = stage.replica(0, &Circumstances::default()).await?;
    process.ready(stage.cluster()).await?;
    let story = stage.story("rivalled", 0);
    let before = living(&stage).await?;
    stage.scenario().begin(&story).await?;
    stage.scenario().done(&story).await?;
    stage.calm().await?;
    let built = stage.snapshot().await?;
    let mut targets = living(&stage).await?;
    targets.retain(|target| !before.iter().any(|old| old.object.uid() == target.object.uid()));

    strokes(&stage, &targets).await?;
    stage.becomes(&built, "what it was before the rival came").await?;
    for tamper in stage.scenario().tampers(&story).await? {
        mended(&stage, &story, &built, &tamper).await?;
    }
    poisoned(&stage).await?;
    stage.finish(vec![process]).await
}

/// An object that the rival writes into.
struct Target {
    resource: ApiResource,
    role: Role,
    object: DynamicObject,
}

impl Target {
    fn api<S: Scenario>(&self, stage: &Stage<S>) -> Api<DynamicObject> {
        api(stage, &self.resource, self.object.namespace().as_deref())
    }
}

fn api<S: Scenario>(stage: &Stage<S>, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(stage.client().clone(), namespace, resource),
        None => Api::all_with(stage.client().clone(), resource),
    }
}

async fn living<S: Scenario>(stage: &Stage<S>) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for kind in stage.kinds() {
        for object in kind.list(stage.client()).await? {
            targets.push(Target { resource: kind.resource.clone(), role: kind.role, object });
        }
    }
    Ok(targets)
}

/// X-10, what does not concern us: it stays, and we say nothing to it.
async fn strokes<S: Scenario>(stage: &Stage<S>, targets: &[Target]) -> Result<()> {
    let mark = stage.cluster().audit().mark()?;
    let (mut tick, until) = (interval(STROKE), Instant::now() + LASTING);
    let mut struck = 0;
    for (stroke, target) in (1_u64..).zip(targets.iter().cycle()) {
        tick.tick().await;
        if Instant::now() > until {
            break;
        }
        struck = stroke;
        strike(stage, target, Some(stroke)).await.with_context(|| target.object.name_any())?;
    }
    // What it wrote last is still there when it has gone.
    stage.calm().await?;
    stage.history().caught_up().await?;
    for kind in stage.kinds() {
        let versions = stage.history().versions_of(&kind.resource)?;
        let lost = foreign::lost(&versions);
        ensure!(lost.is_empty(), "a rival's fields are lost: {lost:#?}");
        let reached = foreign::strokes(&versions);
        let places = if kind.role == Role::Own { 3 } else { 2 };
        ensure!(reached.len() == places, "the rival came only to {reached:?} of {}", kind.resource.kind);
    }
    let answered = stage.asked(&mark)?.useful_writes();
    eprintln!("suite: {struck} strokes of a rival's, {} writes of ours", answered.len());
    // Peers may move, and be followed; what is ours was never touched.
    ensure!(
        answered.len() as u64 <= struck / 10,
        "what does not concern us is answered: {:#?}",
        answered.told()
    );
    for target in targets {
        strike(stage, target, None).await?;
    }
    Ok(())
}

/// Puts the number into the rival's fields, or takes them away.
async fn strike<S: Scenario>(stage: &Stage<S>, target: &Target, stroke: Option<u64>) -> Result<()> {
    let (api, name) = (target.api(stage), target.object.name_any());
    let number = stroke.map(|stroke| stroke.to_string());
    let marks =
        json!({"metadata": {"labels": {foreign::MARK: number}, "annotations": {foreign::MARK: number}}});
    let merge = PatchParams { field_manager: Some(RIVAL.into()), ..PatchParams::default() };
    api.patch(&name, &merge, &Patch::Merge(marks)).await?;
    if target.role == Role::Own {
        let condition = number.map(|number| {
            json!({"type": foreign::CONDITION, "status": "True", "reason": "Stroke", "message": number,
                "lastTransitionTime": Timestamp::now().to_string()})
        });
        let applied = json!({
            "apiVersion": target.resource.api_version, "kind": target.resource.kind,
            "metadata": {"name": name},
            "status": {"conditions": condition.into_iter().collect::<Vec<Value>>()},
        });
        api.patch_status(&name, &PatchParams::apply(RIVAL).force(), &Patch::Apply(applied)).await?;
    }
    Ok(())
}

/// X-10, what concerns us: it is put back again and again, and with few words.
async fn mended<S: Scenario>(
    stage: &Stage<S>,
    story: &Story,
    built: &Snapshot,
    tamper: &Tamper,
) -> Result<()> {
    let mark = stage.calm().await?;
    let Tamper { resource, namespace, name, change } = tamper;
    let api = api(stage, resource, namespace.as_deref());
    let what = change.as_ref().map_or("its deletion".to_owned(), ToString::to_string);
    let what = format!("{} {name}: {what}", resource.kind);
    // What is told of it may differ: that it was put back, say.
    let built = built.without_own(stage.kinds());
    for _ in 0..TIMES {
        match change {
            Some(change) => {
                let rival = PatchParams { field_manager: Some(RIVAL.into()), ..PatchParams::default() };
                api.patch(name, &rival, &Patch::Merge(change)).await.context(what.clone()).map(drop)?;
            }
            None => drop(api.delete(name, &DeleteParams::default()).await.context(what.clone())?),
        }
        let wait = stage.cluster().wait_for(format!("{what} is put back")).await?;
        wait.within(PUT_BACK)
            .until(async || {
                let now = stage.snapshot().await?.without_own(stage.kinds());
                match built.difference(&now) {
                    None => Ok(Some(())),
                    Some(difference) => anyhow::bail!("it is not:\n{difference}"),
                }
            })
            .await?;
    }
    stage.scenario().done(story).await?;
    stage.calm().await?;
    let answered = stage.asked(&mark)?.useful_writes();
    eprintln!("suite: {what}, {TIMES} times: {} writes of ours", answered.len());
    let few = (TIMES..=ANSWERS * TIMES).contains(&answered.len());
    ensure!(few, "{} writes to put back {TIMES} times {what}: {:#?}", answered.len(), answered.told());
    Ok(())
}

/// poison among good objects.
async fn poisoned<S: Scenario>(stage: &Stage<S>) -> Result<()> {
    let poison = stage.scenario().poison(&stage.story("poison", 0));
    let mut objects = Vec::new();
    for object in poison {
        let mut heavy = object.clone();
        heavy.metadata.name = Some(format!("{}-heavy", object.name_any()));
        let text = STRANGE.repeat(HEAVY / STRANGE.len());
        heavy.annotations_mut().insert("poison.example.com/heavy".into(), text);
        objects.extend([object, heavy]);
    }
    ensure!(!objects.is_empty(), "the scenario has no poison");
    apply::apply(stage.client(), super::stage::ENVIRONMENT, objects.clone()).await?;
    let stories: Vec<Story> = (0..GOOD).map(|n| stage.story(&format!("good-{n}"), 0)).collect();
    for story in &stories {
        stage.scenario().begin(story).await?;
    }
    for story in &stories {
        stage.scenario().done(story).await?;
    }
    let wait = stage.cluster().wait_for("every poisoned object is told so").await?;
    wait.until(async || {
        let living = living(stage).await?;
        for object in &objects {
            let found = living.iter().find(|t| {
                t.object.name_any() == object.name_any()
                    && Some(&t.resource.kind) == object.types.as_ref().map(|types| &types.kind)
            });
            let found = found.with_context(|| format!("{} is gone", object.name_any()))?;
            let conditions = found.object.data.pointer("/status/conditions").and_then(Value::as_array);
            let told = conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == "Ready"));
            ensure!(told, "{} is told nothing", object.name_any());
        }
        Ok(Some(()))
    })
    .await?;
    let mark = stage.calm().await?;
    tokio::time::sleep(RETRIES).await;
    let faults = quiet::faults(&stage.asked(&mark)?, RETRIES);
    ensure!(faults.is_empty(), "it tries again and again: {faults:#?}");
    Ok(())
}
