//! Carries out changes, in order, and stops at the first that fails. Dull on purpose: every decision is made before.

use std::collections::BTreeMap;

use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnDnatRule, OvnEip, OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    names::{KUBE_OVN_FINALIZER, NUDGED, manager::NETWORKING},
    networking::{ATTACHMENT_FINALIZER, FINALIZER},
};
use kmetal_runtime::{
    Error, Result,
    apply::{Created, create, delete_if_present, set_finalizer, update},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    core::NamespaceResourceScope,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    change::{Change, Kind, Target},
    claim::ClaimRef,
};

/// Carries out `changes` for a claim that exists.
pub async fn apply<K>(client: &Client, claim: &K, changes: &[Change]) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let claims = || Api::<K>::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    for change in changes {
        match change {
            Change::Hold => set_finalizer(&claims(), claim, FINALIZER, true).await?,
            Change::Release => set_finalizer(&claims(), claim, FINALIZER, false).await?,
            other => apply_one(client, other).await?,
        }
    }
    Ok(())
}

/// Carries out `changes` that a vanished claim has left to do; there is no finalizer to set any more.
pub async fn apply_without_claim(client: &Client, changes: &[Change]) -> Result<()> {
    for change in changes {
        apply_one(client, change).await?;
    }
    Ok(())
}

async fn apply_one(client: &Client, change: &Change) -> Result<()> {
    let vpcs = || Api::<Vpc>::all(client.clone());
    let subnets = || Api::<Subnet>::all(client.clone());
    let snats = || Api::<OvnSnatRule>::all(client.clone());
    let dnats = || Api::<OvnDnatRule>::all(client.clone());
    let eips = || Api::<OvnEip>::all(client.clone());
    let attachments =
        |namespace: &str| Api::<NetworkAttachmentDefinition>::namespaced(client.clone(), namespace);
    match change {
        Change::Hold | Change::Release => Ok(()),
        Change::Relabel(kind, target, labels) => match kind {
            Kind::Vpc => labelled(&vpcs(), target, labels).await,
            Kind::Subnet => labelled(&subnets(), target, labels).await,
            Kind::OvnEip => labelled(&eips(), target, labels).await,
            Kind::OvnSnatRule => labelled(&snats(), target, labels).await,
            Kind::Attachment => labelled(&attachments(&target.namespace), target, labels).await,
        },
        Change::CreateVpc(vpc) => created(&vpcs(), &**vpc).await,
        Change::UpdateVpc(vpc) => updated(&vpcs(), &**vpc).await,
        Change::DeleteVpc(target) => deleted(&vpcs(), target, "Vpc").await,
        Change::CreateSubnet(subnet) => created(&subnets(), &**subnet).await,
        Change::UpdateSubnet(subnet) => updated(&subnets(), &**subnet).await,
        Change::DeleteSubnet(target) => deleted(&subnets(), target, "Subnet").await,
        Change::CreateSnat(snat) => created(&snats(), &**snat).await,
        Change::DeleteSnat(target) => deleted(&snats(), target, "OvnSnatRule").await,
        Change::NudgeSnat(target, text) => nudged(&snats(), target, text).await,
        Change::NudgeEip(target, text) => nudged(&eips(), target, text).await,
        Change::CreateDnat(dnat) => created(&dnats(), &**dnat).await,
        Change::DeleteDnat(target) => deleted(&dnats(), target, "OvnDnatRule").await,
        Change::NudgeDnat(target, text) => nudged(&dnats(), target, text).await,
        Change::CreateEip(eip) => created(&eips(), &**eip).await,
        Change::GuardEip(eip) => set_finalizer(&eips(), &**eip, KUBE_OVN_FINALIZER, true).await,
        Change::DeleteEip(target) => deleted(&eips(), target, "OvnEip").await,
        Change::CreateAttachment(attachment) => {
            created(&attachments(&namespace(&**attachment)), &**attachment).await
        }
        Change::UpdateAttachment(attachment) => {
            updated(&attachments(&namespace(&**attachment)), &**attachment).await
        }
        Change::DeleteAttachment(target) => {
            deleted(&attachments(&target.namespace), target, "NetworkAttachmentDefinition").await
        }
        Change::ReleaseAttachment(attachment) => {
            let api = attachments(&namespace(&**attachment));
            // Deleting it a moment ago has moved its version: read the one that is there now.
            match api.get_opt(&attachment.name_any()).await? {
                Some(now) if now.uid() == attachment.uid() => {
                    set_finalizer(&api, &now, ATTACHMENT_FINALIZER, false).await
                }
                _ => Ok(()),
            }
        }
    }
}

fn namespace<K: ResourceExt>(object: &K) -> String {
    object.namespace().unwrap_or_default()
}

async fn created<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    match create(api, NETWORKING, object).await? {
        Created::New(_) => {
            tracing::info!(kind = %K::kind(&()), name = object.name_any(), "created");
            Ok(())
        }
        // Ours from a pass whose answer was lost: the watch brings it. Anybody else's: the next pass says so.
        Created::Exists(found)
            if ClaimRef::from_labels(found.meta()) == ClaimRef::from_labels(object.meta()) =>
        {
            Ok(())
        }
        Created::Exists(_) => Err(Error::Conflict(format!(
            "{} {} exists and is not this claim's",
            K::kind(&()),
            object.name_any()
        ))),
    }
}

async fn updated<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    update(api, NETWORKING, &object.uid().unwrap_or_default(), object).await?;
    tracing::info!(kind = %K::kind(&()), name = object.name_any(), "updated");
    Ok(())
}

async fn deleted<K>(api: &Api<K>, target: &Target, kind: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    if delete_if_present(api, &target.name, &target.uid).await? {
        tracing::info!(kind, name = target.name, namespace = target.namespace, "deleted");
    }
    Ok(())
}

async fn nudged<K>(api: &Api<K>, target: &Target, text: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    if annotated(api, target, json!({ "annotations": { NUDGED: text } })).await? {
        tracing::info!(name = target.name, "nudged");
    }
    Ok(())
}

async fn labelled<K>(api: &Api<K>, target: &Target, labels: &BTreeMap<String, String>) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    if annotated(api, target, json!({ "labels": labels })).await? {
        tracing::info!(name = target.name, namespace = target.namespace, "given its labels back");
    }
    Ok(())
}

/// Adds to the metadata of exactly this object; false when it is gone in the meantime, or another one already.
async fn annotated<K>(api: &Api<K>, target: &Target, mut meta: serde_json::Value) -> Result<bool>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    meta["uid"] = json!(target.uid);
    let params = PatchParams { field_manager: Some(NETWORKING.into()), ..PatchParams::default() };
    match api.patch(&target.name, &params, &Patch::Merge(json!({ "metadata": meta }))).await {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 422) => Ok(false),
        other => other.map(|_| true).map_err(Error::from),
    }
}
