//! The parts of others' kinds that kMetal reads or writes, and nothing more.
//!
//! None of these types carries a schema, and none may be sent with PUT: fields that are not modelled here would be
//! lost. They are created with POST and changed with server-side apply, so every field that we mean is always
//! stated, also when it is empty.

pub mod kube_ovn;
pub mod multus;
