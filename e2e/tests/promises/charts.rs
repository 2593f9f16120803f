//! The charts install what the processes need and nothing else, checked with the real helm and without a cluster.
//!
//! A chart is text, and nothing compiles it: these tests are its compiler. What they cannot see (is a permission missing?) the
//! other promises do, because they run every process under its chart's ServiceAccount.

mod objects;
mod permissions;
mod process;
mod provider_networks;
mod refused;
mod traffic;
mod upgrades;

use std::{collections::BTreeSet, fs};

use anyhow::{Result, ensure};
use kmetal_e2e::{chart::Chart, places};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::{Value, json};

const NAMESPACE: &str = "kmetal-system";

/// One provider network of each shape, as the chart kmetal-provider-networks takes it.
fn provider_networks() -> Value {
    json!({"providerNetworks": [
        {
            "name": "internet",
            "interface": "bond0.206",
            "cidr": "203.0.113.0/24,2001:DB8:0:0::/64",
            "gateway": "203.0.113.1,2001:db8::1",
            "excludeAddresses": ["203.0.113.10..203.0.113.20", "203.0.113.9"],
            "default": true,
        },
        {
            "name": "partner",
            "interface": "eth2",
            "customInterfaces": [{"interface": "ens5", "nodes": ["node-a"]}],
            "nodeSelector": {"rack": "b"},
            "vlanID": 207,
            "cidr": "198.51.100.0/24",
            "gateway": "198.51.100.254",
            "excludeAddresses": ["198.51.100.250..198.51.100.254"],
            "tenants": ["acme"],
        },
    ]})
}

/// A complete platform, as the chart kmetal-networking takes it.
fn platform() -> Value {
    json!({"platform": {
        "providerNetworks": [
            {
                "name": "internet",
                "externalSubnet": "internet",
                "cidr": "203.0.113.0/24,2001:db8::/64",
                "gateway": "203.0.113.1,2001:db8::1",
                "default": true,
            },
            {
                "name": "partner",
                "externalSubnet": "partner",
                "cidr": "198.51.100.0/24",
                "gateway": "198.51.100.254",
                "tenants": ["acme"],
                "gatewayNodeSelector": {"rack": "b"},
            },
        ],
        "protectedCIDRs": ["10.0.0.0/16", "10.96.0.0/12", "fd00:1::/64"],
        "tenantControlPlanePools": ["192.0.2.0/24"],
        "subnet": {"mtu": 8900},
    }})
}

fn networking(values: Value) -> Chart {
    Chart::ours("kmetal-networking", NAMESPACE, values)
}

fn providers(values: Value) -> Chart {
    Chart::ours("kmetal-provider-networks", NAMESPACE, values)
}

/// Every chart there is, as it comes and with everything set; a chart that nobody added here fails the test.
fn all() -> Result<Vec<Chart>> {
    let charts = [
        ("kmetal-networking", vec![json!({}), platform(), traffic::everything()]),
        ("kmetal-provider-networks", vec![json!({}), provider_networks()]),
    ];
    let known: BTreeSet<&str> = charts.iter().map(|(name, _)| *name).collect();
    for folder in fs::read_dir(places::workspace().join("deploy/charts"))? {
        let folder = folder?.file_name();
        ensure!(
            folder.to_str().is_some_and(|name| known.contains(name)),
            "no values for chart {}",
            folder.display()
        );
    }
    Ok(charts
        .into_iter()
        .flat_map(|(name, values)| values.into_iter().map(move |v| Chart::ours(name, NAMESPACE, v)))
        .collect())
}

/// The objects of one kind.
fn of_kind<'a>(objects: &'a [DynamicObject], kind: &str) -> Vec<&'a DynamicObject> {
    objects.iter().filter(|o| o.types.as_ref().is_some_and(|types| types.kind == kind)).collect()
}

#[tokio::test]
async fn every_chart_passes_lint() -> Result<()> {
    for chart in all()? {
        chart.lint().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_change_of_the_platform_file_rolls_no_pod() -> Result<()> {
    let before = networking(json!({})).render().await?;
    let after = networking(platform()).render().await?;
    ensure!(of_kind(&before, "ConfigMap") != of_kind(&after, "ConfigMap"), "the values change nothing");
    let (before, after) = (of_kind(&before, "Deployment"), of_kind(&after, "Deployment"));
    ensure!(before == after, "the Deployment depends on the platform file");
    Ok(())
}

#[tokio::test]
async fn the_platform_file_says_what_the_values_say() -> Result<()> {
    for values in [platform(), json!({"platform": {"protectedCIDRs": []}})] {
        let objects = networking(values.clone()).render().await?;
        let maps = of_kind(&objects, "ConfigMap");
        let map = maps.iter().find(|m| m.name_any() == "kmetal-networking-platform");
        let text = map.and_then(|m| m.data.pointer("/data/platform.yaml")).and_then(Value::as_str);
        let file: Value = serde_saphyr::from_str(text.unwrap_or_default())?;
        let wanted = values["platform"].as_object().into_iter().flatten();
        for (field, value) in wanted {
            ensure!(file[field] == *value, "{field} is {} and not {value}", file[field]);
        }
    }
    Ok(())
}

#[test]
fn every_reason_is_explained_in_the_documentation() -> Result<()> {
    let read = |file: &str| fs::read_to_string(places::workspace().join("crds/src").join(file));
    let page = fs::read_to_string(places::workspace().join("docs/networking.md"))?;
    for file in ["networking.rs", "networking/service.rs"] {
        let source = read(file)?;
        let reasons = source.split_once("pub mod reason").map_or("", |(_, reasons)| reasons);
        let reasons: Vec<&str> =
            reasons.split('"').skip(1).step_by(2).filter(|text| !text.contains(' ')).collect();
        ensure!(reasons.len() > 10, "no reasons found in {file}: {reasons:?}");
        for reason in reasons {
            ensure!(page.contains(&format!("`{reason}`")), "docs/networking.md does not explain {reason}");
        }
    }
    Ok(())
}
