//! Service of type LoadBalancer in a tenant cluster → EipClaim → one OvnDnatRule for each of its ports.

mod binding;
mod change;
mod demand;
mod network;
mod plan;
mod rules;
mod serve;
mod worker;
