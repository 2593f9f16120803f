//! `networking.kmetal.clastix.io`: the claims with which a tenant asks for networks in their Environment.
//!
//! What the claims share: the group, the finalizer, and every condition reason. A reason stands here once, with
//! what it means, so that code, tests and `docs/networking.md` cannot drift apart.

pub mod eip_claim;
pub mod identity;
pub mod service;
pub mod subnet_claim;
pub mod vpc_claim;

pub use eip_claim::{Binding, BoundCluster, BoundService, EipClaim, EipClaimSpec, EipClaimStatus};
pub use identity::Identity;
pub use subnet_claim::{Addresses, SubnetClaim, SubnetClaimSpec, SubnetClaimStatus};
pub use vpc_claim::{Egress, EgressStatus, VpcClaim, VpcClaimSpec, VpcClaimStatus};

/// API group of the claims.
pub const GROUP: &str = "networking.kmetal.clastix.io";

/// On claims: shows the user that something is still waited for. The labels on the Kube-OVN objects are the truth.
pub const FINALIZER: &str = "networking.kmetal.clastix.io/kube-ovn";

/// On NetworkAttachmentDefinitions of ours: a namespace that is deleted removes them before the pods that need
/// them to give their addresses back.
pub const ATTACHMENT_FINALIZER: &str = "networking.kmetal.clastix.io/addresses-in-use";

/// Topology variable of a Cluster that says which network its machines are on: an object.
pub const CLUSTER_NETWORK: &str = "network";
/// Property of [`CLUSTER_NETWORK`]: name of a SubnetClaim in the Cluster's namespace.
pub const CLUSTER_NETWORK_SUBNET: &str = "subnet";
/// On a Cluster without that variable: name of the SubnetClaim that its machines are on.
pub const SUBNET_CLAIM: &str = "networking.kmetal.clastix.io/subnet-claim";

/// Why a claim is, or is not, ready. Each is a condition reason; the message names the object and the remedy.
pub mod reason {
    /// Everything the claim asks for exists and Kube-OVN has confirmed it.
    pub const READY: &str = "Ready";
    /// The Kube-OVN objects are written; Kube-OVN has not confirmed them yet.
    pub const CREATING: &str = "Creating";
    /// A change of the claim or of the platform configuration is being carried out.
    pub const UPDATING: &str = "Updating";
    /// The claim is being deleted and its Kube-OVN objects are on their way out.
    pub const DELETING: &str = "Deleting";
    /// The claim is being deleted, but something in it is still used.
    pub const IN_USE: &str = "InUse";

    /// The namespace carries no Capsule Tenant label.
    pub const NOT_AN_ENVIRONMENT: &str = "NotAnEnvironment";
    /// Kube-OVN's kinds are not installed on the under cluster.
    pub const KUBE_OVN_MISSING: &str = "KubeOvnMissing";
    /// Kube-OVN's kinds are there, its controller shows no sign of life.
    pub const KUBE_OVN_NOT_RUNNING: &str = "KubeOvnNotRunning";
    /// The platform configuration cannot be read or lacks what isolation needs.
    pub const PLATFORM_NOT_CONFIGURED: &str = "PlatformNotConfigured";
    /// An object of that name exists that is nobody's claim or another claim's.
    pub const NAME_TAKEN: &str = "NameTaken";
    /// The Kube-OVN object of an earlier claim of this name is not gone yet.
    pub const PREVIOUS_CLAIM_STILL_DELETING: &str = "PreviousClaimStillDeleting";

    /// No provider network of that name is open to this Tenant.
    pub const PROVIDER_NETWORK_NOT_FOUND: &str = "ProviderNetworkNotFound";
    /// Egress was asked for without a name and the platform has no default.
    pub const NO_DEFAULT_PROVIDER_NETWORK: &str = "NoDefaultProviderNetwork";
    /// The provider network in use is no longer in the platform configuration; nothing was changed.
    pub const PROVIDER_NETWORK_REMOVED: &str = "ProviderNetworkRemoved";
    /// Another provider network was asked for while the present one is attached.
    pub const PROVIDER_NETWORK_IMMUTABLE: &str = "ProviderNetworkImmutable";
    /// A new provider network is not yet closed off in every VPC, so no address of it is handed out.
    pub const PROVIDER_NETWORK_SETTLING: &str = "ProviderNetworkSettling";
    /// No node of the under cluster is a gateway.
    pub const NO_GATEWAY_NODE: &str = "NoGatewayNode";

    /// No address of the provider network is free for this claim yet.
    pub const POOL_EXHAUSTED: &str = "PoolExhausted";
    /// `spec.address` is no host address of the provider network.
    pub const ADDRESS_OUT_OF_RANGE: &str = "AddressOutOfRange";
    /// `spec.address` is not to be had; whether somebody has it or the platform keeps it is not told.
    pub const ADDRESS_UNAVAILABLE: &str = "AddressUnavailable";

    /// The VpcClaim that is named does not exist in this Environment.
    pub const VPC_NOT_FOUND: &str = "VpcNotFound";
    /// The VpcClaim that is named is not ready.
    pub const VPC_NOT_READY: &str = "VpcNotReady";
    /// The VpcClaim that is named is being deleted.
    pub const VPC_DELETING: &str = "VpcDeleting";
    /// `spec.cidr` is not one CIDR, or one of each family.
    pub const CIDR_INVALID: &str = "CidrInvalid";
    /// `spec.cidr` names a host, not a network.
    pub const HOST_BITS_SET: &str = "HostBitsSet";
    /// Too few addresses for a gateway and one machine.
    pub const CIDR_TOO_SMALL: &str = "CidrTooSmall";
    /// Another SubnetClaim of the VPC has addresses of this CIDR.
    pub const CIDR_OVERLAP: &str = "CidrOverlap";
    /// The CIDR has addresses that the platform keeps for itself.
    pub const CIDR_RESERVED: &str = "CidrReserved";
    /// `spec.gateway` is not a usable address of `spec.cidr`.
    pub const GATEWAY_INVALID: &str = "GatewayInvalid";
    /// An entry of `spec.excludeAddresses` is not an address or range of `spec.cidr`.
    pub const EXCLUDE_INVALID: &str = "ExcludeInvalid";
    /// An entry of `spec.dns` is not an address.
    pub const DNS_INVALID: &str = "DnsInvalid";
    /// Kube-OVN refused the Subnet; the message carries its words.
    pub const SUBNET_REFUSED: &str = "SubnetRefused";
}
