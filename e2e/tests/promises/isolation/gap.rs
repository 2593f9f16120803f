//! How long an external Subnet is without its rules while Kube-OVN processes it. A measurement: only that they come
//! back is asserted.

use anyhow::{Result, ensure};
use kmetal_crds::foreign::kube_ovn::Subnet;
use kmetal_e2e::ovn::under_cluster::UnderCluster;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::internet;

const RECONCILES: i32 = 20;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "exhaustive: cargo e2e --full"]
async fn the_rules_of_a_segment_come_back_after_each_reconcile() -> Result<()> {
    let under = UnderCluster::start("gap").await?;
    let internet = internet();
    under.provider_networks(std::slice::from_ref(&internet)).await?;
    let subnets: Api<Subnet> = Api::all(under.client().await?);
    let mut watch = under.ovn().watch_acls(&internet.name).await?;
    ensure!(watch.acls() == 4, "{} rules at first", watch.acls());
    let mut gaps = Vec::new();
    for round in 0..RECONCILES {
        // A change of the spec that means nothing to a switch without machines.
        let change = Patch::Merge(json!({"spec": {"mtu": 1400 + round}}));
        let parameters = PatchParams::default();
        // Looked at from before it begins: what waits in a buffer has no time.
        let write = async { Ok(subnets.patch(&internet.name, &parameters, &change).await?) };
        gaps.push(tokio::try_join!(watch.gap(), write)?.0);
        ensure!(watch.acls() == 4, "{} rules after reconcile {round}", watch.acls());
    }
    gaps.sort();
    let (least, middle, most) = (gaps[0], gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!(
        "{RECONCILES} reconciles; without rules for {least:?}, {middle:?}, {most:?} (least, median, most)"
    );
    let acls = under.ovn().nbctl(&["acl-list", &internet.name]).await?;
    ensure!(acls.lines().filter(|line| line.ends_with("drop")).count() == 4, "{acls}");
    under.finish();
    Ok(())
}
