//! Kube-OVN's own Vpc, as it is on every cluster that Kube-OVN has once started on.
//!
//! At its very first start kube-ovn-controller 1.16 makes this Vpc, says in its status that it is ready, and a moment
//! later writes the whole status again from a copy that may be older. If it is, the Vpc waits for the switch `join` and
//! `join` for the Vpc, until somebody restarts the controller. That happens on a busy machine, so the kit makes the Vpc
//! first.

use anyhow::Result;
use kmetal_crds::foreign::kube_ovn::Vpc;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

use crate::apply::MANAGER;

/// The router of everything that names no Vpc.
const NAME: &str = "ovn-cluster";

/// Makes it if it is not there.
pub(super) async fn ensure(client: &Client) -> Result<()> {
    let vpcs: Api<Vpc> = Api::all(client.clone());
    if vpcs.get_opt(NAME).await?.is_some() {
        return Ok(());
    }
    let as_applied = PatchParams::apply(MANAGER);
    let mut vpc =
        json!({"apiVersion": "kubeovn.io/v1", "kind": "Vpc", "metadata": {"name": NAME}, "spec": {}});
    vpcs.patch(NAME, &as_applied, &Patch::Apply(&vpc)).await?;
    // What the controller would write, so that it finds nothing to write.
    vpc["status"] =
        json!({"standby": true, "default": true, "router": NAME, "defaultLogicalSwitch": "ovn-default"});
    vpcs.patch_status(NAME, &as_applied, &Patch::Apply(&vpc)).await?;
    Ok(())
}
