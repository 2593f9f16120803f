//! Public addresses: as many as there are, oldest claim first, none twice, none lost.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    condition::{READY, get},
    foreign::kube_ovn::OvnEip,
    networking::{EipClaim, EipClaimSpec, reason},
};
use kmetal_e2e::{
    history::History,
    networking::Networking,
    ovn::provider_network::ProviderNetwork,
    wait::{self, not_ready},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::json;

const ACME: &str = "acme-a";
const GLOBEX: &str = "globex-a";
/// Six hosts: one is the gateway, one goes to the router of the VPC that leaves here.
const SMALL: &str = "203.0.113.0/29";

#[tokio::test(flavor = "multi_thread")]
async fn every_address_has_one_owner_and_the_oldest_claim_is_served_first() -> Result<()> {
    let network = ProviderNetwork::new("internet", SMALL, "203.0.113.1");
    let mut networking = Networking::start("addresses", &[network.into()]).await?;
    networking.environment("acme", ACME).await?;
    networking.environment("globex", GLOBEX).await?;
    let client = networking.under().client().await?;
    let history = History::record(&client, &[ApiResource::erase::<OvnEip>(&())]).await?;
    networking.claim_vpc(ACME, "net", Some("")).await?;
    networking.vpc_ready(ACME, "net").await?;

    a_pool_is_shared_out_by_age(&networking).await?;
    a_wish_is_met_or_refused_without_telling_whose_it_is(&networking).await?;
    a_claim_without_finalizer_gives_its_address_back(&networking).await?;
    a_kill_in_the_middle_changes_nothing(&mut networking).await?;
    no_address_had_two_owners(&history).await?;
    networking.finish();
    Ok(())
}

async fn claims(networking: &Networking, namespace: &str) -> Result<Api<EipClaim>> {
    Ok(Api::namespaced(networking.under().client().await?, namespace))
}

async fn claim(networking: &Networking, namespace: &str, name: &str, address: Option<&str>) -> Result<()> {
    let spec = EipClaimSpec { provider_network: None, address: address.map(Into::into) };
    let claims = claims(networking, namespace).await?;
    claims.create(&PostParams::default(), &EipClaim::new(name, spec)).await?;
    Ok(())
}

async fn ready(networking: &Networking, namespace: &str, name: &str) -> Result<String> {
    let cluster = networking.under().cluster();
    let claim: EipClaim = cluster.wait_condition(Some(namespace), name, wait::READY).await?;
    claim.status.and_then(|status| status.address).context("ready without an address")
}

async fn says(networking: &Networking, namespace: &str, name: &str, reason: &str) -> Result<String> {
    let cluster = networking.under().cluster();
    let claim: EipClaim = cluster.wait_condition(Some(namespace), name, not_ready(reason)).await?;
    let conditions = claim.status.unwrap_or_default().conditions;
    Ok(get(&conditions, READY).context("no Ready")?.message.clone())
}

async fn gone(networking: &Networking, namespace: &str, name: &str) -> Result<()> {
    claims(networking, namespace).await?.delete(name, &DeleteParams::default()).await?;
    networking.under().cluster().wait_gone::<EipClaim>(Some(namespace), name).await
}

async fn a_pool_is_shared_out_by_age(networking: &Networking) -> Result<()> {
    let mut addresses = BTreeSet::new();
    for number in 1..=4 {
        claim(networking, ACME, &format!("a{number}"), None).await?;
        addresses.insert(ready(networking, ACME, &format!("a{number}")).await?);
    }
    ensure!(addresses.len() == 4, "four claims, these addresses: {addresses:?}");
    // Time stamps of the API server are whole seconds, and the age decides.
    for name in ["b1", "b2"] {
        claim(networking, GLOBEX, name, None).await?;
        says(networking, GLOBEX, name, reason::POOL_EXHAUSTED).await?;
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    gone(networking, ACME, "a2").await?;
    let given = ready(networking, GLOBEX, "b1").await?;
    ensure!(addresses.contains(&given), "{given} is none of {addresses:?}");
    says(networking, GLOBEX, "b2", reason::POOL_EXHAUSTED).await?;
    gone(networking, GLOBEX, "b2").await
}

async fn a_wish_is_met_or_refused_without_telling_whose_it_is(networking: &Networking) -> Result<()> {
    let theirs = ready(networking, GLOBEX, "b1").await?;
    claim(networking, ACME, "theirs", Some(&theirs)).await?;
    claim(networking, ACME, "gateway", Some("203.0.113.1")).await?;
    claim(networking, ACME, "outside", Some("203.0.113.9")).await?;
    let of_theirs = says(networking, ACME, "theirs", reason::ADDRESS_UNAVAILABLE).await?;
    let of_gateway = says(networking, ACME, "gateway", reason::ADDRESS_UNAVAILABLE).await?;
    ensure!(of_theirs == of_gateway, "'{of_theirs}' and '{of_gateway}' tell more than they should");
    says(networking, ACME, "outside", reason::ADDRESS_OUT_OF_RANGE).await?;
    gone(networking, GLOBEX, "b1").await?;
    let got = ready(networking, ACME, "theirs").await?;
    ensure!(got == theirs, "asked for {theirs}, got {got}");
    for name in ["gateway", "outside"] {
        gone(networking, ACME, name).await?;
    }
    Ok(())
}

async fn a_claim_without_finalizer_gives_its_address_back(networking: &Networking) -> Result<()> {
    claim(networking, GLOBEX, "next", None).await?;
    says(networking, GLOBEX, "next", reason::POOL_EXHAUSTED).await?;
    let strip = json!({"metadata": {"finalizers": null}});
    let acme = claims(networking, ACME).await?;
    acme.patch("a1", &PatchParams::default(), &Patch::Merge(&strip)).await?;
    acme.delete("a1", &DeleteParams::default()).await?;
    ready(networking, GLOBEX, "next").await?;
    Ok(())
}

async fn a_kill_in_the_middle_changes_nothing(networking: &mut Networking) -> Result<()> {
    gone(networking, ACME, "a3").await?;
    claim(networking, ACME, "killed", None).await?;
    networking.controller().kill()?;
    networking.controller_mut().restart()?;
    ready(networking, ACME, "killed").await?;
    gone(networking, ACME, "killed").await?;
    networking.controller().kill()?;
    networking.controller_mut().restart()?;
    let cluster = networking.under().cluster();
    cluster
        .wait_for("as many OvnEips as owners")
        .await?
        .until(async || Ok(balance(networking).await?.then_some(())))
        .await
}

/// Every OvnEip is a claim's or a router's, and every claim that is Ready has one.
async fn balance(networking: &Networking) -> Result<bool> {
    let client = networking.under().client().await?;
    let eips = Api::<OvnEip>::all(client.clone()).list(&ListParams::default()).await?.items;
    let claims = Api::<EipClaim>::all(client).list(&ListParams::default()).await?.items;
    let ready =
        claims.iter().filter(|claim| claim.status.as_ref().is_some_and(|status| status.address.is_some()));
    Ok(eips.len() == ready.count() + 1)
}

/// At every moment an address belongs to one OvnEip.
async fn no_address_had_two_owners(history: &History) -> Result<()> {
    history.caught_up().await?;
    history.replay()?.always(|moment| {
        let mut owners = BTreeMap::new();
        for eip in moment.all::<OvnEip>() {
            let address = eip.data.pointer("/status/v4Ip").and_then(serde_json::Value::as_str);
            let Some(address) = address.filter(|address| !address.is_empty()) else { continue };
            let other = owners.insert(address, eip.name_any());
            ensure!(other.is_none(), "{address} belongs to {other:?} and {} at once", eip.name_any());
        }
        Ok(())
    })?;
    Ok(())
}
