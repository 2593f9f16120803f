//! One pass over one Service: read, decide, write, say.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::Condition};
use kmetal_crds::networking::service::reason;
use kmetal_runtime::{Result, event::EventType};
use kube::{Api, Resource, ResourceExt, runtime::controller::Action};

use super::{
    apply::{self, Done, Target},
    change::{Change, Show},
    demand::{is_over_quota, said},
    observe::{observe, wanted},
    plan::{Plan, Seen, Status, plan},
    tenant::{Tenant, is_ours},
};
use crate::{context::Context, names, report::spread};

/// One tenant cluster, with all that the process knows.
pub(super) struct Within {
    /// The process.
    pub(super) context: Arc<Context>,
    /// The cluster.
    pub(super) tenant: Arc<Tenant>,
}

/// How soon one that the quota keeps waiting is looked at again without being asked: a raised quota is not seen.
const FULL: Duration = Duration::from_mins(1);
/// How soon all others are: what they wait for is watched.
const CALM: Duration = Duration::from_mins(10);
/// How soon one whose cluster has had its share of writes goes on.
const PACED: Duration = Duration::from_secs(1);
/// How soon somebody who found an EipClaim busy comes back.
const BUSY: Duration = Duration::from_millis(50);

pub(super) async fn reconcile(service: Arc<Service>, within: Arc<Within>) -> Result<Action> {
    if !is_ours(&service) {
        return Ok(Action::await_change());
    }
    let Within { context, tenant } = &*within;
    let uid = service.uid().unwrap_or_default();
    let wants_own = wanted(&service) == Some(names::own_claim(&uid));
    if wants_own && is_over_quota(&service) && context.services.quota.is_closed(&tenant.link.id().namespace) {
        // There may be thousands of these.
        return Ok(Action::requeue(spread(&uid, FULL)));
    }
    let turn = match wanted(&service) {
        Some(claim) => match context.services.turn(&tenant.link.id().namespace, &claim) {
            Some(turn) => Some(turn),
            None => return Ok(Action::requeue(BUSY)),
        },
        None => None,
    };
    let mut service = service;
    let mut seen = observe(context, tenant, &service)?;
    let mut planned = plan(&service, &seen, context.now());
    if takes_away(&planned) {
        // A cache may be old, and nothing may be given to others while the Service shows it.
        let Some(live) = live(tenant, &service).await? else { return Ok(Action::await_change()) };
        service = Arc::new(live);
        seen = observe(context, tenant, &service)?;
        planned = plan(&service, &seen, context.now());
    }
    let cluster = &tenant.link.id().uid;
    let target = Target { cluster, tenant: tenant.link.client(), service: &service };
    let mut done = apply::apply(context, Some(&target), &planned.changes).await;
    if matches!(done, Ok(Done::OverQuota)) {
        context.services.quota.close(&tenant.link.id().namespace);
        seen.over_quota = true;
        planned = Plan { changes: Vec::new(), ..plan(&service, &seen, context.now()) };
        done = Ok(Done::All);
    }
    drop(turn);
    match done {
        Ok(Done::Raced) => return Ok(Action::requeue(BUSY)),
        Ok(Done::Paced) => return Ok(Action::requeue(spread(&uid, PACED))),
        _ => {}
    }
    if let Some(status) = &planned.status {
        say(&target, tenant, status, &planned).await?;
    }
    done.map(|_| again(&service, &planned, &seen))
}

/// Whether something goes that must not go while the Service shows its address.
fn takes_away(planned: &Plan) -> bool {
    let releases = reason_of(planned) == Some(reason::RELEASING) && !planned.changes.is_empty();
    let gives_away =
        |change: &Change| matches!(change, Change::Unbind(_) | Change::DeleteClaim(_) | Change::Release);
    releases || planned.changes.iter().any(gives_away)
}

/// The Service as its API server has it; none when it is gone.
async fn live(tenant: &Tenant, service: &Service) -> Result<Option<Service>> {
    let api = Api::<Service>::namespaced(tenant.link.client(), &service.namespace().unwrap_or_default());
    Ok(api.get_opt(&service.name_any()).await?.filter(|live| live.uid() == service.uid()))
}

/// The one status write of a pass, and an Event when the Service's standing is another one.
async fn say(target: &Target<'_>, tenant: &Tenant, status: &Status, planned: &Plan) -> Result<()> {
    let service = target.service;
    let before = said(service);
    if before == status.condition.as_ref() && shows(service, status.show) {
        return Ok(());
    }
    apply::tell(target, status).await?;
    let Some(now) = &status.condition else { return Ok(()) };
    let standing = |condition: &Condition| (condition.status.clone(), condition.reason.clone());
    if before.map(standing) == Some(standing(now)) {
        return Ok(());
    }
    let (namespace, name) = (service.namespace(), service.name_any());
    tracing::info!(namespace, name, reason = now.reason, "Service");
    let kind = match now.reason.as_str() {
        reason::CREATING | reason::UPDATING | reason::RELEASING => return Ok(()),
        reason::READY => EventType::Normal,
        _ => EventType::Warning,
    };
    let (events, regarding) = (tenant.link.events(), service.object_ref(&()));
    events.publish(&regarding, kind, &now.reason, &now.message, "LoadBalance").await;
    for warning in &planned.warnings {
        let (reason, message) = (warning.reason, warning.message.as_str());
        events.publish(&regarding, EventType::Warning, reason, message, "LoadBalance").await;
    }
    Ok(())
}

/// Whether the status has that address, and no other.
fn shows(service: &Service, show: Show) -> bool {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    match (show, ingress.map(Vec::as_slice).unwrap_or_default()) {
        (Show::Nothing, _) | (Show::Wipe, []) => true,
        (Show::Address(address), [one]) => one.ip.as_deref() == Some(&address.to_string()),
        _ => false,
    }
}

fn reason_of(planned: &Plan) -> Option<&str> {
    Some(planned.status.as_ref()?.condition.as_ref()?.reason.as_str())
}

/// When to look again without being asked: what matters is watched.
fn again(service: &Service, planned: &Plan, seen: &Seen) -> Action {
    let pause = match reason_of(planned) {
        None => return Action::await_change(),
        Some(reason::QUOTA_EXCEEDED) => FULL,
        // Kube-OVN may have to be reminded of a rule.
        Some(reason::CREATING | reason::UPDATING | reason::RELEASING) if !seen.rules.is_empty() => {
            Duration::from_secs(10)
        }
        Some(reason::CREATING | reason::UPDATING | reason::RELEASING) => Duration::from_secs(30),
        Some(_) => CALM,
    };
    Action::requeue(spread(&service.uid().unwrap_or_default(), pause))
}
