//! What a SubnetClaim asks for, checked and in the canonical form that Kube-OVN leaves untouched. Pure.

use std::net::IpAddr;

use ipnet::IpNet;
use kmetal_crds::{
    foreign::kube_ovn::SubnetSpec,
    networking::{SubnetClaimSpec, reason},
};

use crate::range::{Address, Malformed, Range, parse_ip, touch};

/// The shortest prefix that is served.
const WIDEST: u8 = 8;

/// Ranges that no machine can have an address of; the rule on `cidr` names the same.
const UNUSABLE: [&str; 8] = [
    "0.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::/8",
    "fe80::/10",
    "ff00::/8",
];

/// What Kube-OVN lets a router advertise by itself; whoever adds to it must state all of it.
const ADVERTISED: &str = "address_mode=dhcpv6_stateful,max_interval=30,min_interval=5,send_periodic=true";

/// A checked SubnetClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The range.
    pub range: Range,
    /// The router's address in it.
    pub gateway: Address,
    /// Addresses never handed out, the gateway among them, in Kube-OVN's form and order.
    pub exclude: Vec<String>,
    dns: Vec<IpAddr>,
}

/// Why a SubnetClaim cannot be served as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Condition reason.
    pub reason: &'static str,
    /// For the tenant.
    pub message: String,
}

impl Demand {
    /// Checks a claim against itself. Most of this is refused at apply already; a claim written under older rules,
    /// or on a server that does not know them, is refused here.
    pub fn check(spec: &SubnetClaimSpec) -> Result<Self, Refusal> {
        let range = Range::parse(&spec.cidr).map_err(|error| match error {
            Malformed::HostBits { .. } => refuse(reason::HOST_BITS_SET, format!("spec.cidr {error}")),
            _ => refuse(reason::CIDR_INVALID, format!("spec.cidr {error}")),
        })?;
        for net in range.nets() {
            if net.prefix_len() < WIDEST {
                return Err(refuse(
                    reason::CIDR_INVALID,
                    format!("spec.cidr {net} is too large; use a /{WIDEST} or smaller"),
                ));
            }
            if UNUSABLE.iter().filter_map(|text| text.parse::<IpNet>().ok()).any(|kept| touch(&net, &kept)) {
                return Err(refuse(
                    reason::CIDR_INVALID,
                    format!(
                        "spec.cidr {net} has addresses that no machine can have (loopback, link-local, multicast, broadcast or unspecified); use a private range, for example 10.0.0.0/24 or fd00:1::/64"
                    ),
                ));
            }
            let largest = if net.addr().is_ipv4() { 30 } else { 126 };
            if net.prefix_len() > largest {
                return Err(refuse(
                    reason::CIDR_TOO_SMALL,
                    format!(
                        "spec.cidr {net} has no room for a router and a machine; use a /{largest} or larger"
                    ),
                ));
            }
        }
        let gateway = gateway(spec, &range)?;
        let mut intervals = Vec::new();
        for entry in &spec.exclude_addresses {
            intervals.push(interval(entry, &range)?);
        }
        let merged = merge(intervals);
        if let Some(net) = range.nets().find(|net| free(net, &merged, &gateway) == 0) {
            return Err(refuse(
                reason::EXCLUDE_INVALID,
                format!("spec.excludeAddresses leaves no address of {net} for machines; exclude fewer"),
            ));
        }
        let mut dns = Vec::new();
        for server in &spec.dns {
            dns.push(
                parse_ip(server).map_err(|error| refuse(reason::DNS_INVALID, format!("spec.dns {error}")))?,
            );
        }
        Ok(Self { exclude: exclude_ips(&merged, &gateway), range, gateway, dns })
    }

    /// The Subnet in the form that Kube-OVN leaves untouched.
    pub fn subnet_spec(&self, vpc: &str, provider: &str, mtu: i32) -> SubnetSpec {
        let servers = |v4: bool| {
            let of_family: Vec<String> =
                self.dns.iter().filter(|ip| ip.is_ipv4() == v4).map(ToString::to_string).collect();
            match of_family.as_slice() {
                [] => String::new(),
                [one] => format!("dns_server={one}"),
                // Kube-OVN splits options at commas and turns these semicolons into commas for OVN's set syntax.
                many => format!("dns_server={{{}}}", many.join(";")),
            }
        };
        SubnetSpec {
            vpc: vpc.into(),
            cidr_block: self.range.to_string(),
            gateway: self.gateway.to_string(),
            exclude_ips: self.exclude.clone(),
            protocol: self.range.protocol().into(),
            provider: provider.into(),
            enable_lb: false,
            enable_dhcp: true,
            dhcp_v4_options: if self.range.v4.is_some() { servers(true) } else { String::new() },
            dhcp_v6_options: if self.range.v6.is_some() { servers(false) } else { String::new() },
            // Without router advertisements a machine learns no IPv6 route, and from nothing else the largest packet.
            enable_ipv6_ra: self.range.v6.is_some(),
            ipv6_ra_configs: self.range.v6.map(|_| format!("{ADVERTISED},mtu={mtu}")).unwrap_or_default(),
            mtu,
        }
    }
}

fn refuse(reason: &'static str, message: String) -> Refusal {
    Refusal { reason, message }
}

fn gateway(spec: &SubnetClaimSpec, range: &Range) -> Result<Address, Refusal> {
    let Some(text) = &spec.gateway else { return Ok(range.first_addresses()) };
    let gateway = Address::parse(text)
        .map_err(|error| refuse(reason::GATEWAY_INVALID, format!("spec.gateway {error}")))?;
    if gateway.v4.is_some() != range.v4.is_some() || gateway.v6.is_some() != range.v6.is_some() {
        return Err(refuse(
            reason::GATEWAY_INVALID,
            format!("spec.gateway {gateway} must give one address for each range of spec.cidr {range}"),
        ));
    }
    for (ip, net) in gateway.ips().zip(range.nets()) {
        let (first, last) = bounds(&net);
        if !(first..=last).contains(&bits(ip)) {
            return Err(refuse(
                reason::GATEWAY_INVALID,
                format!(
                    "spec.gateway {ip} is not a host address of {net}; take one inside it, or leave gateway out for the first"
                ),
            ));
        }
    }
    Ok(gateway)
}

/// Addresses `first..=last` of one family, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    v4: bool,
    first: u128,
    last: u128,
}

fn interval(entry: &str, range: &Range) -> Result<Interval, Refusal> {
    let wrong =
        |why: String| refuse(reason::EXCLUDE_INVALID, format!("spec.excludeAddresses '{entry}' {why}"));
    let (first, last) = entry.split_once("..").unwrap_or((entry, entry));
    let first = parse_ip(first).map_err(|error| wrong(error.to_string()))?;
    let last = parse_ip(last).map_err(|error| wrong(error.to_string()))?;
    if first.is_ipv4() != last.is_ipv4() || bits(first) > bits(last) {
        return Err(wrong("is no range; write FIRST..LAST with the lower address first".into()));
    }
    if !range.nets().any(|net| net.contains(&first) && net.contains(&last)) {
        return Err(wrong(format!("is not inside spec.cidr {range}")));
    }
    Ok(Interval { v4: first.is_ipv4(), first: bits(first), last: bits(last) })
}

/// Overlapping and touching intervals become one.
fn merge(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::new();
    for next in intervals {
        match merged.last_mut() {
            Some(last) if last.v4 == next.v4 && next.first <= last.last.saturating_add(1) => {
                last.last = last.last.max(next.last);
            }
            _ => merged.push(next),
        }
    }
    merged
}

/// Kube-OVN wants the gateway in the list unless a range covers it, and the list sorted as text.
fn exclude_ips(merged: &[Interval], gateway: &Address) -> Vec<String> {
    let covered =
        |ip: &IpAddr| merged.iter().any(|i| i.v4 == ip.is_ipv4() && (i.first..=i.last).contains(&bits(*ip)));
    let mut texts: Vec<String> = merged
        .iter()
        .map(|i| {
            if i.first == i.last {
                ip(*i, i.first).to_string()
            } else {
                format!("{}..{}", ip(*i, i.first), ip(*i, i.last))
            }
        })
        .chain(gateway.ips().filter(|ip| !covered(ip)).map(|ip| ip.to_string()))
        .collect();
    texts.sort_unstable();
    texts
}

/// How many addresses machines can get.
fn free(net: &IpNet, merged: &[Interval], gateway: &Address) -> u128 {
    let (first, last) = bounds(net);
    let v4 = net.addr().is_ipv4();
    let mut taken = merged.to_vec();
    taken.extend(gateway.ips().map(|ip| Interval { v4: ip.is_ipv4(), first: bits(ip), last: bits(ip) }));
    let taken: u128 = merge(taken)
        .iter()
        .filter(|i| i.v4 == v4)
        .map(|i| (i.first.max(first), i.last.min(last)))
        .filter(|(first, last)| first <= last)
        .map(|(first, last)| last - first + 1)
        .sum();
    (last - first + 1).saturating_sub(taken)
}

/// First and last address that Kube-OVN hands out; it keeps the outermost two in both families.
fn bounds(net: &IpNet) -> (u128, u128) {
    (bits(net.network()) + 1, bits(net.broadcast()) - 1)
}

fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn ip(of: Interval, bits: u128) -> IpAddr {
    if of.v4 { IpAddr::V4(u32::try_from(bits).unwrap_or(u32::MAX).into()) } else { IpAddr::V6(bits.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(cidr: &str) -> SubnetClaimSpec {
        SubnetClaimSpec { vpc: "net".into(), cidr: cidr.into(), ..SubnetClaimSpec::default() }
    }

    fn reason_of(spec: &SubnetClaimSpec) -> &'static str {
        Demand::check(spec).map_or_else(|refusal| refusal.reason, |_| "ok")
    }

    #[test]
    fn ranges_are_served_from_a_30_or_126_upwards() {
        for (cidr, wanted) in [
            ("10.0.0.0/24", "ok"),
            ("10.0.0.0/30", "ok"),
            ("fd00::/126", "ok"),
            ("10.0.0.0/24,fd00::/64", "ok"),
            ("10.0.0.0/31", reason::CIDR_TOO_SMALL),
            ("10.0.0.0/32", reason::CIDR_TOO_SMALL),
            ("10.0.0.0/24,fd00::/127", reason::CIDR_TOO_SMALL),
            ("10.0.0.1/24", reason::HOST_BITS_SET),
            ("::ffff:10.0.0.0/120", reason::CIDR_INVALID),
            ("0.0.0.0/0", reason::CIDR_INVALID),
            ("::/0", reason::CIDR_INVALID),
            ("10.0.0.0/7", reason::CIDR_INVALID),
            ("10.0.0.0/8,fd00::/8", "ok"),
            ("127.0.0.0/24", reason::CIDR_INVALID),
            ("169.0.0.0/8", reason::CIDR_INVALID),
            ("224.0.0.0/24", reason::CIDR_INVALID),
            ("255.255.255.0/24", reason::CIDR_INVALID),
            ("10.0.0.0/24,fe80::/64", reason::CIDR_INVALID),
            ("nonsense", reason::CIDR_INVALID),
        ] {
            assert_eq!(reason_of(&claim(cidr)), wanted, "{cidr}");
        }
    }

    #[test]
    fn the_gateway_is_a_host_address_of_each_range() {
        for (cidr, gateway, wanted) in [
            ("10.0.0.0/24", "10.0.0.254", "ok"),
            ("10.0.0.0/24", "10.0.0.0", reason::GATEWAY_INVALID),
            ("10.0.0.0/24", "10.0.0.255", reason::GATEWAY_INVALID),
            ("10.0.0.0/24", "10.0.1.1", reason::GATEWAY_INVALID),
            ("10.0.0.0/24,fd00::/64", "10.0.0.1", reason::GATEWAY_INVALID),
            ("10.0.0.0/24,fd00::/64", "10.0.0.9,fd00::9", "ok"),
        ] {
            let spec = SubnetClaimSpec { gateway: Some(gateway.into()), ..claim(cidr) };
            assert_eq!(reason_of(&spec), wanted, "{cidr} {gateway}");
        }
    }

    #[test]
    fn excluded_addresses_come_out_merged_and_sorted_as_text_with_the_gateway() {
        let spec = SubnetClaimSpec {
            exclude_addresses: ["10.0.0.20..10.0.0.30", "10.0.0.25..10.0.0.40", "10.0.0.9", "10.0.0.41"]
                .map(Into::into)
                .into(),
            ..claim("10.0.0.0/24,fd00::/64")
        };
        let demand = Demand::check(&spec).unwrap();
        assert_eq!(demand.exclude, ["10.0.0.1", "10.0.0.20..10.0.0.41", "10.0.0.9", "fd00::1"]);
        let covering =
            SubnetClaimSpec { exclude_addresses: vec!["10.0.0.1..10.0.0.9".into()], ..claim("10.0.0.0/24") };
        assert_eq!(Demand::check(&covering).unwrap().exclude, ["10.0.0.1..10.0.0.9"]);
    }

    #[test]
    fn an_excluded_entry_must_be_a_range_inside_the_cidr_and_leave_something() {
        for (entry, wanted) in [
            ("10.0.0.9..10.0.0.5", reason::EXCLUDE_INVALID),
            ("10.0.1.5", reason::EXCLUDE_INVALID),
            ("10.0.0.5..fd00::1", reason::EXCLUDE_INVALID),
            ("10.0.0.5..", reason::EXCLUDE_INVALID),
            ("10.0.0.0..10.0.0.255", reason::EXCLUDE_INVALID),
            ("10.0.0.3..10.0.0.254", "ok"),
        ] {
            let spec = SubnetClaimSpec { exclude_addresses: vec![entry.into()], ..claim("10.0.0.0/24") };
            assert_eq!(reason_of(&spec), wanted, "{entry}");
        }
    }

    #[test]
    fn dns_and_mtu_reach_dhcp_in_kube_ovns_form() {
        let spec = SubnetClaimSpec {
            dns: ["9.9.9.9", "2620:fe::fe", "1.1.1.1"].map(Into::into).into(),
            ..claim("10.0.0.0/24,fd00::/64")
        };
        let subnet = Demand::check(&spec).unwrap().subnet_spec("v", "n.e.ovn", 1400);
        assert_eq!(subnet.dhcp_v4_options, "dns_server={9.9.9.9;1.1.1.1}");
        assert_eq!(subnet.dhcp_v6_options, "dns_server=2620:fe::fe");
        assert!(subnet.enable_ipv6_ra && subnet.enable_dhcp);
        assert_eq!(subnet.mtu, 1400);
        assert!(subnet.ipv6_ra_configs.ends_with(",mtu=1400"), "DHCPv6 has no option for it");
        let v4 = Demand::check(&claim("10.0.0.0/24")).unwrap().subnet_spec("v", "n.e.ovn", 1400);
        assert!(!v4.enable_ipv6_ra && v4.ipv6_ra_configs.is_empty());
    }
}
