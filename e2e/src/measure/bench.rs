//! The bench: a control plane, the ovn actor in Kube-OVN's place, our charts, our binary as it is shipped.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use kube::Client;

use crate::{
    audit::{Audit, Entry},
    chart::Chart,
    cluster::{Cluster, Options},
    controller::Controller,
    environment::Environment,
    networking::{NAME, NAMESPACE, Offer, values},
    node_actor::NodeActor,
    ovn::{
        kube_ovn,
        provider_network::{self, ProviderNetwork},
        under_cluster::{NODE, NODE_ADDRESS},
    },
    ovn_actor::OvnActor,
    rig::Rig,
};

/// What the notes call the actor.
pub const STAND_IN: &str = "ovn actor";
/// The default provider network: addresses for everybody (RFC 2544's range for benchmarks).
pub const LARGE: (&str, &str, &str) = ("large", "198.18.0.0/16", "198.18.0.1");
/// A provider network with 13 addresses.
pub const SMALL: (&str, &str, &str) = ("small", "198.19.0.0/28", "198.19.0.1");
/// How long our process may take to stop.
const STOPS_WITHIN: Duration = Duration::from_secs(20);

/// All of it. Dropping it stops everything.
pub struct Bench {
    // Dropped in this order: whoever talks to another one goes first.
    controller: Controller,
    ovn: Option<OvnActor>,
    cluster: Cluster,
    client: Client,
}

impl Bench {
    /// Starts it in a rig of its own and waits until our process is ready.
    pub async fn start(name: &str) -> Result<Self> {
        eprintln!("\n=== {name}");
        let rig: Arc<Rig> = Rig::new(name)?;
        // A scheduler has nothing to do here and would only take its share of the machine.
        let options = Options { scheduler: false, ..Options::default() };
        let cluster = Cluster::start_in(&rig, name, options).await?;
        let client = cluster.client().await?;
        kube_ovn::install_crds(&client).await?;
        let ovn = Some(OvnActor::start(&cluster).await?);
        let labels = [("kubernetes.io/os", "linux"), ("node-role.kubernetes.io/control-plane", "")];
        NodeActor::start(&cluster).await?.node(NODE, NODE_ADDRESS, &labels, &[]).await?;
        let networks = [LARGE, SMALL].map(|(name, cidr, gateway)| ProviderNetwork::new(name, cidr, gateway));
        provider_network::install(&cluster, &networks).await?;
        let chart = Chart::ours(NAME, NAMESPACE, values(&networks.map(Offer::from)));
        chart.install(&cluster).await?;
        let controller = Controller::start(&cluster, &chart, NAME, 0).await?;
        controller.ready(&cluster).await?;
        Ok(Self { controller, ovn, cluster, client })
    }

    /// The control plane.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// An administrator's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Our process.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Stops our process, which gives its lease back.
    pub async fn stop(&self) -> Result<()> {
        self.controller.terminate(STOPS_WITHIN).await?;
        Ok(())
    }

    /// Starts it again.
    pub fn start_again(&mut self) -> Result<()> {
        self.controller.restart()
    }

    /// Stops the actor: nobody acts on Kube-OVN's kinds.
    pub fn stop_ovn(&mut self) {
        self.ovn = None;
    }

    /// Starts it again.
    pub async fn start_ovn(&mut self) -> Result<()> {
        self.ovn = Some(OvnActor::start(&self.cluster).await?);
        Ok(())
    }

    /// A namespace that belongs to a tenant.
    pub async fn environment(&self, tenant: &str, name: &str) -> Result<Environment> {
        Environment::labelled(&self.cluster, tenant, name).await
    }

    /// The audit log from now on.
    pub fn mark(&self) -> Result<Audit> {
        self.cluster.audit().mark()
    }

    /// Ends a scene that could be measured.
    pub fn finish(self) {
        let Self { controller, ovn, cluster, .. } = self;
        drop((controller, ovn));
        cluster.finish();
    }
}

/// What our process wrote since the mark, or tried to, but for its Lease.
pub fn our_writes(since: &Audit) -> Result<Vec<Entry>> {
    let written = since.writes_by(NAMESPACE, NAME)?.into_iter();
    Ok(written.filter(|entry| entry.reference().resource != "leases").collect())
}
