//! By which way one comes to a public address, and back: the packet of a client behind the segment's router, and the
//! worker's reply.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;

use super::{Packet, Port, Reach, Trace, liar::stranger};
use crate::ovn::provider_network::{GATEWAY_MAC, ProviderNetwork};

/// A port as clients know it.
#[derive(Debug, Clone, Copy)]
pub struct Socket {
    /// The public address.
    pub address: Ipv4Addr,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// Its number.
    pub port: u16,
}

impl Reach<'_> {
    /// A client's packet, handed by the segment's router to this Vpc's, which answers for the address.
    pub async fn inbound(&self, segment: &ProviderNetwork, vpc: &str, to: Socket) -> Result<Trace> {
        let destination = IpAddr::V4(to.address);
        let packet = Packet {
            switch: segment.name.clone(),
            inport: segment.localnet(),
            macs: (GATEWAY_MAC.into(), self.directory.router(&segment.router_port(vpc))?),
            source: stranger(destination),
            destination,
            more: Some(format!("{0} && {0}.dst == {1}", to.protocol, to.port)),
        };
        self.follow(&packet).await
    }

    /// What a worker sends back from this port of its own.
    pub async fn reply(&self, worker: &Port, protocol: &str, from: u16) -> Result<Trace> {
        let client = stranger(Ipv4Addr::UNSPECIFIED.into());
        let router = self.directory.router(&worker.router_port())?;
        let more = Some(format!("{protocol} && {protocol}.src == {from}"));
        self.follow(&Packet { more, ..Packet::of_machine(worker, client, router)? }).await
    }
}
