//! Senders that lie: a machine with somebody else's source address, a host on the provider segment that sends to a
//! machine straight through its router, a router that lets through what it should not.

use std::net::IpAddr;

use anyhow::Result;

use super::{Directory, HOSTILE_MAC, Packet, Port, Reach, Verdict};
use crate::ovn::provider_network::{GATEWAY_MAC, ProviderNetwork};

/// An address of the family that `like` is of, in no network of a test's.
pub fn stranger(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => [9, 9, 9, 9].into(),
        IpAddr::V6(_) => [0x2001, 0xdb8, 0xbad, 0, 0, 0, 0, 1].into(),
    }
}

impl Reach<'_> {
    /// What becomes of a packet that a machine hands to its router with a source address that is not its own.
    pub async fn forged(&self, from: &Port, source: IpAddr, to: IpAddr) -> Result<Verdict> {
        let router = self.directory.router(&from.router_port())?;
        self.send(&Packet { source, ..Packet::of_machine(from, to, router)? }).await
    }

    /// What becomes of packets from a host on the provider segment straight to this Vpc's router, addressed to a
    /// machine behind it; each with what it is.
    pub async fn hostile(
        &self,
        segment: &ProviderNetwork,
        vpc: &str,
        to: IpAddr,
    ) -> Result<Vec<(String, Verdict)>> {
        let mut verdicts = Vec::new();
        for packet in hostile(&self.directory, segment, vpc, to)? {
            let what = format!("from {} {}", packet.source, packet.more.as_deref().unwrap_or_default());
            verdicts.push((what.trim_end().to_owned(), self.send(&packet).await?));
        }
        Ok(verdicts)
    }

    /// What becomes of a packet that this Vpc's router has put on the provider segment for the segment's router: how
    /// the segment itself guards against a router that lets a forged source through.
    pub async fn emitted(
        &self,
        segment: &ProviderNetwork,
        vpc: &str,
        source: IpAddr,
        to: IpAddr,
    ) -> Result<Verdict> {
        let router = self.directory.router(&segment.router_port(vpc))?;
        self.send(&Packet {
            switch: segment.name.clone(),
            inport: format!("{}-{vpc}", segment.name),
            macs: (router, GATEWAY_MAC.into()),
            source,
            destination: to,
            more: None,
        })
        .await
    }
}

/// The packets of a hostile host: with an address of its segment (which a router may take for forged by a machine of
/// its own), with one of somewhere else, and in IPv6 the one that OVN lets pass every ACL: a multicast listener query
/// from a link-local address, whatever it is addressed to.
fn hostile(directory: &Directory, segment: &ProviderNetwork, vpc: &str, to: IpAddr) -> Result<Vec<Packet>> {
    let packet = Packet {
        switch: segment.name.clone(),
        inport: segment.localnet(),
        macs: (HOSTILE_MAC.into(), directory.router(&segment.router_port(vpc))?),
        source: stranger(to),
        destination: to,
        more: None,
    };
    let mut packets = vec![packet.clone()];
    packets.extend(segment.host(to.is_ipv6()).map(|source| Packet { source, ..packet.clone() }));
    if to.is_ipv6() {
        let query = Some("icmp6.type == 130 && icmp6.code == 0".into());
        packets.push(Packet { source: "fe80::66".parse()?, more: query, ..packet });
    }
    Ok(packets)
}
