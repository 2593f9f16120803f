//! The kit's own promise: clusters live side by side, and nothing outlives its owner.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kmetal_e2e::{
    child::Launch,
    cluster::Cluster,
    environment::Environment,
    history::{History, Moment},
    rig::Rig,
    wait::eventually,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::json;

const CRD: &str = "
apiVersion: kit.example.com/v1
kind: Widget
metadata: {name: one, namespace: default}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.kit.example.com}
spec:
  group: kit.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object}}
";

fn runs(pid: u32) -> bool {
    // A zombie has ended; its parent merely has not looked.
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clusters_live_side_by_side_and_leave_nothing() -> Result<()> {
    let (one, two) = tokio::join!(Cluster::start("one"), Cluster::start("two"));
    let (one, two) = (one?, two?);
    one.apply_yaml(CRD).await?;
    ensure!(one.kubectl(&["get", "widgets", "one", "-o", "name"]).await?.starts_with("widget"));
    ensure!(two.kubectl(&["get", "widgets"]).await.is_err(), "the other cluster knows the kind too");

    let pids = [one.pids(), two.pids()].concat();
    ensure!(pids.len() == 8 && pids.iter().all(|pid| runs(*pid)), "eight programs run: {pids:?}");
    let folders = [one.rig().folder().to_owned(), two.rig().folder().to_owned()];
    one.finish();
    two.finish();
    ensure!(!pids.iter().any(|pid| runs(*pid)), "something still runs: {pids:?}");
    ensure!(!folders.iter().any(|folder| folder.exists()), "a folder is left: {folders:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_told_by_audit_and_history() -> Result<()> {
    let cluster = Cluster::start("oracle").await?;
    let environment = Environment::labelled(&cluster, "acme", "acme-dev").await?;
    let namespace = environment.namespace.as_str();
    cluster
        .apply_yaml(&format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: writer, namespace: {namespace}}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: writer, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}}
subjects: [{{kind: ServiceAccount, name: writer, namespace: {namespace}}}]"
        ))
        .await?;
    let history = History::record(&cluster.client().await?, &[ApiResource::erase::<ConfigMap>(&())]).await?;
    let mark = cluster.audit().mark()?;

    let writer = cluster.service_account_client(namespace, "writer").await?;
    let maps: Api<ConfigMap> = Api::namespaced(writer.clone(), namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "m"}}))?).await?;
    for value in ["a", "b", "c"] {
        let patch = Patch::Merge(json!({"data": {"key": value}}));
        maps.patch("m", &PatchParams::default(), &patch).await?;
        if value == "b" {
            // The recording goes on over a restart of the API server, even when its watch cannot: the new server
            // knows nothing from before this write to another kind.
            cluster.kubectl(&["label", "namespace", "default", "written=later"]).await?;
            cluster.kill_apiserver()?;
            cluster.start_apiserver().await?;
        }
    }
    maps.delete("m", &DeleteParams::default()).await?;
    let elsewhere: Api<Namespace> = Api::all(writer);
    ensure!(elsewhere.delete("default", &DeleteParams::default()).await.is_err(), "RBAC is off");

    history.caught_up().await?;
    let versions = history.versions::<ConfigMap>()?;
    let seen: Vec<(Option<&str>, bool)> = versions
        .iter()
        .filter(|version| version.object.metadata.name.as_deref() == Some("m"))
        .map(|version| (version.object.data.pointer("/data/key").and_then(|v| v.as_str()), version.deleted))
        .collect();
    let stored =
        [(None, false), (Some("a"), false), (Some("b"), false), (Some("c"), false), (Some("c"), true)];
    ensure!(seen == stored, "{seen:?}");

    let replay = history.replay()?;
    replay.never_absent::<ConfigMap>(Some(namespace), "kube-root-ca.crt")?;
    ensure!(replay.never_absent::<ConfigMap>(Some(namespace), "m").is_err(), "its end is not told");
    let there = |moment: &Moment<'_>| moment.get::<ConfigMap>(Some(namespace), "m").is_some();
    let moments = replay.always(|moment| {
        let ended = moment.changed.is_some_and(|version| version.deleted);
        ensure!(!(ended && there(moment)), "it is there at its end");
        Ok(())
    })?;
    ensure!(moments > stored.len(), "only {moments} moments");

    let bridged =
        mark.entries()?.iter().any(|entry| entry.request_uri.contains("resourceVersionMatch=Exact"));
    ensure!(bridged, "the watch went on, so bridging was not tried");
    let written = mark.writes_by(namespace, "writer")?;
    let verbs: Vec<&str> = written.iter().map(|entry| entry.verb.as_str()).collect();
    ensure!(verbs == ["create", "patch", "patch", "patch", "delete", "delete"], "{verbs:?}");
    ensure!(written.last().is_some_and(|entry| entry.code() == 403), "{:?}", written.last());

    let error = cluster
        .wait_for("the moon is blue")
        .await?
        .within(Duration::from_millis(200))
        .showing::<ConfigMap>(Some(namespace), "kube-root-ca.crt")
        .until(async || Ok(None::<()>))
        .await
        .expect_err("it is not");
    let told = error.to_string();
    let parts =
        ["the moon is blue", "BEGIN CERTIFICATE", "events in acme-dev", "log of oracle-kube-scheduler"];
    ensure!(parts.iter().all(|part| told.contains(part)), "a failed wait tells only:\n{told}");

    environment.delete().await?;
    cluster.wait_gone::<Namespace>(None, namespace).await?;
    cluster.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn children_die_with_a_killed_test() -> Result<()> {
    // This test binary again, as a process that starts a child and waits to be killed.
    let mut victim = Command::new(env::current_exe()?)
        .args(["--ignored", "--exact", "--nocapture", "control_plane::a_test_that_is_killed"])
        .env("KMETAL_VICTIM", "1")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(victim.stdout.take().context("no stdout")?).lines();
    let told = lines.find_map(|line| Some(line.ok()?.split_once("child is ")?.1.to_owned()));
    let told = told.context("the victim told no child")?;
    let (child, folder) = told.split_once(" in ").context("the victim told no folder")?;
    let child: u32 = child.parse()?;
    ensure!(runs(child), "the child does not run");
    victim.kill()?;
    victim.wait()?;
    let patience = Duration::from_secs(10);
    eventually("the child died with its parent", patience, async || Ok((!runs(child)).then_some(()))).await?;
    // What the killed process could not do.
    Ok(std::fs::remove_dir_all(folder)?)
}

#[test]
#[ignore = "the other half of children_die_with_a_killed_test"]
fn a_test_that_is_killed() -> Result<()> {
    if env::var_os("KMETAL_VICTIM").is_none() {
        return Ok(());
    }
    let rig = Rig::new("victim")?;
    // Started by a thread that ends at once: the child must not end with it.
    let child = std::thread::scope(|threads| {
        let start = || Launch::new("sleeper", Path::new("sleep")).arg("600").start(&rig);
        threads.spawn(start).join().map_err(|_| anyhow::anyhow!("the thread panicked"))
    })??;
    println!("child is {} in {}", child.pid(), rig.folder().display());
    std::thread::sleep(Duration::from_mins(10));
    Ok(())
}
