//! What somebody deleted by hand of a VPC that is wanted, made good again. Pure.
//!
//! Kube-OVN keeps a Vpc for as long as a Subnet lies in it, and a router's address for as long as a rule translates to
//! it, also after somebody has deleted them: they go on working, and so does the VPC. When they go at last they are
//! made again.
//!
//! A Vpc is attached without an address when its router's OvnEip goes: Kube-OVN takes the router's port with it and
//! looks at it no more. Only a Vpc that is detached and attached again gets a port. In between, the address is held for
//! it: it is noted on the Vpc, and the OvnEip is made before the Vpc is attached, for Kube-OVN takes one that is there.
//!
//! It is detached only when it has been without its address for a while ([`Lost`]). A pass of Kube-OVN's that began
//! before the change writes the Vpc's status as if it had detached it, and leaves half of the port behind; nothing that
//! it could be asked for would then make it whole.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kmetal_crds::{
    condition,
    foreign::kube_ovn::{OvnEip, OvnEipSpec, Vpc, VpcSpec},
    names::ROUTER_ADDRESS,
    networking::{VpcClaim, reason},
};
use kube::ResourceExt;

use super::{egress::WayOut, plan::Seen};
use crate::{
    change::{Change, Outcome, Target, guard_eip, hold},
    claim::{ClaimRef, is_deleting},
    isolation, names,
    platform::{Platform, ProviderNetwork},
    teardown,
};

/// Seconds that Kube-OVN is given to make a router's address; then any other will do.
const PATIENCE: i64 = 20;

/// For so long a Vpc is left alone that has lost its router's address: whatever Kube-OVN was doing with it is done then.
pub(super) const SETTLED: Duration = Duration::from_secs(5);

/// Since when which Vpc, by uid, is attached without its router's address.
#[derive(Default)]
pub struct Lost(Mutex<HashMap<String, Instant>>);

impl Lost {
    /// For how long it has been so, if it is so now.
    pub(super) fn saw(&self, vpc: &str, is_lost: bool, now: Instant) -> Option<Duration> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_lost {
            since.remove(vpc);
            return None;
        }
        Some(now - *since.entry(vpc.to_owned()).or_insert(now))
    }
}

/// The address of a way out that the claim had before its Vpc went.
pub(super) fn remembered(claim: &VpcClaim, network: &ProviderNetwork) -> Option<Ipv4Addr> {
    let had = claim.status.as_ref()?.egress.as_ref()?;
    let address = had.address.as_ref()?.split(',').next()?.parse().ok()?;
    let is_of_it = had.provider_network == network.name && network.range.v4?.contains(&address);
    is_of_it.then_some(address)
}

/// Notes on a Vpc that it is being attached once more, and which address it is to have: none for any.
pub(super) fn keeps(address: Option<Ipv4Addr>) -> BTreeMap<String, String> {
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    [(ROUTER_ADDRESS.to_owned(), address)].into()
}

/// That note, if there is one.
pub(super) fn kept(vpc: &Vpc) -> Option<BTreeMap<String, String>> {
    let note = vpc.annotations().get(ROUTER_ADDRESS)?;
    Some([(ROUTER_ADDRESS.to_owned(), note.clone())].into())
}

/// The address that a Vpc is to have again.
pub fn held(vpc: &Vpc) -> Option<Ipv4Addr> {
    vpc.annotations().get(ROUTER_ADDRESS)?.parse().ok()
}

/// The next step of a Vpc that is to be attached once more; none when it is attached, or may be attached as usual.
pub(super) fn way_out(
    claim: &VpcClaim,
    vpc: &Vpc,
    platform: &Platform,
    way_out: &WayOut<'_>,
    (seen, now): (&Seen, Timestamp),
) -> Option<Outcome> {
    let WayOut::Through(network) = way_out else { return None };
    let me = ClaimRef::of(claim);
    let name = vpc.name_any();
    let waits = |what: &str, changes: Vec<Change>| {
        let text = format!(
            "Vpc {name} is being attached once more, because somebody deleted its router's public address; waiting for Kube-OVN to {what}"
        );
        let changes = hold(claim).into_iter().chain(changes).collect();
        Some(seen.kube_ovn.waiting(reason::UPDATING, text).with(changes))
    };
    let closed = |address: Option<Ipv4Addr>| {
        let spec = isolation::next_write(&vpc.spec, isolation::vpc_spec(platform, None));
        let mut object = teardown::rewritten(&me, vpc, spec);
        object.metadata.annotations = Some(keeps(address));
        Change::UpdateVpc(Box::new(object))
    };
    if let Some(lost) = seen.address_lost.filter(|_| vpc.spec.enable_external) {
        let close = (lost >= SETTLED).then(|| closed(remembered(claim, network)));
        return waits("detach it", close.into_iter().collect());
    }
    kept(vpc).filter(|_| !vpc.spec.enable_external)?;
    let status = vpc.status.clone().unwrap_or_default();
    if status.enable_external {
        return waits("detach it", Vec::new());
    }
    if !status.standby {
        return waits("build it", Vec::new());
    }
    let eip = seen.router_eips.iter().find(|eip| eip.spec.external_subnet == network.external_subnet);
    match (eip, held(vpc)) {
        (Some(eip), _) if is_deleting(eip) => {
            waits("give its address back", teardown::nudge_eip(eip, now).into_iter().collect())
        }
        (Some(eip), _) if eip.status.as_ref().is_some_and(|status| status.ready) => {
            let guard = guard_eip(eip)?;
            waits("attach it", vec![guard])
        }
        (Some(eip), _) => {
            let made = eip.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
            let changes = if now.as_second() - made.as_second() < PATIENCE {
                Vec::new()
            } else {
                vec![closed(None), Change::DeleteEip(Target::of(eip))]
            };
            waits("allocate its address", changes)
        }
        (None, Some(address)) if seen.address_free => {
            let spec = OvnEipSpec {
                external_subnet: network.external_subnet.clone(),
                type_: "lrp".into(),
                v4_ip: Some(address.to_string()),
            };
            let eip = OvnEip::new(&names::router_eip(&name, &network.external_subnet), spec);
            waits("allocate its address", vec![Change::CreateEip(Box::new(eip))])
        }
        (None, _) => None,
    }
}

/// The router's address on a VPC that has been closed for a while, on both sides: see [`teardown::vpc`].
pub(super) fn forgotten<'a>(
    claim: &VpcClaim,
    vpc: &Vpc,
    wanted: &VpcSpec,
    seen: &'a Seen,
    now: Timestamp,
) -> Option<&'a OvnEip> {
    let is_closed =
        !wanted.enable_external && !vpc.spec.enable_external && !vpc.status.as_ref()?.enable_external;
    let ready = condition::get(&claim.status.as_ref()?.conditions, condition::READY)?;
    let closed_for = now.as_second() - ready.last_transition_time.0.as_second();
    let waits = is_closed && ready.status == "False" && closed_for >= teardown::LOST_DETACH;
    seen.router_eips.first().filter(|_| waits)
}

/// What a Ready claim says of objects that somebody has deleted and that are kept by what uses them.
pub(super) fn marked(vpc: &Vpc, seen: &Seen) -> &'static str {
    let eip = seen.router_eips.iter().any(is_deleting);
    match (is_deleting(vpc), eip) {
        (true, _) => {
            "; somebody has deleted that Vpc: it goes on working while Subnets lie in it, and is then made again"
        }
        (false, true) => {
            "; somebody has deleted its router's OvnEip: it goes on working while rules use it, and is then made again"
        }
        (false, false) => "",
    }
}
