//! What a plan for a Service may do: to the Service itself, to EipClaims, and to Kube-OVN's objects.

use std::net::Ipv4Addr;

use kmetal_crds::networking::{Binding, EipClaim};

use crate::change::{self, Target};

/// One write. Carried out in order; the first failure ends the pass.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Put Kubernetes' finalizer on the Service.
    Hold,
    /// Take it off.
    Release,
    /// Create an EipClaim for the Service.
    CreateClaim(Box<EipClaim>),
    /// Delete the one that was created for it.
    DeleteClaim(Target),
    /// Give this EipClaim, as it was read, to a Service.
    Bind(Box<EipClaim>, Binding),
    /// Take this EipClaim, as it was read, from its Service.
    Unbind(Box<EipClaim>),
    /// A write to Kube-OVN.
    Under(change::Change),
}

/// What the status of a Service says of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Nothing of ours.
    Nothing,
    /// Nothing at all: what stands there was ours and must not stay.
    Wipe,
    /// This.
    Address(Ipv4Addr),
}

/// What a pass found out and will do.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Writes, in order.
    pub changes: Vec<Change>,
    /// The address in the status.
    pub show: Show,
    /// Whether the address leads to the Service.
    pub ready: bool,
    /// A word of `kmetal_crds::networking::service::reason`.
    pub reason: &'static str,
    /// What, which object, why, what to do.
    pub message: String,
}

impl Outcome {
    /// The address leads to the Service.
    pub fn ready(reason: &'static str, message: impl Into<String>) -> Self {
        Self { ready: true, ..Self::waiting(reason, message) }
    }

    /// It does not, for this reason.
    pub fn waiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { changes: Vec::new(), show: Show::Nothing, ready: false, reason, message: message.into() }
    }

    /// The same with this address.
    #[must_use]
    pub fn showing(self, show: Show) -> Self {
        Self { show, ..self }
    }

    /// The same with these writes first.
    #[must_use]
    pub fn with(self, changes: Vec<Change>) -> Self {
        Self { changes, ..self }
    }
}
