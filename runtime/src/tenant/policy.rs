//! Where API servers of tenant clusters may be: asked of every address that is dialled, after names are resolved.
//!
//! A control plane may legitimately have any address: a pod's, a Service's, one of the tenant control-plane pool. So
//! there is no list of places by default, but what can only be this machine itself, or its cloud, is never dialled:
//! loopback, link-local (169.254.169.254 is a cloud's metadata), unspecified, multicast and broadcast addresses, also when
//! written as IPv6. A tenant can make us open a connection to anything else and see that it failed: where that matters,
//! the platform states `deny` (its management network, say) or `allow` (the pool).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The settings of a process that speaks to tenant clusters. Flatten them into its own.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct TenantOptions {
    /// Allow API servers of tenant clusters at loopback addresses. For trying things out on one machine: a tenant can
    /// then make the process connect to what listens beside it.
    #[arg(long, env = "KMETAL_TENANT_API_LOOPBACK")]
    pub tenant_api_loopback: bool,
    /// CIDRs in which API servers of tenant clusters may be, separated by commas; none: anywhere that is not denied.
    #[arg(long, env = "KMETAL_TENANT_API_ALLOW", value_delimiter = ',')]
    pub tenant_api_allow: Vec<IpNet>,
    /// CIDRs in which API servers of tenant clusters may not be, separated by commas.
    #[arg(long, env = "KMETAL_TENANT_API_DENY", value_delimiter = ',')]
    pub tenant_api_deny: Vec<IpNet>,
}

/// An address that is not dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{address} {why}")]
pub struct Denied {
    address: IpAddr,
    why: &'static str,
}

impl TenantOptions {
    /// Whether `address` may be dialled.
    pub fn check(&self, address: IpAddr) -> Result<(), Denied> {
        let denied = |why| Err(Denied { address, why });
        let seen = embedded(address);
        if seen.is_loopback() && !self.tenant_api_loopback {
            return denied("is a loopback address, where no API server of a tenant may be");
        }
        if !seen.is_loopback() && is_special(seen) {
            return denied("is not the address of a machine");
        }
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&address) || net.contains(&seen));
        if within(&self.tenant_api_deny) {
            return denied("is where the platform allows no API server of a tenant");
        }
        if !self.tenant_api_allow.is_empty() && !within(&self.tenant_api_allow) {
            return denied("is outside of where the platform allows API servers of tenants");
        }
        Ok(())
    }
}

/// The IPv4 address that an IPv6 address stands for (mapped, or by NAT64), or else the address itself.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        _ => v6.to_canonical(),
    }
}

fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // All of 0.0.0.0/8 is "this machine" to Linux.
            v4.octets()[0] == 0 || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
        }
        IpAddr::V6(v6) => v6 == Ipv6Addr::UNSPECIFIED || v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(loopback: bool, allow: &[&str], deny: &[&str]) -> TenantOptions {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        TenantOptions {
            tenant_api_loopback: loopback,
            tenant_api_allow: nets(allow),
            tenant_api_deny: nets(deny),
        }
    }

    fn allowed(options: &TenantOptions, address: &str) -> bool {
        options.check(address.parse().unwrap()).is_ok()
    }

    #[test]
    fn what_is_this_machine_or_its_cloud_is_never_dialled() {
        let options = options(false, &[], &[]);
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "::ffff:0.0.0.0",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            assert!(!allowed(&options, address), "{address}");
        }
        for address in ["10.0.0.7", "192.0.2.1", "100.64.0.1", "fd00::1", "2001:db8::1", "64:ff9b::a00:7"] {
            assert!(allowed(&options, address), "{address}");
        }
    }

    #[test]
    fn loopback_is_open_only_by_the_flag_and_link_local_never() {
        let options = options(true, &[], &[]);
        assert!(allowed(&options, "127.0.0.1"));
        assert!(allowed(&options, "::1"));
        assert!(!allowed(&options, "169.254.169.254"));
        assert!(!allowed(&options, "0.0.0.0"));
    }

    #[test]
    fn the_platforms_lists_hold_in_every_spelling_and_deny_wins() {
        let options = options(false, &["10.0.0.0/8", "fd00::/8"], &["10.1.0.0/16"]);
        assert!(allowed(&options, "10.0.0.7"));
        assert!(allowed(&options, "::ffff:10.0.0.7"));
        assert!(allowed(&options, "fd00::1"));
        assert!(!allowed(&options, "192.0.2.1"));
        assert!(!allowed(&options, "10.1.0.7"));
        assert!(!allowed(&options, "::ffff:10.1.0.7"));
    }

    #[test]
    fn the_text_names_the_address() {
        let denied = options(false, &[], &[]).check("169.254.169.254".parse().unwrap()).unwrap_err();
        assert_eq!(denied.to_string(), "169.254.169.254 is not the address of a machine");
    }
}
