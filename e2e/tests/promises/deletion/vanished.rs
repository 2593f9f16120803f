//! A VPC whose claim waits to go, or is gone while machines still stand in it: it stays closed against whatever the
//! platform adds, it holds up nobody else, and an address that no claim counts is given back at once.

use std::time::Duration;

use anyhow::{Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::{OvnEip, OvnSnatRule, Vpc},
    networking::{VpcClaim, reason},
};
use kmetal_e2e::networking::{self, Networking};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use super::{delete_subnet, delete_vpc, internet, machine_in_vpc, stop_machine};
use crate::remains::Before;

const ENVIRONMENT: &str = "acme-prod";
/// What the platform protects later.
const ADDED: &str = "172.31.0.0/16";

#[tokio::test(flavor = "multi_thread")]
async fn a_vpc_that_outlives_its_claim_stays_closed_and_loses_its_address() -> Result<()> {
    let mut networking = Networking::start("vanished", &[internet()]).await?;
    let before = Before::claims(&networking).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    machine_in_vpc(&networking, ENVIRONMENT, 1).await?;
    machine_in_vpc(&networking, ENVIRONMENT, 2).await?;

    delete_vpc(&networking, ENVIRONMENT, "net1").await?;
    networking.vpc_says(ENVIRONMENT, "net1", reason::IN_USE).await?;
    tear_out(&networking, "net2").await?;
    networking.subnet_says(ENVIRONMENT, "front2", reason::VPC_NOT_FOUND).await?;
    only_the_first_keeps_its_way_out(&networking).await?;

    let mut values = networking::values(&[internet()]);
    if let Some(protected) = values["platform"]["protectedCIDRs"].as_array_mut() {
        protected.push(json!(ADDED));
    }
    networking.reconfigure(values).await?;
    each_drops(&networking, &format!("ip4.dst == {ADDED}")).await?;

    for number in [1, 2] {
        stop_machine(&networking, ENVIRONMENT, &format!("machine{number}")).await?;
        delete_subnet(&networking, ENVIRONMENT, &format!("front{number}")).await?;
    }
    before.nothing_is_left(&networking).await?;
    networking.finish();
    Ok(())
}

async fn tear_out(networking: &Networking, name: &str) -> Result<()> {
    let claims: Api<VpcClaim> = Api::namespaced(networking.under().client().await?, ENVIRONMENT);
    delete_vpc(networking, ENVIRONMENT, name).await?;
    let nothing = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    claims.patch(name, &PatchParams::default(), &nothing).await?;
    networking.under().cluster().wait_gone::<VpcClaim>(Some(ENVIRONMENT), name).await
}

async fn vpcs(networking: &Networking) -> Result<Vec<Vpc>> {
    let ours = ListParams::default().labels("kmetal.clastix.io/claim-kind=VpcClaim");
    Ok(Api::<Vpc>::all(networking.under().client().await?).list(&ours).await?.items)
}

async fn only_the_first_keeps_its_way_out(networking: &Networking) -> Result<()> {
    let client = networking.under().client().await?;
    let (eips, rules) = (Api::<OvnEip>::all(client.clone()), Api::<OvnSnatRule>::all(client));
    let wait =
        networking.under().cluster().wait_for("the address of the vanished claim is given back").await?;
    // Where Kube-OVN forgets the address, it takes half a minute until that is noticed and mended.
    wait.within(Duration::from_mins(3))
        .showing_all::<Vpc>(None)
        .showing_all::<OvnEip>(None)
        .until(async || {
            let left = eips.list(&ListParams::default()).await?.items.len();
            let nat = rules.list(&ListParams::default()).await?.items.len();
            Ok((left == 1 && nat == 1).then_some(()))
        })
        .await?;
    for vpc in vpcs(networking).await? {
        let first = vpc.name_any().contains("net1");
        ensure!(vpc.spec.enable_external == first, "{}: {:?}", vpc.name_any(), vpc.spec);
    }
    Ok(())
}

async fn each_drops(networking: &Networking, wanted: &str) -> Result<()> {
    let wait = networking.under().cluster().wait_for(format!("every Vpc drops {wanted}")).await?;
    wait.showing_all::<Vpc>(None)
        .until(async || {
            let vpcs = vpcs(networking).await?;
            let drop = |vpc: &Vpc| {
                vpc.spec.policy_routes.iter().any(|route| route.match_ == wanted && route.action == "drop")
            };
            Ok((vpcs.len() == 2 && vpcs.iter().all(drop)).then_some(()))
        })
        .await
}
