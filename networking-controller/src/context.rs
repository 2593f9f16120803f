//! What every reconcile is given: caches of all that it reads, and the few things that the process knows itself.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Node, Pod},
    },
    jiff::Timestamp,
};
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names,
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_runtime::{Presence, Process, Result, Watched};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PartialObjectMeta},
    runtime::watcher,
};

use crate::{
    claim::is_deleting,
    environment::Environment,
    kube_ovn::{self, Health, KubeOvn},
    names::router_eip,
    platform::PlatformFile,
    range::Range,
};

/// One cache for each kind that is read.
pub struct Caches {
    /// Claims for VPCs.
    pub vpc_claims: Watched<VpcClaim>,
    /// Claims for subnets.
    pub subnet_claims: Watched<SubnetClaim>,
    /// All Vpcs, those of nobody too: their names may be taken.
    pub vpcs: Watched<Vpc>,
    /// All Subnets.
    pub subnets: Watched<Subnet>,
    /// All OvnEips.
    pub eips: Watched<OvnEip>,
    /// All OvnSnatRules.
    pub snats: Watched<OvnSnatRule>,
    /// All NetworkAttachmentDefinitions.
    pub attachments: Watched<NetworkAttachmentDefinition>,
    /// Namespaces, for the Tenant label and deletion.
    pub namespaces: Watched<PartialObjectMeta<Namespace>>,
    /// Nodes, for the gateway label.
    pub nodes: Watched<PartialObjectMeta<Node>>,
    /// The Lease of kube-ovn-controller.
    pub lease: Watched<Lease>,
}

impl Caches {
    /// Starts every watch. `kube_ovn_namespace` is where kube-ovn-controller keeps its Lease.
    pub fn start(process: &Process, kube_ovn_namespace: &str) -> Self {
        let client = || process.client.clone();
        let all = watcher::Config::default;
        let lease = all().fields(&format!("metadata.name={}", kube_ovn::LEASE));
        Self {
            vpc_claims: Watched::start(process, Api::all(client()), all()),
            subnet_claims: Watched::start(process, Api::all(client()), all()),
            vpcs: Watched::start(process, Api::all(client()), all()),
            subnets: Watched::start(process, Api::all(client()), all()),
            eips: Watched::start(process, Api::all(client()), all()),
            snats: Watched::start(process, Api::all(client()), all()),
            attachments: Watched::start(process, Api::all(client()), all()),
            namespaces: Watched::start(process, Api::all(client()), all()),
            // Who set the gateway label is written in the managed fields.
            nodes: Watched::start_with(process, Api::all(client()), all(), |_| {}),
            lease: Watched::start(process, Api::namespaced(client(), kube_ovn_namespace), lease),
        }
    }

    /// Returns when it is known of every kind whether it is there.
    pub async fn settled(&self) {
        tokio::join!(
            self.vpc_claims.settled(),
            self.subnet_claims.settled(),
            self.vpcs.settled(),
            self.subnets.settled(),
            self.eips.settled(),
            self.snats.settled(),
            self.attachments.settled(),
            self.namespaces.settled(),
            self.nodes.settled(),
            self.lease.settled(),
        );
    }

    /// Which kinds of Kube-OVN and Multus are not to be had; none when all are.
    pub fn missing(&self) -> Option<String> {
        let kinds = [
            self.vpcs.presence(),
            self.subnets.presence(),
            self.eips.presence(),
            self.snats.presence(),
            self.attachments.presence(),
        ];
        kinds.into_iter().find_map(|presence| match presence {
            Presence::Present => None,
            Presence::Missing(why) => Some(why),
            Presence::Syncing => Some("its kinds are not listed yet".into()),
        })
    }

    /// One item whenever one of these kinds comes or goes.
    pub fn presence_changes(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        stream::select_all([
            self.vpcs.presence_changes().boxed(),
            self.subnets.presence_changes().boxed(),
            self.eips.presence_changes().boxed(),
            self.snats.presence_changes().boxed(),
            self.attachments.presence_changes().boxed(),
        ])
    }

    /// The VpcClaims in a namespace.
    pub fn vpc_claims_in(&self, namespace: &str) -> Vec<Arc<VpcClaim>> {
        self.vpc_claims.state_filter(|claim| claim.metadata.namespace.as_deref() == Some(namespace))
    }

    /// The SubnetClaims in a namespace.
    pub fn subnet_claims_in(&self, namespace: &str) -> Vec<Arc<SubnetClaim>> {
        self.subnet_claims.state_filter(|claim| claim.metadata.namespace.as_deref() == Some(namespace))
    }
}

/// The context of every reconcile.
pub struct Context {
    /// The process.
    pub process: Process,
    /// What is known of the under cluster.
    pub caches: Arc<Caches>,
    /// What the platform's engineers state.
    pub platform: PlatformFile,
    /// Whether Kube-OVN is alive.
    pub kube_ovn: Health,
    /// Subnets that were sent and may not be in the cache yet.
    pub sent: SentSubnets,
}

impl Context {
    /// The clock, read once a pass.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    /// Kube-OVN's state, with kinds that vanished this instant.
    pub fn kube_ovn_now(&self) -> KubeOvn {
        self.caches.missing().map_or_else(|| self.kube_ovn.now(), KubeOvn::Missing)
    }

    /// The router's own addresses. Kube-OVN names them after the Vpc and the external subnet.
    pub fn router_eips(&self, vpc: &Vpc) -> Vec<OvnEip> {
        let name = vpc.name_any();
        let eips = self
            .caches
            .eips
            .state_filter(|eip| eip.name_any() == router_eip(&name, &eip.spec.external_subnet));
        eips.iter().map(|eip| (**eip).clone()).collect()
    }

    /// What a claim being reconciled has to know of its namespace.
    ///
    /// Pods are asked for only where the answer matters: a claim that is being deleted in a namespace that goes.
    pub async fn environment(&self, namespace: &str, claim_is_deleting: bool) -> Result<Environment> {
        let known = self.caches.namespaces.get_named(namespace);
        let terminating = known.as_ref().is_some_and(|namespace| is_deleting(&**namespace));
        let tenant =
            known.and_then(|namespace| namespace.metadata.labels.as_ref()?.get(names::TENANT).cloned());
        let workloads = if terminating && claim_is_deleting { self.has_pods(namespace).await? } else { true };
        Ok(Environment { tenant, terminating, workloads })
    }

    async fn has_pods(&self, namespace: &str) -> Result<bool> {
        let pods = Api::<PartialObjectMeta<Pod>>::namespaced(self.process.client.clone(), namespace);
        Ok(!pods.list(&ListParams::default().limit(1)).await?.items.is_empty())
    }
}

/// A Subnet that no watch has shown for so long was never made: its creation was refused, or it is gone again.
const LOST: Duration = Duration::from_mins(2);

/// By Subnet: its range, and when it was sent.
type SentInVpc = HashMap<String, (Range, Instant)>;

/// Subnets that this process has sent to the API server, by VPC, until the cache shows them.
///
/// Two claims of one VPC are judged one after the other, but the second may be judged before the watch has brought
/// the first one's Subnet. There is one leader, so what it has sent and what the cache holds is all there can be.
#[derive(Default)]
pub struct SentSubnets {
    sent: Mutex<HashMap<String, SentInVpc>>,
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl SentSubnets {
    /// Notes a Subnet before it is sent: also when the answer is lost it may exist.
    pub fn note(&self, vpc_claim_uid: &str, subnet: &str, range: Range) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.entry(vpc_claim_uid.to_owned()).or_default().insert(subnet.to_owned(), (range, Instant::now()));
    }

    /// Forgets what is in the cache, which `settled` names, and returns the rest of that VPC.
    pub fn pending(&self, vpc_claim_uid: &str, settled: &HashSet<String>) -> HashMap<String, Range> {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(of_vpc) = sent.get_mut(vpc_claim_uid) else { return HashMap::new() };
        of_vpc.retain(|subnet, (_, at)| !settled.contains(subnet) && at.elapsed() < LOST);
        let rest: HashMap<String, Range> =
            of_vpc.iter().map(|(subnet, (range, _))| (subnet.clone(), range.clone())).collect();
        if rest.is_empty() {
            sent.remove(vpc_claim_uid);
        }
        rest
    }

    /// The turn of one VPC: held from reading to writing when a Subnet may be created in it.
    pub async fn turn(&self, vpc_claim_uid: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody waits for a turn that only the map holds.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(vpc_claim_uid.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}
