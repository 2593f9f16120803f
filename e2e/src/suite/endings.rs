//! whatever is deleted first, everything goes, with the real garbage collector and namespace controller at work.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};

use super::{
    kind::Role,
    scenario::{Scenario, Story},
    seed::Seed,
    stage::{Stage, TENANT},
};
use crate::{controller::Circumstances, environment::Environment};

/// No namespace stays Terminating longer because of us.
const GOES_WITHIN: Duration = Duration::from_mins(1);
/// How many orders are tried at once, each in an Environment of its own.
const AT_ONCE: usize = 6;
/// How many rounds of those `--full` makes.
const ROUNDS: usize = 5;

///
pub async fn x15<S: Scenario>(name: &str) -> Result<()> {
    let seed = Seed::of_this_run()?;
    let stage = Stage::<S>::set(name).await?;
    let process = stage.replica(0, &Circumstances::default()).await?;
    process.ready(stage.cluster()).await?;
    let nothing = stage.snapshot().await?;
    let rounds = if seed.is_full() { ROUNDS } else { 1 };
    for round in 0..rounds {
        let mut stories = Vec::new();
        for number in 0..AT_ONCE {
            let namespace = format!("ending-{round}-{number}");
            Environment::labelled(stage.cluster(), TENANT, &namespace).await?;
            let story = Story { namespace, name: "story".into(), plot: number % S::PLOTS };
            stage.scenario().begin(&story).await?;
            stories.push(story);
        }
        for story in &stories {
            stage.scenario().done(story).await?;
        }
        for story in &stories {
            delete_in_some_order(&stage, &seed, &story.namespace).await?;
        }
        for story in &stories {
            gone(&stage, &story.namespace).await?;
        }
        stage.becomes(&nothing, "what it was before").await?;
    }
    stage.finish(vec![process]).await
}

/// Deletes what a person applied, and the namespace at some place among it, without waiting in between.
async fn delete_in_some_order<S: Scenario>(stage: &Stage<S>, seed: &Seed, namespace: &str) -> Result<()> {
    let delete = DeleteParams::default();
    let mut owners = vec![None];
    for kind in stage.kinds().iter().filter(|kind| kind.role == Role::Own) {
        let own = kind.list(stage.client()).await?.into_iter();
        owners.extend(own.filter(|o| o.namespace().as_deref() == Some(namespace)).map(|o| Some((kind, o))));
    }
    ensure!(owners.len() > 1, "nothing of ours is in {namespace}");
    let told = |owner: &Option<(&super::kind::Kind, kube::core::DynamicObject)>| match owner {
        None => format!("Namespace {namespace}"),
        Some((kind, object)) => format!("{} {}", kind.resource.kind, object.name_any()),
    };
    owners.sort_by_key(|owner| seed.rank(&format!("{namespace}/{}", told(owner))));
    eprintln!("suite: {namespace}: {}", owners.iter().map(told).collect::<Vec<_>>().join(", "));
    for owner in owners {
        let deleted = match owner {
            None => {
                let namespaces: Api<Namespace> = Api::all(stage.client().clone());
                namespaces.delete(namespace, &delete).await.map(drop)
            }
            Some((kind, object)) => {
                let api: Api<kube::core::DynamicObject> =
                    Api::namespaced_with(stage.client().clone(), namespace, &kind.resource);
                api.delete(&object.name_any(), &delete).await.map(drop)
            }
        };
        match deleted {
            // The namespace was faster.
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => deleted?,
        }
    }
    Ok(())
}

/// Waits for the end of a namespace, counted from when the last of its pods is gone.
async fn gone<S: Scenario>(stage: &Stage<S>, namespace: &str) -> Result<()> {
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(stage.client().clone(), namespace);
    let wait = stage.cluster().wait_for(format!("the machines in {namespace} are gone")).await?;
    wait.until(async || Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))).await?;
    let namespaces: Api<Namespace> = Api::all(stage.client().clone());
    let mut wait =
        stage.cluster().wait_for(format!("namespace {namespace} does not stay Terminating")).await?;
    wait = wait.within(GOES_WITHIN).showing::<Namespace>(None, namespace);
    for kind in stage.kinds() {
        wait = wait.showing_resource(&kind.resource, None, None);
    }
    wait.until(async || Ok(namespaces.get_opt(namespace).await?.is_none().then_some(()))).await
}
