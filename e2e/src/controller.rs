//! Our real binaries, run as the Deployment of their chart would run them.
//!
//! Environment, arguments, mounted files and the ServiceAccount are taken from the rendered chart, so a test proves
//! chart, RBAC and binary together. What a kubelet would do is done here: the ServiceAccount's token becomes a
//! kubeconfig, ConfigMaps become files ([`mounts`]), the downward API is filled in ([`pod`]). Probes are the
//! test's.

pub(crate) mod admin;
mod mounts;
mod pod;

use std::{path::PathBuf, process::ExitStatus, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use self::{mounts::Mounts, pod::Pod};
use crate::{
    apply::MANAGER,
    chart::Chart,
    child::{Child, Launch},
    clock::Clock,
    cluster::{
        Cluster,
        token::{self, Replaced},
    },
    faults::Proxy,
    permissions,
    ports::{self, Port},
    programs,
    rig::Rig,
};

/// What is unusual about where a replica runs; by default nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances<'a> {
    /// Environment variables on top of the Deployment's.
    pub environment: &'a [(&'a str, &'a str)],
    /// It reaches the API server through this.
    pub through: Option<&'a Proxy>,
    /// It looks at this clock.
    pub clock: Option<&'a Clock>,
    /// It may reserve so many bytes of private memory ([`Launch::memory_limit`]).
    pub memory: Option<u64>,
}

/// One replica of one of our processes.
#[derive(Debug)]
pub struct Controller {
    namespace: String,
    /// The kubeconfig that leads to its token.
    token: PathBuf,
    credential: String,
    launch: Launch,
    // Before what it uses: dropped first.
    child: Child,
    mounts: Mounts,
    port: Port,
    rig: Arc<Rig>,
}

impl Controller {
    /// Starts replica `index` of the chart's Deployment; the chart is installed already, and `package` names both
    /// our package and its binary.
    pub async fn start(cluster: &Cluster, chart: &Chart, package: &str, index: usize) -> Result<Self> {
        Self::start_with(cluster, chart, package, index, &[]).await
    }

    /// The same with environment variables on top of the Deployment's.
    pub async fn start_with(
        cluster: &Cluster,
        chart: &Chart,
        package: &str,
        index: usize,
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let circumstances = Circumstances { environment, ..Circumstances::default() };
        Self::start_in(cluster, chart, package, index, &circumstances).await
    }

    /// The same in other circumstances, which last over a [`Controller::restart`].
    pub async fn start_in(
        cluster: &Cluster,
        chart: &Chart,
        package: &str,
        index: usize,
        circumstances: &Circumstances<'_>,
    ) -> Result<Self> {
        let objects = chart.render().await?;
        let pod = Pod::of(&objects, chart.namespace(), index)?;
        let rig = cluster.rig().clone();
        let granted = permissions::granted(&objects, &pod.service_account)?;
        rig.runs_as(&pod.namespace, &pod.service_account, granted);
        let mounts = Mounts::new(&rig.subfolder(&format!("{}-{}", cluster.name(), pod.name))?, &pod);
        mounts.sync(&cluster.client().await?, &pod.namespace).await?;
        let kubeconfig = cluster.service_account_kubeconfig(&pod.namespace, &pod.service_account).await?;
        let credential = token::credential(&kubeconfig)?;
        let token = kubeconfig.clone();
        let kubeconfig =
            circumstances.through.map_or(Ok(kubeconfig.clone()), |proxy| proxy.kubeconfig(&kubeconfig))?;
        let package = package.to_owned();
        let binary = tokio::task::spawn_blocking(move || programs::own_binary(&package)).await??;
        let port = ports::take()?;
        let mut launch = Launch::new(format!("{}-{}", cluster.name(), pod.name), binary)
            .without_our_env()
            .args(pod.args.iter().map(|arg| mounts.translate(arg)));
        for (name, value) in &pod.env {
            launch = launch.env(name, mounts.translate(value));
        }
        // The pod's own address and token, which only a pod can have.
        launch = launch.env("KMETAL_ADMIN_ADDRESS", port.address()).env("KUBECONFIG", kubeconfig);
        for (name, value) in circumstances.clock.into_iter().flat_map(Clock::environment) {
            launch = launch.env(name, value);
        }
        for (name, value) in circumstances.environment {
            launch = launch.env(name, value);
        }
        if let Some(bytes) = circumstances.memory {
            launch = launch.memory_limit(bytes);
        }
        let child = launch.start(&rig)?;
        Ok(Self { namespace: pod.namespace, token, credential, launch, child, mounts, port, rig })
    }

    /// Starts it again as the same pod, after it has ended or instead of the running one (which is killed).
    pub fn restart(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child = self.launch.start(&self.rig)?;
        Ok(())
    }

    /// Waits until `/readyz` answers 200; fails at once if the process ends.
    pub async fn ready(&self, cluster: &Cluster) -> Result<()> {
        let wait = cluster.wait_for(format!("{} is ready", self.child.name())).await?;
        wait.until(async || {
            if let Err(error) = self.child.must_run() {
                return Ok(Some(Err(error)));
            }
            let (code, text) = self.readyz().await?;
            anyhow::ensure!(code == 200, "/readyz says {code}: {text}");
            Ok(Some(Ok(())))
        })
        .await?
    }

    /// What `/readyz` says now: code and text.
    pub async fn readyz(&self) -> Result<(u16, String)> {
        admin::get(&self.port.address(), "/readyz").await
    }

    /// What `/metrics` says now.
    pub async fn metrics(&self) -> Result<String> {
        Ok(admin::get(&self.port.address(), "/metrics").await?.1)
    }

    /// How many tasks its runtime has now (`kmetal_tasks`).
    pub async fn tasks(&self) -> Result<u64> {
        let metrics = self.metrics().await?;
        let tasks = metrics.lines().find_map(|line| line.strip_prefix("kmetal_tasks "));
        Ok(tasks.context("no kmetal_tasks among the metrics")?.parse()?)
    }

    /// Changes one key of a mounted ConfigMap in the cluster, then the files ([`Controller::sync_mounts`]).
    pub async fn update_config(
        &self,
        cluster: &Cluster,
        config_map: &str,
        key: &str,
        text: &str,
    ) -> Result<()> {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await?, &self.namespace);
        let patch = Patch::Merge(json!({"data": {key: text}}));
        let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        maps.patch(config_map, &parameters, &patch)
            .await
            .with_context(|| format!("update ConfigMap {config_map}"))?;
        self.sync_mounts(cluster).await
    }

    /// Brings the mounted files up to date with the cluster, the way a kubelet does within a minute or so.
    pub async fn sync_mounts(&self, cluster: &Cluster) -> Result<()> {
        self.mounts.sync(&cluster.client().await?, &self.namespace).await
    }

    /// Replaces its token as a kubelet does; it takes the new one up within a minute. Its credential is another from then on.
    pub async fn renew_token(&mut self, cluster: &Cluster) -> Result<Replaced> {
        let replaced = cluster.renew_token(&self.token).await?;
        self.credential = token::credential(&self.token)?;
        Ok(replaced)
    }

    /// SIGKILL.
    pub fn kill(&self) -> Result<ExitStatus> {
        self.child.kill()
    }

    /// SIGTERM, and SIGKILL when that takes longer than `patience`.
    pub async fn terminate(&self, patience: Duration) -> Result<ExitStatus> {
        self.child.terminate(patience).await
    }

    /// Whose requests in the audit log are this replica's ([`crate::audit::Entry::credential`]), over restarts too: all
    /// replicas are one ServiceAccount.
    pub fn credential(&self) -> &str {
        &self.credential
    }

    /// The process: its log, whether it runs, SIGSTOP and SIGCONT.
    pub fn child(&self) -> &Child {
        &self.child
    }
}
