//! How an object is created, changed and deleted. Every write names its field manager and cannot hit a stranger.
//!
//! A name is not an identity: between reading and writing, an object can be deleted and another of the same name can
//! appear. So creation is a POST (it can only create), change carries the uid (it can only change), deletion has a uid
//! precondition. The caller compares before it writes: nothing here reads in order to save a write of the caller's.
//!
//! Objects handed to [`update`] are built by us, never read from the server: what they contain, we own afterwards.

use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::Status,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::error::{Error, Result};

mod ownership;

/// Field manager of finalizers: an apply of an object that does not list them must not take them away.
const FINALIZERS: &str = "kmetal-finalizers";
/// How often a status is tried against a writer that keeps changing the object.
const STATUS_ATTEMPTS: u32 = 4;

/// What [`create`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created<K> {
    /// It is ours: the server made it from what we sent.
    New(K),
    /// An object of that name was there already; it was read live and not touched.
    Exists(K),
}

/// How exclusive a status write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Refused when the object was replaced by another of the same name; other changes do not matter.
    Uid,
    /// Refused also when anything in it changed since it was read.
    Version,
}

/// Creates `object`, or reads the one that has its name.
///
/// [`Error::Conflict`] when the other one vanished before it could be read.
pub async fn create<K>(api: &Api<K>, manager: &str, object: &K) -> Result<Created<K>>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    match api.create(&params, object).await {
        Ok(made) => Ok(Created::New(made)),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let name = object.name_any();
            match api.get_opt(&name).await? {
                Some(other) => Ok(Created::Exists(other)),
                None => Err(Error::Conflict(format!("{name} could not be created: {}", status.message))),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Server-side applies `object` to the existing object with that `uid`, taking over fields others changed.
///
/// Seen on a real API server (1.35), for built-in kinds and custom resources alike:
/// - the object is gone → 409 "uid mismatch … no existing object was found": the uid keeps apply from creating it;
/// - the name now belongs to another object → 422 "metadata.uid: field is immutable";
/// - an apply that changes nothing leaves the resourceVersion as it is.
///
/// The first two are [`Error::Conflict`]: read again, decide again. The first update of an object that [`create`] made
/// takes a second write before it, so that what this one leaves out is removed: whoever watches the object sees it change
/// once and whole. (Kube-OVN 1.16 loses what it was doing when a Vpc changes twice at once.)
pub async fn update<K>(api: &Api<K>, manager: &str, uid: &str, object: &K) -> Result<K>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let name = object.name_any();
    let now = api.get_metadata_opt(&name).await?.filter(|now| now.uid().as_deref() == Some(uid));
    let now = now.ok_or_else(|| Error::Conflict(format!("{name} is gone, or another object's name")))?;
    if let Some(moved) = ownership::moved(now.managed_fields(), manager) {
        let patch = json!({ "metadata": {
            "uid": uid,
            "resourceVersion": now.resource_version(),
            "managedFields": moved,
        }});
        let moving = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        api.patch(&name, &moving, &Patch::Merge(patch)).await.map_err(|error| raced(&name, error))?;
    }
    let mut body = object.clone();
    let meta = body.meta_mut();
    meta.uid = Some(uid.to_owned());
    meta.resource_version = None;
    meta.managed_fields = None;
    let body = Patch::Apply(typed::<K>(serde_json::to_value(&body).map_err(anyhow::Error::from)?));
    let params = PatchParams::apply(manager).force();
    api.patch(&name, &params, &body).await.map_err(|error| raced(&name, error))
}

/// Deletes the object with that `uid` in the background.
///
/// True when the server took the request; false when it is gone or the name belongs to another object.
pub async fn delete_if_present<K>(api: &Api<K>, name: &str, uid: &str) -> Result<bool>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    match api.delete(name, &DeleteParams::background().preconditions(preconditions)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Adds or removes `finalizer` on the object as it was read; nothing is sent when it already is so.
///
/// [`Error::Conflict`] when the object changed since. Removing from an object that is gone is a success.
pub async fn set_finalizer<K>(api: &Api<K>, object: &K, finalizer: &str, present: bool) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let before = object.finalizers();
    if before.iter().any(|name| name == finalizer) == present {
        return Ok(());
    }
    let mut after: Vec<&str> = before.iter().map(String::as_str).filter(|name| *name != finalizer).collect();
    if present {
        after.push(finalizer);
    }
    let patch = json!({ "metadata": {
        "resourceVersion": object.resource_version(),
        "uid": object.uid(),
        "finalizers": after,
    }});
    let name = object.name_any();
    let params = PatchParams { field_manager: Some(FINALIZERS.to_owned()), ..PatchParams::default() };
    match api.patch(&name, &params, &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && !present => Ok(()),
        // 422: the object began to be deleted meanwhile, no finalizer may be added any more.
        Err(kube::Error::Api(status)) if status.code == 422 => {
            Err(Error::Conflict(format!("{name} changed meanwhile: {}", status.message)))
        }
        Err(error) => Err(raced(&name, error)),
    }
}

/// Server-side applies `status` to the status subresource of `object`, as it was read.
///
/// An object that is gone needs no status: that is a success. [`Error::Conflict`] as [`Guard`] says.
///
/// The status subresource ignores a uid in the body (seen on a real API server, 1.35, with a custom resource), so the
/// resourceVersion is sent, which no other object can have; when it is merely old, the object is read and the write
/// repeated if it still is the same one.
pub async fn write_status<K, S>(
    api: &Api<K>,
    manager: &str,
    object: &K,
    guard: Guard,
    status: &S,
) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
    K::DynamicType: Default,
    S: Serialize,
{
    let name = object.name_any();
    let params = PatchParams::apply(manager).force();
    let status = serde_json::to_value(status).map_err(anyhow::Error::from)?;
    let mut version = object.resource_version();
    for attempt in 1.. {
        let meta = json!({ "name": name, "resourceVersion": version });
        let body = typed::<K>(json!({ "metadata": meta, "status": status }));
        match api.patch_status(&name, &params, &Patch::Apply(&body)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(kube::Error::Api(status))
                if status.code == 409 && guard == Guard::Uid && attempt < STATUS_ATTEMPTS =>
            {
                match api.get_opt(&name).await? {
                    None => return Ok(()),
                    Some(live) if live.uid() == object.uid() => version = live.resource_version(),
                    Some(_) => return Err(Error::Conflict(format!("{name} was replaced meanwhile"))),
                }
            }
            Err(error) => return Err(raced(&name, error)),
        }
    }
    Ok(())
}

/// Apply needs the type in the body, and a derived Rust type need not carry it.
fn typed<K: Resource>(mut body: Value) -> Value
where
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    body["apiVersion"] = json!(K::api_version(&kind));
    body["kind"] = json!(K::kind(&kind));
    body
}

/// 409, 404, and 422 about the uid mean that the object is no longer the one that was read.
fn raced(name: &str, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) || is_uid_refused(&status) => {
            Error::Conflict(format!("{name} changed meanwhile: {}", status.message))
        }
        error => error.into(),
    }
}

fn is_uid_refused(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    status.code == 422 && causes.iter().any(|cause| cause.field == "metadata.uid")
}

#[cfg(test)]
mod tests;
