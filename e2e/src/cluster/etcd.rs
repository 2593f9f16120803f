//! The store of a control plane. Several may share one, each below a prefix of its own, the way hosted control planes
//! share a data store.

use std::{path::Path, sync::Arc};

use anyhow::Result;

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
    child: Child,
    client: Port,
    _peer: Port,
}

impl Etcd {
    /// Starts an empty one; its API servers wait for it.
    pub(super) fn start(rig: &Rig, cluster: &str, folder: &Path) -> Result<Arc<Self>> {
        let (client, peer) = (ports::take()?, ports::take()?);
        let urls = [&client, &peer].map(|port| format!("http://{}", port.address()));
        let child = Launch::new(format!("{cluster}-etcd"), programs::etcd())
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
            ])
            .start(rig)?;
        Ok(Arc::new(Self { child, client, _peer: peer }))
    }

    /// The process.
    pub(super) fn child(&self) -> &Child {
        &self.child
    }

    /// Where API servers find it.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.client.address())
    }
}
