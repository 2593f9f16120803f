//! The parts of others' kinds that kMetal reads or writes, and nothing more.
//!
//! None of these types carries a schema, and none may be sent with PUT: fields that are not modelled here would be
//! lost. They are created with POST and changed with server-side apply, so every field that we mean is always
//! stated, also when it is empty.

use serde::{Deserialize, Deserializer};

pub mod capi;
pub mod kube_ovn;
pub mod multus;

/// Go writes what is empty as `null`.
fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
