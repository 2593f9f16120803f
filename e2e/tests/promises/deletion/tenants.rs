//! A tenant who works against the finalizers gains nothing, and what somebody else made is never touched.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnSnatRule, Subnet, Vpc},
        multus::NetworkAttachmentDefinition,
    },
    networking::{SubnetClaim, VpcClaim},
};
use kmetal_e2e::{
    environment::Environment,
    networking::{NAME, NAMESPACE, Networking},
};
use kube::{Api, Resource, ResourceExt, api::DeleteParams};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{delete_subnet, delete_vpc, internet, machine_in_vpc, stop_machine};
use crate::remains::Before;

const ENVIRONMENT: &str = "acme-prod";
const WITHOUT: &str = r#"{"metadata":{"finalizers":null}}"#;

/// Lets a person do what Kubernetes' `edit` and our chart's tenant roles allow in the Environment.
async fn editor(networking: &Networking, environment: &Environment) -> Result<std::path::PathBuf> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "alice", "namespace": environment.namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    });
    let cluster = networking.under().cluster();
    cluster.apply_yaml(&binding.to_string()).await?;
    let alice = cluster.user_kubeconfig("alice", &environment.tenant)?;
    let namespace = ["-n", &environment.namespace];
    // Kubernetes aggregates our roles into its own in its own time.
    cluster
        .wait_for("alice may edit claims")
        .await?
        .until(async || {
            let asked = [&namespace[..], &["auth", "can-i", "patch", "subnetclaims"]].concat();
            Ok((cluster.kubectl_as(&alice, &asked).await?.trim() == "yes").then_some(()))
        })
        .await?;
    Ok(alice)
}

/// Deletes an object and takes its finalizers away, as this person.
async fn tear_out(networking: &Networking, person: &Path, kind: &str, name: &str) -> Result<()> {
    let cluster = networking.under().cluster();
    let delete = ["-n", ENVIRONMENT, "delete", kind, name, "--wait=false"];
    cluster.kubectl_as(person, &delete).await?;
    // Our finalizer may be gone already, and the object with it.
    let patch = ["-n", ENVIRONMENT, "patch", kind, name, "--type=merge", "-p", WITHOUT];
    match cluster.kubectl_as(person, &patch).await {
        Err(error) if !format!("{error:#}").contains("NotFound") => Err(error),
        _ => Ok(()),
    }
}

async fn uid<K>(api: &Api<K>, name: &str) -> Result<String>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    api.get(name).await?.uid().context("an object without uid")
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_out_finalizers_leak_nothing_and_foreign_objects_are_never_touched() -> Result<()> {
    let networking = Networking::start("tenants", &[internet()]).await?;
    let environment = networking.environment("acme", ENVIRONMENT).await?;
    let before = Before::claims(&networking).await?;
    let alice = editor(&networking, &environment).await?;
    let cluster = networking.under().cluster();
    let client = networking.under().client().await?;

    machine_in_vpc(&networking, ENVIRONMENT, 1).await?;
    let claim: SubnetClaim = networking.subnet_ready(ENVIRONMENT, "front1").await?;
    let subnet = claim.status.and_then(|status| status.subnet).context("no Subnet")?;
    let claim: VpcClaim = networking.vpc_ready(ENVIRONMENT, "net1").await?;
    let vpc = claim.status.and_then(|status| status.vpc).context("no Vpc")?;
    let (vpcs, subnets): (Api<Vpc>, Api<Subnet>) = (Api::all(client.clone()), Api::all(client.clone()));
    let (old_vpc, old_subnet) = (uid(&vpcs, &vpc).await?, uid(&subnets, &subnet).await?);

    // Both claims are torn out, the machine stays.
    tear_out(&networking, &alice, "subnetclaim", "front1").await?;
    tear_out(&networking, &alice, "vpcclaim", "net1").await?;
    cluster.wait_gone::<SubnetClaim>(Some(ENVIRONMENT), "front1").await?;
    cluster.wait_gone::<VpcClaim>(Some(ENVIRONMENT), "net1").await?;
    cluster.wait_gone::<OvnSnatRule>(None, &subnet.replacen("snet", "snat", 1)).await?;
    ensure!(uid(&subnets, &subnet).await? == old_subnet, "the machine still needs its Subnet");

    // Claims of the same names wait for what is left, and then get what they ask for, anew.
    networking.claim_vpc(ENVIRONMENT, "net1", Some("")).await?;
    networking.claim_subnet(ENVIRONMENT, "front1", "net1", "10.1.0.0/24").await?;
    let told = networking.vpc_says(ENVIRONMENT, "net1", "PreviousClaimStillDeleting").await?;
    ensure!(told.contains(&vpc), "{told}");
    let told = networking.subnet_says(ENVIRONMENT, "front1", "PreviousClaimStillDeleting").await?;
    ensure!(told.contains(&subnet), "{told}");
    stop_machine(&networking, ENVIRONMENT, "machine1").await?;
    networking.vpc_ready(ENVIRONMENT, "net1").await?;
    networking.subnet_ready(ENVIRONMENT, "front1").await?;
    ensure!(uid(&vpcs, &vpc).await? != old_vpc && uid(&subnets, &subnet).await? != old_subnet, "adopted");

    // The attachment is the platform's, not the tenant's; an administrator's mistake with it is mended.
    let refused = ["-n", ENVIRONMENT, "delete", "net-attach-def", "front1"];
    let error = cluster.kubectl_as(&alice, &refused).await.expect_err("edit reaches the attachment");
    ensure!(format!("{error:#}").contains("Forbidden"), "{error:#}");
    let attachments: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), ENVIRONMENT);
    let old = uid(&attachments, "front1").await?;
    tear_out(&networking, cluster.kubeconfig(), "net-attach-def", "front1").await?;
    cluster
        .wait_for("the attachment is made again")
        .await?
        .until(async || Ok((uid(&attachments, "front1").await? != old).then_some(())))
        .await?;
    networking.subnet_ready(ENVIRONMENT, "front1").await?;

    tear_out(&networking, &alice, "vpcclaim", "net1").await?;
    tear_out(&networking, &alice, "subnetclaim", "front1").await?;
    before.nothing_is_left(&networking).await?;
    foreign_objects_stay(&networking, &vpc).await?;
    networking.finish();
    Ok(())
}

/// Somebody else's objects with the names that the claims `net1` and `front1` lead to; `vpc` is the former.
async fn foreign_objects_stay(networking: &Networking, vpc: &str) -> Result<()> {
    let cluster = networking.under().cluster();
    let client = networking.under().client().await?;
    let theirs = [
        json!({"apiVersion": "kubeovn.io/v1", "kind": "Vpc", "metadata": {"name": vpc}, "spec": {}}),
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": "front1", "namespace": ENVIRONMENT}, "spec": {"config": "{}"},
        }),
    ];
    for object in theirs {
        cluster.apply_yaml(&object.to_string()).await?;
    }
    networking.under().wait_vpc(vpc).await?;
    let vpcs: Api<Vpc> = Api::all(client.clone());
    let attachments: Api<NetworkAttachmentDefinition> = Api::namespaced(client, ENVIRONMENT);
    let was = (vpcs.get(vpc).await?, attachments.get("front1").await?);
    let mark = cluster.audit().mark()?;

    networking.claim_vpc(ENVIRONMENT, "net1", None).await?;
    let told = networking.vpc_says(ENVIRONMENT, "net1", "NameTaken").await?;
    ensure!(told.contains(vpc) && told.contains("never adopted"), "{told}");
    networking.claim_vpc(ENVIRONMENT, "free", None).await?;
    networking.vpc_ready(ENVIRONMENT, "free").await?;
    networking.claim_subnet(ENVIRONMENT, "front1", "free", "10.1.0.0/24").await?;
    let told = networking.subnet_says(ENVIRONMENT, "front1", "NameTaken").await?;
    ensure!(told.contains("NetworkAttachmentDefinition front1"), "{told}");

    delete_vpc(networking, ENVIRONMENT, "net1").await?;
    delete_subnet(networking, ENVIRONMENT, "front1").await?;
    cluster.wait_gone::<VpcClaim>(Some(ENVIRONMENT), "net1").await?;
    cluster.wait_gone::<SubnetClaim>(Some(ENVIRONMENT), "front1").await?;
    ensure!(was == (vpcs.get(vpc).await?, attachments.get("front1").await?), "touched");
    let written = mark.writes_by(NAMESPACE, NAME)?;
    let touched = written.iter().filter(|entry| {
        let about = entry.reference();
        (about.resource == "vpcs" && about.name == vpc) || about.resource == "network-attachment-definitions"
    });
    let touched: Vec<String> = touched.map(kmetal_e2e::audit::Entry::line).collect();
    ensure!(touched.is_empty(), "{touched:?}");

    vpcs.delete(vpc, &DeleteParams::default()).await?;
    attachments.delete("front1", &DeleteParams::default()).await?;
    Ok(())
}
