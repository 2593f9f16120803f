//! The addresses of the external Subnets, as the ovn actor hands them out.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::Ipv4Addr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use ipnet::Ipv4Net;
use kmetal_crds::foreign::kube_ovn::{OvnEipSpec, Subnet, SubnetSpec};
use kube::ResourceExt;

/// The VPC that an external Subnet lies in.
const OUTSIDE: &str = "ovn-cluster";

/// By external Subnet.
#[derive(Default)]
pub(super) struct Addresses(Mutex<HashMap<String, Pool>>);

struct Pool {
    net: Ipv4Net,
    excluded: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// With the uid of the OvnEip that has it.
    taken: BTreeMap<Ipv4Addr, String>,
    /// Uids of OvnEips that gave theirs back: an older version of one may still be under way to us.
    ended: HashSet<String>,
    /// Where the last search ended, so that none begins at the first address of a full pool.
    next: u32,
}

impl Addresses {
    /// Takes note of a Subnet if it is an external one.
    pub(super) fn learn(&self, subnet: &Subnet) {
        if subnet.spec.vpc != OUTSIDE {
            return;
        }
        let Some(net) = network(&subnet.spec) else { return };
        let excluded = excluded(&subnet.spec);
        let mut pools = self.lock();
        let pool = pools.entry(subnet.name_any()).or_insert_with(|| Pool::new(net));
        pool.excluded = excluded;
    }

    /// The address that the OvnEip of this uid has or gets; none when it wants one that is not free, or none is left.
    pub(super) fn take(&self, eip: &str, spec: &OvnEipSpec) -> Option<Ipv4Addr> {
        let mut pools = self.lock();
        let pool = pools.get_mut(&spec.external_subnet).filter(|pool| !pool.ended.contains(eip))?;
        let wanted: Option<Ipv4Addr> = spec.v4_ip.as_deref().and_then(|text| text.parse().ok());
        let address = match wanted {
            Some(address) => {
                Some(address).filter(|address| pool.taken.get(address).is_none_or(|holder| holder == eip))
            }
            None => pool.had_by(eip).or_else(|| pool.search()),
        }?;
        pool.taken.insert(address, eip.to_owned());
        Some(address)
    }

    /// Takes back what an OvnEip has.
    pub(super) fn give_back(&self, external_subnet: &str, eip: &str) {
        if let Some(pool) = self.lock().get_mut(external_subnet) {
            pool.taken.retain(|_, holder| holder != eip);
            pool.ended.insert(eip.to_owned());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Pool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn new(net: Ipv4Net) -> Self {
        Self { net, excluded: Vec::new(), taken: BTreeMap::new(), ended: HashSet::new(), next: 0 }
    }

    fn had_by(&self, eip: &str) -> Option<Ipv4Addr> {
        self.taken.iter().find(|(_, holder)| *holder == eip).map(|(address, _)| *address)
    }

    fn search(&mut self) -> Option<Ipv4Addr> {
        let (first, last) = (self.net.network().to_bits() + 1, self.net.broadcast().to_bits() - 1);
        let start = self.next.clamp(first, last);
        let found = (start..=last).chain(first..start).map(Ipv4Addr::from_bits).find(|address| {
            !self.taken.contains_key(address)
                && !self.excluded.iter().any(|(from, to)| (from..=to).contains(&address))
        })?;
        self.next = found.to_bits() + 1;
        Some(found)
    }
}

/// How many addresses machines can have in a Subnet; none are counted in IPv6.
pub(super) fn machines(spec: &SubnetSpec) -> u32 {
    let Some(net) = network(spec) else { return 0 };
    let hosts = net.broadcast().to_bits() - net.network().to_bits() - 1;
    let kept: u32 = excluded(spec).iter().map(|(from, to)| to.to_bits() - from.to_bits() + 1).sum();
    hosts.saturating_sub(kept)
}

fn network(spec: &SubnetSpec) -> Option<Ipv4Net> {
    spec.cidr_block.split(',').find_map(|text| text.parse().ok())
}

fn excluded(spec: &SubnetSpec) -> Vec<(Ipv4Addr, Ipv4Addr)> {
    let range = |entry: &String| {
        let (first, last) = entry.split_once("..").unwrap_or((entry, entry));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    spec.exclude_ips.iter().filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Addresses {
        let spec = SubnetSpec {
            vpc: OUTSIDE.into(),
            cidr_block: "198.51.100.0/29".into(),
            exclude_ips: vec!["198.51.100.1".into(), "198.51.100.4..198.51.100.5".into()],
            ..SubnetSpec::default()
        };
        assert_eq!(machines(&spec), 3);
        let addresses = Addresses::default();
        addresses.learn(&Subnet::new("outside", spec));
        addresses
    }

    fn wish(last: Option<u8>) -> OvnEipSpec {
        let v4_ip = last.map(|last| format!("198.51.100.{last}"));
        OvnEipSpec { external_subnet: "outside".into(), type_: "nat".into(), v4_ip }
    }

    #[test]
    fn each_address_is_had_once_until_it_is_given_back() {
        let addresses = pool();
        let took = |eip: &str, last| addresses.take(eip, &wish(last)).map(|address| address.octets()[3]);
        assert_eq!(took("a", Some(3)), Some(3));
        assert_eq!(took("b", Some(3)), None);
        assert_eq!(took("a", None), Some(3), "whoever has one keeps it");
        assert_eq!((took("b", None), took("c", None), took("d", None)), (Some(2), Some(6), None));
        addresses.give_back("outside", "a");
        assert_eq!(took("a", None), None, "an old version of it comes late");
        assert_eq!(took("d", None), Some(3));
    }
}
