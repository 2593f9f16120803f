//! kmetal-networking comes and goes: nothing is written without need, and never by two.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kmetal_crds::networking::{SubnetClaim, VpcClaim};
use kmetal_e2e::{
    audit::{Audit, Entry},
    controller::Controller,
    networking::{NAME, NAMESPACE, Networking, values},
    ovn::under_cluster::UnderCluster,
    wait::READY,
};
use kube::{
    Api, Resource,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};

const ENVIRONMENT: &str = "acme-prod";
const VPCS: usize = 40;
const SUBNETS: usize = 4;
/// How many claims a person's script has under way.
const AT_ONCE: usize = 8;
/// All of them may take Kube-OVN a while.
const ALL_BUILT: Duration = Duration::from_mins(4);
/// For so long nothing must be written. Longer than the debounces, sweeps and health checks that might.
const SILENCE: Duration = Duration::from_secs(20);
/// Who wrote nothing for so long has nothing under way.
const CALM: Duration = Duration::from_secs(2);

/// What our processes wrote, but for the Lease.
fn told(since: &Audit) -> Result<Vec<Entry>> {
    let written = since.writes_by(NAMESPACE, NAME)?.into_iter();
    Ok(written.filter(|entry| entry.reference().resource != "leases").collect())
}

/// How many claims of a kind are Ready.
async fn ready<K: Resource<DynamicType = ()>>(networking: &Networking) -> Result<usize> {
    let kind = ApiResource::erase::<K>(&());
    let client = networking.under().client().await?;
    let claims: Api<DynamicObject> = Api::namespaced_with(client, ENVIRONMENT, &kind);
    let all = claims.list(&ListParams::default()).await?;
    Ok(all.items.iter().filter(|claim| READY.holds(claim)).count())
}

/// Claims them all, and waits until they are built.
async fn converged(networking: &Networking) -> Result<()> {
    let vpcs = stream::iter(0..VPCS);
    vpcs.map(async |vpc| networking.claim_vpc(ENVIRONMENT, &format!("net-{vpc}"), None).await)
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    let subnets = stream::iter((0..VPCS).flat_map(|vpc| (0..SUBNETS).map(move |subnet| (vpc, subnet))));
    subnets
        .map(async |(vpc, subnet)| {
            let (name, net) = (format!("s-{vpc}-{subnet}"), format!("net-{vpc}"));
            networking.claim_subnet(ENVIRONMENT, &name, &net, &format!("10.{subnet}.0.0/24")).await
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    let cluster = networking.under().cluster();
    cluster
        .wait_for("all claims are Ready")
        .await?
        .within(ALL_BUILT)
        .until(async || {
            let ready = (ready::<VpcClaim>(networking).await?, ready::<SubnetClaim>(networking).await?);
            ensure!(ready == (VPCS, VPCS * SUBNETS), "{ready:?} are Ready");
            Ok(Some(()))
        })
        .await
}

/// Waits until a replica of this pod, and not the process `but`, leads; returns which process that is.
async fn leader(networking: &Networking, pod: &str, but: &str) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(networking.under().client().await?, NAMESPACE);
    let cluster = networking.under().cluster();
    let wait = cluster.wait_for(format!("{pod} leads")).await?.showing::<Lease>(Some(NAMESPACE), NAME);
    wait.until(async || {
        let holder = leases.get(NAME).await?.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        Ok((holder.starts_with(pod) && holder != but).then_some(holder))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_finds_two_hundred_claims_in_order_and_writes_nothing() -> Result<()> {
    let under = UnderCluster::start("restarts").await?;
    let mut networking = Networking::install(under, values(&[])).await?;
    networking.controller().ready(networking.under().cluster()).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    converged(&networking).await?;
    let first = leader(&networking, "kmetal-networking-0", "").await?;

    // Asked to stop, it gives the Lease back, and the same pod starts again.
    let mark = settled(&networking).await?;
    asked_to_stop(networking.controller()).await?;
    networking.controller_mut().restart()?;
    let second = leader(&networking, "kmetal-networking-0", &first).await?;
    networking.controller().ready(networking.under().cluster()).await?;
    tokio::time::sleep(SILENCE).await;
    nothing_but(&mark, "")?;

    // It stands still: another replica goes on when the Lease has expired. Awake again, it must not do what it had
    // just begun to do, though it hears of the claim only now, and ends.
    let other = Controller::start(networking.under().cluster(), networking.chart(), NAME, 1).await?;
    other.ready(networking.under().cluster()).await?;
    networking.controller().child().pause()?;
    networking.claim_vpc(ENVIRONMENT, "meanwhile", None).await?;
    let third = leader(&networking, "kmetal-networking-1", &second).await?;
    networking.vpc_ready(ENVIRONMENT, "meanwhile").await?;
    let until = settled(&networking).await?;
    nothing_but(&mark, "meanwhile")?;
    networking.controller().child().resume()?;
    let ended = networking.controller().child().wait(Duration::from_secs(20)).await;
    ensure!(ended.is_some_and(|ended| !ended.success()), "without the Lease it goes on: {ended:?}");
    nothing_but(&until, "")?;

    // A replica that stands by takes over at once from one that is asked to stop.
    networking.controller_mut().restart()?;
    networking.controller().ready(networking.under().cluster()).await?;
    asked_to_stop(&other).await?;
    leader(&networking, "kmetal-networking-0", &third).await?;
    networking.claim_vpc(ENVIRONMENT, "afterwards", None).await?;
    networking.vpc_ready(ENVIRONMENT, "afterwards").await?;
    nothing_but(&until, "afterwards")?;
    networking.finish();
    Ok(())
}

async fn asked_to_stop(controller: &Controller) -> Result<()> {
    let ended = controller.terminate(Duration::from_secs(10)).await?;
    ensure!(ended.success(), "asked to stop, it ended with {ended}:\n{}", controller.child().log_tail(20));
    Ok(())
}

/// A mark from which on nothing is due any more.
async fn settled(networking: &Networking) -> Result<Audit> {
    let audit = networking.under().cluster().audit();
    let wait = networking.under().cluster().wait_for("it has no more to write").await?;
    wait.until(async || {
        let mark = audit.mark()?;
        tokio::time::sleep(CALM).await;
        Ok(told(&mark)?.is_empty().then_some(mark))
    })
    .await
}

/// Our processes wrote nothing but what the claim of this name needs, if any is named.
fn nothing_but(since: &Audit, claim: &str) -> Result<()> {
    let needed = |entry: &Entry| {
        let about = entry.reference();
        !claim.is_empty() && (about.resource == "events" || about.name.contains(claim))
    };
    let other: Vec<String> = told(since)?.iter().filter(|entry| !needed(entry)).map(Entry::line).collect();
    ensure!(other.is_empty(), "{} writes, the first: {:#?}", other.len(), &other[..other.len().min(10)]);
    Ok(())
}
