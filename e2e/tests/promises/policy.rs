//! A tenant does not reach around the claims: Kube-OVN's annotations, other namespaces' attachments and the attachments
//! themselves are refused in Environments, while Kube-OVN goes on writing what it must.
//!
//! KubeVirt and CAPK do not run here, and need not: the policy looks at what is written. Their kinds are stand-ins
//! ([`stand_ins`]) of the same group, kind and plural that keep every field.

mod annotations;
mod attachments;
mod attack;
mod machines;
mod places;
mod stand_ins;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kmetal_crds::networking::SubnetClaim;
use kmetal_e2e::{
    networking::{self, Networking},
    ovn::{
        kube_ovn::{NAMESPACE, SERVICE_ACCOUNT},
        under_cluster::UnderCluster,
    },
    wait::{PATIENCE, eventually},
};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

/// The attacker's Environment and the victim's; each has a network `web`.
const OWN: &str = "acme-a";
const FOREIGN: &str = "bolt-a";

/// What a refusal must say: why, and what to do instead.
const KUBE_OVN_ALONE: &str = "is for Kube-OVN alone to write: it decides to which network";
const OWN_ONLY: &str = "a machine may be on networks of its own Environment only";
const INSTEAD: &str = "acme-a/<SubnetClaim>";

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_cannot_reach_around_the_claims() -> Result<()> {
    let under = UnderCluster::start("policy").await?;
    under.cluster().apply(stand_ins::all()?).await?;
    let mut networking = Networking::install(under, values(false)).await?;
    networking.controller().ready(networking.under().cluster()).await?;
    let environment = networking.environment("acme", OWN).await?;
    networking.environment("bolt", FOREIGN).await?;
    for namespace in [OWN, FOREIGN] {
        networking.claim_vpc(namespace, "net", None).await?;
        networking.claim_subnet(namespace, "web", "net", "10.0.0.0/24").await?;
        networking.subnet_ready(namespace, "web").await?;
    }
    let tenants = [person(&networking).await?, robot(&networking).await?];
    let victim = subnet_of(&networking, FOREIGN).await?;

    attack::works_without_the_policy(&networking, &victim, &tenants[0]).await?;

    networking.reconfigure(values(true)).await?;
    in_force(&networking, &tenants[0]).await?;
    let audit = networking.under().cluster().audit().mark()?;

    attack::is_refused_with_it(&networking, &victim, &tenants[0]).await?;
    for (tenant, name) in tenants.iter().zip(["person", "robot"]) {
        annotations::of_kube_ovn_are_refused_wherever_they_stand(tenant, name, &victim).await?;
        annotations::that_ask_multus_for_networks_stay_in_the_environment(tenant).await?;
        machines::stay_in_the_environment(tenant).await?;
        attachments::are_not_a_tenants_to_write(tenant).await?;
    }
    attachments::are_the_platforms_to_write(&networking).await?;
    places::other_ways_to_an_annotation_are_closed(&networking, &tenants[1], &victim).await?;
    attack::by_a_controller_is_refused(&networking, &tenants[0]).await?;
    places::what_stands_there_already_is_no_hindrance(&networking, &tenants[0]).await?;
    annotations::as_many_as_kubernetes_takes_are_judged(&tenants[0]).await?;

    environment.delete().await?;
    let cluster = networking.under().cluster();
    cluster.wait_gone::<k8s_openapi::api::core::v1::Namespace>(None, OWN).await?;
    for entry in audit.writes_by(NAMESPACE, SERVICE_ACCOUNT)? {
        ensure!(!matches!(entry.code(), 403 | 422), "Kube-OVN was refused: {}", entry.line());
    }
    for (namespace, name) in [
        (networking::NAMESPACE, networking::NAME),
        ("kube-system", "namespace-controller"),
        ("kube-system", "generic-garbage-collector"),
    ] {
        let writes = audit.writes_by(namespace, name)?.into_iter();
        for entry in writes.filter(|entry| entry.reference().api_group == "k8s.cni.cncf.io") {
            ensure!(entry.code() != 403, "{}", entry.line());
        }
    }
    networking.finish();
    Ok(())
}

fn values(policy: bool) -> Value {
    let mut values = networking::values(&[]);
    values["admissionPolicy"] = json!({"enabled": policy});
    values
}

/// The Kube-OVN Subnet of the network `web` of an Environment.
async fn subnet_of(networking: &Networking, namespace: &str) -> Result<String> {
    let claims: Api<SubnetClaim> = Api::namespaced(networking.under().client().await?, namespace);
    claims.get("web").await?.status.and_then(|status| status.subnet).context("a SubnetClaim without Subnet")
}

/// Someone with Kubernetes' `edit` in the Environment, and more: what a platform's own role might give besides.
async fn person(networking: &Networking) -> Result<Client> {
    bind(networking, json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"})).await?;
    let mut config = networking.under().cluster().config().await?;
    config.auth_info.impersonate = Some("eve".into());
    Ok(Client::try_from(config)?)
}

/// A ServiceAccount of the tenant's with the same rights.
async fn robot(networking: &Networking) -> Result<Client> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": OWN}});
    networking.under().cluster().apply_yaml(&account.to_string()).await?;
    bind(networking, json!({"kind": "ServiceAccount", "name": "robot", "namespace": OWN})).await?;
    networking.under().cluster().service_account_client(OWN, "robot").await
}

async fn bind(networking: &Networking, subject: Value) -> Result<()> {
    let name = subject["name"].clone();
    let rbac = "rbac.authorization.k8s.io/v1";
    let everything = json!({
        "apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "kit-generous"},
        "rules": [
            {"apiGroups": stand_ins::GROUPS, "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["podtemplates", "namespaces", "pods/binding", "pods/status"], "verbs": ["*"]},
        ],
    });
    let mut objects = vec![everything];
    for role in ["edit", "kit-generous"] {
        objects.push(json!({
            "apiVersion": rbac, "kind": "RoleBinding",
            "metadata": {"name": format!("{role}-{}", name.as_str().unwrap_or_default()), "namespace": OWN},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }));
    }
    for object in objects {
        networking.under().cluster().apply_yaml(&object.to_string()).await?;
    }
    Ok(())
}

/// Waits until the API server has taken both policies up, and looks at what it says to their expressions.
async fn in_force(networking: &Networking, tenant: &Client) -> Result<()> {
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(networking.under().client().await?);
    for name in ["kmetal-networking-annotations", "kmetal-networking-attachments"] {
        let checked = eventually("the policy's expressions are checked", PATIENCE, async || {
            let status = policies.get(name).await?.status;
            Ok(status.filter(|status| status.observed_generation.is_some()))
        })
        .await?;
        let warnings =
            checked.type_checking.and_then(|checked| checked.expression_warnings).unwrap_or_default();
        ensure!(warnings.is_empty(), "{name}: {warnings:#?}");
    }
    let bad = pod("probe", &json!({"ovn.kubernetes.io/vpc": "net"}));
    let attachment = attachments::attachment();
    eventually("the policies are in force", PATIENCE, async || {
        let refused = create(tenant, &bad).await.is_err() && create(tenant, &attachment).await.is_err();
        Ok(refused.then_some(()))
    })
    .await
}

/// A Pod that nobody schedules.
fn pod(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": OWN, "annotations": annotations},
        "spec": pod_spec(),
    })
}

fn pod_spec() -> Value {
    json!({
        "schedulerName": "nobody", "automountServiceAccountToken": false,
        "containers": [{"name": "machine", "image": "kit.invalid/machine"}],
    })
}

/// The API of this object's kind in the Environment.
fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let text = |field: &str| object[field].as_str().context("an object without apiVersion or kind");
    let (group, version) = text("apiVersion")?.rsplit_once('/').unwrap_or(("", text("apiVersion")?));
    let gvk = GroupVersionKind::gvk(group, version, text("kind")?);
    let plural = match gvk.kind.as_str() {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        "NetworkAttachmentDefinition" => "network-attachment-definitions".to_owned(),
        kind => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource::from_gvk_with_plural(&gvk, &plural);
    Ok(Api::namespaced_with(client.clone(), OWN, &resource))
}

/// Asks for one like it, of a name that is free, without making it: admission is the same.
async fn create(client: &Client, object: &Value) -> Result<()> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut another: DynamicObject = serde_json::from_value(object.clone())?;
    another.metadata.name = Some("tried".into());
    api(client, object)?.create(&dry, &another).await?;
    Ok(())
}

/// The same for a change of one that exists.
async fn patch(client: &Client, object: &Value, change: &Value) -> Result<()> {
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let name = object["metadata"]["name"].as_str().context("an object without name")?;
    api(client, object)?.patch(name, &dry, &Patch::Merge(change)).await?;
    Ok(())
}

/// Demands that the policy, and nobody else, refused it, with these words.
fn refused<T>(answer: Result<T>, what: &str, words: &[&str]) -> Result<()> {
    let Err(error) = answer else { anyhow::bail!("accepted: {what}") };
    let said = format!("{error:#}");
    for word in ["ValidatingAdmissionPolicy 'kmetal-networking-", "denied request"].iter().chain(words) {
        ensure!(said.contains(word), "{what}: '{word}' is not in: {said}");
    }
    Ok(())
}
