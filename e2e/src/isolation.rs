//! The invariant of every Vpc that kmetal-networking makes: closed in every stored version, from the very first.
//!
//! What must be dropped is derived here once more, from the values that a platform engineer writes: a mistake of the
//! process in reading them is not repeated by the check.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use kmetal_crds::{foreign::kube_ovn::Vpc, names::VPC_CLAIM_UID};
use kube::ResourceExt;
use serde_json::Value;

use crate::history::{History, Version};

/// At and above the priority of Kube-OVN's own rules, a Vpc of ours only drops.
const KUBE_OVN: i64 = 29_000;

/// The matches that every Vpc must drop under these values of the chart `kmetal-networking`.
pub fn demands(values: &Value) -> Result<BTreeSet<String>> {
    let platform = &values["platform"];
    let networks = platform["providerNetworks"].as_array().map_or(&[][..], Vec::as_slice);
    let provided = networks.iter().filter_map(|network| network["cidr"].as_str()).flat_map(|c| c.split(','));
    let protected = platform["protectedCIDRs"].as_array().context("values without protectedCIDRs")?;
    let always = ["ip6.src == fe80::/10 && ip6.dst != fe80::/10", "ip4.dst == {169.254.0.0/16, 224.0.0.0/3}"];
    let mut demands = BTreeSet::from(always.map(str::to_owned));
    for cidr in provided.clone().chain(protected.iter().filter_map(Value::as_str)) {
        demands.insert(of("dst", cidr)?);
    }
    for cidr in provided {
        demands.insert(of("src", cidr)?);
    }
    Ok(demands)
}

/// Checks every recorded version of every Vpc that belongs to a claim against the values in the order in which they
/// were installed: each version meets one of them, none falls back to an earlier one, and what still exists meets the
/// last. Returns how many versions were judged.
pub fn always_closed(history: &History, installed: &[Value]) -> Result<usize> {
    let demands: Vec<BTreeSet<String>> = installed.iter().map(demands).collect::<Result<_>>()?;
    judge(&history.versions::<Vpc>()?, &demands)
}

/// The same of a single version.
pub fn is_closed(version: &Version, values: &Value) -> Result<bool> {
    Ok(demands(values)?.is_subset(&drops(version)))
}

fn judge(versions: &[Version], demands: &[BTreeSet<String>]) -> Result<usize> {
    let mut reached: BTreeMap<String, (usize, &Version)> = BTreeMap::new();
    let mut judged = 0;
    for version in versions.iter().filter(|version| version.object.labels().contains_key(VPC_CLAIM_UID)) {
        let what = || {
            let (name, at) = (version.object.name_any(), version.object.resource_version());
            let routes = &version.object.data["spec"]["policyRoutes"];
            format!("Vpc {name} at version {}: {routes:#}", at.unwrap_or_default())
        };
        let (before, last) = reached.entry(version.object.uid().unwrap_or_default()).or_insert((0, version));
        let has = drops(version);
        let met = (*before..demands.len()).rev().find(|at| demands[*at].is_subset(&has));
        let missing: Vec<&String> = demands[*before].difference(&has).collect();
        *before = met.with_context(|| format!("open to {missing:?} is {}", what()))?;
        *last = version;
        let opens = routes(version).any(|route| {
            route["priority"].as_i64().is_none_or(|priority| priority >= KUBE_OVN)
                && route["action"] != "drop"
        });
        ensure!(!opens, "a rule of ours stands at or above Kube-OVN's and does not drop: {}", what());
        judged += 1;
    }
    for (met, version) in reached.values().filter(|(_, version)| !version.deleted) {
        ensure!(*met + 1 == demands.len(), "{} has not got the newest rules", version.object.name_any());
    }
    ensure!(judged > 0, "no Vpc was ever there");
    Ok(judged)
}

fn routes(version: &Version) -> impl Iterator<Item = &Value> {
    version.object.data["spec"]["policyRoutes"].as_array().into_iter().flatten()
}

/// The matches that a Vpc drops above everything else.
fn drops(version: &Version) -> BTreeSet<String> {
    routes(version)
        .filter(|route| route["priority"] == 32_000 && route["action"] == "drop")
        .filter_map(|route| route["match"].as_str().map(str::to_owned))
        .collect()
}

fn of(side: &str, cidr: &str) -> Result<String> {
    let net: IpNet = cidr.trim().parse().with_context(|| format!("{cidr} is no network"))?;
    let family = if net.addr().is_ipv4() { "ip4" } else { "ip6" };
    Ok(format!("{family}.{side} == {net}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(networks: &[&str]) -> Value {
        let networks: Vec<Value> = networks.iter().map(|cidr| json!({"cidr": cidr})).collect();
        json!({"platform": {"providerNetworks": networks, "protectedCIDRs": ["192.0.2.0/24"]}})
    }

    fn version(uid: &str, matches: &BTreeSet<String>) -> Version {
        let drop = |text: &String| json!({"priority": 32000, "match": text, "action": "drop"});
        let object = json!({
            "metadata": {"name": uid, "uid": uid, "labels": {VPC_CLAIM_UID: "x"}},
            "spec": {"policyRoutes": matches.iter().map(drop).collect::<Vec<_>>()},
        });
        Version { object: serde_json::from_value(object).unwrap(), deleted: false }
    }

    #[test]
    fn a_vpc_must_drop_what_the_values_name_and_forged_sources() {
        let demands = demands(&values(&["203.0.113.0/24,2001:DB8::/64"])).unwrap();
        for wanted in ["ip4.dst == 192.0.2.0/24", "ip4.src == 203.0.113.0/24", "ip6.dst == 2001:db8::/64"] {
            assert!(demands.contains(wanted), "{demands:?}");
        }
        assert_eq!(demands.len(), 7);
    }

    #[test]
    fn a_vpc_may_move_on_to_newer_values_and_never_back() {
        let old = demands(&values(&["203.0.113.0/24"])).unwrap();
        let new = demands(&values(&["203.0.113.0/24", "198.51.100.0/24"])).unwrap();
        let both = [old.clone(), new.clone()];
        let [before, after] = [version("a", &old), version("a", &new)];
        let judge = |versions: &[&Version]| {
            judge(&versions.iter().map(|v| (*v).clone()).collect::<Vec<_>>(), &both)
                .map_err(|e| e.to_string())
        };
        assert_eq!(judge(&[&before, &before, &after, &after]), Ok(4));
        assert!(judge(&[&before, &after, &before]).unwrap_err().contains("198.51.100.0/24"));
        assert!(judge(&[&before]).unwrap_err().contains("newest"));
        assert!(judge(&[]).unwrap_err().contains("no Vpc"));
        for rule in &old {
            let mut less = old.clone();
            less.remove(rule);
            assert!(judge(&[&version("a", &less), &after]).unwrap_err().contains(rule));
        }
    }
}
