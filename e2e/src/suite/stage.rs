//! A scenario's world with the process in it, and what every part of the suite does with them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    check::{message, quiet},
    kind::{Kind, Role},
    scenario::{Scenario, Story},
    snapshot::Snapshot,
};
use crate::{
    audit::{Audit, Requests},
    chart::Chart,
    cluster::Cluster,
    controller::{Circumstances, Controller},
    environment::Environment,
    history::History,
};

/// The Environment that stories are told in, unless they need their own.
pub const ENVIRONMENT: &str = "acme-prod";
/// The Tenant that it belongs to.
pub const TENANT: &str = "acme";
/// Who wrote nothing for so long has nothing under way.
const CALM: Duration = Duration::from_secs(2);
/// Peers that lose something take their time to find out.
const PATIENCE: Duration = Duration::from_mins(3);

/// A scenario on stage. Dropping it stops the world; replicas must be dropped before.
pub struct Stage<S: Scenario> {
    // Dropped before the world that it watches.
    history: History,
    kinds: Vec<Kind>,
    client: Client,
    scenario: S,
}

impl<S: Scenario> Stage<S> {
    /// Sets up the world, an Environment, and the recording of every version of the end state's kinds.
    pub async fn set(name: &str) -> Result<Self> {
        let scenario = S::world(name).await?;
        let client = scenario.cluster().client().await?;
        let kinds = S::kinds();
        let history = record(&client, &kinds).await?;
        Environment::labelled(scenario.cluster(), TENANT, ENVIRONMENT).await?;
        Ok(Self { history, kinds, client, scenario })
    }

    /// The scenario.
    pub fn scenario(&self) -> &S {
        &self.scenario
    }

    /// The under cluster.
    pub fn cluster(&self) -> &Cluster {
        self.scenario.cluster()
    }

    /// An administrator's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Every version of the end state's kinds since the world was set up.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The kinds of the end state.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Starts replica `index`.
    pub async fn replica(&self, index: usize, circumstances: &Circumstances<'_>) -> Result<Controller> {
        let chart: &Chart = self.scenario.chart();
        Controller::start_in(self.cluster(), chart, S::PROCESS, index, circumstances).await
    }

    /// A story in the Environment of the stage.
    pub fn story(&self, name: &str, plot: usize) -> Story {
        Story { namespace: ENVIRONMENT.into(), name: name.into(), plot }
    }

    /// The end state now.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(&self.client, &self.kinds, self.scenario.elsewhere().await?).await
    }

    /// Waits until the state is this one.
    pub async fn becomes(&self, expected: &Snapshot, what: &str) -> Result<()> {
        let wait = self.cluster().wait_for(format!("the state is again {what}")).await?;
        wait.within(PATIENCE)
            .until(async || match expected.difference(&self.snapshot().await?) {
                None => Ok(Some(())),
                Some(difference) => anyhow::bail!("it is not:\n{difference}"),
            })
            .await
    }

    /// What the process asked since the mark.
    pub fn asked(&self, since: &Audit) -> Result<Requests> {
        Ok(since.requests()?.by(self.scenario.chart().namespace(), S::PROCESS))
    }

    /// Waits until the process has nothing more to write; a mark from which on it wrote nothing.
    pub async fn calm(&self) -> Result<Audit> {
        let audit = self.cluster().audit();
        let wait = self.cluster().wait_for("the process has no more to write").await?;
        wait.within(PATIENCE)
            .until(async || {
                let mark = audit.mark()?;
                tokio::time::sleep(CALM).await;
                let written = quiet::writes(&self.asked(&mark)?);
                ensure!(written.is_empty(), "{written:#?}");
                Ok(Some(mark))
            })
            .await
    }

    /// Who leads; none if the Lease is free.
    pub async fn leader(&self) -> Result<Option<String>> {
        let lease = self.leases().get_opt(S::PROCESS).await?;
        Ok(lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty()))
    }

    /// Empties the Lease of a process that was killed, which time alone would do as well.
    pub async fn free_lease(&self) -> Result<()> {
        let empty = Patch::Merge(json!({"spec": {"holderIdentity": ""}}));
        let freed = self.leases().patch(S::PROCESS, &PatchParams::default(), &empty).await;
        freed.map(drop).context("free the Lease")
    }

    /// Begins the recording anew, before something that it cannot bridge (a compaction); what it has is judged.
    pub async fn record_anew(mut self) -> Result<Self> {
        self.messages().await?;
        self.history = record(&self.client, &self.kinds).await?;
        Ok(self)
    }

    /// X-16, of all that was told so far.
    async fn messages(&self) -> Result<()> {
        self.history.caught_up().await?;
        let mut faults = Vec::new();
        for kind in self.kinds.iter().filter(|kind| kind.role == Role::Own) {
            faults.extend(message::faults(&self.history.versions_of(&kind.resource)?));
        }
        ensure!(faults.is_empty(), "{} messages that help nobody: {faults:#?}", faults.len());
        Ok(())
    }

    /// Ends a test that went well, once all that was told in it has been judged.
    pub async fn finish(self, replicas: Vec<Controller>) -> Result<()> {
        self.messages().await?;
        for replica in &replicas {
            let log = std::fs::read(replica.child().log())?;
            let panicked = String::from_utf8_lossy(&log).contains("panicked at");
            ensure!(!panicked, "{} panicked:\n{}", replica.child().name(), replica.child().log_tail(40));
        }
        drop(replicas);
        let Self { history, scenario, .. } = self;
        drop(history);
        scenario.finish();
        Ok(())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), self.scenario.chart().namespace())
    }
}

async fn record(client: &Client, kinds: &[Kind]) -> Result<History> {
    let resources: Vec<_> = kinds.iter().map(|kind| kind.resource.clone()).collect();
    History::record(client, &resources).await
}
