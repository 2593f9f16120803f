//! An object that may not decode, as the type of an `Api`.
//!
//! kube's `DeserializeGuard` does the decoding; it is wrapped because it asks for full objects even of
//! `PartialObjectMeta` and because its scope is the kind's, so that no generic code could make a namespaced `Api` of it.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    core::{DeserializeGuard, DynamicResourceScope},
};
use serde::Deserialize;

use super::Watchable;

/// `K`, or what could be read of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent, bound = "K: Watchable")]
pub(super) struct Guarded<K: Watchable>(pub(super) DeserializeGuard<K>);

/// The same requests, with a guarded answer.
pub(super) fn api<K: Watchable>(api: &Api<K>) -> Api<Guarded<K>> {
    let kind = K::DynamicType::default();
    let client = api.clone().into_client();
    match api.namespace() {
        Some(namespace) => Api::namespaced_with(client, namespace, &kind),
        None => Api::all_with(client, &kind),
    }
}

impl<K: Watchable> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = DynamicResourceScope;

    fn kind(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(kind)
    }

    fn group(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::group(kind)
    }

    fn version(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::version(kind)
    }

    fn plural(kind: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(kind)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}
