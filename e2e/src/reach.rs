//! Who reaches whom: every question is one `ovn-trace` through the real logical flows.
//!
//! Senders are ports that the real kube-ovn-controller allocated for Pod objects ([`Port`]); only the hostile sender on a
//! provider segment is made by hand, as an attacker would. A sender does what an IP stack does: it asks who has an
//! address of its own network and sends to that MAC address, all else goes to the router. [`matrix`] asks for all
//! tenants and all destinations.

mod directory;
pub mod liar;
pub mod matrix;
mod port;
pub mod public;
mod trace;

use std::{fmt, net::IpAddr};

use anyhow::{Context, Result, bail};

use self::directory::Directory;
pub use self::{port::Port, trace::Trace};
use crate::ovn::{Ovn, provider_network::ProviderNetwork};

/// The MAC address of a hostile sender.
const HOSTILE_MAC: &str = "02:00:00:00:00:66";

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It comes out of a machine's port.
    Delivered {
        /// That port.
        to: String,
    },
    /// It goes out to a physical network.
    Leaves {
        /// The port that is the wire.
        via: String,
        /// Its source address after translation, if it was translated.
        source: Option<IpAddr>,
    },
    /// A rule dropped it.
    Dropped {
        /// The table, such as `lr_in_policy` or `ls_in_acl`.
        table: String,
        /// The rule's match and priority.
        rule: String,
    },
    /// The router has no route for it.
    NoRoute,
    /// Nobody answers to its address.
    Unanswered {
        /// Behind which router port the network asked.
        behind: Option<String>,
    },
}

impl Verdict {
    /// Whether it comes out of this port.
    pub fn is_delivered_to(&self, port: &Port) -> bool {
        matches!(self, Self::Delivered { to } if *to == port.name)
    }

    /// Whether a policy or an ACL dropped it, rather than chance.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Dropped { table, .. } if table == "lr_in_policy" || table.contains("_acl"))
    }

    /// Whether it ends without having come out anywhere.
    pub fn goes_nowhere(&self) -> bool {
        !matches!(self, Self::Delivered { .. } | Self::Leaves { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivered { to: port } => write!(to, "delivered to {port}"),
            Self::Leaves { via, source: Some(source) } => write!(to, "leaves through {via} as {source}"),
            Self::Leaves { via, source: None } => {
                write!(to, "leaves through {via} with its own source address")
            }
            Self::Dropped { table, rule } => write!(to, "dropped in {table} by: {rule}"),
            Self::NoRoute => write!(to, "the router knows no way"),
            Self::Unanswered { behind: Some(port) } => write!(to, "nobody answers behind {port}"),
            Self::Unanswered { behind: None } => write!(to, "nobody answers"),
        }
    }
}

/// A packet as it enters a logical switch.
#[derive(Debug, Clone)]
pub struct Packet {
    /// The switch.
    pub switch: String,
    /// The port by which it enters.
    pub inport: String,
    /// Its source and destination MAC addresses.
    pub macs: (String, String),
    /// Its source address.
    pub source: IpAddr,
    /// Its destination address.
    pub destination: IpAddr,
    /// Further terms, such as `tcp && tcp.dst == 80`.
    pub more: Option<String>,
}

impl Packet {
    /// A packet of a machine to an address, handed to whoever has this MAC address.
    pub fn of_machine(from: &Port, to: IpAddr, mac: String) -> Result<Self> {
        let source =
            from.address_like(to).with_context(|| format!("{} has no address like {to}", from.name))?;
        Ok(Self {
            switch: from.switch.clone(),
            inport: from.name.clone(),
            macs: (from.mac.clone(), mac),
            source,
            destination: to,
            more: None,
        })
    }

    /// `ovn-trace`'s expression for it.
    fn microflow(&self) -> String {
        let family = if self.destination.is_ipv4() { "ip4" } else { "ip6" };
        let (source, destination) = &self.macs;
        let more = self.more.as_ref().map(|more| format!(" && {more}")).unwrap_or_default();
        format!(
            "inport == \"{}\" && eth.src == {source} && eth.dst == {destination} && {family} && {family}.src == {} && {family}.dst == {} && ip.ttl == 64{more}",
            self.inport, self.source, self.destination,
        )
    }
}

/// Asks questions of one OVN, with the ports that were there when it was made.
#[derive(Debug)]
pub struct Reach<'a> {
    ovn: &'a Ovn,
    directory: Directory,
}

impl<'a> Reach<'a> {
    /// Asks this OVN, as soon as northd has caught up with its northbound database.
    pub async fn of(ovn: &'a Ovn) -> Result<Self> {
        ovn.sync().await?;
        Ok(Self { ovn, directory: Directory::read(ovn).await? })
    }

    /// What becomes of a packet from a machine to an address.
    pub async fn probe(&self, from: &Port, to: IpAddr) -> Result<Verdict> {
        let neighbour = from.is_on_link(to).then(|| self.directory.machine(&from.switch, to)).flatten();
        match neighbour.filter(|mac| *mac != from.mac) {
            Some(mac) => self.send(&Packet::of_machine(from, to, mac)?).await,
            None => self.probe_through_router(from, to).await,
        }
    }

    /// The same, always handed to the router: a machine need not send as its address and mask suggest.
    pub async fn probe_through_router(&self, from: &Port, to: IpAddr) -> Result<Verdict> {
        let router = self.directory.router(&from.router_port())?;
        self.send(&Packet::of_machine(from, to, router)?).await
    }

    /// Whether a neighbour solicitation that the segment's router sends for `target` gets as far as this Vpc's router.
    pub async fn solicitation_arrives(
        &self,
        segment: &ProviderNetwork,
        vpc: &str,
        target: IpAddr,
    ) -> Result<bool> {
        let IpAddr::V6(target) = target else { bail!("{target} is asked for by ARP") };
        let [.., a, b] = target.segments();
        let a = a & 0xff;
        let microflow = format!(
            "inport == \"{}\" && eth.src == {HOSTILE_MAC} && eth.dst == 33:33:ff:{a:02x}:{:02x}:{:02x} && ip6.src == fe80::1 && ip6.dst == ff02::1:ff{a:02x}:{b:x} && ip.ttl == 255 && nd_ns && nd.target == {target}",
            segment.localnet(),
            b >> 8,
            b & 0xff,
        );
        let trace = Trace::parse(&self.ovn.trace(&segment.name, &microflow).await?);
        Ok(trace.passes(&format!("{}-{vpc}", segment.name)))
    }

    /// What becomes of any packet.
    pub async fn send(&self, packet: &Packet) -> Result<Verdict> {
        let trace = self.follow(packet).await?;
        let verdict = trace.verdict();
        verdict.with_context(|| format!("this trace of {packet:?} tells no end:\n{}", trace.text()))
    }

    /// The whole walk of any packet.
    pub async fn follow(&self, packet: &Packet) -> Result<Trace> {
        Ok(Trace::parse(&self.ovn.trace(&packet.switch, &packet.microflow()).await?))
    }
}
