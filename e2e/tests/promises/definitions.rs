//! Our kinds on a real API server: the charts' own files install, explain and print themselves, and every rule in them
//! lets the right thing pass and refuses the wrong one in its own words.

mod rules;

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kmetal_crds::OwnedCrd;
use kmetal_e2e::{
    cluster::{Cluster, Options},
    places,
    rig::Rig,
    wait::{PATIENCE, eventually},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};

use rules::{CASES, CHANGES, Case, Change};

const NAMESPACE: &str = "default";

#[tokio::test(flavor = "multi_thread")]
async fn every_definition_installs_speaks_for_itself_and_means_every_rule() -> Result<()> {
    let options = Options { scheduler: false, ..Options::default() };
    let cluster = Cluster::start_in(&Rig::new("definitions")?, "definitions", options).await?;
    let kinds = kmetal_crds::all();
    for owned in &kinds {
        install(&cluster, owned).await?;
    }

    let client = cluster.client().await?;
    for case in CASES {
        try_case(&client, case).await.with_context(|| format!("{} '{}'", case.kind, case.message))?;
    }
    for change in CHANGES {
        let what = || format!("{} from {} to {}", change.kind, change.before, change.after);
        try_change(&client, change).await.with_context(what)?;
    }

    for owned in &kinds {
        explains_itself(&cluster, owned).await?;
    }
    prints_what_the_user_asks_first(&cluster).await?;
    cluster.finish();
    Ok(())
}

#[test]
fn every_rule_has_a_case_and_every_case_a_rule() -> Result<()> {
    let mut written = BTreeSet::new();
    for owned in kmetal_crds::all() {
        let kind = &owned.crd.spec.names.kind;
        collect_rules(kind, &serde_saphyr::from_str(&std::fs::read_to_string(file(&owned))?)?, &mut written)?;
    }
    let tried: BTreeSet<(String, String)> =
        CASES.iter().map(|case| (case.kind.to_owned(), case.message.to_owned())).collect();
    let untried: Vec<_> = written.difference(&tried).collect();
    ensure!(untried.is_empty(), "rules without a case in definitions/rules.rs: {untried:#?}");
    let unwritten: Vec<_> = tried.difference(&written).collect();
    ensure!(unwritten.is_empty(), "cases whose rule is gone: {unwritten:#?}");
    ensure!(CASES.len() == tried.len(), "two cases are about one rule");
    Ok(())
}

fn file(owned: &OwnedCrd) -> std::path::PathBuf {
    places::chart(owned.chart).join(format!("files/crds/{}.yaml", owned.crd.spec.names.plural))
}

fn collect_rules(kind: &str, schema: &Value, into: &mut BTreeSet<(String, String)>) -> Result<()> {
    for rule in schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
        let message = rule["message"].as_str().with_context(|| format!("{kind}: {rule} has no message"))?;
        ensure!(into.insert((kind.into(), message.into())), "{kind}: two rules say '{message}'");
    }
    match schema {
        Value::Object(fields) => fields.values().try_for_each(|value| collect_rules(kind, value, into)),
        Value::Array(items) => items.iter().try_for_each(|value| collect_rules(kind, value, into)),
        _ => Ok(()),
    }
}

/// A warning of the server, about a schema that is not structural or a rule that costs much, is an error.
async fn install(cluster: &Cluster, owned: &OwnedCrd) -> Result<()> {
    let file = file(owned).display().to_string();
    cluster.kubectl(&["apply", "--server-side", "--warnings-as-errors", "-f", &file]).await?;
    let crds: Api<CustomResourceDefinition> = Api::all(cluster.client().await?);
    let name = format!("{}.{}", owned.crd.spec.names.plural, owned.crd.spec.group);
    let what = format!("{name} is established");
    let conditions = eventually(&what, PATIENCE, async || {
        let status = crds.get(&name).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        Ok(conditions.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(conditions))
    })
    .await?;
    for condition in conditions {
        let good = ["Established", "NamesAccepted"].contains(&condition.type_.as_str());
        ensure!(good == (condition.status == "True"), "{name}: {condition:?}");
    }
    Ok(())
}

fn api(client: &Client, kind: &str) -> Result<Api<DynamicObject>> {
    let crd = kmetal_crds::all().into_iter().find(|owned| owned.crd.spec.names.kind == kind);
    let crd = crd.with_context(|| format!("no kind {kind}"))?.crd;
    let version = crd.spec.versions.first().context("a kind without versions")?;
    let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
    Ok(Api::namespaced_with(client.clone(), NAMESPACE, &resource))
}

fn object(kind: &str, name: &str, spec: &str) -> Result<Value> {
    let spec: Value = serde_json::from_str(spec).with_context(|| format!("not JSON: {spec}"))?;
    let (group, version) = (kmetal_crds::networking::GROUP, kmetal_crds::names::VERSION);
    Ok(json!({
        "apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
    }))
}

/// What the server said, one line a cause.
type Verdict = Result<(), Vec<String>>;

fn verdict(answer: kube::Result<DynamicObject>) -> Result<Verdict> {
    match answer {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.iter().flat_map(|details| &details.causes);
            Ok(Err(causes.map(|cause| cause.message.clone()).collect()))
        }
        Err(error) => Err(error.into()),
    }
}

/// As `kubectl apply --server-side` does it.
async fn apply(
    api: &Api<DynamicObject>,
    kind: &str,
    name: &str,
    spec: &str,
    dry_run: bool,
) -> Result<Verdict> {
    let parameters = PatchParams { dry_run, ..PatchParams::apply("a-user").force() };
    verdict(api.patch(name, &parameters, &Patch::Apply(object(kind, name, spec)?)).await)
}

async fn must_apply(api: &Api<DynamicObject>, kind: &str, name: &str, spec: &str) -> Result<()> {
    apply(api, kind, name, spec, false).await?.map_err(|said| anyhow::anyhow!("{spec}: {said:?}"))
}

async fn try_case(client: &Client, case: &Case) -> Result<()> {
    let api = api(client, case.kind)?;
    let name = case.good_name.unwrap_or("good");
    if let Some(before) = case.before {
        must_apply(&api, case.kind, name, before).await?;
    }
    let good = apply(&api, case.kind, name, case.good, true).await?;
    ensure!(good.is_ok(), "{} is refused: {good:?}", case.good);
    let bad = apply(&api, case.kind, case.bad_name.unwrap_or(name), case.bad, true).await?;
    let Err(said) = bad else { anyhow::bail!("{} is accepted", case.bad) };
    ensure!(said.len() == 1 && said[0].ends_with(case.message), "{} is refused for {said:#?}", case.bad);
    if case.before.is_some() {
        api.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// By replacement, as programs and `kubectl replace` do it; and where no `null` is in play, by apply too.
async fn try_change(client: &Client, change: &Change) -> Result<()> {
    let api = api(client, change.kind)?;
    let as_wanted = |said: &Verdict| match (change.refused, said) {
        (None, Ok(())) => true,
        (Some(words), Err(causes)) => causes.len() == 1 && causes[0].contains(words),
        _ => false,
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let object = |spec| anyhow::Ok(serde_json::from_value(object(change.kind, "changed", spec)?)?);
    let created = api.create(&PostParams::default(), &object(change.before)?).await?;
    ensure!(!created.data.to_string().contains("null"), "a null is stored: {}", created.data);
    let mut next: DynamicObject = object(change.after)?;
    next.metadata.resource_version = created.metadata.resource_version;
    let said = verdict(api.replace("changed", &dry, &next).await)?;
    ensure!(as_wanted(&said), "should be refused for {:?}, replacing it says {said:?}", change.refused);
    api.delete("changed", &DeleteParams::default()).await?;

    if !change.before.contains("null") && !change.after.contains("null") {
        must_apply(&api, change.kind, "changed", change.before).await?;
        let said = apply(&api, change.kind, "changed", change.after, true).await?;
        // Where an object would lose all its fields, server-side apply refuses in words of its own.
        let wanted = said.is_err() == change.refused.is_some();
        ensure!(wanted, "should be refused for {:?}, applying it says {said:?}", change.refused);
        api.delete("changed", &DeleteParams::default()).await?;
    }
    Ok(())
}

async fn explains_itself(cluster: &Cluster, owned: &OwnedCrd) -> Result<()> {
    let names = &owned.crd.spec.names;
    let version = owned.crd.spec.versions.first().context("no version")?;
    let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
    let fields = schema.and_then(|schema| schema.properties.as_ref()).context("no schema")?;
    let spec = fields["spec"].properties.iter().flatten();
    for (field, property) in spec {
        let path = format!("{}.spec.{field}", names.singular.as_deref().unwrap_or(&names.plural));
        // The server publishes a new kind's description some time after it serves the kind.
        let said = eventually(&format!("kubectl explains {path}"), PATIENCE, async || {
            Ok(Some(cluster.kubectl(&["explain", &path]).await?))
        })
        .await?;
        let described = property.description.as_deref().unwrap_or_default();
        // kubectl breaks lines where it likes.
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        ensure!(!described.is_empty() && flat(&said).contains(&flat(described)), "{path}: {said}");
    }
    for short in names.short_names.iter().flatten() {
        cluster.kubectl(&["get", short, "-A"]).await?;
    }
    Ok(())
}

async fn prints_what_the_user_asks_first(cluster: &Cluster) -> Result<()> {
    let client = cluster.client().await?;
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "CidrOverlap", "message": "what, and what to do",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    for (kind, name, spec, status) in [
        (
            "VpcClaim",
            "net",
            r#"{"egress": {}}"#,
            json!({
                "conditions": [condition], "subnets": 3, "boundAddresses": 2, "vpc": "vpc-x",
                "egress": {"providerNetwork": "internet", "address": "203.0.113.9"},
            }),
        ),
        (
            "SubnetClaim",
            "front",
            r#"{"vpc": "net", "cidr": "10.1.0.0/24"}"#,
            json!({
                "conditions": [condition], "subnet": "snet-x",
                "addresses": {"total": 253, "used": 7, "available": 246},
            }),
        ),
    ] {
        let api = api(&client, kind)?;
        must_apply(&api, kind, name, spec).await?;
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
    }
    for (args, rows) in [
        (
            ["get", "vpcc", "-n", NAMESPACE, "-o", "wide"],
            [
                "NAME READY REASON EGRESS ADDRESS SUBNETS AGE BOUND VPC MESSAGE",
                "net False CidrOverlap internet 203.0.113.9 3 AGE 2 vpc-x what, and what to do",
            ],
        ),
        (
            ["get", "snc", "-n", NAMESPACE, "-o", "wide"],
            [
                "NAME READY REASON VPC CIDR USED FREE AGE SUBNET MESSAGE",
                "front False CidrOverlap net 10.1.0.0/24 7 246 AGE snet-x what, and what to do",
            ],
        ),
    ] {
        let table = cluster.kubectl(&args).await?;
        let found: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        ensure!(found.len() == rows.len(), "{table}");
        for (cells, row) in found.iter().zip(rows) {
            let wanted: Vec<&str> = row.split(' ').collect();
            let age = rows[0].split(' ').position(|column| column == "AGE");
            let same = |(index, (cell, word)): (usize, (&&str, &&str))| cell == word || Some(index) == age;
            ensure!(
                cells.len() == wanted.len() && cells.iter().zip(&wanted).enumerate().all(same),
                "wanted {row}, got\n{table}"
            );
        }
    }
    // Discovery, from which kubectl learns of categories, follows a new kind at its own pace.
    eventually("the category lists both", PATIENCE, async || {
        let all = cluster.kubectl(&["get", "kmetal", "-A", "-o", "name"]).await?;
        Ok((all.contains("/net") && all.contains("/front")).then_some(()))
    })
    .await
}
