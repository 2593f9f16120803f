//! The addresses of a provider network, and who gets the next one. Pure.
//!
//! Kube-OVN would take any number of OvnEips and retry those that it cannot serve, each with its own back-off, in no
//! order, telling only its log. So an OvnEip is created only when an address is there for it, oldest claim first.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;
use k8s_openapi::jiff::Timestamp;

/// A provider network's addresses as they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The segment.
    pub net: Ipv4Net,
    /// Inclusive ranges that are never handed out, the gateway among them.
    pub excluded: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Addresses that somebody has.
    pub taken: BTreeSet<Ipv4Addr>,
    /// How many more are promised without being known yet: Kube-OVN is about to choose them.
    pub promised: u64,
}

/// A claim that has no OvnEip yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// When it was created; none goes before all.
    pub created: Option<Timestamp>,
    /// Its uid.
    pub uid: String,
    /// The address that it wants; none for any.
    pub wants: Option<Ipv4Addr>,
}

/// What a claim without an OvnEip gets now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Create its OvnEip.
    Served,
    /// The address is no host address of the segment.
    OutOfRange,
    /// The address is excluded, or somebody has it.
    Unavailable,
    /// So many claims are before it, and no address is left after them.
    Behind(usize),
}

impl Pool {
    /// Whether the address can be handed out at all.
    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.net.contains(&address) && address != self.net.network() && address != self.net.broadcast()
    }

    /// How many addresses are left.
    pub fn free(&self) -> u64 {
        let hosts = 2_u64.pow(32 - u32::from(self.net.prefix_len())).saturating_sub(2);
        let (first, last) =
            (self.net.network().to_bits() + 1, self.net.broadcast().to_bits().saturating_sub(1));
        let mut ranges: Vec<(u32, u32)> = self
            .excluded
            .iter()
            .map(|(from, to)| (from.to_bits().max(first), to.to_bits().min(last)))
            .chain(
                self.taken.iter().filter(|address| self.has(**address)).map(|a| (a.to_bits(), a.to_bits())),
            )
            .filter(|(from, to)| from <= to)
            .collect();
        ranges.sort_unstable();
        let mut used = 0;
        let mut next = first;
        for (from, to) in ranges {
            let from = from.max(next);
            if from <= to {
                used += u64::from(to - from) + 1;
                next = to.saturating_add(1);
            }
        }
        hosts.saturating_sub(used).saturating_sub(self.promised)
    }

    /// Whether nobody has the address and the platform does not keep it.
    pub fn is_available(&self, address: Ipv4Addr) -> bool {
        !self.taken.contains(&address)
            && !self.excluded.iter().any(|(from, to)| (from..=to).contains(&&address))
    }

    /// Whose turn it is, seen from `me`. `others` are all claims without an OvnEip on this network but `me`.
    ///
    /// A claim whose wish cannot be met stands in nobody's way; one whose wish can be met goes by its age like all.
    pub fn turn(&self, me: &Waiter, others: &[Waiter]) -> Turn {
        if let Some(wish) = me.wants {
            if !self.has(wish) {
                return Turn::OutOfRange;
            }
            if !self.is_available(wish) {
                return Turn::Unavailable;
            }
        }
        let can_be_met =
            |other: &&Waiter| other.wants.is_none_or(|wish| self.has(wish) && self.is_available(wish));
        let before: Vec<&Waiter> = others
            .iter()
            .filter(can_be_met)
            .filter(|other| (other.created, &other.uid) < (me.created, &me.uid))
            .collect();
        // Of those who want one address, the oldest gets it.
        if me.wants.is_some() && before.iter().any(|other| other.wants == me.wants) {
            return Turn::Unavailable;
        }
        let ahead = before.len();
        if u64::try_from(ahead).unwrap_or(u64::MAX) < self.free() {
            Turn::Served
        } else {
            Turn::Behind(ahead)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        // 203.0.113.1 to .6; .1 is the gateway: five addresses.
        Pool {
            net: "203.0.113.0/29".parse().unwrap(),
            excluded: vec![(address(1), address(1))],
            taken: BTreeSet::new(),
            promised: 0,
        }
    }

    fn address(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(203, 0, 113, last)
    }

    fn waiter(second: i64, uid: &str, wants: Option<u8>) -> Waiter {
        Waiter { created: Timestamp::from_second(second).ok(), uid: uid.into(), wants: wants.map(address) }
    }

    #[test]
    fn what_is_free_is_hosts_less_excluded_taken_and_promised() {
        let mut pool = pool();
        assert_eq!(pool.free(), 5);
        pool.excluded.push((address(4), address(200)));
        assert_eq!(pool.free(), 2);
        pool.taken = [address(2), address(5), address(250)].into();
        assert_eq!(pool.free(), 1);
        pool.promised = 3;
        assert_eq!(pool.free(), 0);
    }

    #[test]
    fn the_oldest_are_served_and_the_rest_know_how_many_are_before_them() {
        let pool = Pool { promised: 3, ..pool() };
        let all: Vec<Waiter> = (0..4).map(|n| waiter(n, "x", None)).collect();
        let turn = |me: usize| {
            let others: Vec<Waiter> =
                all.iter().enumerate().filter(|(n, _)| *n != me).map(|(_, w)| w.clone()).collect();
            pool.turn(&all[me], &others)
        };
        assert_eq!(
            [turn(0), turn(1), turn(2), turn(3)],
            [Turn::Served, Turn::Served, Turn::Behind(2), Turn::Behind(3)]
        );
    }

    #[test]
    fn a_wish_must_be_a_free_address_of_the_segment() {
        let pool = Pool { taken: [address(3)].into(), ..pool() };
        for (wish, turn) in [
            (2, Turn::Served),
            (3, Turn::Unavailable),
            (1, Turn::Unavailable),
            (0, Turn::OutOfRange),
            (7, Turn::OutOfRange),
            (9, Turn::OutOfRange),
        ] {
            assert_eq!(pool.turn(&waiter(1, "a", Some(wish)), &[]), turn, ".{wish}");
        }
    }

    #[test]
    fn of_two_that_want_one_address_the_older_gets_it() {
        let (old, new) = (waiter(1, "a", Some(4)), waiter(2, "b", Some(4)));
        assert_eq!(pool().turn(&old, std::slice::from_ref(&new)), Turn::Served);
        assert_eq!(pool().turn(&new, &[old]), Turn::Unavailable);
    }

    #[test]
    fn a_claim_whose_wish_cannot_be_met_stands_in_nobodys_way() {
        let pool = Pool { taken: [address(3)].into(), promised: 3, ..pool() };
        let stuck = waiter(0, "stuck", Some(3));
        assert_eq!(pool.free(), 1);
        assert_eq!(pool.turn(&waiter(1, "a", None), &[stuck]), Turn::Served);
    }
}
