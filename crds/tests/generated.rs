//! The committed definitions equal the generated ones, and keep the manners that every kind of ours has.

use std::{fs, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

#[test]
fn committed_definitions_are_what_crdgen_writes() {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/charts");
    for owned in kmetal_crds::all() {
        let file = charts.join(owned.chart).join(format!("files/crds/{}.yaml", owned.crd.spec.names.plural));
        let committed = fs::read_to_string(&file).unwrap_or_default();
        let generated = kmetal_crds::yaml(&owned.crd).unwrap();
        assert!(committed == generated, "{} is stale; run: cargo crdgen", file.display());
    }
}

#[test]
fn every_kind_has_what_users_rely_on() {
    for owned in kmetal_crds::all() {
        let names = &owned.crd.spec.names;
        let kind = &names.kind;
        assert_eq!(names.categories.as_deref(), Some(&["kmetal".to_owned()][..]), "{kind}: category");
        assert!(names.short_names.as_ref().is_some_and(|short| !short.is_empty()), "{kind}: short name");
        for version in &owned.crd.spec.versions {
            assert!(version.subresources.as_ref().is_some_and(|s| s.status.is_some()), "{kind}: status");
            let columns = version.additional_printer_columns.as_deref().unwrap_or_default();
            for wanted in ["Ready", "Reason", "Age"] {
                assert!(columns.iter().any(|column| column.name == wanted), "{kind}: column {wanted}");
            }
            let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref()).unwrap();
            assert!(schema.description.as_ref().is_some_and(|d| d.len() > 20), "{kind}: description");
            let properties = schema.properties.as_ref().unwrap();
            let status = properties["status"].properties.as_ref().unwrap();
            assert_eq!(
                status["conditions"].x_kubernetes_list_type.as_deref(),
                Some("map"),
                "{kind}: conditions"
            );
            assert!(status.contains_key("observedGeneration"), "{kind}: observedGeneration");
            let demanded = properties["spec"].required.iter().flatten().next().is_some();
            assert!(
                demanded || properties["spec"].default.is_some(),
                "{kind}: nobody could apply an empty spec over another"
            );
            walk(kind, &properties["spec"]);
            walk(kind, &properties["status"]);
        }
    }
}

/// Every property says what it is, every string and list is bounded, nothing may be `null`, and no format is one
/// that the API server does not know.
fn walk(path: &str, schema: &JSONSchemaProps) {
    assert!(
        !matches!(schema.format.as_deref(), Some("uint8" | "uint16" | "uint32" | "uint64" | "uint")),
        "{path}: the API server does not know unsigned formats; use i32 or i64"
    );
    assert_ne!(schema.nullable, Some(true), "{path}: null must not be storable");
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(property.description.as_ref().is_some_and(|d| !d.is_empty()), "{path} has no description");
        if path.contains("conditions") {
            continue; // metav1.Condition brings its own schema
        }
        match property.type_.as_deref() {
            Some("string") => {
                assert!(property.max_length.is_some() || property.enum_.is_some(), "{path} has no maxLength");
            }
            Some("array") => assert!(property.max_items.is_some(), "{path} has no maxItems"),
            _ => {}
        }
        walk(&path, property);
    }
}
