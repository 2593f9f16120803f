//! What a plan may do to the world: the whole vocabulary of writes, shared by the claims and the orphan sweep.

use std::collections::BTreeMap;

use kmetal_crds::{
    condition::Progress,
    foreign::{
        kube_ovn::{OvnDnatRule, OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names::KUBE_OVN_FINALIZER,
    networking::FINALIZER,
};
use kube::ResourceExt;

use crate::claim::torn;

/// A kind of object that stands for claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Kube-OVN's Vpc.
    Vpc,
    /// Kube-OVN's Subnet.
    Subnet,
    /// Kube-OVN's OvnEip.
    OvnEip,
    /// Kube-OVN's OvnSnatRule.
    OvnSnatRule,
    /// Multus' NetworkAttachmentDefinition.
    Attachment,
}

/// One write. Carried out in order; the first failure ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Put our finalizer on the claim.
    Hold,
    /// Take our finalizer off the claim.
    Release,
    /// Put these labels on an object of ours, whatever else it carries.
    Relabel(Kind, Target, BTreeMap<String, String>),
    /// Create a Vpc, complete from its first moment.
    CreateVpc(Box<Vpc>),
    /// Rewrite our fields of this Vpc; its uid says which.
    UpdateVpc(Box<Vpc>),
    /// Delete this Vpc.
    DeleteVpc(Target),
    /// Create a Subnet.
    CreateSubnet(Box<Subnet>),
    /// Rewrite our fields of this Subnet.
    UpdateSubnet(Box<Subnet>),
    /// Delete this Subnet.
    DeleteSubnet(Target),
    /// Create a source NAT rule.
    CreateSnat(Box<OvnSnatRule>),
    /// Delete this source NAT rule.
    DeleteSnat(Target),
    /// Put this text on a source NAT rule, to bring it before Kube-OVN once more.
    NudgeSnat(Target, String),
    /// The same for a public address.
    NudgeEip(Target, String),
    /// Create a destination NAT rule.
    CreateDnat(Box<OvnDnatRule>),
    /// Delete this destination NAT rule.
    DeleteDnat(Target),
    /// Put this text on a destination NAT rule.
    NudgeDnat(Target, String),
    /// Create a public address.
    CreateEip(Box<OvnEip>),
    /// Put Kube-OVN's finalizer on a public address: 1.16 forgets it where the address was asked for, and such an OvnEip
    /// goes under the rules that use it when somebody deletes it.
    GuardEip(Box<OvnEip>),
    /// Give a public address back.
    DeleteEip(Target),
    /// Create the attachment that machines name.
    CreateAttachment(Box<NetworkAttachmentDefinition>),
    /// Rewrite our fields of the attachment.
    UpdateAttachment(Box<NetworkAttachmentDefinition>),
    /// Delete the attachment.
    DeleteAttachment(Target),
    /// Take our finalizer off the attachment.
    ReleaseAttachment(Box<NetworkAttachmentDefinition>),
}

impl Change {
    /// The uid of the object that it brings back in line, if that is what it does.
    pub fn mends(&self) -> Option<&str> {
        match self {
            Self::Relabel(_, target, _) => Some(&target.uid),
            Self::UpdateVpc(vpc) => vpc.metadata.uid.as_deref(),
            Self::UpdateSubnet(subnet) => subnet.metadata.uid.as_deref(),
            Self::UpdateAttachment(attachment) => attachment.metadata.uid.as_deref(),
            _ => None,
        }
    }
}

/// The labels of an object of ours, put back; nothing when they are as they should be.
pub fn relabel<K: kube::Resource>(
    kind: Kind,
    object: &K,
    labels: &BTreeMap<String, String>,
) -> Option<Change> {
    torn(object, labels).then(|| Change::Relabel(kind, Target::of(object), labels.clone()))
}

/// [`Change::GuardEip`] where it is due: Kube-OVN has allocated the address, and does not hold the object.
pub fn guard_eip(eip: &OvnEip) -> Option<Change> {
    let is_held = eip.finalizers().iter().any(|finalizer| finalizer == KUBE_OVN_FINALIZER);
    let ready = eip.status.as_ref().is_some_and(|status| status.ready);
    (ready && !is_held && eip.metadata.deletion_timestamp.is_none())
        .then(|| Change::GuardEip(Box::new(eip.clone())))
}

/// Our finalizer, before the first side effect; nothing when it is on the claim already.
pub fn hold<K: ResourceExt>(claim: &K) -> Option<Change> {
    (!is_held(claim)).then_some(Change::Hold)
}

/// The end of a claim of which nothing is left; nothing when our finalizer is off already.
pub fn release<K: ResourceExt>(claim: &K) -> Option<Change> {
    is_held(claim).then_some(Change::Release)
}

fn is_held<K: ResourceExt>(claim: &K) -> bool {
    claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// Exactly one object: a later one of the same name is not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

impl Target {
    /// The object itself.
    pub fn of<K: kube::Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
        }
    }
}

/// What a pass found out and will do.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// Where the claim stands.
    pub progress: Progress,
    /// A word of `kmetal_crds::networking::reason`.
    pub reason: &'static str,
    /// What, which object, why, what to do.
    pub message: String,
}

impl Outcome {
    /// It works.
    pub fn ready(message: impl Into<String>) -> Self {
        Self::new(Progress::Ready, kmetal_crds::networking::reason::READY, message)
    }

    /// It will work without anybody's help.
    pub fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Progress::Waiting, reason, message)
    }

    /// Somebody must act.
    pub fn stalled(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(Progress::Stalled, reason, message)
    }

    /// The same with these writes first.
    #[must_use]
    pub fn with(mut self, changes: Vec<Change>) -> Self {
        self.changes = changes;
        self
    }

    fn new(progress: Progress, reason: &'static str, message: impl Into<String>) -> Self {
        Self { changes: Vec::new(), progress, reason, message: message.into() }
    }
}
