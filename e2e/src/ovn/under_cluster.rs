//! The under cluster as the networking tests and the demo need it: control plane, OVN, Kube-OVN, one node.
//!
//! One call, a dozen seconds; any number side by side. The node is hand-made ([`NodeActor`]) and stands for the
//! machine that routers leave through: it has a chassis, and once kmetal-networking (or [`UnderCluster::open_gateway`])
//! has labelled it, it carries the gateway ports.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kmetal_crds::foreign::kube_ovn::Vpc;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{Ovn, kube_ovn::KubeOvn};
use crate::{
    capsule::{Capsule, Release},
    cluster::{Cluster, Options},
    environment::{Environment, Tenant},
    node_actor::NodeActor,
    rig::Rig,
};

/// The one node.
pub const NODE: &str = "gateway-1";
/// Its address on the management network.
pub const NODE_ADDRESS: &str = "192.0.2.10";
/// Kube-OVN puts gateway ports on the nodes where this is `true`.
pub const GATEWAY_LABEL: &str = "ovn.kubernetes.io/external-gw";

const CHASSIS: &str = "chassis-gateway-1";
const ATTACHED_WITHIN: Duration = Duration::from_mins(2);

/// A control plane with Kube-OVN on OVN. Dropping it stops everything.
pub struct UnderCluster {
    // Dropped in this order: whoever needs another one goes first.
    node_actor: NodeActor,
    capsule: Option<Capsule>,
    kube_ovn: KubeOvn,
    ovn: Ovn,
    cluster: Cluster,
}

impl UnderCluster {
    /// Starts all of it in a rig of its own.
    pub async fn start(name: &str) -> Result<Self> {
        Self::start_in(&Rig::new(name)?, name).await
    }

    /// Starts all of it in a rig that it shares with others.
    pub async fn start_in(rig: &Arc<Rig>, name: &str) -> Result<Self> {
        let under = Self::start_without_kube_ovn(rig, name, Options::default()).await?;
        under.kube_ovn.install_crds().await?;
        under.kube_ovn.start_again().await?;
        Ok(under)
    }

    /// The same with Capsule.
    pub async fn start_with_capsule(name: &str) -> Result<Self> {
        let rig = Rig::new(name)?;
        let mut under = Self::start_without_kube_ovn(&rig, name, Options::default()).await?;
        let kube_ovn = async {
            under.kube_ovn.install_crds().await?;
            under.kube_ovn.start_again().await
        };
        let ((), capsule) = tokio::try_join!(kube_ovn, Capsule::start(&under.cluster, Release::V013))?;
        under.capsule = Some(capsule);
        Ok(under)
    }

    /// The same with Kube-OVN prepared but absent: no CRDs, no process.
    pub async fn start_without_kube_ovn(rig: &Arc<Rig>, name: &str, options: Options) -> Result<Self> {
        let ovn_name = format!("{name}-ovn");
        let (cluster, ovn) =
            tokio::try_join!(Cluster::start_in(rig, name, options), Ovn::start(rig, &ovn_name))?;
        let node_actor = NodeActor::start(&cluster).await?;
        let labels = [
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/hostname", NODE),
            ("node-role.kubernetes.io/control-plane", ""),
            ("kube-ovn/role", "master"),
        ];
        let annotations = [("ovn.kubernetes.io/chassis", CHASSIS)];
        node_actor.node(NODE, NODE_ADDRESS, &labels, &annotations).await?;
        ovn.chassis(CHASSIS, NODE).await?;
        let kube_ovn = KubeOvn::prepare(&cluster, &ovn).await?;
        Ok(Self { node_actor, capsule: None, kube_ovn, ovn, cluster })
    }

    /// The control plane.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Capsule, if it runs.
    pub fn capsule(&self) -> Option<&Capsule> {
        self.capsule.as_ref()
    }

    /// A Tenant's namespace: made by its owner where Capsule runs, else labelled as Capsule would.
    pub async fn environment(&self, tenant: &str, name: &str) -> Result<Environment> {
        match &self.capsule {
            Some(_) => {
                Tenant::create(&self.cluster, tenant, json!({})).await?.environment(&self.cluster, name).await
            }
            None => Environment::labelled(&self.cluster, tenant, name).await,
        }
    }

    /// The controller.
    pub fn kube_ovn(&self) -> &KubeOvn {
        &self.kube_ovn
    }

    /// The databases behind it.
    pub fn ovn(&self) -> &Ovn {
        &self.ovn
    }

    /// The part of a kubelet that is played.
    pub fn node_actor(&self) -> &NodeActor {
        &self.node_actor
    }

    /// An administrator's client.
    pub async fn client(&self) -> Result<Client> {
        self.cluster.client().await
    }

    /// Labels the node as gateway, for tests without kmetal-networking, which does it in the product.
    pub async fn open_gateway(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        let label = json!({"metadata": {"labels": {GATEWAY_LABEL: "true"}}});
        nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(&label)).await?;
        Ok(())
    }

    /// Waits until a Vpc's router is there, and attached outside if the Vpc wants that, and northd knows.
    pub async fn wait_vpc(&self, name: &str) -> Result<Vpc> {
        let vpcs: Api<Vpc> = Api::all(self.client().await?);
        let wait = self.cluster.wait_for(format!("Vpc {name} is what it should be")).await?;
        let vpc = wait
            .within(ATTACHED_WITHIN)
            .showing::<Vpc>(None, name)
            .until(async || {
                Ok(vpcs.get_opt(name).await?.filter(|vpc| {
                    vpc.status.as_ref().is_some_and(|status| {
                        status.standby && status.enable_external == vpc.spec.enable_external
                    })
                }))
            })
            .await?;
        self.ovn.sync().await?;
        Ok(vpc)
    }

    /// Ends a test that went well.
    pub fn finish(self) {
        let Self { node_actor, capsule, kube_ovn, ovn, cluster } = self;
        drop((node_actor, capsule, kube_ovn, ovn));
        cluster.finish();
    }
}
