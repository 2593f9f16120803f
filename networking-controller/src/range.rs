//! Address ranges of one or both families, as claims and the platform file write them: `IPv4`, `IPv6`, `IPv4,IPv6`.
//!
//! Everything that reaches Kube-OVN goes through these types, so it is always canonical: network addresses only,
//! lower-case IPv6, no IPv4-mapped IPv6.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// At most one value of each family, at least one in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dual<V4, V6> {
    /// The IPv4 side.
    pub v4: Option<V4>,
    /// The IPv6 side.
    pub v6: Option<V6>,
}

/// One range, or one of each family.
pub type Range = Dual<Ipv4Net, Ipv6Net>;
/// One address, or one of each family.
pub type Address = Dual<Ipv4Addr, Ipv6Addr>;

/// Why a text is not a range or an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Not the form at all.
    #[error("'{0}' is not {1}")]
    Syntax(String, &'static str),
    /// A host address with a prefix.
    #[error("'{given}' has host bits set; write {network}")]
    HostBits {
        /// What was written.
        given: String,
        /// The network that it lies in.
        network: String,
    },
    /// Two of one family, or IPv6 first.
    #[error("'{0}' must be one IPv4 part, one IPv6 part, or IPv4,IPv6 in this order")]
    Families(String),
}

impl Range {
    /// Reads `10.0.0.0/24`, `fd00::/64` or both joined by a comma.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut range = Self { v4: None, v6: None };
        for part in text.split(',') {
            let net: IpNet =
                part.parse().map_err(|_| Malformed::Syntax(part.into(), "a CIDR such as 10.0.0.0/24"))?;
            if net.network() != net.addr() {
                return Err(Malformed::HostBits { given: part.into(), network: net.trunc().to_string() });
            }
            match net {
                IpNet::V4(v4) if range.v4.is_none() && range.v6.is_none() => range.v4 = Some(v4),
                IpNet::V6(v6) if v6.addr().to_ipv4_mapped().is_some() => {
                    return Err(Malformed::Syntax(part.into(), "IPv6: write IPv4-mapped ranges as IPv4"));
                }
                IpNet::V6(v6) if range.v6.is_none() => range.v6 = Some(v6),
                _ => return Err(Malformed::Families(text.into())),
            }
        }
        Ok(range)
    }

    /// The families' ranges, IPv4 first.
    pub fn nets(&self) -> impl Iterator<Item = IpNet> + use<> {
        self.v4.map(IpNet::V4).into_iter().chain(self.v6.map(IpNet::V6))
    }

    /// Whether the two share an address.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.nets().any(|a| other.nets().any(|b| touch(&a, &b)))
    }

    /// Kube-OVN's word for the families.
    pub fn protocol(&self) -> &'static str {
        match (self.v4, self.v6) {
            (Some(_), Some(_)) => "Dual",
            (_, None) => "IPv4",
            (None, _) => "IPv6",
        }
    }

    /// The first address after the network address of each family: the router's, unless another is asked for.
    pub fn first_addresses(&self) -> Address {
        Address {
            v4: self.v4.map(|net| Ipv4Addr::from_bits(net.network().to_bits().saturating_add(1))),
            v6: self.v6.map(|net| Ipv6Addr::from_bits(net.network().to_bits().saturating_add(1))),
        }
    }
}

impl Address {
    /// Reads `10.0.0.1`, `fd00::1` or both joined by a comma.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut address = Self { v4: None, v6: None };
        for part in text.split(',') {
            match parse_ip(part)? {
                IpAddr::V4(v4) if address.v4.is_none() && address.v6.is_none() => address.v4 = Some(v4),
                IpAddr::V6(v6) if address.v6.is_none() => address.v6 = Some(v6),
                _ => return Err(Malformed::Families(text.into())),
            }
        }
        Ok(address)
    }

    /// The families' addresses, IPv4 first.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }
}

/// Whether two networks share an address.
pub fn touch(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

/// Reads one address; IPv4-mapped IPv6 is refused, because OVN would match it as neither.
pub fn parse_ip(text: &str) -> Result<IpAddr, Malformed> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(v6)) if v6.to_ipv4_mapped().is_some() => {
            Err(Malformed::Syntax(text.into(), "IPv6: write IPv4-mapped addresses as IPv4"))
        }
        Ok(ip) => Ok(ip),
        Err(_) => Err(Malformed::Syntax(text.into(), "an IP address")),
    }
}

impl<V4: fmt::Display, V6: fmt::Display> fmt::Display for Dual<V4, V6> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.v4, &self.v6) {
            (Some(v4), Some(v6)) => write!(f, "{v4},{v6}"),
            (Some(v4), None) => v4.fmt(f),
            (None, Some(v6)) => v6.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Range {
        Range::parse(text).unwrap()
    }

    #[test]
    fn ranges_are_canonical_whatever_was_written() {
        assert_eq!(range("10.0.0.0/24").to_string(), "10.0.0.0/24");
        assert_eq!(range("FD00:0:0::/64").to_string(), "fd00::/64");
        assert_eq!(range("10.0.0.0/24,fd00::/64").protocol(), "Dual");
        assert_eq!(range("fd00::/64").protocol(), "IPv6");
    }

    #[test]
    fn what_is_not_a_network_is_refused_with_the_cure() {
        for (text, says) in [
            ("10.0.0.7/24", "write 10.0.0.0/24"),
            ("10.0.0.0", "not a CIDR"),
            ("10.0.0.0/33", "not a CIDR"),
            ("", "not a CIDR"),
            ("10.0.0.0/24, fd00::/64", "not a CIDR"),
            ("::ffff:10.0.0.0/120", "as IPv4"),
            ("10.0.0.0/24,10.1.0.0/24", "in this order"),
            ("fd00::/64,10.0.0.0/24", "in this order"),
            ("10.0.0.0/24,fd00::/64,fd01::/64", "in this order"),
        ] {
            let error = Range::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn overlap_is_judged_in_each_family() {
        for (a, b, overlap) in [
            ("10.0.0.0/16", "10.0.5.0/24", true),
            ("10.0.5.0/24", "10.0.0.0/16", true),
            ("10.0.0.0/24", "10.0.1.0/24", false),
            ("10.0.0.0/24,fd00::/64", "10.9.0.0/24,fd00::/48", true),
            ("10.0.0.0/24", "fd00::/64", false),
        ] {
            assert_eq!(range(a).overlaps(&range(b)), overlap, "{a} {b}");
        }
    }

    #[test]
    fn the_router_takes_the_first_address() {
        assert_eq!(range("10.0.0.0/24,fd00::/64").first_addresses().to_string(), "10.0.0.1,fd00::1");
    }

    #[test]
    fn ipv4_mapped_addresses_are_refused() {
        assert!(parse_ip("::ffff:10.0.0.1").is_err());
        assert!(Address::parse("10.0.0.1,fd00::1").is_ok());
        assert!(Address::parse("fd00::1,10.0.0.1").is_err());
    }
}
