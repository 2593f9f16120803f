//! A machine's port on a logical switch.

use std::net::IpAddr;

use anyhow::{Context, Result};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// What Kube-OVN allocated for one attachment of a Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// The logical switch port, and the IP object.
    pub name: String,
    /// The logical switch: the Subnet.
    pub switch: String,
    /// The logical router: the Vpc.
    pub router: String,
    /// Its MAC address.
    pub mac: String,
    /// Its addresses, one for each family.
    pub addresses: Vec<IpAddr>,
    /// The ranges of its Subnet.
    pub networks: Vec<IpNet>,
}

impl Port {
    /// The port of this attachment; `None` until Kube-OVN has written all of it on the Pod.
    pub fn of(pod: &Pod, attachment: &str) -> Result<Option<Self>> {
        let namespace = pod.namespace().context("a Pod without namespace")?;
        let provider = format!("{attachment}.{namespace}.ovn");
        let said = |what: &str| pod.annotations().get(&format!("{provider}.kubernetes.io/{what}")).cloned();
        let all = (
            said("logical_switch"),
            said("logical_router"),
            said("mac_address"),
            said("ip_address"),
            said("cidr"),
        );
        let (Some(switch), Some(router), Some(mac), Some(addresses), Some(networks)) = all else {
            return Ok(None);
        };
        Ok(Some(Self {
            name: format!("{}.{namespace}.{provider}", pod.name_any()),
            switch,
            router,
            mac,
            addresses: addresses.split(',').map(str::parse).collect::<Result<_, _>>()?,
            networks: networks.split(',').map(str::parse).collect::<Result<_, _>>()?,
        }))
    }

    /// Its address of the family that `like` is of.
    pub fn address_like(&self, like: IpAddr) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| address.is_ipv4() == like.is_ipv4())
    }

    /// The router port on its switch.
    pub fn router_port(&self) -> String {
        format!("{}-{}", self.router, self.switch)
    }

    /// Whether an address lies in its Subnet.
    pub fn is_on_link(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}
