//! Small, IPv6 and dual-stack subnets: their machines get an address in each family, and OVN answers DHCP, DHCPv6 and
//! router solicitations with what the claim and the platform say.

use std::net::IpAddr;

use anyhow::{Context, Result, ensure};
use kmetal_crds::{foreign::kube_ovn::Subnet, networking::SubnetClaim};
use kmetal_e2e::{networking::Networking, ovn::Ovn, reach::Port};
use kube::Api;
use serde_json::json;

use super::claim;

const PLACE: &str = "bolt-a";

pub(super) async fn each_family_gets_addresses_and_their_options(networking: &Networking) -> Result<()> {
    let servers = json!(["9.9.9.9", "2620:fe::fe", "149.112.112.112", "2620:fe::9"]);
    networking.claim_vpc(PLACE, "families", Some("vault")).await?;
    for (name, cidr, families) in
        [("four", "10.21.0.0/30", 1), ("six", "fd00:22::/126", 1), ("both", "10.23.0.0/24,fd00:23::/64", 2)]
    {
        let spec = json!({"vpc": "families", "cidr": cidr, "dns": servers});
        claim(networking, "SubnetClaim", (PLACE, name), spec).await?;
        let claim: SubnetClaim = networking.subnet_ready(PLACE, name).await?;
        let status = claim.status.context("no status")?;
        let port = networking.under().workload(PLACE, &format!("on-{name}"), name).await?;
        ensure!(port.addresses.len() == families, "{name}: {port:?}");
        ensure!(port.addresses.iter().all(|address| port.is_on_link(*address)), "{name}: {port:?}");
        let gateways: Vec<IpAddr> =
            status.gateway.context("no gateway")?.split(',').map(str::parse).collect::<Result<_, _>>()?;
        ensure!(
            gateways.len() == families && !gateways.iter().any(|ip| port.addresses.contains(ip)),
            "{gateways:?}"
        );
        ensure!(status.network_attachment == Some(format!("{PLACE}/{name}")));

        // What we wrote stands as we wrote it, or Kube-OVN and we would correct each other for ever.
        let subnet = Api::<Subnet>::all(networking.under().client().await?).get(&port.switch).await?;
        ensure!(subnet.metadata.generation == Some(1), "Kube-OVN rewrote {name}: {:#?}", subnet.spec);

        let ovn = networking.under().ovn();
        if port.addresses.iter().any(IpAddr::is_ipv4) {
            answers_dhcp(ovn, &port).await.with_context(|| format!("{name}, IPv4"))?;
        }
        if port.addresses.iter().any(IpAddr::is_ipv6) {
            answers_dhcp_in_ipv6(ovn, &port).await.with_context(|| format!("{name}, IPv6"))?;
            advertises(ovn, &port).await.with_context(|| format!("{name}, router advertisements"))?;
        }
    }
    Ok(())
}

async fn answers_dhcp(ovn: &Ovn, port: &Port) -> Result<()> {
    let flows = ovn.sbctl(&["lflow-list", &port.switch]).await?;
    let offer = line(&flows, "put_dhcp_opts")?;
    for option in ["dns_server = {9.9.9.9,149.112.112.112}", "mtu = 1400", "lease_time = ", "router = "] {
        ensure!(offer.contains(option), "'{option}' is not in {offer}");
    }
    let ask = format!(
        "inport == \"{}\" && eth.src == {} && eth.dst == ff:ff:ff:ff:ff:ff && ip4.src == 0.0.0.0 && \
         ip4.dst == 255.255.255.255 && ip.ttl == 64 && udp.src == 68 && udp.dst == 67",
        port.name, port.mac
    );
    comes_back(&ovn.trace(&port.switch, &ask).await?, port)
}

async fn answers_dhcp_in_ipv6(ovn: &Ovn, port: &Port) -> Result<()> {
    let flows = ovn.sbctl(&["lflow-list", &port.switch]).await?;
    let offer = line(&flows, "put_dhcpv6_opts")?;
    ensure!(offer.contains("dns_server = {2620:fe::fe,2620:fe::9}"), "{offer}");
    let ask = format!(
        "inport == \"{}\" && eth.src == {} && eth.dst == 33:33:00:01:00:02 && ip6.src == fe80::1234 && \
         ip6.dst == ff02::1:2 && ip.ttl == 64 && udp.src == 546 && udp.dst == 547",
        port.name, port.mac
    );
    comes_back(&ovn.trace(&port.switch, &ask).await?, port)
}

/// Without router advertisements a machine learns neither its IPv6 route nor that it may ask for an address.
async fn advertises(ovn: &Ovn, port: &Port) -> Result<()> {
    let flows = ovn.sbctl(&["lflow-list", &port.router]).await?;
    let advertisement = flows
        .lines()
        .find(|line| line.contains("put_nd_ra_opts") && line.contains(&port.router_port()))
        .with_context(|| format!("no answer to a router solicitation among\n{flows}"))?;
    for option in ["addr_mode = \"dhcpv6_stateful\"", "mtu = 1400"] {
        ensure!(advertisement.contains(option), "'{option}' is not in {advertisement}");
    }
    let row = port.router_port();
    let periodic = ovn.nbctl(&["get", "Logical_Router_Port", &row, "ipv6_ra_configs:send_periodic"]).await?;
    ensure!(periodic.trim().trim_matches('"') == "true", "{periodic}");
    Ok(())
}

fn line<'a>(flows: &'a str, action: &str) -> Result<&'a str> {
    flows.lines().find(|line| line.contains(action)).with_context(|| format!("no {action} among\n{flows}"))
}

/// northd has parsed the options, or the answer would not be there; and it goes to who asked.
fn comes_back(trace: &str, port: &Port) -> Result<()> {
    let answered = trace.contains("put_dhcp") && trace.contains(&format!("output to \"{}\"", port.name));
    ensure!(answered, "no answer in\n{trace}");
    Ok(())
}
