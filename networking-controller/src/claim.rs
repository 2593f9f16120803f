//! Who an object on the under cluster stands for. The answer is in its labels, never in finalizers or owner
//! references: a tenant can edit the former on their claim, and a namespaced claim cannot own a cluster-scoped object.
//!
//! Labels can be torn or changed by whoever may write the object. So a claim also remembers the uids of its objects, in
//! its status, and gives them their labels back ([`torn`]).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kmetal_crds::{
    names,
    networking::{EipClaim, Identity, SubnetClaim, VpcClaim},
};
use kube::{Resource, ResourceExt};

/// One claim, by everything that tells it from any other, an earlier one of the same name included.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimRef {
    /// `VpcClaim` or `SubnetClaim`.
    pub kind: String,
    /// The Environment.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's uid.
    pub uid: String,
}

/// Whose an existing object is, seen from one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// There is no such object.
    Absent,
    /// It stands for this claim.
    Ours,
    /// It stood for an earlier claim of the same name.
    Previous,
    /// It is somebody else's. It is never adopted.
    Foreign,
}

impl ClaimRef {
    /// The reference of a claim that came from the API server.
    pub fn of<K: Resource<DynamicType = ()>>(claim: &K) -> Self {
        Self {
            kind: K::kind(&()).into_owned(),
            namespace: claim.namespace().unwrap_or_default(),
            name: claim.name_any(),
            uid: claim.uid().unwrap_or_default(),
        }
    }

    /// The claim that an object's labels name.
    pub fn from_labels(meta: &ObjectMeta) -> Option<Self> {
        let label = |key| meta.labels.as_ref()?.get(key).cloned();
        Some(Self {
            kind: label(names::CLAIM_KIND)?,
            namespace: label(names::CLAIM_NAMESPACE)?,
            name: label(names::CLAIM_NAME)?,
            uid: label(names::CLAIM_UID)?,
        })
    }

    /// The labels of an object that stands for this claim inside the VPC of `vpc_claim_uid`.
    pub fn labels(&self, vpc_claim_uid: &str) -> BTreeMap<String, String> {
        [
            (names::CLAIM_KIND, self.kind.as_str()),
            (names::CLAIM_NAMESPACE, &self.namespace),
            (names::CLAIM_NAME, &self.name),
            (names::CLAIM_UID, &self.uid),
            (names::VPC_CLAIM_UID, vpc_claim_uid),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }

    /// Whose `object` is, by its labels.
    pub fn owner<K: Resource>(&self, object: Option<&K>) -> Owner {
        let Some(object) = object else { return Owner::Absent };
        match Self::from_labels(object.meta()) {
            Some(found) if found == *self => Owner::Ours,
            Some(found) if Self { uid: self.uid.clone(), ..found.clone() } == *self => Owner::Previous,
            _ => Owner::Foreign,
        }
    }
}

/// A claim, with what it remembers.
pub trait Claim: Resource<DynamicType = ()> {
    /// What its status says of the objects that stand for it.
    fn identity(&self) -> Option<&Identity>;
}

impl Claim for VpcClaim {
    fn identity(&self) -> Option<&Identity> {
        self.status.as_ref()?.identity.as_ref()
    }
}

impl Claim for SubnetClaim {
    fn identity(&self) -> Option<&Identity> {
        self.status.as_ref()?.identity.as_ref()
    }
}

impl Claim for EipClaim {
    fn identity(&self) -> Option<&Identity> {
        self.status.as_ref()?.identity.as_ref()
    }
}

/// Whose `object` is, seen from a claim: its own when the claim remembers it, and else what the labels say.
pub fn owner<C: Claim, K: Resource>(claim: &C, object: Option<&K>) -> Owner {
    match object {
        Some(object) if remembers(claim, object.meta()) => Owner::Ours,
        object => ClaimRef::of(claim).owner(object),
    }
}

/// Whether a claim remembers the object with this metadata as its own.
pub fn remembers<C: Claim>(claim: &C, object: &ObjectMeta) -> bool {
    claim.identity().is_some_and(|known| {
        claim.meta().uid.as_deref() == Some(&known.claim)
            && object.uid.as_ref().is_some_and(|uid| known.objects.contains(uid))
    })
}

/// What a claim has to remember, given the objects that are its own now.
pub fn identity<C: Claim>(claim: &C, objects: &[Option<&ObjectMeta>]) -> Option<Identity> {
    let mut uids: Vec<String> = objects.iter().flatten().filter_map(|object| object.uid.clone()).collect();
    uids.sort_unstable();
    (!uids.is_empty()).then(|| Identity { claim: claim.uid().unwrap_or_default(), objects: uids })
}

/// Whether an object of ours lacks one of these labels, or has it with another value.
pub fn torn<K: Resource>(object: &K, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().any(|(key, value)| object.labels().get(key) != Some(value))
}

/// The uid of the VpcClaim whose network an object lies in.
pub fn vpc_claim_uid<K: Resource>(object: &K) -> Option<&str> {
    object.meta().labels.as_ref()?.get(names::VPC_CLAIM_UID).map(String::as_str)
}

/// Whether deletion of an object has begun.
pub fn is_deleting<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use kmetal_crds::foreign::kube_ovn::Vpc;

    use super::*;

    fn claim(uid: &str) -> ClaimRef {
        ClaimRef { kind: "VpcClaim".into(), namespace: "acme-a".into(), name: "net".into(), uid: uid.into() }
    }

    fn vpc(labels: BTreeMap<String, String>) -> Vpc {
        let mut vpc = Vpc::default();
        vpc.metadata.labels = Some(labels);
        vpc
    }

    #[test]
    fn an_object_is_ours_by_uid_and_nothing_less() {
        let ours = vpc(claim("1").labels("1"));
        assert_eq!(claim("1").owner(Some(&ours)), Owner::Ours);
        assert_eq!(claim("2").owner(Some(&ours)), Owner::Previous);
        assert_eq!(ClaimRef { name: "other".into(), ..claim("1") }.owner(Some(&ours)), Owner::Foreign);
        assert_eq!(claim("1").owner(Some(&vpc(BTreeMap::new()))), Owner::Foreign);
        assert_eq!(claim("1").owner(None::<&Vpc>), Owner::Absent);
    }

    #[test]
    fn a_claim_knows_its_object_whatever_its_labels_say_but_not_one_that_an_earlier_claim_remembered() {
        let mut object = vpc(claim("1").labels("1"));
        object.metadata.uid = Some("vpc-uid".into());
        let mut mine = VpcClaim::default();
        mine.metadata.name = Some("net".into());
        mine.metadata.namespace = Some("acme-a".into());
        mine.metadata.uid = Some("1".into());
        let known = identity(&mine, &[None, Some(&object.metadata)]);
        mine.status.get_or_insert_default().identity = known;
        for labels in [BTreeMap::new(), claim("2").labels("2")] {
            object.metadata.labels = Some(labels);
            assert_eq!(owner(&mine, Some(&object)), Owner::Ours);
            assert!(torn(&object, &claim("1").labels("1")));
        }
        let later =
            VpcClaim { metadata: ObjectMeta { uid: Some("3".into()), ..mine.metadata.clone() }, ..mine };
        assert_eq!(owner(&later, Some(&object)), Owner::Previous);
    }

    #[test]
    fn labels_lead_back_to_the_claim() {
        let object = vpc(claim("1").labels("vpc-uid"));
        assert_eq!(ClaimRef::from_labels(&object.metadata), Some(claim("1")));
        assert_eq!(vpc_claim_uid(&object), Some("vpc-uid"));
    }
}
