//! Which way out a VPC gets: the tenant's wish against what the platform offers and what is attached already. Pure.

use kmetal_crds::{
    condition::Progress,
    foreign::kube_ovn::Vpc,
    networking::{VpcClaimSpec, reason},
};

use crate::platform::{Platform, ProviderNetwork};

/// The way out to write into the Vpc.
#[derive(Debug, PartialEq)]
pub enum WayOut<'a> {
    /// None.
    Closed,
    /// Through this network.
    Through(&'a ProviderNetwork),
    /// Whatever is there stays as it is, for this reason; where nothing is there yet, nothing is made.
    AsIs(Refusal),
}

/// Why the wish is not carried out now.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// Whether it will solve itself.
    pub progress: Progress,
    /// Condition reason.
    pub reason: &'static str,
    /// For the tenant.
    pub message: String,
}

/// What besides the claim decides.
pub struct Surroundings<'a> {
    /// The Tenant of the Environment.
    pub tenant: &'a str,
    /// The checked platform file.
    pub platform: &'a Platform,
    /// The Vpc as it stands.
    pub vpc: Option<&'a Vpc>,
    /// Names of NAT rules that still use the way out.
    pub nat_rules: &'a [String],
    /// Names of the EipClaims whose addresses come in that way.
    pub bound: &'a [String],
}

/// The external subnet that a Vpc is attached to, by its own spec: the only lasting memory of a default that has
/// changed since.
pub fn attached(vpc: Option<&Vpc>) -> Option<&str> {
    let spec = &vpc?.spec;
    spec.enable_external.then(|| spec.extra_external_subnets.first().map(String::as_str))?
}

fn is_attached(vpc: &Vpc) -> bool {
    vpc.status.as_ref().is_some_and(|status| status.enable_external)
}

/// Decides the way out, all but the question whether other VPCs are closed against it yet.
pub fn choose<'a>(claim: &VpcClaimSpec, around: &Surroundings<'a>) -> WayOut<'a> {
    let attached = attached(around.vpc);
    let Some(egress) = &claim.egress else {
        if attached.is_some() && !around.bound.is_empty() {
            return WayOut::AsIs(stalled(
                reason::IN_USE,
                format!(
                    "the way out is kept while Services behind this VPC have the addresses of these EipClaims: {}; delete those Services or give them other addresses, or put spec.egress back",
                    listed(around.bound)
                ),
            ));
        }
        return match (attached, around.nat_rules) {
            (Some(_), [_, ..]) => WayOut::AsIs(Refusal {
                progress: Progress::Waiting,
                reason: reason::UPDATING,
                message: "the way out is withdrawn as soon as the NAT rules of the VPC are gone".into(),
            }),
            // Kube-OVN forgets a detachment that is asked for before it has finished attaching.
            (Some(_), _) if !around.vpc.is_some_and(is_attached) => WayOut::AsIs(Refusal {
                progress: Progress::Waiting,
                reason: reason::UPDATING,
                message: "the way out is withdrawn as soon as Kube-OVN has finished attaching it".into(),
            }),
            _ => WayOut::Closed,
        };
    };
    let wanted = match (&egress.provider_network, attached) {
        (Some(name), _) => around.platform.open_to(around.tenant).find(|network| network.name == *name),
        (None, Some(subnet)) => {
            around.platform.by_external_subnet(subnet).filter(|network| network.is_open_to(around.tenant))
        }
        (None, None) => around.platform.open_to(around.tenant).find(|network| network.default),
    };
    match (wanted, attached) {
        (Some(network), Some(subnet)) if network.external_subnet != subnet => WayOut::AsIs(stalled(
            reason::PROVIDER_NETWORK_IMMUTABLE,
            format!("the VPC is still attached to another provider network than '{}'; remove spec.egress, wait until status.egress is gone, then ask for '{}'", network.name, network.name),
        )),
        (Some(network), _) => WayOut::Through(network),
        (None, Some(_)) => WayOut::AsIs(stalled(
            reason::PROVIDER_NETWORK_REMOVED,
            "the provider network in use is no longer offered to this Tenant; the VPC was left as it is. Ask the platform's engineers to restore it, or remove spec.egress".into(),
        )),
        (None, None) => WayOut::AsIs(missing(egress.provider_network.as_deref())),
    }
}

fn missing(name: Option<&str>) -> Refusal {
    match name {
        // The same words for a network that does not exist and for one that is reserved to others.
        Some(name) => stalled(
            reason::PROVIDER_NETWORK_NOT_FOUND,
            format!("there is no provider network '{name}' for this Tenant; ask the platform's engineers for the names, or leave providerNetwork out to take the default"),
        ),
        None => stalled(
            reason::NO_DEFAULT_PROVIDER_NETWORK,
            "the platform has no default provider network for this Tenant; set spec.egress.providerNetwork to a name that the platform's engineers give you".into(),
        ),
    }
}

fn stalled(reason: &'static str, message: String) -> Refusal {
    Refusal { progress: Progress::Stalled, reason, message }
}

/// At most eight names, so that a message stays one.
pub(super) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}
