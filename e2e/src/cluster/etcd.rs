//! The store of a control plane. Several may share one, each below a prefix of its own, the way hosted control planes
//! share a data store.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};
use http::Request;
use kube::{Client, Config};
use serde_json::{Value, json};

use super::start::flag;
use crate::{
    child::{Child, Launch},
    ports::{self, Port},
    programs,
    rig::Rig,
};

/// A running etcd, stopped when the last cluster that uses it is gone.
#[derive(Debug)]
pub struct Etcd {
    launch: Launch,
    child: Mutex<Child>,
    client: Port,
    _peer: Port,
}

impl Etcd {
    /// Starts an empty one; its API servers wait for it.
    pub(super) fn start(rig: &Rig, cluster: &str, folder: &Path) -> Result<Arc<Self>> {
        let (client, peer) = (ports::take()?, ports::take()?);
        let urls = [&client, &peer].map(|port| format!("http://{}", port.address()));
        let launch = Launch::new(format!("{cluster}-etcd"), programs::etcd())
            .arg(flag("data-dir", folder.join("etcd").display()))
            .args([
                flag("listen-client-urls", &urls[0]),
                flag("advertise-client-urls", &urls[0]),
                flag("listen-peer-urls", &urls[1]),
                flag("initial-advertise-peer-urls", &urls[1]),
                flag("initial-cluster", format!("default={}", urls[1])),
                // The data need not survive the machine.
                flag("unsafe-no-fsync", true),
                flag("log-level", "warn"),
            ]);
        let child = Mutex::new(launch.start(rig)?);
        Ok(Arc::new(Self { launch, child, client, _peer: peer }))
    }

    /// An error when it has ended.
    pub(super) fn must_run(&self) -> Result<()> {
        self.child().must_run()
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child().pid()
    }

    /// SIGKILL, and a new start with the same data.
    pub(super) fn restart(&self, rig: &Rig) -> Result<()> {
        let mut child = self.child();
        child.kill()?;
        *child = self.launch.start(rig)?;
        Ok(())
    }

    /// Compacts it to its present revision, through the JSON that it speaks besides gRPC
    /// (<https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/>).
    pub(super) async fn compact(&self) -> Result<()> {
        // Numbers of 64 bits are text there.
        let status = self.ask("/v3/maintenance/status", &json!({})).await?;
        let revision = status.pointer("/header/revision").and_then(Value::as_str).context("no revision")?;
        self.ask("/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await.map(drop)
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Value> {
        // Any client that speaks JSON will do.
        let client = Client::try_from(Config::new(self.url().parse()?))?;
        let request = Request::post(path).body(body.to_string().into_bytes())?;
        client.request(request).await.with_context(|| format!("ask etcd for {path}"))
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where API servers find it.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.client.address())
    }
}
