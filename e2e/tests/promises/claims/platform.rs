//! What the platform's engineers state, forget and change, while the process runs.

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::Vpc,
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    networking::{Networking, PLATFORM, values},
    ovn::under_cluster::UnderCluster,
};
use kube::{Api, api::DeleteParams};
use serde_json::json;

use super::{ENVIRONMENT, internet, partner};
use crate::remains::Before;

async fn vpc_of(networking: &Networking, claim: &str) -> Result<Vpc> {
    let status = networking.vpc_ready(ENVIRONMENT, claim).await?.status.context("no status")?;
    let vpcs: Api<Vpc> = Api::all(networking.under().client().await?);
    Ok(vpcs.get(&status.vpc.context("no Vpc")?).await?)
}

/// Waits until the process has read the platform file more than so many times, for better or worse.
async fn read_again(networking: &Networking, times: usize) -> Result<()> {
    let wait = networking.under().cluster().wait_for("the platform file is read again").await?;
    wait.until(async || Ok((times_read(networking)? > times).then_some(()))).await
}

fn times_read(networking: &Networking) -> Result<usize> {
    let log = std::fs::read_to_string(networking.controller().child().log())?;
    Ok(log.matches("platform file read").count() + log.matches("platform file refused").count())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_protected_ranges_nothing_is_made_and_a_bad_file_changes_nothing() -> Result<()> {
    let under = UnderCluster::start("platform").await?;
    under.provider_networks(&[internet().network, partner().network]).await?;
    let mut incomplete = values(&[internet(), partner()]);
    incomplete["platform"]["protectedCIDRs"] = json!([]);
    let mut networking = Networking::install(under, incomplete).await?;
    networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;
    let process = networking.controller().child().pid();

    networking.claim_vpc(ENVIRONMENT, "net", Some("")).await?;
    networking.claim_subnet(ENVIRONMENT, "front", "net", "10.1.0.0/24").await?;
    let told = networking.vpc_says(ENVIRONMENT, "net", "PlatformNotConfigured").await?;
    ensure!(told.contains("no Vpc is made") && told.contains("engineers must mend it"), "{told}");
    networking.subnet_says(ENVIRONMENT, "front", "PlatformNotConfigured").await?;
    before.is_again(networking.under().ovn()).await?;

    // Mended, and everything goes on by itself.
    networking.reconfigure(values(&[internet(), partner()])).await?;
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    let made = vpc_of(&networking, "net").await?;
    ensure!(made.spec.extra_external_subnets == ["internet"], "{:?}", made.spec.extra_external_subnets);

    // Another default: who has a way out keeps it, who comes later takes the new one.
    let times = times_read(&networking)?;
    networking.reconfigure(values(&[partner(), internet()])).await?;
    read_again(&networking, times).await?;
    networking.claim_vpc(ENVIRONMENT, "later", Some("")).await?;
    let later = vpc_of(&networking, "later").await?;
    ensure!(later.spec.extra_external_subnets == ["partner"], "{:?}", later.spec.extra_external_subnets);
    ensure!(vpc_of(&networking, "net").await?.spec == made.spec, "moved");

    // Broken: nothing new, nothing changed, and what goes can go.
    let (times, cluster) = (times_read(&networking)?, networking.under().cluster());
    let broken = "protectedCIDRs: [10.0.0.1/8]";
    networking.controller().update_config(cluster, PLATFORM.0, PLATFORM.1, broken).await?;
    read_again(&networking, times).await?;
    networking.claim_vpc(ENVIRONMENT, "new", None).await?;
    networking.vpc_says(ENVIRONMENT, "new", "PlatformNotConfigured").await?;
    ensure!(vpc_of(&networking, "net").await?.spec == made.spec, "changed");
    networking.subnet_ready(ENVIRONMENT, "front").await?;
    let client = networking.under().client().await?;
    let delete = DeleteParams::default();
    Api::<SubnetClaim>::namespaced(client.clone(), ENVIRONMENT).delete("front", &delete).await?;
    for claim in ["net", "later", "new"] {
        Api::<VpcClaim>::namespaced(client.clone(), ENVIRONMENT).delete(claim, &delete).await?;
    }
    before.nothing_is_left(&networking).await?;
    ensure!(networking.controller().child().pid() == process, "it was restarted");
    networking.finish();
    Ok(())
}
