//! Certificates that are replaced while the cluster lives, which every client has to survive.

use std::sync::PoisonError;

use anyhow::Result;

use super::{Cluster, start};
use crate::{child::Child, pki::Authority};

impl Cluster {
    /// Puts another serving certificate of the same authority under the API server, which takes it up by itself within
    /// seconds and shows it to new connections.
    pub fn renew_serving_certificate(&self) -> Result<()> {
        self.authority.server("kube-apiserver", &start::HOSTS)?.write(&self.folder, "apiserver")?;
        Ok(())
    }

    /// Replaces the authority itself and starts everything again: no certificate of before opens anything, neither the
    /// server's nor a client's. Kubeconfig files of before are void, but for the administrator's.
    pub async fn renew_authority(&mut self) -> Result<()> {
        self.authority = Authority::new("kit")?;
        start::write_identities(&self.folder, &self.url(), &self.authority)?;
        self.kill_apiserver()?;
        self.start_apiserver().await?;
        for program in &mut self.controllers {
            program.child.kill()?;
            program.child = program.launch.start(&self.rig)?;
        }
        Ok(())
    }

    /// Sends the API server to sleep: its connections stay open and new ones are accepted by the kernel, but nobody
    /// answers.
    pub fn pause_apiserver(&self) -> Result<()> {
        let apiserver = self.apiserver.lock().unwrap_or_else(PoisonError::into_inner);
        apiserver.as_ref().map_or(Ok(()), Child::pause)
    }

    /// Wakes it up again.
    pub fn resume_apiserver(&self) -> Result<()> {
        let apiserver = self.apiserver.lock().unwrap_or_else(PoisonError::into_inner);
        apiserver.as_ref().map_or(Ok(()), Child::resume)
    }
}
