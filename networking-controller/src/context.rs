//! What every reconcile is given: caches of all that it reads, and the few things that the process knows itself.

use std::{net::Ipv4Addr, sync::Arc};

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
        capi::Cluster,
        kube_ovn::{OvnDnatRule, OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names,
    networking::{EipClaim, SubnetClaim, VpcClaim},
};
use kmetal_runtime::{Presence, Process, Result, Watched};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PartialObjectMeta},
    runtime::watcher,
};

use crate::{
    claim::{ClaimRef, is_deleting},
    environment::Environment,
    isolation,
    kube_ovn::{self, Health, KubeOvn},
    names::{is_vpc_of_ours, router_eip, vpc as vpc_name},
    pace::Pace,
    platform::{PlatformFile, State},
    range::Range,
    sent::Sent,
    service::{self, Tenants},
    subnet::Ranges,
    vpc::mend::Lost,
};

/// One cache for each kind that is read.
pub struct Caches {
    /// Claims for VPCs.
    pub vpc_claims: Watched<VpcClaim>,
    /// Claims for subnets.
    pub subnet_claims: Watched<SubnetClaim>,
    /// Claims for public addresses.
    pub eip_claims: Watched<EipClaim>,
    /// All Vpcs, those of nobody too: their names may be taken.
    pub vpcs: Watched<Vpc>,
    /// All Subnets.
    pub subnets: Watched<Subnet>,
    /// All OvnEips.
    pub eips: Watched<OvnEip>,
    /// All OvnSnatRules.
    pub snats: Watched<OvnSnatRule>,
    /// All OvnDnatRules.
    pub dnats: Watched<OvnDnatRule>,
    /// All NetworkAttachmentDefinitions.
    pub attachments: Watched<NetworkAttachmentDefinition>,
    /// Namespaces, for the Tenant label and deletion.
    pub namespaces: Watched<PartialObjectMeta<Namespace>>,
    /// Nodes, for the gateway label.
    pub nodes: Watched<PartialObjectMeta<Node>>,
    /// Tenant clusters. Without Cluster API there are none.
    pub clusters: Watched<Cluster>,
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
            eip_claims: Watched::start(process, Api::all(client()), all()),
            vpcs: Watched::start(process, Api::all(client()), all()),
            subnets: Watched::start(process, Api::all(client()), all()),
            eips: Watched::start(process, Api::all(client()), all()),
            snats: Watched::start(process, Api::all(client()), all()),
            dnats: Watched::start(process, Api::all(client()), all()),
            clusters: Watched::start(process, Api::all(client()), all()),
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
            self.eip_claims.settled(),
            self.vpcs.settled(),
            self.subnets.settled(),
            self.eips.settled(),
            self.snats.settled(),
            self.dnats.settled(),
            self.clusters.settled(),
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
            self.dnats.presence(),
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
            self.dnats.presence_changes().boxed(),
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

    /// The Clusters in a namespace.
    pub fn clusters_in(&self, namespace: &str) -> Vec<Arc<Cluster>> {
        self.clusters.state_filter(|cluster| cluster.metadata.namespace.as_deref() == Some(namespace))
    }

    /// The EipClaims in a namespace.
    pub fn eip_claims_in(&self, namespace: &str) -> Vec<Arc<EipClaim>> {
        self.eip_claims.state_filter(|claim| claim.metadata.namespace.as_deref() == Some(namespace))
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
    pub sent_subnets: Sent<Range>,
    /// The ranges that SubnetClaims ask for.
    pub(crate) ranges: Ranges,
    /// Which Vpcs have lost their routers' addresses.
    pub(crate) lost: Lost,
    /// How often an object is mended that somebody keeps tearing.
    pub pace: Pace,
    /// OvnEips that were sent and may not be in the cache yet, with the address that was asked for.
    pub sent_eips: Sent<Option<Ipv4Addr>>,
    /// The tenant clusters.
    pub tenants: Tenants,
    /// What the passes of their Services share.
    pub services: service::Shared,
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

    /// Provider networks that a Vpc of ours, other than that of `but`, does not drop yet.
    pub fn unsettled(&self, platform: &State, but: Option<&ClaimRef>) -> Vec<String> {
        let Ok(platform) = platform else { return Vec::new() };
        let but = but.map(|claim| vpc_name(&claim.namespace, &claim.name));
        // By name as well: a label may have been taken away.
        let mut others = self.caches.vpcs.state_filter(|vpc: &Vpc| {
            let name = vpc.name_any();
            let ours = vpc.labels().contains_key(names::VPC_CLAIM_UID) || is_vpc_of_ours(&name);
            ours && but.as_ref() != Some(&name)
        });
        // One that is on its way out is as open as any, as long as something keeps it.
        others.retain(|vpc| {
            !is_deleting(&**vpc)
                || !self.caches.subnets.state_filter(|subnet| subnet.spec.vpc == vpc.name_any()).is_empty()
        });
        let open = |network| others.iter().any(|vpc| !isolation::closes_off(&vpc.spec, network));
        platform
            .provider_networks
            .iter()
            .filter(|network| open(network))
            .map(|network| network.name.clone())
            .collect()
    }

    /// The Tenant of a namespace; none for one that is no Environment.
    pub fn tenant(&self, namespace: &str) -> Option<String> {
        let known = self.caches.namespaces.get_named(namespace)?;
        known.metadata.labels.as_ref()?.get(names::TENANT).cloned()
    }

    /// What a claim being reconciled has to know of its namespace.
    ///
    /// Pods are asked for only where the answer matters: a claim that is being deleted in a namespace that goes.
    pub async fn environment(&self, namespace: &str, claim_is_deleting: bool) -> Result<Environment> {
        let known = self.caches.namespaces.get_named(namespace);
        let terminating = known.as_ref().is_some_and(|namespace| is_deleting(&**namespace));
        let tenant = self.tenant(namespace);
        let workloads = if terminating && claim_is_deleting { self.has_pods(namespace).await? } else { true };
        Ok(Environment { tenant, terminating, workloads })
    }

    async fn has_pods(&self, namespace: &str) -> Result<bool> {
        let pods = Api::<PartialObjectMeta<Pod>>::namespaced(self.process.client.clone(), namespace);
        Ok(!pods.list(&ListParams::default().limit(1)).await?.items.is_empty())
    }
}
