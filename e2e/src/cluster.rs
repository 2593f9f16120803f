//! A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
//!
//! It is ready in seconds, in its own folder and on its own ports, so any number may run side by side. Everything
//! is switched on as in production (RBAC, admission, garbage collection, namespace and ServiceAccount controllers);
//! what is missing is nodes with kubelets ([`crate::node_actor`]). The API server's audit log records every request
//! and is the oracle for "who wrote what" ([`crate::audit`]).

mod etcd;
pub(crate) mod identity;
mod renewal;
mod start;
pub mod token;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use kube::{Client, Config, core::DynamicObject};

pub use self::{
    etcd::Etcd,
    identity::{config, token_kubeconfig},
};
use crate::{
    apply,
    audit::Audit,
    child::{Child, Launch},
    permissions,
    pki::Authority,
    ports::Port,
    programs,
    rig::Rig,
    wait::eventually,
};

/// What may differ between clusters.
#[derive(Debug, Clone)]
pub struct Options {
    /// The Service networks, `v4` or `v4,v6`.
    pub service_networks: String,
    /// Whether a controller manager runs. Without it nothing is collected, no namespace ends, no ServiceAccount is made.
    pub controller_manager: bool,
    /// Whether a scheduler runs.
    pub scheduler: bool,
    /// The store of another cluster to share ([`Cluster::etcd`]); its own if `None`.
    pub etcd: Option<Arc<Etcd>>,
    /// Further `--flag=value`s of the API server.
    pub apiserver_flags: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            service_networks: "10.96.0.0/16".into(),
            controller_manager: true,
            scheduler: true,
            etcd: None,
            apiserver_flags: Vec::new(),
        }
    }
}

/// The controller manager or the scheduler: what comes and goes without the API server.
#[derive(Debug)]
struct Program {
    launch: Launch,
    child: Child,
}

/// A running control plane. Dropping it stops everything.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    // Dropped in this order: an API server whose etcd is gone lingers and keeps its port.
    controllers: Vec<Program>,
    apiserver: Mutex<Option<Child>>,
    etcd: Arc<Etcd>,
    apiserver_launch: Launch,
    folder: PathBuf,
    kubeconfig: PathBuf,
    authority: Authority,
    port: Port,
    _ports: [Port; 2],
    rig: Arc<Rig>,
}

impl Cluster {
    /// Starts a control plane in a rig of its own and waits until it works.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_in(&Rig::new(name)?, name, Options::default()).await
    }

    /// Starts a control plane in a rig that it shares with others.
    pub async fn start_in(rig: &Arc<Rig>, name: &str, options: Options) -> Result<Self> {
        start::start(rig, name, options).await
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rig it runs in: folder, logs.
    pub fn rig(&self) -> &Arc<Rig> {
        &self.rig
    }

    /// The administrator's kubeconfig file.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// `127.0.0.1:<port>` of the API server.
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// The API server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The authority that signs the API server's and the clients' certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its store, for another cluster to share.
    pub fn etcd(&self) -> &Arc<Etcd> {
        &self.etcd
    }

    /// How the administrator connects.
    pub async fn config(&self) -> Result<Config> {
        identity::config(&self.kubeconfig).await
    }

    /// An administrator's client, bound to the calling runtime.
    pub async fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config().await?)?)
    }

    /// A kubeconfig file of a person: a client certificate with this user and group.
    pub fn user_kubeconfig(&self, user: &str, group: &str) -> Result<PathBuf> {
        identity::user_kubeconfig(self, user, group)
    }

    /// The text of a kubeconfig that leads to this URL and holds its certificates itself: of a user and group, with a
    /// client certificate that expires if told so.
    pub fn inline_kubeconfig(
        &self,
        url: &str,
        (user, group): (&str, &str),
        lifetime: Option<Duration>,
    ) -> Result<String> {
        let client = self.authority.client_for(user, group, lifetime)?;
        Ok(identity::inline(url, &self.authority.identity().certificate, &client))
    }

    /// Runs the kit's kubectl as administrator and returns what it prints.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_as(&self.kubeconfig, args).await
    }

    /// Runs the kit's kubectl with another kubeconfig.
    pub async fn kubectl_as(&self, kubeconfig: &Path, args: &[&str]) -> Result<String> {
        let launch = Launch::new("kubectl", programs::kubectl())
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECACHEDIR", self.folder.join("kubectl-cache"))
            .args(args);
        tokio::task::spawn_blocking(move || launch.output()).await?
    }

    /// Applies one or more YAML documents server-side as administrator, CRDs first.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<()> {
        self.apply(apply::parse(yaml)?).await
    }

    /// Applies objects server-side as administrator: CRDs first (waiting until they are served), then namespaces,
    /// then the rest in the given order.
    pub async fn apply(&self, objects: Vec<DynamicObject>) -> Result<()> {
        apply::apply(&self.client().await?, "default", objects).await
    }

    /// The audit log, seen from its beginning.
    pub fn audit(&self) -> Audit {
        Audit::of(self.folder.join("audit.log"))
    }

    /// SIGKILLs the API server; connections break, the data stays.
    pub fn kill_apiserver(&self) -> Result<()> {
        if let Some(apiserver) = self.apiserver.lock().unwrap_or_else(PoisonError::into_inner).take() {
            apiserver.kill()?;
        }
        Ok(())
    }

    /// Starts the API server again on the same port and waits until it is ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        let apiserver = self.apiserver_launch.start(&self.rig)?;
        let started = start::ready(&self.client().await?, &apiserver).await;
        *self.apiserver.lock().unwrap_or_else(PoisonError::into_inner) = Some(apiserver);
        started
    }

    /// SIGKILLs the store, starts it again with the same data, and waits until the API server is ready, which connects again
    /// by itself.
    pub async fn restart_etcd(&self) -> Result<()> {
        self.etcd.restart(&self.rig)?;
        let client = self.client().await?;
        eventually("the API server has its store again", READY_WITHIN, async || {
            client.request_text(http::Request::get("/readyz").body(Vec::new())?).await?;
            Ok(Some(()))
        })
        .await
    }

    /// Forgets every revision of the store but the present one, as etcd does every five minutes in production: a watch that
    /// wants to go on from before cannot.
    pub async fn compact(&self) -> Result<()> {
        self.etcd.compact().await
    }

    /// The ids of its running processes.
    pub fn pids(&self) -> Vec<u32> {
        let apiserver = self.apiserver.lock().unwrap_or_else(PoisonError::into_inner);
        let controllers = self.controllers.iter().map(|program| &program.child);
        let children = apiserver.as_ref().into_iter().chain(controllers).map(Child::pid);
        std::iter::once(self.etcd.pid()).chain(children).collect()
    }

    /// Ends a test that went well: stops everything; the folder goes with the last user of the rig.
    pub fn finish(self) {
        if let Err(error) = permissions::keep(&self) {
            eprintln!("kit: what was permitted on {} is not kept: {error:#}", self.name);
        }
        self.rig.succeed();
    }
}

/// How long a part of the control plane may take to become ready.
const READY_WITHIN: Duration = Duration::from_secs(90);
