//! The suite's judgements, pure: over recorded requests, versions and messages, so that each is tested by planting what it
//! is there to find. Who took over from whom, and which permissions were used, [`crate::audit`] tells.

pub mod children;
pub mod foreign;
pub mod leak;
pub mod message;
pub mod quiet;
pub mod throttled;

#[cfg(test)]
mod tests;
