//! A VPC, a subnet in it and an address, deleted in every order, whatever kmetal-networking dies of on the way: rules go
//! before Subnets, Subnets before their Vpc, and each claim stays until nothing stands for it.
//!
//! All six orders are told side by side, each in an Environment of its own, by whose name its writes are told from the
//! others'. So a telling with a cut in each order kills the process six times, each time exactly where that order's cut is.

mod outlives;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::{
    FutureExt,
    future::{pending, select_all, try_join_all},
};
use kmetal_crds::networking::{EipClaim, EipClaimSpec, SubnetClaim, VpcClaim};
use kmetal_e2e::{
    controller::Circumstances,
    faults::{Gate, Proxy, Select},
    networking::{self, Networking},
    ovn::{provider_network::ProviderNetwork, under_cluster::UnderCluster},
    wait::{self, eventually},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams},
    core::{ApiResource, DynamicObject},
};

use crate::{chance::chance, remains::Before};

/// Every order of a (v)pc, a (s)ubnet and an (e)ip.
const ORDERS: [&str; 6] = ["vse", "ves", "sve", "sev", "evs", "esv"];
/// All of them with restarts in between may take Kube-OVN a while.
const ENDED_WITHIN: Duration = Duration::from_mins(4);

/// Where the process is killed: at this write of an order, when the API server has answered it or before it came there.
#[derive(Debug, Clone, Copy)]
struct Cut {
    order: &'static str,
    nth: u64,
    applied: bool,
}

/// What a telling came to.
struct Told {
    /// The writes of each order.
    writes: [u64; ORDERS.len()],
    /// How often the process was killed.
    kills: usize,
}

struct Stage {
    networking: Networking,
    proxy: Proxy,
    client: Client,
    before: Before,
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_in_any_order_the_vpc_outlives_its_subnets_and_these_their_rules() -> Result<()> {
    let mut chance = chance("orders")?;
    let mut stage = Stage::start("orders").await?;
    let told = stage.tell(&[], false).await?;
    eprintln!("{ORDERS:?} take {:?} writes", told.writes);
    let cuts: Vec<Cut> = ORDERS
        .into_iter()
        .zip(told.writes)
        .map(|(order, writes)| Cut { order, nth: chance.u64(1..=writes), applied: chance.bool() })
        .collect();
    let hasty = chance.bool();
    let told =
        stage.tell(&cuts, hasty).await.with_context(|| format!("killed at {cuts:?}, hasty: {hasty}"))?;
    // A restarted process need not say again what it has said: some writes are not made that time.
    ensure!(told.kills * 2 >= cuts.len(), "killed only {} times at {cuts:?}", told.kills);
    stage.finish();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "exhaustive: cargo e2e --full"]
async fn killed_at_every_write_of_every_order_it_keeps_the_order() -> Result<()> {
    let mut stage = Stage::start("orders-full").await?;
    let (mut kills, mut planned) = (0, 0);
    for hasty in [false, true] {
        let undisturbed = stage.tell(&[], hasty).await?.writes;
        for nth in 1..=undisturbed.into_iter().max().unwrap_or_default() {
            for applied in [true, false] {
                let orders = ORDERS.into_iter().zip(undisturbed).filter(|(_, writes)| nth <= *writes);
                let cuts: Vec<Cut> = orders.map(|(order, _)| Cut { order, nth, applied }).collect();
                let told = stage.tell(&cuts, hasty).await;
                kills += told.with_context(|| format!("killed at {cuts:?}, hasty: {hasty}"))?.kills;
                planned += cuts.len();
            }
        }
    }
    ensure!(kills * 2 >= planned, "killed only {kills} times of {planned}");
    stage.finish();
    Ok(())
}

fn environment(order: &str) -> String {
    format!("acme-{order}")
}

/// What the process writes for this order.
fn writes_of(order: &str) -> Select {
    let environment = environment(order);
    Select::useful_writes().and(&Select::new(move |asked| asked.path.contains(&environment)))
}

impl Stage {
    async fn start(name: &str) -> Result<Self> {
        let network = ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1");
        let under = UnderCluster::start(name).await?;
        under.provider_networks(std::slice::from_ref(&network)).await?;
        let proxy = Proxy::before(under.cluster()).await?;
        let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
        let values = networking::values(&[network.into()]);
        let networking = Networking::install_in(under, values, &circumstances).await?;
        networking.controller().ready(networking.under().cluster()).await?;
        for order in ORDERS {
            networking.environment("acme", &environment(order)).await?;
        }
        let client = networking.under().client().await?;
        let before = Before::claims(&networking).await?;
        Ok(Self { networking, proxy, client, before })
    }

    fn finish(self) {
        let Self { networking, proxy, .. } = self;
        networking.finish();
        drop(proxy);
    }

    /// Builds the three for each order, deletes them in that order with these cuts, and judges every stored version.
    /// Hasty: all deletions of an order at once; else each when something has been said of the one before.
    async fn tell(&mut self, cuts: &[Cut], hasty: bool) -> Result<Told> {
        self.build().await?;
        let history = outlives::record(&self.client).await?;
        let begun = self.proxy.log().len();
        let mut gates: Vec<Gate> = cuts.iter().map(|cut| self.gate(*cut)).collect();
        let client = self.client.clone();
        let mut ended = std::pin::pin!(async {
            try_join_all(ORDERS.map(|order| delete(&client, order, hasty))).await?;
            eventually("all claims are gone", ENDED_WITHIN, async || {
                Ok(none_left(&client).await?.then_some(()))
            })
            .await
        });
        let mut kills = 0;
        loop {
            tokio::select! {
                biased;
                reached = any(&gates) => reached?,
                ended = &mut ended => break ended?,
            }
            self.networking.controller().kill()?;
            let (reached, ahead): (Vec<Gate>, Vec<Gate>) =
                gates.into_iter().partition(|gate| gate.held() > 0);
            reached.into_iter().for_each(Gate::abandon);
            gates = ahead;
            self.networking.start_again().await?;
            kills += 1;
        }
        drop(gates);
        self.before.nothing_is_left(&self.networking).await?;
        outlives::judge(&history).await?;
        let log = self.proxy.log();
        let writes = ORDERS.map(|order| {
            let ours = writes_of(order);
            log[begun..].iter().filter(|passed| ours.takes(&passed.asked)).count() as u64
        });
        ensure!(writes.iter().all(|writes| *writes > 0), "some orders took no writes: {writes:?}");
        Ok(Told { writes, kills })
    }

    fn gate(&self, cut: Cut) -> Gate {
        let which = writes_of(cut.order).nth(cut.nth);
        if cut.applied { self.proxy.hold_answer(which) } else { self.proxy.hold_request(which) }
    }

    /// The three, Ready, in each order's Environment.
    async fn build(&self) -> Result<()> {
        for order in ORDERS {
            let namespace = environment(order);
            self.networking.claim_vpc(&namespace, "net", Some("")).await?;
            self.networking.claim_subnet(&namespace, "front", "net", "10.1.0.0/24").await?;
            let eips: Api<EipClaim> = Api::namespaced(self.client.clone(), &namespace);
            eips.create(&PostParams::default(), &EipClaim::new("shop", EipClaimSpec::default())).await?;
        }
        let cluster = self.networking.under().cluster();
        for order in ORDERS {
            let namespace = environment(order);
            self.networking.vpc_ready(&namespace, "net").await?;
            self.networking.subnet_ready(&namespace, "front").await?;
            cluster.wait_condition::<EipClaim>(Some(&namespace), "shop", wait::READY).await?;
        }
        Ok(())
    }
}

/// Waits until something is held at one of these gates.
async fn any(gates: &[Gate]) -> Result<()> {
    if gates.is_empty() {
        return pending().await;
    }
    select_all(gates.iter().map(|gate| gate.reached(ENDED_WITHIN).boxed())).await.0
}

/// Deletes the three of this order.
async fn delete(client: &Client, order: &str, hasty: bool) -> Result<()> {
    let namespace = environment(order);
    for letter in order.chars() {
        let (kind, name) = match letter {
            'v' => (ApiResource::erase::<VpcClaim>(&()), "net"),
            's' => (ApiResource::erase::<SubnetClaim>(&()), "front"),
            'e' => (ApiResource::erase::<EipClaim>(&()), "shop"),
            other => bail!("what is {other}?"),
        };
        let claims: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        claims.delete(name, &DeleteParams::default()).await?;
        if !hasty {
            eventually(&format!("the end of {namespace}/{name} has begun"), ENDED_WITHIN, async || {
                let claim = claims.get_opt(name).await?;
                Ok(claim.is_none_or(|claim| !wait::READY.holds(&claim)).then_some(()))
            })
            .await?;
        }
    }
    Ok(())
}

async fn none_left(client: &Client) -> Result<bool> {
    Ok(none::<VpcClaim>(client).await?
        && none::<SubnetClaim>(client).await?
        && none::<EipClaim>(client).await?)
}

async fn none<K: Resource<DynamicType = ()>>(client: &Client) -> Result<bool> {
    let claims: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    Ok(claims.list(&ListParams::default()).await?.items.is_empty())
}
