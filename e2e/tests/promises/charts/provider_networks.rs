//! What a provider network becomes in Kube-OVN: complete, canonical, and closed against its own segment.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{of_kind, provider_networks, providers};

async fn subnet_spec(values: Value, name: &str) -> Result<Value> {
    let objects = providers(values).render().await?;
    let subnet = of_kind(&objects, "Subnet").into_iter().find(|s| s.name_any() == name);
    Ok(subnet.context("no Subnet")?.data["spec"].clone())
}

#[tokio::test]
async fn what_enters_is_addressed_to_the_segment_and_what_leaves_has_an_address_of_it() -> Result<()> {
    let drop = |(direction, matching): (&str, &str)| json!({"direction": direction, "priority": 2000, "match": matching, "action": "drop"});
    let dual = [
        ("from-lport", r#"inport == "localnet.internet" && ip4 && ip4.dst != 203.0.113.0/24"#),
        (
            "from-lport",
            r#"inport == "localnet.internet" && ip6 && ip6.dst != {2001:db8::/64, fe80::/10, ff02::/16}"#,
        ),
        ("to-lport", r#"outport == "localnet.internet" && ip4 && ip4.src != 203.0.113.0/24"#),
        ("to-lport", r#"outport == "localnet.internet" && ip6 && ip6.src != {2001:db8::/64, fe80::/10, ::}"#),
    ];
    // A VPC may use IPv6 inside although the segment does not.
    let single = [
        ("from-lport", r#"inport == "localnet.partner" && ip4 && ip4.dst != 198.51.100.0/24"#),
        ("from-lport", r#"inport == "localnet.partner" && ip6 && ip6.dst != {fe80::/10, ff02::/16}"#),
        ("to-lport", r#"outport == "localnet.partner" && ip4 && ip4.src != 198.51.100.0/24"#),
        ("to-lport", r#"outport == "localnet.partner" && ip6 && ip6.src != {fe80::/10, ::}"#),
    ];
    for (name, wanted) in [("internet", dual), ("partner", single)] {
        let spec = subnet_spec(provider_networks(), name).await?;
        ensure!(spec["acls"] == json!(wanted.map(drop)), "{}", spec["acls"]);
    }
    Ok(())
}

#[tokio::test]
async fn excluded_addresses_are_in_the_order_that_kube_ovn_would_put_them_in() -> Result<()> {
    let cases = [
        (json!([]), json!(["203.0.113.1"])),
        // As text, not as numbers.
        (json!(["203.0.113.9", "203.0.113.100"]), json!(["203.0.113.1", "203.0.113.100", "203.0.113.9"])),
        (json!(["203.0.113.5..203.0.113.5"]), json!(["203.0.113.1", "203.0.113.5"])),
        // Neighbours are not merged, a range that has the gateway is enough.
        (
            json!(["203.0.113.11..203.0.113.20", "203.0.113.1..203.0.113.10"]),
            json!(["203.0.113.1..203.0.113.10", "203.0.113.11..203.0.113.20"]),
        ),
    ];
    for (given, wanted) in cases {
        let values = json!({"providerNetworks": [{
            "name": "a", "interface": "eth1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
            "excludeAddresses": given,
        }]});
        let spec = subnet_spec(values, "a").await?;
        ensure!(spec["excludeIps"] == wanted, "{given} became {}", spec["excludeIps"]);
    }
    Ok(())
}

#[tokio::test]
async fn ipv6_networks_are_written_as_ovn_and_go_write_them() -> Result<()> {
    let cases = [
        ("2001:DB8::/32", "2001:db8::/32"),
        ("2001:0db8:0000:0000:0000:0000:0000:0000/64", "2001:db8::/64"),
        ("2001:db8:0:1::/64", "2001:db8:0:1::/64"),
        ("2001:db8:0:0:1:0:0:0/80", "2001:db8:0:0:1::/80"),
        ("1:0:0:2:0:0:3:0/112", "1::2:0:0:3:0/112"),
        ("fd00:1:2:3:4:5:6:0/112", "fd00:1:2:3:4:5:6:0/112"),
        ("::8/125", "::8/125"),
    ];
    for (given, wanted) in cases {
        let net: ipnet::Ipv6Net = given.parse()?;
        ensure!(net.to_string() == wanted, "the table is wrong: {net} is not {wanted}");
        let values = json!({"providerNetworks": [{
            "name": "a", "interface": "eth1", "cidr": format!("203.0.113.0/24,{given}"), "gateway": "203.0.113.1",
        }]});
        let spec = subnet_spec(values, "a").await?;
        let matching = spec["acls"][1]["match"].as_str().unwrap_or_default();
        ensure!(matching.contains(&format!("{{{wanted}, fe80::/10")), "{given} became {matching}");
    }
    Ok(())
}

#[tokio::test]
async fn removing_a_provider_network_from_the_values_deletes_nothing() -> Result<()> {
    let objects = providers(provider_networks()).render().await?;
    ensure!(objects.len() == 6, "three objects for each network: {}", objects.len());
    for object in objects {
        let policy = object.annotations().get("helm.sh/resource-policy").map(String::as_str);
        ensure!(policy == Some("keep"), "{:?} {}", object.types, object.name_any());
    }
    Ok(())
}
