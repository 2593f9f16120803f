//! The promises of the product, one module each, in one binary: it links once.
//!
//! They run against real upstreams; `cargo e2e` builds those first. Exhaustive tests are ignored unless `--full`.

mod absence;
mod accounting;
mod addresses;
mod chance;
mod charts;
mod claims;
mod clocks;
mod control_plane;
mod definitions;
mod deletion;
mod faults;
mod input;
mod isolation;
mod kube_ovn;
mod mending;
mod orders;
mod policy;
mod processes;
mod quotas;
mod remains;
mod restarts;
mod services;
mod shared;
mod stand_ins;
mod tenant_clusters;
