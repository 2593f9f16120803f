//! The namespace of a claim, as far as claims care.

/// What is known of a claim's namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The Capsule Tenant; none for a namespace that is no Environment.
    pub tenant: Option<String>,
    /// Whether the namespace is being deleted.
    pub terminating: bool,
    /// Whether Pods are left in it. Looked up only while it is terminating; otherwise true.
    pub workloads: bool,
}

impl Environment {
    /// Deleted, and nothing runs in it any more: nothing of ours may keep it.
    pub fn is_finishing(&self) -> bool {
        self.terminating && !self.workloads
    }
}
