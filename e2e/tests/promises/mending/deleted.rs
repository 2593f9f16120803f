//! Objects of ours that somebody deletes: what is in use works on, and what has gone is made again with its address.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::{OvnEip, Vpc},
    networking::VpcClaim,
};
use kmetal_e2e::{
    history::History,
    isolation::always_closed,
    networking::{self, Networking},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
    core::ApiResource,
};
use serde_json::json;

use super::{ENVIRONMENT, address, claim_address, internet, subnet, way_out};
use crate::remains::Before;

/// What the platform protects later.
const ADDED: &str = "172.31.0.0/16";
/// Detaching and attaching takes Kube-OVN its time, and more where it forgets something.
const MENDED_WITHIN: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_deletes_works_on_or_comes_back_with_its_address() -> Result<()> {
    let mut networking = Networking::start("deleted", &[internet()]).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;
    let history =
        History::record(&networking.under().client().await?, &[ApiResource::erase::<Vpc>(&())]).await?;
    networking.claim_vpc(ENVIRONMENT, "net", Some("")).await?;
    networking.claim_vpc(ENVIRONMENT, "empty", Some("")).await?;
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    way_out(&networking, "net").await?;
    subnet(&networking, "front").await?;
    claim_address(&networking, "first").await?;
    claim_address(&networking, "shop").await?;
    networking.under().workload(ENVIRONMENT, "machine", "front").await?;

    an_address_of_a_claim(&networking).await?;
    a_routers_address_that_nothing_uses(&networking).await?;
    a_routers_address_that_machines_leave_with(&networking).await?;
    let values = a_vpc_in_which_machines_stand(&mut networking).await?;

    history.caught_up().await?;
    always_closed(&history, &[networking::values(&[internet()]), values])?;
    for (kind, name) in
        [("vpcclaim", "net"), ("vpcclaim", "empty"), ("eipclaim", "shop"), ("eipclaim", "first")]
    {
        let delete = ["-n", ENVIRONMENT, "delete", kind, name, "--wait=false"];
        networking.under().cluster().kubectl(&delete).await?;
    }
    before.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}

/// Deletes an object of Kube-OVN's as an administrator would; which one it was.
async fn delete_eip(networking: &Networking, name: &str) -> Result<String> {
    let eips: Api<OvnEip> = Api::all(networking.under().client().await?);
    let uid = eips.get(name).await?.uid().context("no uid")?;
    eips.delete(name, &DeleteParams::default()).await?;
    Ok(uid)
}

/// Waits until this OvnEip is another one than the one that was deleted.
async fn made_again(networking: &Networking, name: &str, old: &str) -> Result<()> {
    let eips: Api<OvnEip> = Api::all(networking.under().client().await?);
    let wait = networking.under().cluster().wait_for(format!("OvnEip {name} is made again")).await?;
    wait.within(MENDED_WITHIN)
        .showing_all::<Vpc>(None)
        .showing_all::<OvnEip>(None)
        .showing_all::<VpcClaim>(None)
        .until(async || {
            Ok(eips.get_opt(name).await?.filter(|eip| eip.uid().as_deref() != Some(old)).map(drop))
        })
        .await
}

/// Waits until the router of a Vpc has its port on the segment, with this address.
async fn attached_with(networking: &Networking, vpc: &str, address: &str) -> Result<()> {
    let port = format!("name={vpc}-internet");
    let wait = networking.under().cluster().wait_for(format!("{vpc} is attached with {address}")).await?;
    wait.within(MENDED_WITHIN)
        .showing_all::<Vpc>(None)
        .showing_all::<OvnEip>(None)
        .showing_all::<VpcClaim>(None)
        .until(async || {
            let find = ["--bare", "--columns=networks", "find", "Logical_Router_Port", &port];
            let networks = networking.under().ovn().nbctl(&find).await?;
            ensure!(networks.trim() == format!("{address}/24"), "its networks are '{}'", networks.trim());
            Ok(Some(()))
        })
        .await
}

async fn an_address_of_a_claim(networking: &Networking) -> Result<()> {
    let had = address(networking, "shop").await?;
    let eips: Api<OvnEip> = Api::all(networking.under().client().await?);
    let all = eips.list(&ListParams::default()).await?.items;
    let eip = all.iter().find(|eip| eip.spec.v4_ip.as_ref() == Some(&had)).context("no OvnEip")?.name_any();
    let old = delete_eip(networking, &eip).await?;
    made_again(networking, &eip, &old).await?;
    let has = address(networking, "shop").await?;
    ensure!(has == had, "it had {had} and has {has}");
    Ok(())
}

async fn a_routers_address_that_nothing_uses(networking: &Networking) -> Result<()> {
    let (vpc, had) = way_out(networking, "empty").await?;
    let old = delete_eip(networking, &format!("{vpc}-internet")).await?;
    made_again(networking, &format!("{vpc}-internet"), &old).await?;
    attached_with(networking, &vpc, &had).await?;
    ensure!(way_out(networking, "empty").await? == (vpc, had), "another address");
    Ok(())
}

/// It stays for as long as the rule of a subnet uses it, and then comes again.
async fn a_routers_address_that_machines_leave_with(networking: &Networking) -> Result<()> {
    let (vpc, had) = way_out(networking, "net").await?;
    let old = delete_eip(networking, &format!("{vpc}-internet")).await?;
    says(networking, "net", "somebody has deleted its router's OvnEip").await?;
    leaves_with(networking, &vpc, &had).await?;

    networking.under().stop_workload(ENVIRONMENT, "machine").await?;
    let subnet = ["-n", ENVIRONMENT, "delete", "subnetclaim", "front"];
    networking.under().cluster().kubectl(&subnet).await?;
    made_again(networking, &format!("{vpc}-internet"), &old).await?;
    attached_with(networking, &vpc, &had).await?;
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    networking.under().workload(ENVIRONMENT, "machine", "front").await?;
    ensure!(way_out(networking, "net").await?.1 == had, "another address");
    leaves_with(networking, &vpc, &had).await?;

    // The same of one that was asked for by address, which Kube-OVN does not hold by itself.
    delete_eip(networking, &format!("{vpc}-internet")).await?;
    says(networking, "net", "somebody has deleted its router's OvnEip").await?;
    attached_with(networking, &vpc, &had).await?;
    leaves_with(networking, &vpc, &had).await
}

/// Kube-OVN keeps it until the last Subnet is gone: so long it works and is kept closed. Then it is made anew.
async fn a_vpc_in_which_machines_stand(networking: &mut Networking) -> Result<serde_json::Value> {
    let (vpc, had) = way_out(networking, "net").await?;
    let vpcs: Api<Vpc> = Api::all(networking.under().client().await?);
    let old = vpcs.get(&vpc).await?.uid();
    vpcs.delete(&vpc, &DeleteParams::default()).await?;
    says(networking, "net", "somebody has deleted that Vpc").await?;
    leaves_with(networking, &vpc, &had).await?;

    let mut values = networking::values(&[internet()]);
    values["platform"]["protectedCIDRs"].as_array_mut().context("no list")?.push(json!(ADDED));
    networking.reconfigure(values.clone()).await?;
    let dropped = format!("ip4.dst == {ADDED}");
    let wait = networking.under().cluster().wait_for("OVN drops what the platform added").await?;
    wait.showing::<Vpc>(None, &vpc)
        .until(async || {
            Ok(networking
                .under()
                .ovn()
                .nbctl(&["lr-policy-list", &vpc])
                .await?
                .contains(&dropped)
                .then_some(()))
        })
        .await?;
    // More machines come, and another subnet.
    networking.claim_subnet(ENVIRONMENT, "back", "net", "10.2.0.0/24").await?;
    networking.subnet_ready(ENVIRONMENT, "back").await?;
    networking.under().workload(ENVIRONMENT, "another", "back").await?;

    for (machine, subnet) in [("machine", "front"), ("another", "back")] {
        networking.under().stop_workload(ENVIRONMENT, machine).await?;
        networking.under().cluster().kubectl(&["-n", ENVIRONMENT, "delete", "subnetclaim", subnet]).await?;
    }
    let wait = networking.under().cluster().wait_for(format!("Vpc {vpc} is made again")).await?;
    wait.showing::<VpcClaim>(Some(ENVIRONMENT), "net")
        .until(async || Ok(vpcs.get_opt(&vpc).await?.filter(|now| now.uid() != old).map(drop)))
        .await?;
    attached_with(networking, &vpc, &had).await?;
    ensure!(way_out(networking, "net").await? == (vpc.clone(), had.clone()), "another address");
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    leaves_with(networking, &vpc, &had).await?;
    networking.under().cluster().kubectl(&["-n", ENVIRONMENT, "delete", "subnetclaim", "front"]).await?;
    Ok(values)
}

/// Waits until a claim is Ready and says this besides.
async fn says(networking: &Networking, name: &str, what: &str) -> Result<()> {
    let wait = networking.under().cluster().wait_for(format!("VpcClaim {name} says '{what}'")).await?;
    wait.showing::<VpcClaim>(Some(ENVIRONMENT), name)
        .until(async || {
            let claim = networking.vpc_ready(ENVIRONMENT, name).await?;
            let conditions = claim.status.map(|status| status.conditions).unwrap_or_default();
            let ready = kmetal_crds::condition::get(&conditions, "Ready").context("no Ready")?;
            Ok(ready.message.contains(what).then_some(()))
        })
        .await
}

/// Whether OVN translates the machines of front to this address.
async fn leaves_with(networking: &Networking, vpc: &str, address: &str) -> Result<()> {
    let nat = networking.under().ovn().nbctl(&["lr-nat-list", vpc]).await?;
    ensure!(nat.contains(address) && nat.contains("10.1.0.0/24"), "OVN has\n{nat}");
    Ok(())
}
