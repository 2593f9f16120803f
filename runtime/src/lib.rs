//! How every kMetal process lives: start, admin endpoints, leadership, watching, reconciling, applying.
//!
//! This crate knows no kMetal kind. The five processes depend on it, it depends on none of them, so a rule that
//! lives here (one lease implementation, one way to retry, one way to write a status) holds for all of them.
//!
//! | question | module |
//! |---|---|
//! | what happens between `main` and the first reconcile, and on SIGTERM | [`process`] |
//! | may this replica write now | [`lease`], [`fence`] |
//! | how requests time out and who retries | [`client`] |
//! | what the process knows of the cluster | [`watched`] |
//! | when a reconcile runs again | [`controller`], [`backoff`] |
//! | how an object is created, changed, deleted | [`mod@apply`] |
//! | how a tenant's cluster is reached, and what it cannot do to us | [`tenant`] |
//! | what a person and a monitoring system see | [`admin`], [`event`], [`metrics`] |

pub mod admin;
pub mod apply;
pub mod backoff;
pub mod client;
pub mod controller;
pub mod error;
pub mod event;
pub mod fence;
pub mod lease;
pub mod metrics;
pub mod process;
pub mod tenant;
pub mod watched;

#[cfg(test)]
mod mock;

pub use controller::{Drive, drive, repeat};
pub use error::{Error, Result};
pub use process::{Options, Process, run};
pub use tenant::{TenantCluster, TenantClusters, TenantOptions};
pub use watched::{Presence, Watchable, Watched};
