//! Which permissions were used, and which are granted.
//!
//! A role is minimal when nothing was forbidden and each thing that it grants was used. What is used over many runs is
//! the union of what each used: [`Permission`] is ordered and is written as one line, so sets of it may be kept in
//! files.

use std::{collections::BTreeSet, fmt, str::FromStr};

use anyhow::{Context, Error, Result};
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::core::DynamicObject;

use super::{Entry, Requests};

/// A verb on a resource, or on a sub-resource; in whatever namespace, on whatever name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// Empty for the core group.
    pub group: String,
    /// `vpcs`, or `vpcs/status`.
    pub resource: String,
    /// As RBAC has it.
    pub verb: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} of {}",
            self.verb,
            self.resource,
            if self.group.is_empty() { "core" } else { &self.group }
        )
    }
}

impl FromStr for Permission {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let (verb, rest) = line.trim().split_once(' ').context("no verb")?;
        let (resource, group) = rest.split_once(" of ").context("no group")?;
        let group = if group == "core" { "" } else { group };
        Ok(Self { group: group.into(), resource: resource.into(), verb: verb.into() })
    }
}

impl Requests {
    /// What was asked and not forbidden.
    pub fn permissions(&self) -> BTreeSet<Permission> {
        self.iter().filter(|entry| entry.code() != 403).flat_map(used).collect()
    }
}

fn used(entry: &Entry) -> Vec<Permission> {
    let about = entry.reference();
    if about.resource.is_empty() {
        return Vec::new();
    }
    let resource = if about.subresource.is_empty() {
        about.resource
    } else {
        format!("{}/{}", about.resource, about.subresource)
    };
    // A server-side apply that makes the object needs both.
    let made = (entry.verb == "patch" && entry.is_creation()).then_some("create");
    let verbs = [Some(entry.verb.as_str()), made].into_iter().flatten();
    verbs
        .map(|verb| Permission {
            group: about.api_group.clone(),
            resource: resource.clone(),
            verb: verb.to_owned(),
        })
        .collect()
}

/// What the Roles and ClusterRoles among these objects grant, if they bear one of these names.
pub fn granted(objects: &[DynamicObject], names: &[&str]) -> Result<BTreeSet<Permission>> {
    let mut rules = Vec::new();
    for object in objects {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let kind = object.types.as_ref().map_or("", |types| &types.kind);
        if !names.contains(&name) || !matches!(kind, "Role" | "ClusterRole") {
            continue;
        }
        let value = serde_json::to_value(object)?;
        rules.extend(if kind == "Role" {
            serde_json::from_value::<Role>(value)?.rules
        } else {
            serde_json::from_value::<ClusterRole>(value)?.rules
        });
    }
    Ok(rules.into_iter().flatten().flat_map(|rule| expand(&rule)).collect())
}

fn expand(rule: &PolicyRule) -> Vec<Permission> {
    let mut permissions = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for verb in &rule.verbs {
                permissions.push(Permission {
                    group: group.clone(),
                    resource: resource.clone(),
                    verb: verb.clone(),
                });
            }
        }
    }
    permissions
}
