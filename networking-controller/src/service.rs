//! Service of type LoadBalancer in a tenant cluster → EipClaim → one OvnDnatRule for each of its ports.
//!
//! Each tenant cluster is driven for itself ([`kmetal_runtime::tenant`]), so none waits for another. What a Service has is
//! written down on the under cluster (`boundTo` of its EipClaim, the labels of its rules), so it can be taken down without
//! the tenant's API server, and a restart knows everything.
//!
//! | question | module |
//! |---|---|
//! | which Services are meant, what each asks for | `demand` |
//! | by which VPC they come in | `network` |
//! | to which worker a port leads | `worker` |
//! | which rules that makes | `rules` |
//! | what a Service gets, and in which order it loses it | `plan`, `serve` |
//! | who takes down what a vanished Service or Cluster left | `binding`, `unkept` |

mod apply;
mod binding;
mod change;
mod demand;
mod network;
mod observe;
mod plan;
mod reconcile;
mod relay;
mod rules;
mod serve;
mod shared;
mod tenant;
mod unkept;
mod worker;

pub(crate) use self::unkept::is_kept;
pub use self::{
    shared::Shared,
    tenant::{InTenant, Tenants},
};

use std::sync::Arc;

use futures::{StreamExt, stream};
use kmetal_crds::networking::EipClaim;
use kmetal_runtime::Drive;
use kube::{ResourceExt, runtime::reflector::ObjectRef};
use tokio::sync::mpsc::{self, UnboundedSender};

use self::{
    binding::own,
    reconcile::{Within, reconcile},
    tenant::Tenant,
};
use crate::{context::Context, trigger};

/// Serves the Services of all tenant clusters until the process stops.
pub async fn run(context: Arc<Context>) {
    let (gone, mut heard) = mpsc::unbounded_channel();
    let of_gone = stream::poll_fn(move |cx| heard.poll_recv(cx));
    let everywhere = {
        let context = context.clone();
        move |tenant: Arc<Tenant>| {
            let within = Arc::new(Within { context: context.clone(), tenant });
            let gone = gone.clone();
            async move { attend(within, &gone).await }
        }
    };
    tokio::join!(
        context.tenants.for_each("service", everywhere),
        relay::run(context.clone()),
        unkept::run(context.clone(), of_gone)
    );
}

/// Serves the Services of one cluster until it goes.
async fn attend(within: Arc<Within>, gone: &UnboundedSender<ObjectRef<EipClaim>>) {
    let Within { context, tenant } = &*within;
    let requests = context.services.requests.of(&tenant.link.id().uid);
    let loops = Drive::new("service", &tenant.seen.services).on(requests).on(tenant.seen.triggers());
    tokio::join!(tenant.link.drive(loops, within.clone(), reconcile), report_gone(context, tenant, gone));
}

/// Names the EipClaims of Services that are gone, until the cluster is.
async fn report_gone(context: &Context, tenant: &Tenant, gone: &UnboundedSender<ObjectRef<EipClaim>>) {
    let id = tenant.link.id();
    let services = &tenant.seen.services;
    let mut changes = Box::pin(trigger::distinct(services, tenant::is_ours));
    loop {
        let service = tokio::select! {
            () = tenant.link.gone() => return,
            Some(service) = changes.next() => service,
        };
        let known = services.get(&ObjectRef::from_obj(&*service));
        if known.is_some_and(|known| known.metadata.uid == service.metadata.uid && tenant::is_ours(&known)) {
            continue;
        }
        for claim in context.caches.eip_claims_in(&id.namespace) {
            let bound = claim.status.as_ref().and_then(|status| status.bound_to.as_ref());
            let uid = service.metadata.uid.as_deref().unwrap_or_default();
            let is_bound = bound.is_some_and(|bound| bound.service.uid == uid);
            if is_bound || own(&claim).is_some_and(|own| own.service_uid == uid) {
                // Nobody listens only when the process stops.
                let _ = gone.send(ObjectRef::new(&claim.name_any()).within(&id.namespace));
            }
        }
    }
}
