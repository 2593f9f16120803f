//! What must stand as long as something else does, asked of every moment.

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::kube_ovn::{OvnEip, OvnSnatRule, Subnet, Vpc},
    names::CLAIM_UID,
    networking::{EipClaim, SubnetClaim, VpcClaim},
};
use kmetal_e2e::history::{History, Moment};
use kube::{
    Client, Resource, ResourceExt,
    core::{ApiResource, DynamicObject},
};

/// Records all that is judged.
pub async fn record(client: &Client) -> Result<History> {
    let kinds = [
        ApiResource::erase::<VpcClaim>(&()),
        ApiResource::erase::<SubnetClaim>(&()),
        ApiResource::erase::<EipClaim>(&()),
        ApiResource::erase::<Vpc>(&()),
        ApiResource::erase::<Subnet>(&()),
        ApiResource::erase::<OvnSnatRule>(&()),
        ApiResource::erase::<OvnEip>(&()),
    ];
    History::record(client, &kinds).await
}

/// Judges every moment since.
pub async fn judge(history: &History) -> Result<()> {
    history.caught_up().await?;
    let replay = history.replay()?;
    // All that is judged was there to be judged.
    replay.every::<OvnSnatRule>(|_| Ok(()))?;
    replay.every::<OvnEip>(|_| Ok(()))?;
    replay.always(in_order)?;
    Ok(())
}

fn in_order(moment: &Moment<'_>) -> Result<()> {
    for rule in moment.all::<OvnSnatRule>() {
        let subnet = moment.all::<Subnet>().find(|subnet| claim(subnet) == claim(rule));
        stays(subnet, rule).context("its Subnet")?;
        let router = rule.data["spec"]["ovnEip"].as_str().context("a rule without an address")?;
        stays(moment.get::<OvnEip>(None, router), rule).context("its router's address")?;
        claimed::<SubnetClaim>(moment, rule)?;
    }
    for subnet in moment.all::<Subnet>().filter(|subnet| claim(subnet).is_some()) {
        let vpc = subnet.data["spec"]["vpc"].as_str().context("a Subnet without a Vpc")?;
        stays(moment.get::<Vpc>(None, vpc), subnet).context("its Vpc")?;
        claimed::<SubnetClaim>(moment, subnet)?;
    }
    // A router's own address, which stands for no claim, is Kube-OVN's: it goes with the router, before or after it.
    for eip in moment.all::<OvnEip>().filter(|eip| claim(eip).is_some()) {
        claimed::<EipClaim>(moment, eip)?;
    }
    for vpc in moment.all::<Vpc>().filter(|vpc| claim(vpc).is_some()) {
        claimed::<VpcClaim>(moment, vpc)?;
    }
    Ok(())
}

/// This stands, and nobody has asked for its end, while the other does.
fn stays(this: Option<&DynamicObject>, other: &DynamicObject) -> Result<()> {
    let this = this.with_context(|| format!("{} is there alone", other.name_any()))?;
    let stays = this.metadata.deletion_timestamp.is_none();
    ensure!(stays, "{} is to go before {}", this.name_any(), other.name_any());
    Ok(())
}

/// The uid of the claim that this stands for.
fn claim(object: &DynamicObject) -> Option<&String> {
    object.labels().get(CLAIM_UID)
}

/// The claim that this stands for is there.
fn claimed<K: Resource<DynamicType = ()>>(moment: &Moment<'_>, object: &DynamicObject) -> Result<()> {
    let is_there = moment.all::<K>().any(|known| known.metadata.uid.as_ref() == claim(object));
    ensure!(is_there, "{} is there without its {}", object.name_any(), K::kind(&()));
    Ok(())
}
