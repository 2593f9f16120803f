//! A Deployment starts the process that it names, with the settings that this process knows, and with no privilege.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{Container, PodSpec, Probe},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kmetal_e2e::{child::Launch, programs};
use kube::{ResourceExt, core::DynamicObject};
use serde_json::json;

use super::{all, networking, of_kind, platform};

fn deployments(objects: &[DynamicObject]) -> Result<Vec<Deployment>> {
    let of = |object: &&DynamicObject| Ok(serde_json::from_value(serde_json::to_value(object)?)?);
    of_kind(objects, "Deployment").iter().map(of).collect()
}

fn pod(deployment: &Deployment) -> Result<&PodSpec> {
    deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).context("no pod")
}

fn container(deployment: &Deployment) -> Result<&Container> {
    let containers = &pod(deployment)?.containers;
    ensure!(containers.len() == 1, "{} containers", containers.len());
    Ok(&containers[0])
}

/// The environment variables in the help text of a process, each as `[env: NAME=]`.
fn known_settings(package: &str) -> Result<BTreeSet<String>> {
    let help = Launch::new(package, programs::own_binary(package)?).arg("--help").output()?;
    let names = help.split("[env: ").skip(1).filter_map(|rest| rest.split(['=', ']']).next());
    Ok(names.map(str::to_owned).collect())
}

#[tokio::test]
async fn a_deployment_sets_exactly_what_its_process_reads() -> Result<()> {
    let cidrs = json!(["192.0.2.0/24", "2001:db8::/32"]);
    let lists = json!({"apiServers": {"allow": cidrs, "deny": cidrs}});
    let objects = networking(json!({"tenantClusters": lists})).render().await?;
    for deployment in deployments(&objects)? {
        let container = container(&deployment)?;
        let set: BTreeSet<String> = container.env.iter().flatten().map(|env| env.name.clone()).collect();
        let known = known_settings(&deployment.name_any())?;
        ensure!(
            !known.is_empty() && set == known,
            "the Deployment sets {set:?}, the process reads {known:?}"
        );
        ensure!(
            container.args.is_none() && container.command.is_none(),
            "settings are environment variables"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_platform_file_is_mounted_where_the_process_looks_for_it() -> Result<()> {
    let objects = networking(platform()).render().await?;
    let deployment = deployments(&objects)?.pop().context("no Deployment")?;
    let env = container(&deployment)?.env.iter().flatten().find(|env| env.name == "KMETAL_PLATFORM_FILE");
    let path = env.and_then(|env| env.value.as_deref()).context("no platform file")?;
    let (folder, key) = path.rsplit_once('/').context("a relative path")?;
    let mounts = container(&deployment)?.volume_mounts.iter().flatten();
    let mount = mounts.into_iter().find(|mount| mount.mount_path == folder).context("nothing is mounted")?;
    ensure!(mount.sub_path.is_none(), "a subPath is never renewed");
    let volume = pod(&deployment)?.volumes.iter().flatten().find(|volume| volume.name == mount.name);
    let map = volume.and_then(|v| v.config_map.as_ref()).map(|m| m.name.as_str()).context("no ConfigMap")?;
    let maps = of_kind(&objects, "ConfigMap");
    let rendered = maps.iter().find(|m| m.name_any() == map).context("the ConfigMap is not rendered")?;
    ensure!(rendered.data["data"].get(key).is_some(), "{map} has no {key}");
    Ok(())
}

#[tokio::test]
async fn probes_and_scrapers_reach_the_admin_server() -> Result<()> {
    let objects = networking(json!({})).render().await?;
    for deployment in deployments(&objects)? {
        let container = container(&deployment)?;
        let address = container.env.iter().flatten().find(|env| env.name == "KMETAL_ADMIN_ADDRESS");
        let address = address.and_then(|env| env.value.as_deref()).context("no admin address")?;
        let address: std::net::SocketAddr = address.parse()?;
        ensure!(address.ip().is_unspecified(), "a kubelet cannot reach {address}");
        let ports = container.ports.as_deref().context("no ports")?;
        ensure!(ports.len() == 1 && ports[0].container_port == i32::from(address.port()), "{ports:?}");
        let name = ports[0].name.as_deref().context("a port without name")?;
        let asks = |probe: &Option<Probe>, path: &str| {
            probe.as_ref().and_then(|probe| probe.http_get.as_ref()).is_some_and(|get| {
                get.path.as_deref() == Some(path) && get.port == IntOrString::String(name.to_owned())
            })
        };
        ensure!(asks(&container.liveness_probe, "/livez"), "{:?}", container.liveness_probe);
        ensure!(asks(&container.readiness_probe, "/readyz"), "{:?}", container.readiness_probe);
        let services = of_kind(&objects, "Service");
        ensure!(
            services.iter().all(|s| s.data["spec"]["ports"][0]["targetPort"] == json!(name)),
            "{services:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_process_has_an_account_of_its_own_and_no_privilege() -> Result<()> {
    let mut accounts = BTreeMap::new();
    for chart in all()? {
        let objects = chart.render().await?;
        for deployment in deployments(&objects)? {
            let name = deployment.name_any();
            let pod = pod(&deployment)?;
            let account = pod.service_account_name.clone().context("the default ServiceAccount")?;
            ensure!(account == name, "{name} runs as {account}");
            ensure!(of_kind(&objects, "ServiceAccount").iter().any(|a| a.name_any() == account), "{account}");
            let other = accounts.insert(account, name.clone());
            ensure!(other.is_none_or(|other| other == name), "{name} shares its account");
            unprivileged(&name, pod, container(&deployment)?)?;
        }
    }
    ensure!(!accounts.is_empty(), "no Deployment was rendered");
    Ok(())
}

fn unprivileged(name: &str, pod: &PodSpec, container: &Container) -> Result<()> {
    let all = serde_json::to_value(pod.security_context.as_ref())?;
    ensure!(
        all["runAsNonRoot"] == true && all["seccompProfile"]["type"] == "RuntimeDefault",
        "{name}: {all}"
    );
    let own = serde_json::to_value(container.security_context.as_ref())?;
    let closed = own["allowPrivilegeEscalation"] == false
        && own["readOnlyRootFilesystem"] == true
        && own["capabilities"] == json!({"drop": ["ALL"]});
    ensure!(closed, "{name}: {own}");
    let host = [pod.host_network, pod.host_pid, pod.host_ipc].iter().any(|host| host == &Some(true));
    ensure!(!host, "{name} is in the host's namespaces");
    let resources = serde_json::to_value(container.resources.as_ref())?;
    ensure!(
        resources["requests"]["memory"].is_string() && resources["limits"]["memory"].is_string(),
        "{resources}"
    );
    Ok(())
}

#[tokio::test]
async fn both_replicas_may_serve_and_a_drain_takes_one() -> Result<()> {
    let objects = networking(json!({})).render().await?;
    let deployment = deployments(&objects)?.pop().context("no Deployment")?;
    ensure!(deployment.spec.as_ref().and_then(|spec| spec.replicas) == Some(2), "not two replicas");
    let selector = serde_json::to_value(deployment.spec.as_ref().map(|spec| &spec.selector))?;
    let budgets = of_kind(&objects, "PodDisruptionBudget");
    let budget = budgets.first().context("no PodDisruptionBudget")?;
    ensure!(
        budget.data["spec"]["maxUnavailable"] == 1 && budget.data["spec"]["selector"] == selector,
        "{budget:?}"
    );
    // With one replica a budget would only keep a node from being drained.
    let one = networking(json!({"replicas": 1})).render().await?;
    ensure!(of_kind(&one, "PodDisruptionBudget").is_empty(), "a budget for a single replica");
    Ok(())
}

#[tokio::test]
async fn the_image_comes_from_a_mirror_by_digest_where_one_is_given() -> Result<()> {
    let digest = format!("sha256:{}", "0f".repeat(32));
    let version = env!("CARGO_PKG_VERSION");
    let cases = [
        (json!({}), format!("ghcr.io/clastix/kmetal-networking:{version}")),
        (json!({"image": {"tag": "v9"}}), "ghcr.io/clastix/kmetal-networking:v9".to_owned()),
        (
            json!({"image": {"registry": "mirror.example.com:5000", "tag": "v9", "digest": digest}}),
            format!("mirror.example.com:5000/clastix/kmetal-networking@{digest}"),
        ),
        (json!({"image": {"registry": ""}}), format!("clastix/kmetal-networking:{version}")),
    ];
    for (values, wanted) in cases {
        let objects = networking(values).render().await?;
        let deployment = deployments(&objects)?.pop().context("no Deployment")?;
        let image = container(&deployment)?.image.clone();
        ensure!(image.as_deref() == Some(&wanted), "{image:?} and not {wanted}");
    }
    Ok(())
}
