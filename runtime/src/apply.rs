//! How an object is created, changed and deleted. Every write names its field manager and cannot hit a stranger.
//!
//! A name is not an identity: between reading and writing, an object can be deleted and another of the same name can
//! appear. So creation is a POST (it can only create), change carries the uid (it can only change), deletion has a uid
//! precondition. The caller compares before it writes: nothing here reads in order to save a write.
//!
//! Objects handed to [`update`] are built by us, never read from the server: what they contain, we own afterwards.

use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::error::{Error, Result};

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
    /// Refused when the object was replaced by another of the same name.
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
/// - the name now belongs to another object → 409 "uid mismatch: the provided object specified uid …";
/// - the object is gone → 409 of the same kind: the uid in the body keeps apply from creating it.
///
/// Both are [`Error::Conflict`]: read again, decide again.
pub async fn update<K>(api: &Api<K>, manager: &str, uid: &str, object: &K) -> Result<K>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let mut body = object.clone();
    let meta = body.meta_mut();
    meta.uid = Some(uid.to_owned());
    meta.resource_version = None;
    meta.managed_fields = None;
    let body = typed::<K>(serde_json::to_value(&body).map_err(anyhow::Error::from)?);
    let params = PatchParams::apply(manager).force();
    let name = object.name_any();
    api.patch(&name, &params, &Patch::Apply(&body)).await.map_err(|error| raced(&name, error))
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
    match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 && !present => Ok(()),
        // 422: the object began to be deleted meanwhile, no finalizer may be added any more.
        Err(kube::Error::Api(status)) if status.code == 422 => Err(Error::Conflict(status.message)),
        Err(error) => Err(raced(&name, error)),
    }
}

/// Server-side applies `status` to the status subresource of `object`, as it was read.
///
/// An object that is gone needs no status: that is a success. [`Error::Conflict`] as [`Guard`] says.
pub async fn write_status<K, S>(
    api: &Api<K>,
    manager: &str,
    object: &K,
    guard: Guard,
    status: &S,
) -> Result<()>
where
    K: Resource + DeserializeOwned,
    K::DynamicType: Default,
    S: Serialize,
{
    let name = object.name_any();
    let mut meta = json!({ "name": name, "uid": object.uid() });
    if guard == Guard::Version {
        meta["resourceVersion"] = json!(object.resource_version());
    }
    let status = serde_json::to_value(status).map_err(anyhow::Error::from)?;
    let body = typed::<K>(json!({ "metadata": meta, "status": status }));
    match api.patch_status(&name, &PatchParams::apply(manager).force(), &Patch::Apply(&body)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(raced(&name, error)),
    }
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

/// A 409 or 404 means that the object is no longer the one that was read.
fn raced(name: &str, error: kube::Error) -> Error {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => {
            Error::Conflict(format!("{name} changed meanwhile: {}", status.message))
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests;
