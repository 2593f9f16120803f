//! What the API server refuses by our rules and bounds, each with what to write instead.

use anyhow::{Context, Result, ensure};
use kmetal_e2e::networking::Networking;
use serde_json::{Value, json};

use super::refusal;

pub(super) async fn at_once(networking: &Networking) -> Result<()> {
    for (field, value, instead) in subnets() {
        let mut spec = json!({"vpc": "net", "cidr": "10.0.0.0/24"});
        for (key, value) in field.split('+').zip(value.as_array().context("a value for each field")?) {
            spec[key] = value.clone();
        }
        let said =
            refusal(networking, "SubnetClaim", json!({"namespace": "acme-a", "name": "bad"}), spec).await?;
        ensure!(said.contains(instead), "{field} {value:.80}: '{instead}' is not in: {said}");
    }
    let long = "n".repeat(64);
    for (kind, spec) in
        [("VpcClaim", json!({})), ("SubnetClaim", json!({"vpc": "net", "cidr": "10.0.0.0/24"}))]
    {
        for name in ["with.dots", &long] {
            let at = json!({"namespace": "acme-a", "name": name});
            let said = refusal(networking, kind, at, spec.clone()).await?;
            ensure!(said.contains("metadata.name must be a DNS label: at most 63"), "{kind} {name}: {said}");
        }
        // Kubernetes' own bound; what stays below it is in `told`.
        let at = json!({"namespace": "acme-a", "name": "big", "annotations": {"a": "🦀".repeat(1 << 18)}});
        let said = refusal(networking, kind, at, spec.clone()).await?;
        ensure!(said.contains("annotations: Too long"), "{kind}: {said:.300}");
    }
    let at = json!({"namespace": "acme-a", "name": "bad"});
    let said =
        refusal(networking, "VpcClaim", at, json!({"egress": {"providerNetwork": "Inter net"}})).await?;
    ensure!(said.contains("leave it out for the default"), "{said}");
    Ok(())
}

/// The fields, their values, and a part of the answer.
fn subnets() -> Vec<(&'static str, Value, &'static str)> {
    let form = "for example 10.0.0.0/24 or 10.0.0.0/24,fd00:1::/64 (no spaces, no IPv4-mapped IPv6)";
    let size = "use /8 to /30 for IPv4 and /8 to /126 for IPv6";
    let host = "write the network address, for example 10.0.0.0/24 instead of 10.0.0.7/24";
    let order = "one IPv4 range, a comma, and one IPv6 range, in this order";
    let special = "use a private range, for example 10.0.0.0/24 or fd00:1::/64";
    let gateway = "for 10.0.0.0/24 one of 10.0.0.1 to 10.0.0.254; or leave it out for the first";
    let each = "one address for each range of cidr";
    let exclude = "leave out what lies outside";
    let ten_thousand: Vec<String> =
        (0..10_000).map(|i| format!("10.0.{}.{}..10.0.{}.{}", i / 250, i % 250, i / 250, i % 250)).collect();
    let mut cases: Vec<(&str, Value, &str)> = vec![
        ("cidr", json!(["nonsense"]), form),
        ("cidr", json!([""]), "should be at least 4 chars long"),
        ("cidr", json!(["10.0.0.0"]), form),
        ("cidr", json!(["10.0.0.0/33"]), form),
        ("cidr", json!(["010.0.0.0/24"]), form),
        ("cidr", json!(["10.0.0.0/24\n"]), form),
        ("cidr", json!(["10.0.0.0/24 || ip4"]), form),
        ("cidr", json!(["fd00::%eth0/64"]), form),
        ("cidr", json!(["::ffff:10.0.0.0/120"]), form),
        ("cidr", json!(["10.0.0.0/24,"]), form),
        ("cidr", json!(["10.0.0.0/24,10.1.0.0/24,fd00::/64"]), form),
        ("cidr", json!(["10.0.0.7/24"]), host),
        ("cidr", json!(["fd00::7/64"]), host),
        ("cidr", json!(["10.0.0.0/24,10.1.0.0/24"]), order),
        ("cidr", json!(["fd00::/64,10.0.0.0/24"]), order),
        ("vpc", json!(["acme-b/net"]), "the name of a VpcClaim in this Environment"),
        ("vpc", json!(["bolt-a.net"]), "the name of a VpcClaim in this Environment"),
        ("excludeAddresses", json!([ten_thousand]), "must have at most 64 items"),
        ("excludeAddresses", json!([["10.0.1.9"]]), exclude),
        ("excludeAddresses", json!([["10.0.0.9..10.0.1.9"]]), exclude),
        ("excludeAddresses", json!([["fd00::9"]]), exclude),
        ("excludeAddresses", json!([["10.0.0.9-10.0.0.12"]]), "ranges, 10.0.0.10..10.0.0.20"),
        ("dns", json!([["dns.example.com"]]), "for example 9.9.9.9"),
        ("dns", json!([["9.9.9.9,mtu=9000"]]), "for example 9.9.9.9"),
        (
            "dns",
            json!([["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4", "1.1.1.5"]]),
            "must have at most 4 items",
        ),
        ("gateway", json!(["10.0.0.1,fd00::1"]), each),
        ("gateway", json!(["router"]), "gateway must be an IP address"),
        ("cidr+gateway", json!(["10.0.0.0/24,fd00::/64", "10.0.0.1"]), each),
        ("cidr+gateway", json!(["10.0.0.0/24,fd00::/64", "fd00::1,10.0.0.1"]), gateway),
        ("cidr+gateway", json!(["10.0.0.0/24,fd00::/64", "10.0.0.1,10.0.0.2"]), gateway),
        ("cidr+gateway", json!(["10.0.0.0/24,fd00::/64", "10.0.0.1,fd00::"]), gateway),
    ];
    cases.extend(["10.0.1.1", "10.0.0.0", "fd00::1"].map(|outside| ("gateway", json!([outside]), gateway)));
    cases.extend(
        ["10.0.0.0/31", "10.0.0.0/32", "0.0.0.0/0", "10.0.0.0/7", "fd00::/127", "fd00::/128", "::/0"]
            .map(|cidr| ("cidr", json!([cidr]), size)),
    );
    cases.extend(
        [
            "127.0.0.0/24",
            "169.254.0.0/16",
            "224.0.0.0/24",
            "255.255.255.0/24",
            "0.0.0.0/8",
            "fe80::/64",
            "ff02::/64",
        ]
        .map(|cidr| ("cidr", json!([cidr]), special)),
    );
    cases
}
