//! The kit: real upstream programs on one machine, under the tests, the demo and CI.
//!
//! Nothing here stands in for Kubernetes, and in Kube-OVN's place an actor stands for [`measure`] alone
//! ([`ovn_actor`]): the programs are built from pinned Go modules ([`programs`]), started as plain child processes
//! ([`child`]) in a folder of their own ([`rig`]) on ports of their own ([`ports`]), and stopped with their owner however
//! that ends. [`cluster`] is the control plane, [`chart`] and [`controller`] put our charts and binaries on it,
//! [`wait`], [`history`] and [`audit`] are how a test looks at it, [`faults`] is how it breaks what lies between. What no
//! kubelet does here is done, and named, in [`node_actor`]; [`tenant_cluster`] makes further control planes, and what
//! Cluster API and Kamaji would write about them is done, and named, in [`capi`].

pub mod apply;
pub mod audit;
pub mod capi;
pub mod capsule;
pub mod cargo;
pub mod chart;
pub mod child;
pub mod clock;
pub mod cluster;
pub mod controller;
pub mod environment;
pub mod faults;
pub mod history;
pub mod isolation;
pub mod measure;
pub mod networking;
pub mod node_actor;
pub mod ovn;
pub mod ovn_actor;
pub mod permissions;
pub mod pki;
pub mod places;
pub mod ports;
pub mod programs;
pub mod promises;
pub mod reach;
pub mod rig;
pub mod services;
pub mod setup;
pub mod stand_in;
pub mod steps;
pub mod suite;
pub mod tenant_cluster;
pub mod wait;
