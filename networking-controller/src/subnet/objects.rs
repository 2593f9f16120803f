//! The objects that stand for a SubnetClaim, and the writes that bring what is there in line with them. Pure.

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnEip, OvnSnatRule, OvnSnatRuleSpec, Subnet, Vpc},
        multus::{NetworkAttachmentDefinition, NetworkAttachmentDefinitionSpec},
    },
    networking::{ATTACHMENT_FINALIZER, SubnetClaim, VpcClaim},
};
use kube::ResourceExt;

use super::demand::Demand;
use crate::{
    change::{Change, Kind, Target, hold, relabel},
    claim::{ClaimRef, Owner, is_deleting, owner, vpc_claim_uid},
    names,
    teardown::{SubnetObjects, nudge},
};

/// What the writes are made from.
pub(super) struct Ground<'a> {
    /// The VpcClaim that is named.
    pub(super) vpc_claim: &'a VpcClaim,
    /// Its Vpc.
    pub(super) vpc: &'a Vpc,
    /// What is asked for.
    pub(super) demand: &'a Demand,
    /// The router's own address, if there is one.
    pub(super) router_eip: Option<&'a OvnEip>,
    /// Largest packet in bytes.
    pub(super) mtu: i32,
    /// The clock.
    pub(super) now: Timestamp,
}

/// The writes that are missing, in order.
pub(super) fn changes(
    claim: &SubnetClaim,
    me: &ClaimRef,
    ours: &SubnetObjects,
    ground: &Ground<'_>,
) -> Vec<Change> {
    let labels = me.labels(&ClaimRef::of(ground.vpc_claim).uid);
    let provider = names::provider(&me.namespace, &me.name);
    let mut changes: Vec<Change> = hold(claim).into_iter().collect();

    let mut subnet = Subnet::new(
        &names::subnet(&me.namespace, &me.name),
        ground.demand.subnet_spec(&ground.vpc.name_any(), &provider, ground.mtu),
    );
    subnet.metadata.labels = Some(labels.clone());
    match &ours.subnet {
        None => changes.push(Change::CreateSubnet(Box::new(subnet))),
        Some(existing) if existing.spec != subnet.spec => {
            subnet.metadata.uid = existing.uid();
            changes.push(Change::UpdateSubnet(Box::new(subnet)));
        }
        Some(_) => {}
    }

    let config = attachment_config(&provider);
    let mut attachment = NetworkAttachmentDefinition::new(
        &me.name,
        NetworkAttachmentDefinitionSpec { config: config.to_string() },
    );
    attachment.metadata.namespace = Some(me.namespace.clone());
    attachment.metadata.labels = Some(labels.clone());
    attachment.metadata.finalizers = Some(vec![ATTACHMENT_FINALIZER.into()]);
    match &ours.attachment {
        None => changes.push(Change::CreateAttachment(Box::new(attachment))),
        Some(existing)
            if serde_json::from_str(&existing.spec.config).ok() != Some(config)
                || !existing.finalizers().iter().any(|finalizer| finalizer == ATTACHMENT_FINALIZER) =>
        {
            attachment.metadata.uid = existing.uid();
            changes.push(Change::UpdateAttachment(Box::new(attachment)));
        }
        Some(_) => {}
    }

    let wanted = snat_spec(ground);
    match (&ours.snat, wanted) {
        (Some(existing), _) if is_deleting(existing) => changes.extend(nudge(existing, ground.now)),
        (Some(existing), wanted) if wanted.as_ref() == Some(&existing.spec) => {}
        // A rule cannot be changed once it is ready: it goes, and the next pass makes the new one.
        (Some(existing), _) => changes.push(Change::DeleteSnat(Target::of(existing))),
        (None, Some(spec)) if ours.subnet.as_ref().is_some_and(is_built) => {
            let mut snat = OvnSnatRule::new(&names::snat(&me.namespace, &me.name), spec);
            snat.metadata.labels = Some(labels);
            changes.push(Change::CreateSnat(Box::new(snat)));
        }
        (None, _) => {}
    }
    changes
}

/// Only what stands for this very claim.
pub(super) fn own_objects(claim: &SubnetClaim, objects: &SubnetObjects) -> SubnetObjects {
    fn own<K: kube::Resource + Clone>(claim: &SubnetClaim, object: Option<&K>) -> Option<K> {
        object.filter(|_| owner(claim, object) == Owner::Ours).cloned()
    }
    SubnetObjects {
        subnet: own(claim, objects.subnet.as_ref()),
        snat: own(claim, objects.snat.as_ref()),
        attachment: own(claim, objects.attachment.as_ref()),
    }
}

/// The labels that somebody has torn. `vpc_claim` is the uid of the VpcClaim in whose Vpc the subnet lies; where that is
/// not known, what its label says is left as it is.
pub(super) fn labels_put_back(me: &ClaimRef, ours: &SubnetObjects, vpc_claim: Option<String>) -> Vec<Change> {
    let known = ours.subnet.as_ref().and_then(vpc_claim_uid).map(str::to_owned);
    let Some(vpc_claim) = vpc_claim.or(known) else { return Vec::new() };
    let labels = me.labels(&vpc_claim);
    let objects = [
        ours.subnet.as_ref().and_then(|subnet| relabel(Kind::Subnet, subnet, &labels)),
        ours.snat.as_ref().and_then(|snat| relabel(Kind::OvnSnatRule, snat, &labels)),
        ours.attachment.as_ref().and_then(|attachment| relabel(Kind::Attachment, attachment, &labels)),
    ];
    objects.into_iter().flatten().collect()
}

/// Source NAT on the router's own address, so that the way out costs no second one.
fn snat_spec(ground: &Ground<'_>) -> Option<OvnSnatRuleSpec> {
    ground.vpc_claim.spec.egress.as_ref()?;
    if !ground.vpc.spec.enable_external {
        return None;
    }
    let eip = ground.router_eip?;
    let status = eip.status.as_ref().filter(|status| status.ready)?;
    let v4 = ground.demand.range.v4.filter(|_| !status.v4_ip.is_empty());
    let v6 = ground.demand.range.v6.filter(|_| !status.v6_ip.is_empty());
    if v4.is_none() && v6.is_none() {
        return None;
    }
    Some(OvnSnatRuleSpec {
        ovn_eip: eip.name_any(),
        vpc: ground.vpc.name_any(),
        v4_ip_cidr: v4.map(|net| net.to_string()).unwrap_or_default(),
        v6_ip_cidr: v6.map(|net| net.to_string()).unwrap_or_default(),
    })
}

/// What Multus hands to Kube-OVN's CNI plugin.
fn attachment_config(provider: &str) -> serde_json::Value {
    serde_json::json!({
        "cniVersion": "0.3.1",
        "type": "kube-ovn",
        "server_socket": "/run/openvswitch/kube-ovn-daemon.sock",
        "provider": provider,
    })
}

/// Whether Kube-OVN has built the Subnet.
pub(super) fn is_built(subnet: &Subnet) -> bool {
    subnet
        .status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|c| c.type_ == "Ready" && c.status == "True")
}
