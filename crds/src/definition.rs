//! What the derive of kube leaves out of a definition: how absence is written.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use crate::OwnedCrd;

/// The definition of a kind, complete.
pub(crate) fn owned<K: CustomResourceExt>(chart: &'static str) -> OwnedCrd {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            forbid_null(schema);
            default_spec(schema);
        }
    }
    OwnedCrd { chart, crd }
}

/// No `null` is ever stored: the API server drops one that is created or replaced, and refuses one that is applied.
/// A stored one would be a third state beside present and absent, for every rule and reader to think of.
fn forbid_null(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flat_map(|properties| properties.values_mut()).for_each(forbid_null);
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forbid_null(items);
    }
}

/// A spec that needs nothing may be left out, and is `{}` then. Without the default nobody could take its last field
/// away: server-side apply makes a `null` of an object that has lost all its fields, and `null` is no object.
fn default_spec(schema: &mut JSONSchemaProps) {
    let Some(spec) = schema.properties.as_mut().and_then(|properties| properties.get_mut("spec")) else {
        return;
    };
    if spec.required.iter().flatten().next().is_none() {
        spec.default = Some(JSON(serde_json::json!({})));
        schema.required.iter_mut().for_each(|required| required.retain(|field| field != "spec"));
    }
}
