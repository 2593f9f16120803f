//! The kit's promise about networks: a real Kube-OVN does what it is told, and what the kit says of reach can fail.
//!
//! The Vpcs are written by hand here, as kmetal-networking would write them, so that a failure in this file is the
//! kit's or Kube-OVN's.

mod isolation;
mod life;

use anyhow::Result;
use kmetal_e2e::{
    ovn::{provider_network::ProviderNetwork, under_cluster::UnderCluster},
    reach::Port,
};
use serde_json::{Value, json};

/// What every Vpc must drop beside the provider networks.
const MANAGEMENT: &str = "192.0.2.0/24";

fn internet() -> ProviderNetwork {
    ProviderNetwork::new("internet", "203.0.113.0/24", "203.0.113.1")
}

fn partner() -> ProviderNetwork {
    ProviderNetwork::new("partner", "198.51.100.0/24,2001:db8:100::/64", "198.51.100.1,2001:db8:100::1")
}

/// A Vpc that leaves through a segment or not at all.
async fn make_vpc(under: &UnderCluster, name: &str, egress: Option<&ProviderNetwork>) -> Result<()> {
    let mut policies: Vec<Value> = ["203.0.113.0/24", "198.51.100.0/24", "2001:db8:100::/64", MANAGEMENT]
        .map(|cidr| {
            let family = if cidr.contains(':') { "ip6" } else { "ip4" };
            json!({"priority": 32000, "match": format!("{family}.dst == {cidr}"), "action": "drop"})
        })
        .into();
    for posing in [
        "ip4.src == 203.0.113.0/24",
        "ip4.src == 198.51.100.0/24",
        "ip6.src == 2001:db8:100::/64",
        "ip6.src == fe80::/10 && ip6.dst != fe80::/10",
    ] {
        policies.push(json!({"priority": 32000, "match": posing, "action": "drop"}));
    }
    let mut spec = json!({});
    if let Some(segment) = egress {
        let gateway = segment.gateway.split(',').next();
        policies.push(json!({"priority": 1000, "match": "ip4", "action": "reroute", "nextHopIP": gateway}));
        let all = json!({
            "policy": "policyDst", "cidr": "0.0.0.0/0", "nextHopIP": gateway,
            "bfdId": "", "ecmpMode": "", "routeTable": "",
        });
        spec = json!({"enableExternal": true, "extraExternalSubnets": [segment.name], "staticRoutes": [all]});
    }
    spec["policyRoutes"] = policies.into();
    let vpc = json!({"apiVersion": "kubeovn.io/v1", "kind": "Vpc", "metadata": {"name": name}, "spec": spec});
    under.cluster().apply_yaml(&vpc.to_string()).await?;
    under.wait_vpc(name).await?;
    match egress {
        Some(segment) => under.play_gateway(segment, name).await,
        None => Ok(()),
    }
}

/// A dual-stack Subnet `10.<number>.0.0/24,fd00:<number>::/64` with its attachment, and source NAT if there is egress.
async fn make_subnet(
    under: &UnderCluster,
    (vpc, namespace, attachment, number): (&str, &str, &str, u8),
    egress: Option<&ProviderNetwork>,
) -> Result<()> {
    let name = format!("{namespace}-{attachment}");
    let provider = format!("{attachment}.{namespace}.ovn");
    let config = json!({
        "cniVersion": "0.3.1", "type": "kube-ovn", "provider": provider,
        "server_socket": "/run/openvswitch/kube-ovn-daemon.sock",
    });
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": attachment, "namespace": namespace}, "spec": {"config": config.to_string()},
        }),
        json!({
            "apiVersion": "kubeovn.io/v1", "kind": "Subnet", "metadata": {"name": name},
            "spec": {
                "vpc": vpc, "provider": provider, "protocol": "Dual", "enableLb": true,
                "cidrBlock": format!("10.{number}.0.0/24,fd00:{number}::/64"),
                "gateway": format!("10.{number}.0.1,fd00:{number}::1"),
                "excludeIps": [format!("10.{number}.0.1"), format!("fd00:{number}::1")],
            },
        }),
    ];
    if let Some(segment) = egress {
        objects.push(json!({
            "apiVersion": "kubeovn.io/v1", "kind": "OvnSnatRule", "metadata": {"name": name},
            "spec": {"ovnEip": segment.router_port(vpc), "vpc": vpc, "v4IpCidr": format!("10.{number}.0.0/24")},
        }));
    }
    for object in objects {
        under.cluster().apply_yaml(&object.to_string()).await?;
    }
    Ok(())
}

/// One machine on each attachment of a namespace.
async fn machines<const N: usize>(
    under: &UnderCluster,
    namespace: &str,
    on: [(&str, &str); N],
) -> Result<[Port; N]> {
    let mut ports = Vec::new();
    for (name, attachment) in on {
        ports.push(under.workload(namespace, name, attachment).await?);
    }
    ports.try_into().map_err(|_| anyhow::anyhow!("a port for each machine"))
}
