//! What no rule can see at apply: told in the claim, with what, which object, since when, why, and what to do.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kmetal_crds::{
    foreign::kube_ovn::Vpc,
    networking::{SubnetClaim, VpcClaim, reason},
};
use kmetal_e2e::{environment::Environment, networking::Networking, wait::PATIENCE};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

use super::{apply, claim, says};

const PLACE: &str = "acme-a";

pub(super) async fn what_is_wrong_with_a_claim_itself(networking: &Networking) -> Result<()> {
    let cases = [
        (
            "last-address",
            json!({"gateway": "10.9.0.255"}),
            reason::GATEWAY_INVALID,
            ["spec.gateway", "10.9.0.255", "is not a host address of 10.9.0.0/24", "take one inside it"],
        ),
        (
            "reversed",
            json!({"excludeAddresses": ["10.9.0.9..10.9.0.3"]}),
            reason::EXCLUDE_INVALID,
            ["spec.excludeAddresses", "'10.9.0.9..10.9.0.3'", "is no range", "write FIRST..LAST"],
        ),
        (
            "everything",
            json!({"excludeAddresses": ["10.9.0.0..10.9.0.127", "10.9.0.128..10.9.0.255"]}),
            reason::EXCLUDE_INVALID,
            ["spec.excludeAddresses", "10.9.0.0/24", "leaves no address", "exclude fewer"],
        ),
    ];
    for (name, more, reason, parts) in cases {
        let mut spec = json!({"vpc": "net", "cidr": "10.9.0.0/24"});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        claim(networking, "SubnetClaim", (PLACE, name), spec).await?;
        says::<SubnetClaim>(networking, (PLACE, name), reason, &parts).await?;
    }
    // A claim that is itself refused stands in nobody's way.
    networking.claim_subnet(PLACE, "good", "net", "10.9.0.0/24").await?;
    networking.subnet_ready(PLACE, "good").await?;
    Ok(())
}

pub(super) async fn what_stands_in_the_way(networking: &Networking) -> Result<()> {
    networking.claim_subnet(PLACE, "front", "net", "10.1.0.0/24").await?;
    networking.subnet_ready(PLACE, "front").await?;
    networking.claim_subnet(PLACE, "later", "net", "10.1.0.128/25,fd00:1::/64").await?;
    let parts = [
        "spec.cidr 10.1.0.128/25,fd00:1::/64",
        "SubnetClaim front in VPC net",
        "overlaps 10.1.0.0/24",
        "choose another range, or delete that claim",
    ];
    says::<SubnetClaim>(networking, (PLACE, "later"), reason::CIDR_OVERLAP, &parts).await?;

    // Elsewhere the same range is free: in another VPC of the tenant, and with another tenant.
    for (namespace, vpc) in [(PLACE, "second"), ("bolt-a", "net")] {
        networking.claim_vpc(namespace, vpc, None).await?;
        networking.claim_subnet(namespace, &format!("front-{vpc}"), vpc, "10.1.0.0/24").await?;
        networking.subnet_ready(namespace, &format!("front-{vpc}")).await?;
    }

    // Who has it keeps it; when it goes, the next one comes in without a hand.
    let client = networking.under().client().await?;
    Api::<SubnetClaim>::namespaced(client, PLACE).delete("front", &DeleteParams::default()).await?;
    networking.subnet_ready(PLACE, "later").await?;

    let parts = |cidr: &str| {
        format!("spec.cidr {cidr} overlaps a range that the platform keeps for itself; choose another")
    };
    let mut answers = Vec::new();
    for (name, cidr) in [
        ("over-default", "203.0.113.0/25"),
        ("over-foreign", "198.51.100.0/25"),
        ("over-nodes", "192.0.2.0/25"),
        ("over-services", "10.96.0.0/24"),
        ("over-servers", "100.100.0.0/25"),
        ("over-v6", "2001:db8:ff::/64"),
        ("over-all", "192.0.0.0/8"),
    ] {
        networking.claim_subnet(PLACE, name, "net", cidr).await?;
        let wanted = parts(cidr);
        let parts = [wanted.as_str(), "spec.cidr", cidr, "choose another"];
        let said = says::<SubnetClaim>(networking, (PLACE, name), reason::CIDR_RESERVED, &parts).await?;
        answers.push(said.replace(cidr, "CIDR"));
    }
    answers.dedup();
    ensure!(answers.len() == 1, "the answers tell which of the platform's ranges it is: {answers:#?}");
    Ok(())
}

pub(super) async fn nothing_about_other_tenants(networking: &Networking) -> Result<()> {
    let (client, place) = (networking.under().client().await?, "calm-a");
    let asked = ["vault", "nought"];
    let mut answers = Vec::new();
    for network in asked {
        networking.claim_vpc(place, &format!("through-{network}"), Some(network)).await?;
        let name = format!("through-{network}");
        let quoted = format!("'{network}'");
        let parts =
            ["no provider network", quoted.as_str(), "for this Tenant", "ask the platform's engineers"];
        says::<VpcClaim>(networking, (place, &name), reason::PROVIDER_NETWORK_NOT_FOUND, &parts).await?;
        let claim = Api::<VpcClaim>::namespaced(client.clone(), place).get(&name).await?;
        let mut status = claim.status.clone().unwrap_or_default();
        let times: Vec<_> = status.conditions.iter().map(|c| c.last_transition_time.clone()).collect();
        ensure!(times.iter().all(|time| *time == times[0]));
        status.conditions.iter_mut().for_each(|c| c.last_transition_time = times[0].clone());
        let mut status = serde_json::to_value(status)?;
        for condition in status["conditions"].as_array_mut().into_iter().flatten() {
            condition["lastTransitionTime"].take();
        }
        let event = told_event(&client, place, &name).await?;
        answers.push((status.to_string().replace(network, "N"), event.replace(network, "N")));
    }
    ensure!(answers[0] == answers[1], "reserved and unknown are told apart: {answers:#?}");

    networking.claim_vpc(place, "by-default", Some("")).await?;
    let parts = [
        "has no default",
        "provider network",
        "for this Tenant",
        "set spec.egress.providerNetwork to a name",
    ];
    says::<VpcClaim>(networking, (place, "by-default"), reason::NO_DEFAULT_PROVIDER_NETWORK, &parts).await?;
    let vpcs = Api::<Vpc>::all(client.clone()).list(&ListParams::default()).await?;
    let made: Vec<String> =
        vpcs.iter().map(ResourceExt::name_any).filter(|name| name.contains("calm")).collect();
    ensure!(made.is_empty(), "a refused claim made {made:?}");
    // It can still be had closed.
    networking.claim_vpc(place, "by-default", None).await?;
    networking.vpc_ready(place, "by-default").await?;

    // Another namespace's VPC, of the same tenant or not, is none.
    networking.claim_vpc("acme-b", "theirs", None).await?;
    networking.vpc_ready("acme-b", "theirs").await?;
    networking.claim_subnet(PLACE, "astray", "theirs", "10.7.0.0/24").await?;
    let parts =
        ["VpcClaim theirs", "does not exist", "in this Environment", "create it, or delete this SubnetClaim"];
    says::<SubnetClaim>(networking, (PLACE, "astray"), reason::VPC_NOT_FOUND, &parts).await?;
    Ok(())
}

/// The Event about a claim, type and words.
async fn told_event(client: &kube::Client, namespace: &str, name: &str) -> Result<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    kmetal_e2e::wait::eventually(&format!("an Event about {name}"), PATIENCE, async || {
        let all = events.list(&ListParams::default()).await?;
        let about =
            |event: &&Event| event.regarding.as_ref().is_some_and(|r| r.name.as_deref() == Some(name));
        Ok(all.iter().find(about).map(|event| {
            let part = |text: &Option<String>| text.clone().unwrap_or_default();
            format!(
                "{} {} {} {}",
                part(&event.type_),
                part(&event.reason),
                part(&event.action),
                part(&event.note)
            )
        }))
    })
    .await
}

pub(super) async fn what_is_missing_until_it_is_there(networking: &Networking) -> Result<()> {
    // The subnet before its VPC.
    networking.claim_subnet("acme-b", "early", "late", "10.8.0.0/24").await?;
    let parts =
        ["VpcClaim late", "does not exist", "in this Environment", "create it, or delete this SubnetClaim"];
    says::<SubnetClaim>(networking, ("acme-b", "early"), reason::VPC_NOT_FOUND, &parts).await?;
    networking.claim_vpc("acme-b", "late", None).await?;
    networking.subnet_ready("acme-b", "early").await?;

    // Both in a namespace that becomes an Environment.
    let cluster = networking.under().cluster();
    cluster.apply_yaml("{apiVersion: v1, kind: Namespace, metadata: {name: nobodys}}").await?;
    networking.claim_vpc("nobodys", "net", None).await?;
    networking.claim_subnet("nobodys", "front", "net", "10.1.0.0/24").await?;
    let parts =
        |kind: &'static str| ["namespace nobodys", "belongs to no Capsule Tenant", kind, "create the"];
    says::<VpcClaim>(networking, ("nobodys", "net"), reason::NOT_AN_ENVIRONMENT, &parts("VpcClaim")).await?;
    says::<SubnetClaim>(networking, ("nobodys", "front"), reason::NOT_AN_ENVIRONMENT, &parts("SubnetClaim"))
        .await?;
    Environment::adopt(cluster, "calm", "nobodys").await?;
    networking.vpc_ready("nobodys", "net").await?;
    networking.subnet_ready("nobodys", "front").await.context("after the label came")?;
    Ok(())
}

pub(super) async fn nothing_unusual_of_unusual_names_and_annotations(networking: &Networking) -> Result<()> {
    let long = format!("a{}z", "-0".repeat(30) + "1");
    ensure!(long.len() == 63);
    claim(networking, "VpcClaim", ("acme-b", &long), json!({})).await?;
    claim(networking, "SubnetClaim", ("acme-b", &long), json!({"vpc": long, "cidr": "10.1.0.0/24"})).await?;
    claim(networking, "SubnetClaim", ("acme-b", "7"), json!({"vpc": long, "cidr": "10.2.0.0/24"})).await?;
    // As much as Kubernetes stores: a quarter of a MiB, in every script, and right to left.
    let text = "🦀\u{202e}مرحبا\u{0}\u{feff}𝔘\"{{.}}%s\n".repeat(6_000);
    for (kind, name, spec) in [
        ("VpcClaim", "poison", json!({})),
        ("SubnetClaim", "poison", json!({"vpc": "poison", "cidr": "10.1.0.0/24"})),
    ] {
        let annotations = json!({"note": text, "ovn.kubernetes.io/logical_switch": "ovn-default"});
        let metadata = json!({"namespace": "acme-b", "name": name, "annotations": annotations});
        apply(networking, kind, metadata, spec).await?;
    }
    for name in [long.as_str(), "7", "poison"] {
        networking.subnet_ready("acme-b", name).await?;
    }
    let port = networking.under().workload("acme-b", "machine", &long).await?;
    ensure!(port.addresses.len() == 1, "{port:?}");
    Ok(())
}
