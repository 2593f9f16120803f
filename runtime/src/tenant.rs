//! Tenant clusters: one process speaks to all of them, and any may be hostile.
//!
//! A tenant cluster is a Cluster API `Cluster` on the under cluster and a kubeconfig Secret beside it. Its tenant is
//! administrator there and can write that Secret, so neither what the kubeconfig says nor what its server answers is
//! trusted: at worst a tenant harms what the process does for that tenant.
//!
//! | question | module |
//! |---|---|
//! | what of a kubeconfig is taken, and why one is refused | [`kubeconfig`] |
//! | where an API server may be | [`TenantOptions`] |
//! | how long, how much and how often | [`Limits`] |
//! | which clusters there are, and whether they answer | [`TenantClusters`], [`Health`] |
//! | watching and reconciling in one of them | [`Link`] |
//! | telling one of them of a change elsewhere | [`Requests`] |
//!
//! ```ignore
//! let clusters = TenantClusters::start(&process, &watched_clusters, &options, |link| Seen {
//!     services: link.watch(Api::all(link.client()), watcher::Config::default(), |_| {}),
//! });
//! clusters.for_each("service", move |cluster| {
//!     let context = context.clone();
//!     async move {
//!         let drive = Drive::new("service", &cluster.seen.services).on(requests.of(&cluster.link.id().uid));
//!         cluster.link.drive(drive, Arc::new(InCluster { cluster: cluster.clone(), context }), reconcile).await;
//!     }
//! }).await;
//! ```
//!
//! **Each cluster for itself.** Clusters share no queue, no permit, no connection and no back-off; a task of its own keeps
//! each, and all that was begun for one (tasks, watches, caches, connections) ends when its Cluster goes, begins to be
//! deleted, is replaced by one of the same name, or when its kubeconfig changes. There is therefore no bound over all
//! clusters together: one that a hanging cluster could fill would let it delay the others. The bound is that of each
//! times their number, which the quota on Clusters limits.
//!
//! **What cannot be proved**: that a kubeconfig leads to the cluster it claims to lead to. Whoever may write Secrets in the
//! Cluster's namespace decides that, within [`TenantOptions`]. So nothing that a tenant cluster says may ever decide
//! about another tenant.
//!
//! Tenant clusters never count for readiness.

mod bounds;
mod cluster;
mod clusters;
mod connect;
mod dial;
mod health;
mod keeper;
pub mod kubeconfig;
#[cfg(test)]
mod pki;
mod policy;
mod pulse;
mod quote;
mod requests;
#[cfg(test)]
mod stand_in;
mod supervisor;
mod weight;

pub use self::{
    bounds::Limits,
    cluster::{CONCURRENCY, ClusterId, Link, PASS, TenantCluster},
    clusters::TenantClusters,
    health::Health,
    policy::{Denied, TenantOptions},
    quote::Quote,
    requests::Requests,
};
