//! Every label, annotation, finalizer and field-manager string of the suite that is not bound to one kind.

/// The only version of our groups so far.
pub const VERSION: &str = "v1alpha1";

/// Category that lists everything of ours: `kubectl get kmetal -A`.
pub const CATEGORY: &str = "kmetal";

/// On every cluster-scoped object that stands for a claim: the claim's kind.
pub const CLAIM_KIND: &str = "kmetal.clastix.io/claim-kind";
/// On every object that stands for a claim: the claim's namespace.
pub const CLAIM_NAMESPACE: &str = "kmetal.clastix.io/claim-namespace";
/// On every object that stands for a claim: the claim's name.
pub const CLAIM_NAME: &str = "kmetal.clastix.io/claim-name";
/// On every object that stands for a claim: the claim's uid. It alone decides who owns the object.
pub const CLAIM_UID: &str = "kmetal.clastix.io/claim-uid";
/// On Kube-OVN objects inside a VPC: the uid of the VpcClaim, so that a VPC's contents are found when claims are gone.
pub const VPC_CLAIM_UID: &str = "kmetal.clastix.io/vpc-claim-uid";

/// On what serves a Service of a tenant cluster: the uid of the Cluster, so that a later Cluster of its name inherits
/// nothing.
pub const CLUSTER_UID: &str = "kmetal.clastix.io/cluster-uid";
/// On what serves a Service of a tenant cluster: the uid of the Service.
pub const SERVICE_UID: &str = "kmetal.clastix.io/service-uid";
/// On an EipClaim that was made for a Service of a tenant cluster: the Service's namespace and name, for people.
pub const SERVICE: &str = "kmetal.clastix.io/service";

/// On an object that Kube-OVN does not let go: changed now and then, because it looks at a deletion only when the
/// object changes.
pub const NUDGED: &str = "kmetal.clastix.io/nudged";

/// On a Vpc that is being attached once more: the address that its router had, and is to have again.
pub const ROUTER_ADDRESS: &str = "kmetal.clastix.io/router-address";

/// Finalizer of Kube-OVN's objects.
pub const KUBE_OVN_FINALIZER: &str = "kubeovn.io/kube-ovn-controller";

/// Label that Capsule keeps on the namespaces of a Tenant. A namespace with it is an Environment.
pub const TENANT: &str = "capsule.clastix.io/tenant";

/// Label by which Kube-OVN finds the nodes through which VPCs leave.
pub const EXTERNAL_GATEWAY: &str = "ovn.kubernetes.io/external-gw";
/// Nodes dedicated to networking.
pub const ROLE_NETWORK: &str = "node-role.kubernetes.io/network";
/// Control-plane nodes; they carry the gateways when no node is dedicated to networking.
pub const ROLE_CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Field managers: the binary's name.
pub mod manager {
    /// kmetal-networking.
    pub const NETWORKING: &str = "kmetal-networking";
    /// kmetal-networking where it binds addresses to Services: another one, so that whoever allocates an address and
    /// whoever binds it do not take each other's fields away.
    pub const BINDER: &str = "kmetal-networking-binder";
}
