//! A tenant's people under Kubernetes' own `edit` and `view`: claims, and nothing behind them.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kmetal_crds::{
    foreign::{
        kube_ovn::{OvnEip, OvnSnatRule, Subnet, Vpc, VpcSpec},
        multus::NetworkAttachmentDefinition,
    },
    networking::{GROUP, SubnetClaim, SubnetClaimSpec, VpcClaim},
};
use kmetal_e2e::{
    networking::Networking,
    wait::{PATIENCE, eventually},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

const PLACE: &str = "acme-a";

pub(super) async fn an_editor_claims_and_touches_nothing_else(networking: &Networking) -> Result<()> {
    let (editor, viewer) =
        (person(networking, "eve", "edit").await?, person(networking, "vic", "view").await?);
    let claims = |client: &Client| Api::<SubnetClaim>::namespaced(client.clone(), PLACE);
    // The claims are in the aggregated roles as soon as the controller manager has put them there.
    let spec =
        SubnetClaimSpec { vpc: "net".into(), cidr: "10.11.0.0/24".into(), ..SubnetClaimSpec::default() };
    let wish = SubnetClaim::new("eves", spec);
    eventually("edit may claim", PATIENCE, async || {
        Ok(Some(claims(&editor).create(&PostParams::default(), &wish).await?))
    })
    .await?;
    networking.subnet_ready(PLACE, "eves").await?;
    let dns = Patch::Merge(json!({"spec": {"dns": ["9.9.9.9"]}}));
    claims(&editor).patch("eves", &PatchParams::default(), &dns).await?;
    ensure!(claims(&viewer).get("eves").await?.status.is_some(), "view reads the answer");
    ensure!(
        !Api::<VpcClaim>::namespaced(viewer.clone(), PLACE)
            .list(&ListParams::default())
            .await?
            .items
            .is_empty()
    );

    let status = Patch::Merge(json!({"status": {"gateway": "10.0.0.1"}}));
    forbidden(claims(&editor).patch_status("eves", &PatchParams::default(), &status).await)?;
    for (client, verb) in [(&editor, "patch"), (&editor, "update"), (&viewer, "get"), (&viewer, "patch")] {
        for sub in ["status", "finalizers"] {
            for plural in ["vpcclaims", "subnetclaims", "eipclaims"] {
                let allowed = may(client, verb, plural, sub).await?;
                ensure!(!allowed, "{verb} {plural}/{sub} is allowed");
            }
        }
    }
    let create = PostParams::default();
    forbidden(claims(&viewer).create(&create, &wish).await)?;
    forbidden(claims(&viewer).delete("eves", &DeleteParams::default()).await)?;
    forbidden(claims(&viewer).patch("eves", &PatchParams::default(), &dns).await)?;
    forbidden(Api::<SubnetClaim>::namespaced(editor.clone(), "bolt-a").list(&ListParams::default()).await)?;
    forbidden(Api::<SubnetClaim>::namespaced(editor.clone(), "bolt-a").create(&create, &wish).await)?;

    let attachments = Api::<NetworkAttachmentDefinition>::namespaced(editor.clone(), PLACE);
    let mut attachment = NetworkAttachmentDefinition::default();
    attachment.metadata.name = Some("own".into());
    forbidden(attachments.create(&create, &attachment).await)?;
    let config = Patch::Merge(json!({"spec": {"config": "{}"}}));
    forbidden(attachments.patch("eves", &PatchParams::default(), &config).await)?;
    forbidden(attachments.delete("eves", &DeleteParams::default()).await)?;
    forbidden(Api::<Vpc>::all(editor.clone()).list(&ListParams::default()).await)?;
    forbidden(Api::<Vpc>::all(editor.clone()).create(&create, &Vpc::new("own", VpcSpec::default())).await)?;
    forbidden(Api::<Subnet>::all(editor.clone()).list(&ListParams::default()).await)?;
    forbidden(Api::<OvnEip>::all(editor.clone()).list(&ListParams::default()).await)?;
    forbidden(Api::<OvnSnatRule>::all(editor.clone()).list(&ListParams::default()).await)?;

    claims(&editor).delete("eves", &DeleteParams::default()).await?;
    networking.under().cluster().wait_gone::<SubnetClaim>(Some(PLACE), "eves").await
}

/// A person with one of Kubernetes' roles in the Environment.
async fn person(networking: &Networking, name: &str, role: &str) -> Result<Client> {
    let cluster = networking.under().cluster();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": PLACE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    cluster.apply_yaml(&binding.to_string()).await?;
    let mut config = cluster.config().await?;
    config.auth_info.impersonate = Some(name.into());
    Ok(Client::try_from(config)?)
}

fn forbidden<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(()),
        Err(error) => Err(error).context("refused, but not for want of a role"),
        Ok(_) => anyhow::bail!("allowed"),
    }
}

async fn may(client: &Client, verb: &str, plural: &str, subresource: &str) -> Result<bool> {
    let text = |text: &str| Some(text.to_owned());
    let asked = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: text(PLACE),
                verb: text(verb),
                group: text(GROUP),
                resource: text(plural),
                subresource: text(subresource),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let answer =
        Api::<SelfSubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &asked).await?;
    Ok(answer.status.context("an answer")?.allowed)
}
