//! What tenants write, on the real Kube-OVN: nonsense is refused where it is applied or told in the claim, and what is
//! right works, whatever stands beside it.

mod families;
mod manners;
mod people;
mod refused;
mod rivals;
mod told;

use anyhow::{Context, Result, bail};
use kmetal_crds::{
    condition::{READY, get},
    foreign::kube_ovn::Subnet,
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    history::History,
    networking::{Networking, Offer},
    ovn::provider_network::ProviderNetwork,
    wait::not_ready,
};
use kube::core::ApiResource;
use serde_json::{Value, json};

/// `internet` is the default of acme and bolt, `vault` is bolt's alone; calm has neither.
fn offers() -> [Offer; 2] {
    let of = |name, cidr, gateway, tenants: &[&str]| Offer {
        network: ProviderNetwork::new(name, cidr, gateway),
        tenants: tenants.iter().map(|tenant| (*tenant).to_owned()).collect(),
    };
    [
        of("internet", "203.0.113.0/24", "203.0.113.1", &["acme", "bolt"]),
        of("vault", "198.51.100.0/24", "198.51.100.1", &["bolt"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_or_told_and_good_input_goes_on_beside_it() -> Result<()> {
    let networking = Networking::start("input", &offers()).await?;
    let kinds = [ApiResource::erase::<VpcClaim>(&()), ApiResource::erase::<SubnetClaim>(&())];
    let history = History::record(&networking.under().client().await?, &kinds).await?;
    for (tenant, namespace) in
        [("acme", "acme-a"), ("acme", "acme-b"), ("bolt", "bolt-a"), ("calm", "calm-a")]
    {
        networking.environment(tenant, namespace).await?;
    }
    networking.claim_vpc("acme-a", "net", Some("")).await?;

    refused::at_once(&networking).await?;
    told::what_is_wrong_with_a_claim_itself(&networking).await?;
    told::what_stands_in_the_way(&networking).await?;
    told::nothing_about_other_tenants(&networking).await?;
    told::what_is_missing_until_it_is_there(&networking).await?;
    told::nothing_unusual_of_unusual_names_and_annotations(&networking).await?;
    families::each_family_gets_addresses_and_their_options(&networking).await?;
    people::an_editor_claims_and_touches_nothing_else(&networking).await?;

    let wait = ["wait", "--for=condition=Ready", "vpcc/net", "-n", "acme-a", "--timeout=60s"];
    networking.under().cluster().kubectl(&wait).await?;
    history.caught_up().await?;
    manners::of_every_version(&history)?;
    manners::keep_tenants_apart(&networking, &history).await?;
    networking.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_forty_rivals_the_rule_decides_who_gets_a_range() -> Result<()> {
    let mut networking = Networking::start("rivals", &[]).await?;
    let kinds = [ApiResource::erase::<Subnet>(&())];
    let history = History::record(&networking.under().client().await?, &kinds).await?;
    networking.environment("acme", "acme-a").await?;
    rivals::of_a_built_vpc(&networking).await?;
    rivals::while_the_controller_is_killed(&mut networking).await?;
    rivals::that_all_waited_are_served_by_age(&mut networking).await?;
    history.caught_up().await?;
    rivals::never_overlapped(&history)?;
    networking.finish();
    Ok(())
}

/// Applies a claim with this spec.
async fn claim(networking: &Networking, kind: &str, at: (&str, &str), spec: Value) -> Result<()> {
    apply(networking, kind, json!({"namespace": at.0, "name": at.1}), spec).await
}

async fn apply(networking: &Networking, kind: &str, metadata: Value, spec: Value) -> Result<()> {
    let object = json!({
        "apiVersion": format!("{}/{}", kmetal_crds::networking::GROUP, kmetal_crds::names::VERSION),
        "kind": kind, "metadata": metadata, "spec": spec,
    });
    networking.under().cluster().apply(vec![serde_json::from_value(object)?]).await
}

/// What the server says to a claim that it must refuse.
async fn refusal(networking: &Networking, kind: &str, metadata: Value, spec: Value) -> Result<String> {
    let what = format!("{kind} {metadata} {spec}").chars().take(200).collect::<String>();
    match apply(networking, kind, metadata, spec).await {
        Ok(()) => bail!("accepted: {what}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}

/// Waits until a claim is not ready for this reason, and asks of its answer what a person would: what is wrong, with
/// which object, since when, why, and what to do. Returns the answer.
async fn says<K>(networking: &Networking, at: (&str, &str), reason: &str, parts: &[&str]) -> Result<String>
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + serde::Serialize,
{
    let cluster = networking.under().cluster();
    let claim: K = cluster.wait_condition(Some(at.0), at.1, not_ready(reason)).await?;
    let conditions = serde_json::to_value(claim)?["status"]["conditions"].take();
    let conditions: Vec<_> = serde_json::from_value(conditions)?;
    let ready = get(&conditions, READY).context("no Ready")?;
    anyhow::ensure!(parts.len() >= 4, "what, which, why and what to do: {parts:?}");
    for part in parts {
        anyhow::ensure!(ready.message.contains(part), "{at:?}: '{part}' is not in: {}", ready.message);
    }
    // An hour covers the slowest test; what it excludes is a time that was never set.
    let since = ready.last_transition_time.0;
    let now = k8s_openapi::jiff::Timestamp::now();
    anyhow::ensure!((now.as_second() - since.as_second()).abs() < 3600, "{at:?}: since {since}");
    Ok(ready.message.clone())
}
