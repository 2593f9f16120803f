//! Provider networks through our own chart, and the router on the segment that nobody runs here.

use std::net::IpAddr;

use anyhow::{Context, Result};
use ipnet::IpNet;
use kmetal_crds::foreign::kube_ovn::Subnet;
use serde_json::{Value, json};

use super::under_cluster::UnderCluster;
use crate::{chart::Chart, cluster::Cluster, wait::READY};

const CHART: &str = "kmetal-provider-networks";
const NAMESPACE: &str = "kmetal-system";
/// The MAC address of every segment's router.
pub const GATEWAY_MAC: &str = "02:00:00:00:00:01";

/// One segment as the chart is told of it; the external Subnet has its name.
#[derive(Debug, Clone)]
pub struct ProviderNetwork {
    /// Its name, at most 12 characters.
    pub name: String,
    /// `v4` or `v4,v6`.
    pub cidr: String,
    /// The segment's router, one address for each range.
    pub gateway: String,
}

impl ProviderNetwork {
    /// A segment.
    pub fn new(name: &str, cidr: &str, gateway: &str) -> Self {
        Self { name: name.into(), cidr: cidr.into(), gateway: gateway.into() }
    }

    /// The port of the external switch that is the wire.
    pub fn localnet(&self) -> String {
        format!("localnet.{}", self.name)
    }

    /// The router port by which this Vpc is attached.
    pub fn router_port(&self, vpc: &str) -> String {
        format!("{vpc}-{}", self.name)
    }

    /// A host on the segment that is neither its router nor handed out in a test: in IPv4 the last address.
    pub fn host(&self, v6: bool) -> Option<IpAddr> {
        let mut networks = self.cidr.split(',').filter_map(|text| text.parse::<IpNet>().ok());
        networks.find(|network| network.addr().is_ipv6() == v6).map(|network| match network {
            IpNet::V4(network) => IpAddr::V4((u32::from(network.broadcast()) - 1).into()),
            IpNet::V6(network) => IpAddr::V6((u128::from(network.network()) + 0xfffe).into()),
        })
    }

    fn values(&self) -> Value {
        // The interface is one that no node has: nothing but the name of the bridge comes of it.
        json!({"name": self.name, "interface": format!("kit-{}", self.name), "cidr": self.cidr, "gateway": self.gateway})
    }
}

/// Installs our chart with these segments and waits until each external Subnet is ready. ProviderNetworks stay
/// unready, for no kube-ovn-cni makes their bridges; nothing on the way of a traced packet asks for them.
pub async fn install(cluster: &Cluster, networks: &[ProviderNetwork]) -> Result<()> {
    let entries: Vec<Value> = networks.iter().map(ProviderNetwork::values).collect();
    let chart = Chart::ours(CHART, NAMESPACE, json!({"providerNetworks": entries}));
    chart.install(cluster).await?;
    for network in networks {
        cluster.wait_condition::<Subnet>(None, &network.name, READY).await?;
    }
    Ok(())
}

impl UnderCluster {
    /// [`install`]s these segments, and waits until OVN has them.
    pub async fn provider_networks(&self, networks: &[ProviderNetwork]) -> Result<()> {
        install(self.cluster(), networks).await?;
        self.ovn().sync().await
    }

    /// Plays the segment's router: its address is known to this Vpc's router, as after an ARP reply. Without it a
    /// packet that leaves is seen only as the question who the router is.
    pub async fn play_gateway(&self, network: &ProviderNetwork, vpc: &str) -> Result<()> {
        let gateway = network.gateway.split(',').next().context("a provider network without gateway")?;
        self.ovn().learn(&network.router_port(vpc), gateway, GATEWAY_MAC).await
    }
}
