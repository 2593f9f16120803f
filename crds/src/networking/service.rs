//! What kMetal says on a Service of type LoadBalancer in a tenant cluster, and on the Cluster.
//!
//! No kind of ours: class, annotation, finalizer, the condition in the Service's status, and the words in it.

/// `spec.loadBalancerClass` of the Services that kMetal serves, besides those that state none.
pub const CLASS: &str = "networking.kmetal.clastix.io/ovn";

/// On a Service: name of the EipClaim in the Cluster's Environment whose address it is to have. Without it an EipClaim
/// is made for the Service and goes with it.
pub const EIP_CLAIM: &str = "networking.kmetal.clastix.io/eip-claim";

/// On a Service that has, or may have, an address: Kubernetes' own word for it.
pub const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Condition in a Service's status, which says why it has an address or not. It is also how a Service that has been ours
/// is known when it is none any more.
pub const CONDITION: &str = "networking.kmetal.clastix.io/LoadBalancer";

/// Condition of an EipClaim: whether a Service has its address.
pub const BOUND: &str = "Bound";

/// Node label of Kubernetes: no traffic from load balancers.
pub const EXCLUDE_NODE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Taint of a node that the cluster autoscaler is about to delete; Kubernetes' own service controller heeds it, too.
pub const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// Most ports of a Service. Each is an object on the under cluster and a load balancer in OVN.
pub const MOST_PORTS: usize = 100;

/// Why a Service has an address, or not. Each is the reason of [`CONDITION`] and of an Event.
pub mod reason {
    /// The address leads to the Service.
    pub const READY: &str = "Ready";
    /// On the way for the first time.
    pub const CREATING: &str = "Creating";
    /// It has its address, and a change of its ports or workers is on the way.
    pub const UPDATING: &str = "Updating";
    /// Its address is being taken from it.
    pub const RELEASING: &str = "Releasing";

    /// The EipClaim that is named is not in the Cluster's Environment.
    pub const EIP_CLAIM_NOT_FOUND: &str = "EipClaimNotFound";
    /// The EipClaim has no address yet.
    pub const EIP_CLAIM_NOT_READY: &str = "EipClaimNotReady";
    /// The EipClaim is being deleted.
    pub const EIP_CLAIM_DELETING: &str = "EipClaimDeleting";
    /// Another Service has the EipClaim's address.
    pub const EIP_CLAIM_IN_USE: &str = "EipClaimInUse";
    /// The address is not of the provider network by which the Cluster's VPC leaves.
    pub const WRONG_PROVIDER_NETWORK: &str = "WrongProviderNetwork";
    /// The Environment's quota allows no further EipClaim.
    pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
    /// Something that is not ours has the port of the address.
    pub const PORT_TAKEN: &str = "PortTaken";

    /// The Cluster does not say on which SubnetClaim it is, or that one or its VpcClaim is not there or not ready.
    pub const NETWORK_NOT_READY: &str = "NetworkNotReady";
    /// The Cluster's VPC has no way out, so no way in.
    pub const NO_EGRESS: &str = "NoEgress";
    /// The Cluster is being deleted.
    pub const CLUSTER_DELETING: &str = "ClusterDeleting";
    /// No worker can take the traffic.
    pub const NO_WORKER: &str = "NoWorker";
    /// `externalTrafficPolicy: Local`, and no worker has a ready endpoint.
    pub const NO_READY_ENDPOINT: &str = "NoReadyEndpoint";
    /// A port has no node port yet.
    pub const NO_NODE_PORT: &str = "NoNodePort";

    /// `spec.loadBalancerSourceRanges` is set.
    pub const SOURCE_RANGES_UNSUPPORTED: &str = "SourceRangesUnsupported";
    /// `spec.allocateLoadBalancerNodePorts` is false.
    pub const NODE_PORTS_REQUIRED: &str = "NodePortsRequired";
    /// A port is neither TCP nor UDP.
    pub const PROTOCOL_UNSUPPORTED: &str = "ProtocolUnsupported";
    /// The Service is IPv6 only.
    pub const FAMILY_UNSUPPORTED: &str = "FamilyUnsupported";
    /// More ports than [`super::MOST_PORTS`].
    pub const TOO_MANY_PORTS: &str = "TooManyPorts";

    /// Event only: `spec.sessionAffinity` means nothing to the outside.
    pub const SESSION_AFFINITY_LIMITED: &str = "SessionAffinityLimited";
    /// Event only: `spec.loadBalancerIP` is not the address that the Service has.
    pub const LOAD_BALANCER_IP_IGNORED: &str = "LoadBalancerIpIgnored";
    /// Event only, on a Cluster: its VPC has no way out, so its workers cannot reach their API server.
    pub const NO_ROUTE_TO_CONTROL_PLANE: &str = "NoRouteToControlPlane";
}
