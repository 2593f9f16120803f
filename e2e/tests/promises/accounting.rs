//! The books of public addresses: who asked first has it, nobody has another's, and what is free and what is had make
//! up the pool, whenever kmetal-networking dies.

mod exclusive;
mod storm;
mod waiters;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    condition::{self, READY},
    foreign::kube_ovn::OvnEip,
    networking::{EipClaim, EipClaimSpec},
};
use kmetal_e2e::{
    history::History,
    networking::{self, Networking},
    ovn::{provider_network::ProviderNetwork, under_cluster::UnderCluster},
    wait::Wait,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::Value;

use crate::remains::Before;

const ACME: &str = "acme-prod";
const GLOBEX: &str = "globex-prod";
/// The provider network where addresses are scarce, and the default.
const INTERNET: &str = "internet";
/// The one that routers leave by.
const PARTNER: &str = "partner";
/// How many addresses of the scarce one can be had: fourteen hosts, one is the gateway.
const POOL: usize = 13;

/// Two tenants and two provider networks.
struct World {
    networking: Networking,
    client: Client,
    before: Before,
}

impl World {
    async fn start(name: &str) -> Result<Self> {
        let networks = [
            ProviderNetwork::new(INTERNET, "203.0.113.0/28", "203.0.113.1"),
            ProviderNetwork::new(PARTNER, "198.51.100.0/24", "198.51.100.1"),
        ];
        let under = UnderCluster::start(name).await?;
        under.provider_networks(&networks).await?;
        let networking = Networking::install(under, networking::values(&networks.map(Into::into))).await?;
        networking.controller().ready(networking.under().cluster()).await?;
        networking.environment("acme", ACME).await?;
        networking.environment("globex", GLOBEX).await?;
        let client = networking.under().client().await?;
        let before = Before::claims(&networking).await?;
        Ok(Self { networking, client, before })
    }

    async fn finish(self) -> Result<()> {
        self.before.nothing_is_left(&self.networking).await?;
        self.networking.finish();
        Ok(())
    }

    /// Records who has which address.
    async fn record(&self) -> Result<History> {
        let kinds = [ApiResource::erase::<OvnEip>(&()), ApiResource::erase::<EipClaim>(&())];
        History::record(&self.client, &kinds).await
    }

    /// A wait that shows every claim for an address when it fails.
    async fn wait_for(&self, what: &str) -> Result<Wait> {
        Ok(self.networking.under().cluster().wait_for(what).await?.showing_all::<EipClaim>(None))
    }

    async fn claim(&self, namespace: &str, name: &str, address: Option<&str>) -> Result<()> {
        self.claim_on(None, namespace, name, address).await
    }

    async fn claim_on(
        &self,
        network: Option<&str>,
        namespace: &str,
        name: &str,
        address: Option<&str>,
    ) -> Result<()> {
        let spec =
            EipClaimSpec { provider_network: network.map(Into::into), address: address.map(Into::into) };
        let claims: Api<EipClaim> = Api::namespaced(self.client.clone(), namespace);
        claims.create(&PostParams::default(), &EipClaim::new(name, spec)).await?;
        Ok(())
    }

    /// Asks for an EipClaim's deletion.
    async fn give_back(&self, namespace: &str, name: &str) -> Result<()> {
        let claims: Api<EipClaim> = Api::namespaced(self.client.clone(), namespace);
        claims.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Every EipClaim.
    async fn claims(&self) -> Result<Vec<EipClaim>> {
        let claims: Api<EipClaim> = Api::all(self.client.clone());
        Ok(claims.list(&ListParams::default()).await?.items)
    }

    /// Deletes every EipClaim, and waits until none is left.
    async fn give_all_back(&self) -> Result<()> {
        for namespace in [ACME, GLOBEX] {
            let claims: Api<EipClaim> = Api::namespaced(self.client.clone(), namespace);
            claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        }
        let wait = self.wait_for("no EipClaim is left").await?;
        wait.until(async || Ok(self.claims().await?.is_empty().then_some(()))).await
    }
}

/// The address that a claim shows as its own.
fn address(claim: &EipClaim) -> Option<&str> {
    claim.status.as_ref()?.address.as_deref()
}

fn is_deleting(claim: &EipClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some()
}

fn is_ready(claim: &EipClaim) -> bool {
    !is_deleting(claim) && told(claim).is_some_and(|(ready, ..)| ready)
}

/// Whether it is Ready, the reason, and the message.
fn told(claim: &EipClaim) -> Option<(bool, &str, &str)> {
    let ready = condition::get(&claim.status.as_ref()?.conditions, READY)?;
    Some((ready.status == "True", &ready.reason, &ready.message))
}

/// Whether it is told to wait for this reason.
fn waits(claim: &EipClaim, reason: &str) -> bool {
    told(claim).is_some_and(|(ready, why, _)| !ready && why == reason)
}

fn id(claim: &EipClaim) -> (String, String) {
    (claim.namespace().unwrap_or_default(), claim.name_any())
}

/// At every moment an address is one OvnEip's, asked for or given, and one living claim shows it.
async fn every_address_had_one_owner(history: &History) -> Result<()> {
    history.caught_up().await?;
    history.replay()?.always(|moment| {
        once(moment.all::<OvnEip>(), &["/status/v4Ip", "/spec/v4Ip"])?;
        let living = |claim: &&DynamicObject| claim.metadata.deletion_timestamp.is_none();
        once(moment.all::<EipClaim>().filter(living), &["/status/address"])
    })?;
    Ok(())
}

/// No two of these objects have one address, by the first of these fields that has one.
fn once<'a>(objects: impl Iterator<Item = &'a DynamicObject>, fields: &[&str]) -> Result<()> {
    let mut owners = BTreeMap::new();
    for object in objects {
        let texts = fields.iter().filter_map(|field| object.data.pointer(field).and_then(Value::as_str));
        let Some(address) = texts.into_iter().find(|text| !text.is_empty()) else { continue };
        let other = owners.insert(address, object.name_any());
        ensure!(other.is_none(), "{address} is {other:?}'s and {}'s at once", object.name_any());
    }
    Ok(())
}

/// When the API server says that it was created: the age that decides.
fn created(object: &DynamicObject) -> Result<i64> {
    Ok(object.metadata.creation_timestamp.as_ref().context("no creationTimestamp")?.0.as_second())
}

/// Whenever an OvnEip was made for a claim, each older claim that waited had an address left for it. At least so many
/// claims were served.
fn nobody_was_overtaken(history: &History, claims: usize) -> Result<()> {
    let served = RefCell::new(BTreeSet::new());
    history.replay()?.always(|moment| {
        let changed = moment.changed.filter(|version| !version.deleted).map(|version| &version.object);
        let is_eip =
            |object: &&DynamicObject| object.types.as_ref().is_some_and(|types| types.kind == "OvnEip");
        match changed.filter(is_eip).filter(|eip| waiters::claim_of(eip).is_some()) {
            Some(eip) if served.borrow_mut().insert(eip.uid()) => {
                waiters::leaves_room_for_the_older(moment, eip)
            }
            _ => Ok(()),
        }
    })?;
    let served = served.borrow().len();
    ensure!(served >= claims, "only {served} of {claims} claims were served");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_have_one_owner_by_age_and_are_all_accounted_for_after_a_storm() -> Result<()> {
    let mut world = World::start("accounting").await?;
    storm::free_and_had_make_up_the_pool(&mut world).await?;
    exclusive::one_of_many_gets_it(&world, 3).await?;
    waiters::the_oldest_is_next_and_nobody_starves(&world).await?;
    world.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "exhaustive: cargo e2e --full"]
async fn of_many_that_ask_for_one_address_one_gets_it_every_time() -> Result<()> {
    let world = World::start("accounting-full").await?;
    exclusive::one_of_many_gets_it(&world, 200).await?;
    world.finish().await
}
