//! No process may do more than it has a reason for, and tenants may do nothing but claim.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kmetal_e2e::places;
use kube::{ResourceExt, core::DynamicObject};
use serde_json::json;

use super::{all, networking, of_kind};

fn rules(role: &DynamicObject) -> Result<Vec<PolicyRule>> {
    Ok(serde_json::from_value(role.data["rules"].clone())?)
}

fn roles(objects: &[DynamicObject]) -> Vec<&DynamicObject> {
    [of_kind(objects, "ClusterRole"), of_kind(objects, "Role")].concat()
}

#[tokio::test]
async fn no_rule_holds_a_wildcard_and_only_named_processes_read_secrets() -> Result<()> {
    for chart in all()? {
        for role in roles(&chart.render().await?) {
            for rule in rules(role)? {
                let resources = rule.resources.clone().unwrap_or_default();
                let groups = rule.api_groups.clone().unwrap_or_default();
                let mut words = rule.verbs.iter().chain(&resources).chain(&groups);
                let wildcard = words.any(|word| word.contains('*'));
                ensure!(!wildcard, "{}: {rule:?}", role.name_any());
                if resources.iter().any(|resource| resource == "secrets") {
                    // Kubeconfigs of tenant clusters: docs/security.md says what that means.
                    let may = role.name_any() == "kmetal-networking" && resources == ["secrets"];
                    ensure!(may && rule.verbs == ["get", "list", "watch"], "{}: {rule:?}", role.name_any());
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_rule_says_why() -> Result<()> {
    let mut seen = 0;
    for chart in fs::read_dir(places::workspace().join("deploy/charts"))? {
        let templates = chart?.path().join("templates");
        for file in fs::read_dir(&templates)? {
            let file = file?.path();
            let text = fs::read_to_string(&file)?;
            let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
            for (number, line) in
                lines.iter().enumerate().filter(|(_, line)| line.starts_with("- apiGroups:"))
            {
                let above = number.checked_sub(1).map_or("", |above| lines[above]);
                ensure!(above.starts_with("# "), "{}:{}: {line}", file.display(), number + 1);
                seen += 1;
            }
        }
    }
    ensure!(seen > 10, "only {seen} rules found");
    Ok(())
}

#[tokio::test]
async fn every_role_is_bound_to_the_process_and_to_nobody_else() -> Result<()> {
    for chart in all()? {
        let objects = chart.render().await?;
        let bindings = [of_kind(&objects, "ClusterRoleBinding"), of_kind(&objects, "RoleBinding")].concat();
        for binding in &bindings {
            let subjects = binding.data["subjects"].as_array().context("a binding without subjects")?;
            let accounts = of_kind(&objects, "ServiceAccount");
            let ours = |subject: &serde_json::Value| {
                subject["kind"] == "ServiceAccount"
                    && accounts.iter().any(|a| {
                        subject["name"] == json!(a.name_any()) && subject["namespace"] == json!(a.namespace())
                    })
            };
            ensure!(subjects.iter().all(ours), "{}: {subjects:?}", binding.name_any());
        }
        for role in roles(&objects) {
            let kind = &role.types.as_ref().context("untyped")?.kind;
            let bound = bindings.iter().any(|binding| {
                let refers = &binding.data["roleRef"];
                refers["kind"] == json!(kind)
                    && refers["name"] == json!(role.name_any())
                    && binding.namespace() == role.namespace()
            });
            let aggregated = role.labels().keys().any(|key| key.contains("/aggregate-to-"));
            ensure!(bound != aggregated, "{kind} {} is bound {bound}", role.name_any());
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_tenant_may_claim_and_nothing_else() -> Result<()> {
    let objects = networking(json!({})).render().await?;
    let claims: Vec<String> =
        kmetal_crds::all().into_iter().map(|owned| owned.crd.spec.names.plural).collect();
    let mut granted: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for role in of_kind(&objects, "ClusterRole") {
        for to in ["view", "edit", "admin"] {
            let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
            if role.labels().get(&label).is_none_or(|value| value != "true") {
                continue;
            }
            for rule in rules(role)? {
                let groups = rule.api_groups.unwrap_or_default();
                ensure!(groups == [kmetal_crds::networking::GROUP], "{to} gets {groups:?}");
                let resources = rule.resources.unwrap_or_default();
                // Neither a subresource nor another kind of the group.
                ensure!(resources.iter().all(|r| claims.contains(r)), "{to} gets {resources:?}");
                granted.entry(to).or_default().extend(rule.verbs);
            }
        }
    }
    for to in ["edit", "admin"] {
        let verbs = granted.get(to).context("nothing granted")?;
        ensure!(["create", "delete", "list"].iter().all(|verb| verbs.iter().any(|v| v == verb)), "{to}");
    }
    ensure!(granted["view"] == ["get", "list", "watch"], "view may {:?}", granted["view"]);
    Ok(())
}
