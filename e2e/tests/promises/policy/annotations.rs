//! Annotations: Kube-OVN's in every place, Multus' in every spelling.

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};

use super::{INSTEAD, KUBE_OVN_ALONE, OWN_ONLY, create, patch, places, pod, refused};

/// Kube-OVN's keys, as a pod's author might write them.
const KEYS: [&str; 12] = [
    "ovn.kubernetes.io/logical_switch",
    "ovn.kubernetes.io/vpc",
    "ovn.kubernetes.io/ip_address",
    "ovn.kubernetes.io/ip_pool",
    "ovn.kubernetes.io/aaps",
    "ovn.kubernetes.io/allocated",
    "web.acme-a.ovn.kubernetes.io/logical_switch",
    "web.acme-a.ovn.kubernetes.io/ip_address",
    "web.acme-a.ovn.kubernetes.io/mac_address",
    "web.bolt-a.ovn.kubernetes.io/logical_router",
    "web.acme-a.ovn.net1.kubernetes.io/logical_switch",
    // The API server takes capitals in a key, and an interface may have them.
    "web.acme-a.ovn.NET1.kubernetes.io/logical_switch",
];

pub(super) async fn of_kube_ovn_are_refused_wherever_they_stand(
    tenant: &Client,
    name: &str,
    victim: &str,
) -> Result<()> {
    for key in KEYS {
        let words = [KUBE_OVN_ALONE, key, INSTEAD];
        refused(create(tenant, &pod("bad", &json!({key: victim}))).await, key, &words)?;
    }
    for key in
        ["kubernetes.io/ovn", "example.com/ovn.kubernetes.io", "ovn.example.com/logical_switch", "note"]
    {
        create(tenant, &pod("good", &json!({key: victim}))).await.context(key)?;
    }
    for (object, places) in places::all() {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        create(tenant, &object).await.with_context(|| kind.clone())?;
        if name == "person" {
            places::keep(tenant, &object).await?;
        }
        for place in places {
            let annotate = |key: &str| places::at(&format!("{place}/annotations"), json!({key: victim}));
            let (good, bad) = (annotate("note"), annotate(KEYS[6]));
            let what = format!("{kind} {place}");
            create(tenant, &places::with(&object, &good)).await.with_context(|| what.clone())?;
            refused(create(tenant, &places::with(&object, &bad)).await, &what, &[KUBE_OVN_ALONE, KEYS[6]])?;
            refused(patch(tenant, &object, &bad).await, &what, &[KUBE_OVN_ALONE, KEYS[6]])?;
            let networks = places::at(
                &format!("{place}/annotations"),
                json!({"k8s.v1.cni.cncf.io/networks": "bolt-a/web"}),
            );
            refused(patch(tenant, &object, &networks).await, &what, &[OWN_ONLY, INSTEAD])?;
            // The template of a Job cannot change at all.
            if kind != "Job" || *place == "/metadata" {
                patch(tenant, &object, &good).await.with_context(|| what.clone())?;
            }
        }
    }
    Ok(())
}

pub(super) async fn that_ask_multus_for_networks_stay_in_the_environment(tenant: &Client) -> Result<()> {
    let (networks, default) = ("k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network");
    let accepted = [
        "web",
        "acme-a/web",
        "acme-a/web@net1",
        "web@net1,acme-a/web@net2",
        " web , acme-a/web ,\n\tdata",
        "",
        r#"[{"name":"web"}]"#,
        r#"[{"name":"web","namespace":"acme-a","interface":"pod1","mac":"02:00:00:00:00:01","ips":["10.0.0.9/24"]}]"#,
        "\n [ { \"Namespace\" :\t\"acme-a\", \"name\": \"web\" }, {\"name\": \"namespace\"} ]",
        r#"[{"name":"web","namespace":"acme-a","namespace":"acme-a"}]"#,
        "[]",
    ];
    for text in accepted {
        create(tenant, &pod("good", &json!({networks: text}))).await.with_context(|| text.to_owned())?;
    }
    let foreign = [
        "bolt-a/web",
        "bolt-a/web@net1",
        "web,bolt-a/web",
        " bolt-a/web",
        "bolt-a /web",
        "\n\tbolt-a/web\n",
        "acme-a/web,\n bolt-a/web@net2",
        "acme-ab/web",
        "xacme-a/web",
        "acme-a/web/bolt-a/web",
        "Bolt-a/web",
        "\u{a0}bolt-a/web",
        "\u{85}bolt-a\u{2003}/web",
        "acme-a/web\u{2028},bolt-a/web",
        "web@bolt-a/web",
        "/web",
        "acme-a/web;bolt-a/web",
        "acme.a/web",
        r#"[{"name":"web","namespace":"bolt-a"}]"#,
        r#"[{"name":"web","namespace":"acme-a"},{"name":"web","namespace":"bolt-a"}]"#,
        r#"[{"name":"web","namespace":"acme-a","namespace":"bolt-a"}]"#,
        r#"[{"name":"web","namespace":"bolt-a","namespace":"acme-a"}]"#,
        r#"[{"name":"web","Namespace":"bolt-a"}]"#,
        r#"[{"name":"web","NAMESPACE":"bolt-a"}]"#,
        r#"[{"name":"web","namespace":"acme-a","nameSpace":"bolt-a"}]"#,
        "[{\"name\":\"web\",\"namespace\"\n:\r\n\t\"bolt-a\"}]",
        r#"[{"name":"web","namespace":" acme-a"}]"#,
        r#"[{"name":"web","namespace":null}]"#,
        r#"[{"namespace":"bolt-a","name":"x \"namespace\":\"acme-a\""}]"#,
        r#"[{"name":"web","cni-args":{"namespace":"bolt-a"}}]"#,
    ];
    for text in foreign {
        let words = if text.contains('\\') { ["without backslashes"] } else { [OWN_ONLY] };
        refused(create(tenant, &pod("bad", &json!({networks: text}))).await, text, &words)?;
        refused(patch(tenant, &kept(), &annotated(networks, text)).await, text, &words)?;
    }
    let unreadable = [
        r#"[{"name":"web","\u006eamespace":"bolt-a"}]"#,
        r#"[{"name":"web","namespac\u0065":"bolt-a"}]"#,
        r#"[{"name":"web","namespace":"\u0062olt-a"}]"#,
        "[{\"name\":\"web\",\"name\u{17f}pace\":\"bolt-a\"}]",
        r#"acme-a/web,[{"name":"web"}]"#,
        r#"{"name":"web"}"#,
        r#""web""#,
    ];
    for text in unreadable {
        let words = ["without backslashes and in ASCII"];
        refused(create(tenant, &pod("bad", &json!({networks: text}))).await, text, &words)?;
        refused(patch(tenant, &kept(), &annotated(networks, text)).await, text, &words)?;
    }
    for text in ["acme-a/web", " acme-a/web@eth0 ", ""] {
        create(tenant, &pod("good", &json!({default: text}))).await.with_context(|| text.to_owned())?;
    }
    // Without a namespace Multus would look in its own.
    for text in ["bolt-a/web", "web", "kube-system/web", "acme-a/web,bolt-a/web", r#"[{"name":"web"}]"#] {
        let words = ["default-network names an attachment of another namespace", INSTEAD];
        refused(create(tenant, &pod("bad", &json!({default: text}))).await, text, &words)?;
        refused(patch(tenant, &kept(), &annotated(default, text)).await, text, &words)?;
    }
    Ok(())
}

/// The limits of the API server on an expression's cost are not reached by what it takes for an object.
pub(super) async fn as_many_as_kubernetes_takes_are_judged(tenant: &Client) -> Result<()> {
    let many = |bad: Option<&str>| -> Value {
        let keys = (0..3000).map(|n| format!("annotation.example.com/number-{n}"));
        keys.chain(bad.map(str::to_owned))
            .map(|key| (key, json!("a value of some length")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    create(tenant, &pod("many", &many(None))).await?;
    refused(create(tenant, &pod("many", &many(Some(KEYS[0])))).await, "among many", &[KUBE_OVN_ALONE])?;
    let long: Vec<String> = (0..200).map(|n| format!("acme-a/web@net{n}")).collect();
    create(tenant, &pod("long", &json!({"k8s.v1.cni.cncf.io/networks": long.join(", ")}))).await?;
    let long: Vec<Value> =
        (0..200).map(|n| json!({"name": format!("web{n}"), "namespace": "acme-a"})).collect();
    create(tenant, &pod("long", &json!({"k8s.v1.cni.cncf.io/networks": serde_json::to_string(&long)?}))).await
}

fn kept() -> Value {
    pod("kept", &json!({}))
}

fn annotated(key: &str, text: &str) -> Value {
    json!({"metadata": {"annotations": {key: text}}})
}
