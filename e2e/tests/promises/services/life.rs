//! One Service from its first address to its end, and the packets that it gets.

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::OvnDnatRule,
    networking::{EipClaim, VpcClaim, service::reason},
};
use kmetal_e2e::{
    reach::{Reach, public::Socket},
    services::{Services, ports, shown},
    tenant_cluster::Worker,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{ENVIRONMENT, Stage, internet};
use crate::remains::Before;

#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_an_address_is_reached_by_it_and_gives_it_back() -> Result<()> {
    let stage = Stage::start("services").await?;
    let blue = stage.cluster(ENVIRONMENT, "blue").await?;
    let worker = blue.worker(stage.under(), "front", "blue-1").await?;
    let services = Services::of(&blue).await?;
    let before = Before::claims(&stage.networking).await?;
    named(&stage, &services, &worker).await?;
    own(&stage, &services).await?;
    many_ports(&stage, &services).await?;
    kube_ovn_is_waited_for(&stage, &services).await?;
    what_a_hand_has_torn_is_mended(&stage, &services).await?;
    before.is_again(stage.under().ovn()).await?;
    drop(blue);
    stage.finish();
    Ok(())
}

/// A Service that names an EipClaim, with one number in TCP and in UDP.
async fn named(stage: &Stage, services: &Services<'_>, worker: &Worker) -> Result<()> {
    let eip = stage.eip(ENVIRONMENT, "shop", None).await?;
    let spec = json!({"ports": ports(&[(53, "TCP"), (53, "UDP"), (443, "TCP")])});
    services.apply("web", Some("shop"), spec).await?;
    let address = services.address("web").await?;
    ensure!(eip.status.and_then(|status| status.address) == Some(address.to_string()), "{address}");
    let bound = stage.bound(ENVIRONMENT, "shop").await?.context("not bound")?;
    ensure!((&*bound.cluster.name, &*bound.service.name) == ("blue", "web"), "{bound:?}");
    ensure!(stage.rules().await?.len() == 3);
    let vpc_claims: Api<VpcClaim> = Api::namespaced(stage.under().client().await?, ENVIRONMENT);
    let wait = stage.under().cluster().wait_for("the VPC counts the address").await?;
    wait.showing::<VpcClaim>(Some(ENVIRONMENT), "net")
        .until(async || {
            let status = vpc_claims.get("net").await?.status.unwrap_or_default();
            Ok((status.bound_addresses == Some(1)).then_some(()))
        })
        .await?;

    stage.under().ovn().sync().await?;
    let vpc = stage.vpc(ENVIRONMENT).await?;
    stage.under().play_gateway(&internet(), &vpc).await?;
    let reach = Reach::of(stage.under().ovn()).await?;
    for (port, protocol) in [(53, "tcp"), (53, "udp"), (443, "tcp")] {
        let node_port = services.node_port("web", port, &protocol.to_uppercase()).await?;
        let inbound = reach.inbound(&internet(), &vpc, Socket { address, protocol, port }).await?;
        let backend = format!("{}:{node_port}", worker.address()?);
        let arrives = inbound.verdict().is_some_and(|verdict| verdict.is_delivered_to(&worker.port));
        ensure!(arrives && inbound.text().contains(&backend), "{}", inbound.text());
        // The reply gets the public address back, before source NAT could give it the router's.
        let reply = reach.reply(&worker.port, protocol, node_port).await?;
        let line = reply.text().lines().find(|line| line.contains("lr_out_undnat"));
        ensure!(line.is_some_and(|line| line.contains(&node_port.to_string())), "{}", reply.text());
    }
    let closed = Socket { address, protocol: "tcp", port: 80 };
    let inbound = reach.inbound(&internet(), &vpc, closed).await?;
    let arrives = inbound.verdict().is_some_and(|verdict| verdict.is_delivered_to(&worker.port));
    ensure!(!arrives, "a port that the Service does not have: {}", inbound.text());

    services.delete("web").await?;
    services.gone("web").await?;
    stage.nothing_is_bound().await?;
    stage.eips(ENVIRONMENT).await?.delete("shop", &DeleteParams::default()).await?;
    stage.under().cluster().wait_gone::<EipClaim>(Some(ENVIRONMENT), "shop").await
}

/// A Service that names none, and is no load balancer later.
async fn own(stage: &Stage, services: &Services<'_>) -> Result<()> {
    let made = services.apply("own", None, json!({"loadBalancerIP": "203.0.113.77"})).await?;
    let address = services.address("own").await?;
    ensure!(address.to_string() == "203.0.113.77", "{address}");
    let claims = stage.eips(ENVIRONMENT).await?;
    let claim = claims.list(&ListParams::default()).await?.items;
    ensure!(claim.len() == 1 && claim[0].name_any().ends_with(&made.uid().unwrap_or_default()), "{claim:?}");
    ensure!(claim[0].owner_references().iter().any(|owner| owner.kind == "Cluster"));

    services.apply("own", None, json!({"type": "ClusterIP", "loadBalancerIP": null})).await?;
    let wait = stage.under().cluster().wait_for("the Service's own EipClaim is gone").await?;
    wait.until(async || {
        let left = claims.list(&ListParams::default()).await?.items.len();
        Ok((left == 0).then_some(()))
    })
    .await?;
    stage.nothing_is_bound().await?;
    let service = services.api().get("own").await?;
    ensure!(shown(&service).is_none() && service.finalizers().is_empty(), "{service:?}");
    services.delete("own").await?;
    services.gone("own").await
}

async fn many_ports(stage: &Stage, services: &Services<'_>) -> Result<()> {
    let many: Vec<(u16, &str)> = (1..=40).map(|port| (port, "TCP")).collect();
    services.apply("many", None, json!({"ports": ports(&many)})).await?;
    services.address("many").await?;
    ensure!(stage.rules().await?.len() == 40);
    services.apply("many", None, json!({"ports": ports(&many[..39])})).await?;
    let wait = stage.under().cluster().wait_for("the rule of a port that is gone is gone").await?;
    wait.until(async || Ok((stage.rules().await?.len() == 39).then_some(()))).await?;
    services.address("many").await?;
    services.delete("many").await?;
    services.gone("many").await?;
    stage.nothing_is_bound().await
}

/// What is asked for and given back while Kube-OVN is away is made and taken down when it is back.
async fn kube_ovn_is_waited_for(stage: &Stage, services: &Services<'_>) -> Result<()> {
    services.apply("going", None, json!({})).await?;
    stage.eip(ENVIRONMENT, "coming", None).await?;
    services.address("going").await?;
    let kube_ovn = stage.under().kube_ovn();
    kube_ovn.stop().await?;
    services.delete("going").await?;
    services.apply("coming", Some("coming"), json!({})).await?;
    let wait = stage.under().cluster().wait_for("one rule is on its way out and one waits").await?;
    wait.until(async || {
        let rules = stage.rules().await?;
        let going = rules.iter().filter(|rule| rule.metadata.deletion_timestamp.is_some()).count();
        Ok((rules.len() == 2 && going == 1).then_some(()))
    })
    .await?;
    let going = services.api().get("going").await?;
    ensure!(shown(&going).is_none() && !going.finalizers().is_empty(), "{going:?}");
    kube_ovn.start_again().await?;
    stage.under().open_gateway().await?;
    services.gone("going").await?;
    services.address("coming").await?;
    services.delete("coming").await?;
    services.gone("coming").await?;
    stage.nothing_is_bound().await?;
    stage.eips(ENVIRONMENT).await?.delete("coming", &DeleteParams::default()).await?;
    stage.under().cluster().wait_gone::<EipClaim>(Some(ENVIRONMENT), "coming").await
}

/// Rules that an administrator has deleted, changed, or stripped of their labels, and one that they made themselves.
async fn what_a_hand_has_torn_is_mended(stage: &Stage, services: &Services<'_>) -> Result<()> {
    let rules: Api<OvnDnatRule> = Api::all(stage.under().client().await?);
    services.apply("torn", None, json!({})).await?;
    services.address("torn").await?;
    for harm in
        [None, Some(json!({"metadata": {"labels": null}})), Some(json!({"spec": {"v4Ip": "10.1.0.99"}}))]
    {
        let before = stage.rules().await?.pop().context("no rule")?;
        let name = before.name_any();
        match &harm {
            None => drop(rules.delete(&name, &DeleteParams::default()).await?),
            Some(harm) => {
                rules.patch(&name, &PatchParams::default(), &Patch::Merge(harm)).await?;
            }
        }
        let wait = stage.under().cluster().wait_for(format!("a rule is mended after {harm:?}")).await?;
        wait.showing_all::<OvnDnatRule>(None)
            .until(async || {
                let now = stage.rules().await?;
                let [rule] = &now[..] else { anyhow::bail!("{} rules", now.len()) };
                let is_ready = rule.status.as_ref().is_some_and(|status| status.ready);
                Ok((rule.name_any() != name && is_ready && rule.spec == before.spec).then_some(()))
            })
            .await?;
        services.address("torn").await?;
    }
    let theirs = stage.rules().await?.pop().context("no rule")?;
    let mut spec = theirs.spec.clone();
    spec.external_port = "80".into();
    let by_hand = OvnDnatRule::new("by-hand", spec);
    rules.create(&PostParams::default(), &by_hand).await?;
    services.apply("torn", None, json!({"ports": ports(&[(443, "TCP"), (80, "TCP")])})).await?;
    let told = services.says("torn", reason::PORT_TAKEN).await?;
    ensure!(told.contains("OvnDnatRule by-hand"), "{told}");
    rules.delete("by-hand", &DeleteParams::default()).await?;
    services.address("torn").await?;
    ensure!(stage.rules().await?.len() == 2);
    services.delete("torn").await?;
    services.gone("torn").await?;
    stage.nothing_is_bound().await
}
