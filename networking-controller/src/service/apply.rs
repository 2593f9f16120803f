//! Carries out what a plan for a Service says, in order, and stops at the first that fails. Dull on purpose.

use k8s_openapi::{
    api::core::v1::Service,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kmetal_crds::{
    foreign::kube_ovn::OvnDnatRule,
    names::manager::{BINDER, NETWORKING},
    networking::{
        Binding, EipClaim,
        service::{BOUND, CLEANUP},
    },
};
use kmetal_runtime::{
    Error, Result,
    apply::{Guard, create, delete_if_present, set_finalizer, write_status},
};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    change::{Change, Show},
    plan::Status,
    rules::socket,
};
use crate::{apply::apply_without_claim, change, context::Context};

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// To the end.
    All,
    /// Up to an EipClaim that the Environment's quota does not allow.
    OverQuota,
    /// Up to something that changed meanwhile.
    Raced,
    /// Up to what the cluster may cause in a while.
    Paced,
}

/// A Service and the way to it.
pub(super) struct Target<'a> {
    /// Uid of its Cluster.
    pub(super) cluster: &'a str,
    /// A client of its cluster.
    pub(super) tenant: Client,
    /// The Service as it was read.
    pub(super) service: &'a Service,
}

/// Carries out `changes`; `target` may be absent where none of them is of the Service itself.
pub(super) async fn apply(
    context: &Context,
    target: Option<&Target<'_>>,
    changes: &[Change],
) -> Result<Done> {
    let under = &context.process.client;
    let claims = |namespace: &str| Api::<EipClaim>::namespaced(under.clone(), namespace);
    for change in changes {
        let is_below = !matches!(change, Change::Hold | Change::Release);
        if is_below && target.is_some_and(|target| !context.services.shares.take(target.cluster)) {
            return Ok(Done::Paced);
        }
        match change {
            Change::Hold | Change::Release => {
                match hold(target, *change == Change::Hold).await {
                    // The watch has not brought our own last write yet.
                    Err(Error::Conflict(_)) => return Ok(Done::Raced),
                    done => done?,
                }
            }
            Change::CreateClaim(claim) => {
                let namespace = claim.namespace().unwrap_or_default();
                match create(&claims(&namespace), NETWORKING, &**claim).await {
                    // One that is there already is looked at in the next pass.
                    Ok(_) => tracing::info!(namespace, name = claim.name_any(), "EipClaim created"),
                    Err(error) if is_quota(&error) => {
                        // A quota is asked before the name: it may have been filled by this very claim, which the
                        // watch has not brought yet.
                        let is_there = claims(&namespace).get_opt(&claim.name_any()).await?.is_some();
                        return Ok(if is_there { Done::Raced } else { Done::OverQuota });
                    }
                    Err(error) => return Err(error),
                }
            }
            Change::DeleteClaim(target) => {
                if delete_if_present(&claims(&target.namespace), &target.name, &target.uid).await? {
                    tracing::info!(namespace = target.namespace, name = target.name, "EipClaim deleted");
                }
            }
            Change::Bind(claim, binding) => {
                if !write_binding(&claims(&claim.namespace().unwrap_or_default()), claim, Some(binding))
                    .await?
                {
                    return Ok(Done::Raced);
                }
            }
            Change::Unbind(claim) => {
                if !write_binding(&claims(&claim.namespace().unwrap_or_default()), claim, None).await? {
                    return Ok(Done::Raced);
                }
            }
            Change::Under(change::Change::CreateDnat(rule)) => lead(context, rule).await?,
            Change::Under(change) => apply_without_claim(under, std::slice::from_ref(change)).await?,
        }
    }
    Ok(Done::All)
}

async fn hold(target: Option<&Target<'_>>, present: bool) -> Result<()> {
    let Some(Target { tenant, service, .. }) = target else { return Ok(()) };
    let api = Api::namespaced(tenant.clone(), &service.namespace().unwrap_or_default());
    set_finalizer(&api, *service, CLEANUP, present).await
}

async fn lead(context: &Context, rule: &OvnDnatRule) -> Result<()> {
    let sent = &context.services.sent;
    let scope = rule.labels().get(kmetal_crds::names::CLAIM_UID).cloned().unwrap_or_default();
    if let Some(socket) = socket(rule) {
        sent.note(&scope, &rule.name_any(), socket);
    }
    let change = change::Change::CreateDnat(Box::new(rule.clone()));
    let done = apply_without_claim(&context.process.client, &[change]).await;
    // Refused, so it does not exist. One that was not answered may.
    if done.as_ref().is_err_and(|error| error.code().is_some_and(|code| code < 500)) {
        sent.forget(&scope, &rule.name_any());
    }
    done
}

/// Writes who has an EipClaim, unless anything in it changed since it was read; false if so.
async fn write_binding(api: &Api<EipClaim>, claim: &EipClaim, binding: Option<&Binding>) -> Result<bool> {
    let now = Timestamp::now();
    let (status, reason, message) = match binding {
        Some(bound) => {
            let (cluster, service) = (&bound.cluster, &bound.service);
            let of = format!(
                "Service {}/{} of Cluster {} has the address",
                service.namespace, service.name, cluster.name
            );
            ("True", "ServiceBound", of)
        }
        None => ("False", "Released", "no Service has the address".to_owned()),
    };
    let condition = Condition {
        type_: BOUND.into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: None,
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
    };
    let mut body = json!({ "conditions": [condition] });
    if let Some(binding) = binding {
        body["boundTo"] = json!(binding);
    }
    match write_status(api, BINDER, claim, Guard::Version, &body).await {
        Ok(()) => {
            let namespace = claim.namespace();
            tracing::info!(namespace, name = claim.name_any(), bound = status, "EipClaim");
            Ok(true)
        }
        Err(Error::Conflict(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes what of a Service's status is ours.
pub(super) async fn tell(target: &Target<'_>, status: &Status) -> Result<()> {
    let Target { tenant, service, .. } = target;
    let api = Api::namespaced(tenant.clone(), &service.namespace().unwrap_or_default());
    write_status(&api, NETWORKING, *service, Guard::Uid, &body(status)).await
}

/// What is left out is taken out, as far as it is ours. An empty list takes out what others have written as well.
fn body(status: &Status) -> Value {
    let mut body = json!({});
    match status.show {
        Show::Nothing => {}
        Show::Wipe => body["loadBalancer"] = json!({ "ingress": [] }),
        // VIP: the cluster's own machines then reach the Service without the address, which its VPC would drop.
        Show::Address(address) => {
            body["loadBalancer"] = json!({ "ingress": [{ "ip": address.to_string(), "ipMode": "VIP" }] });
        }
    }
    if let Some(condition) = &status.condition {
        body["conditions"] = json!([condition]);
    }
    body
}

/// A quota of Kubernetes' own says "exceeded quota", one of Capsule's has the word as well.
fn is_quota(error: &Error) -> bool {
    let Error::Kube(kube::Error::Api(status)) = error else { return false };
    status.code == 403 && status.message.to_ascii_lowercase().contains("quota")
}
