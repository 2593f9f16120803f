//! A bad value is refused where it is written, with words that say what is wrong.

use anyhow::{Result, bail, ensure};
use kmetal_e2e::chart::Chart;
use serde_json::{Value, json};

use super::{networking, provider_networks, providers};

async fn refused(chart: Chart, values: &Value, words: &str) -> Result<()> {
    match chart.render().await {
        Ok(_) => bail!("taken: {values}"),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains(words), "{values} is refused without saying '{words}':\n{text}");
            Ok(())
        }
    }
}

/// The values of one provider network of the platform file, with one field changed.
fn platform_network(field: &str, value: &Value) -> Value {
    let mut network =
        json!({"name": "a", "externalSubnet": "a", "cidr": "10.1.0.0/24", "gateway": "10.1.0.1"});
    network[field] = value.clone();
    json!({"platform": {"providerNetworks": [network]}})
}

#[tokio::test]
async fn kmetal_networking_refuses_bad_values() -> Result<()> {
    let cases = [
        (json!({"replica": 2}), "replica"),
        (json!({"replicas": 0}), "/replicas"),
        (json!({"replicas": "two"}), "/replicas"),
        (json!({"image": {"digest": "latest"}}), "/image/digest"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "/image/pullPolicy"),
        (json!({"kubeOvn": {"namespace": "Kube_System"}}), "/kubeOvn/namespace"),
        (json!({"kubeOvn": {"serviceAccounts": ["kube-system:ovn"]}}), "/kubeOvn/serviceAccounts/0"),
        (json!({"kubeOvn": {"serviceAccounts": "ovn"}}), "/kubeOvn/serviceAccounts"),
        (
            json!({"tenantClusters": {"apiServers": {"allow": ["10.0.0.1"]}}}),
            "/tenantClusters/apiServers/allow/0",
        ),
        (
            json!({"tenantClusters": {"apiServers": {"deny": "10.0.0.0/8"}}}),
            "/tenantClusters/apiServers/deny",
        ),
        (
            json!({"tenantClusters": {"apiServers": {"loopback": "yes"}}}),
            "/tenantClusters/apiServers/loopback",
        ),
        (json!({"admissionPolicy": {"enabled": "yes"}}), "/admissionPolicy/enabled"),
        (json!({"admissionPolicy": {"enable": true}}), "enable"),
        (json!({"networkPolicy": {"enabled": "yes"}}), "/networkPolicy/enabled"),
        (
            json!({"networkPolicy": {"metricsFrom": [{"namespace": "monitoring"}]}}),
            "/networkPolicy/metricsFrom/0",
        ),
        (json!({"networkPolicy": {"metricsFrom": [{}]}}), "/networkPolicy/metricsFrom/0"),
        (json!({"networkPolicy": {"apiServer": {"ports": []}}}), "/networkPolicy/apiServer/ports"),
        (json!({"networkPolicy": {"apiServer": {"ports": ["https"]}}}), "/networkPolicy/apiServer/ports/0"),
        (
            json!({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}}),
            "/networkPolicy/apiServer/cidrs/0",
        ),
        (json!({"serviceMonitor": {"interval": "often"}}), "/serviceMonitor/interval"),
        (json!({"serviceMonitor": {"label": {}}}), "label"),
        (
            json!({"serviceMonitor": {"enabled": true}, "networkPolicy": {"enabled": true}}),
            "name its namespace in networkPolicy.metricsFrom",
        ),
        (json!({"platform": {"protectedCidrs": []}}), "protectedCidrs"),
        (json!({"platform": {"protectedCIDRs": ["10.0.0.0"]}}), "/platform/protectedCIDRs/0"),
        (json!({"platform": {"protectedCIDRs": ["10.0.0.0/33"]}}), "/platform/protectedCIDRs/0"),
        (json!({"platform": {"protectedCIDRs": ["10.0.0.256/24"]}}), "/platform/protectedCIDRs/0"),
        (json!({"platform": {"protectedCIDRs": null}}), "protectedCIDRs"),
        (
            json!({"platform": {"tenantControlPlanePools": "192.0.2.0/24"}}),
            "/platform/tenantControlPlanePools",
        ),
        (json!({"platform": {"subnet": {"mtu": 64}}}), "/platform/subnet/mtu"),
        (json!({"platform": {"providerNetworks": [{"name": "a"}]}}), "externalSubnet"),
        (platform_network("name", &json!("Internet")), "/platform/providerNetworks/0/name"),
        (platform_network("gateway", &json!("gw.example.com")), "/platform/providerNetworks/0/gateway"),
        (platform_network("cidr", &json!("2001:db8::/64,10.1.0.0/24")), "/platform/providerNetworks/0/cidr"),
        (platform_network("tenants", &json!("acme")), "/platform/providerNetworks/0/tenants"),
        (platform_network("tenant", &json!(["acme"])), "tenant"),
    ];
    for (values, words) in cases {
        refused(networking(values.clone()), &values, words).await?;
    }
    // Nothing is made without protected CIDRs, but it is the process that says so, where people look.
    networking(json!({"platform": {"protectedCIDRs": []}})).render().await?;
    Ok(())
}

#[tokio::test]
async fn kmetal_provider_networks_refuses_bad_fields() -> Result<()> {
    let cases = [
        ("name", json!("longer-than-that"), "longer than 12 characters"),
        ("name", json!("join"), "a meaning of its own"),
        ("name", json!("Net"), "/providerNetworks/0/name"),
        ("interface", json!("sixteen-letters."), "/providerNetworks/0/interface"),
        ("interface", json!("a b"), "/providerNetworks/0/interface"),
        ("vlanID", json!(4095), "/providerNetworks/0/vlanID"),
        ("vlan", json!(5), "vlan"),
        ("cidr", Value::Null, "cidr"),
        ("cidr", json!("203.0.113.7/24"), "host bits set"),
        ("cidr", json!("203.0.113.0/24,2001:db8::1/64"), "host bits set"),
        ("cidr", json!("203.0.113.0/24,2001:db8:::/64"), "not an IP address"),
        ("cidr", json!("203.0.113.0/24,::ffff:0:0/96"), "as an IPv4 address"),
        ("cidr", json!("2001:db8::/64"), "no IPv4 network"),
        ("cidr", json!("203.0.113.0/31"), "prefix length"),
        ("gateway", Value::Null, "gateway"),
        ("gateway", json!("203.0.114.1"), "is not in"),
        ("gateway", json!("203.0.113.0"), "first or last address"),
        ("gateway", json!("203.0.113.255"), "first or last address"),
        ("gateway", json!("203.0.113.1,2001:db8::1"), "is not in"),
        ("excludeAddresses", json!(["203.0.114.9"]), "is not in"),
        ("excludeAddresses", json!(["203.0.113.9..203.0.113.3"]), "neither an address nor a range"),
        ("excludeAddresses", json!(["203.0.113.3..203.0.113.9", "203.0.113.7"]), "overlap"),
        ("excludeAddresses", json!(["203.0.113.3-203.0.113.9"]), "/providerNetworks/0/excludeAddresses/0"),
        ("excludeNodes", json!(["node-b"]), "not both"),
        ("customInterfaces", json!([{"interface": "ens5"}]), "nodes"),
    ];
    for (field, value, words) in cases {
        let mut network = json!({
            "name": "a", "interface": "eth1", "cidr": "203.0.113.0/24", "gateway": "203.0.113.1",
            "nodeSelector": if field == "excludeNodes" { json!({"rack": "a"}) } else { json!({}) },
        });
        network[field] = value;
        let values = json!({"providerNetworks": [network]});
        refused(providers(values.clone()), &values, words).await?;
    }
    Ok(())
}

#[tokio::test]
async fn kmetal_provider_networks_refuses_two_that_meet() -> Result<()> {
    let first = &provider_networks()["providerNetworks"][0];
    let cases = [
        ("name", "used twice", json!({"name": first["name"]})),
        ("interface", "share the interface", json!({"interface": first["interface"], "vlanID": 7})),
        ("IPv4", "overlap", json!({"cidr": "203.0.112.0/22"})),
        ("IPv6", "overlap", json!({"cidr": "192.0.2.0/24,2001:db8::/32", "gateway": "192.0.2.1"})),
        ("default", "both the default", json!({"default": true})),
    ];
    for (what, words, changes) in cases {
        let mut second =
            json!({"name": "b", "interface": "eth9", "cidr": "192.0.2.0/24", "gateway": "192.0.2.1"});
        for (field, value) in changes.as_object().into_iter().flatten() {
            second[field] = value.clone();
        }
        if what == "IPv4" {
            second["gateway"] = json!("203.0.112.1");
        }
        let values = json!({"providerNetworks": [first, second]});
        refused(providers(values.clone()), &values, words).await?;
    }
    Ok(())
}
