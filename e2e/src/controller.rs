//! Our real binaries, run as the Deployment of their chart would run them.
//!
//! Environment, arguments, mounted files and the ServiceAccount are taken from the rendered chart, so a test proves chart, RBAC and
//! binary together. What a kubelet would do is done here: tokens become a kubeconfig, ConfigMaps become files, the downward
//! API is filled in.

#![allow(clippy::unused_async)]

use std::{path::PathBuf, time::Duration};

use anyhow::Result;

use crate::{chart::Chart, cluster::Cluster};

/// One replica of one of our processes.
#[derive(Debug)]
pub struct Controller {
    _todo: PathBuf,
}

impl Controller {
    /// Starts replica `index` of the chart's Deployment; the chart is installed already. `package` names the binary.
    pub async fn start(_cluster: &Cluster, _chart: &Chart, _package: &str, _index: usize) -> Result<Self> {
        unimplemented!()
    }

    /// Starts it again with the same identity and files after [`Controller::kill`] or [`Controller::terminate`].
    pub async fn restart(&mut self) -> Result<()> {
        unimplemented!()
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&self, _cluster: &Cluster) -> Result<()> {
        unimplemented!()
    }

    /// What `/readyz` says now: code and text.
    pub async fn readyz(&self) -> Result<(u16, String)> {
        unimplemented!()
    }

    /// What `/metrics` says now.
    pub async fn metrics(&self) -> Result<String> {
        unimplemented!()
    }

    /// Rewrites one key of a mounted ConfigMap in the cluster and in the files, the way a kubelet swaps them.
    pub async fn update_config(
        &self,
        _cluster: &Cluster,
        _config_map: &str,
        _key: &str,
        _text: &str,
    ) -> Result<()> {
        unimplemented!()
    }

    /// SIGKILL.
    pub fn kill(&self) -> Result<()> {
        unimplemented!()
    }

    /// SIGTERM, and SIGKILL when it takes longer; says whether it ended by itself with code 0.
    pub async fn terminate(&self, _patience: Duration) -> Result<bool> {
        unimplemented!()
    }

    /// SIGSTOP.
    pub fn pause(&self) -> Result<()> {
        unimplemented!()
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        unimplemented!()
    }

    /// Whether the process runs.
    pub fn is_running(&self) -> bool {
        unimplemented!()
    }
}
