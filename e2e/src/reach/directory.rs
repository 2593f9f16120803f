//! Who has which address: what ARP and neighbour discovery would find out, read from the northbound database at once.

use std::{collections::BTreeMap, net::IpAddr};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::ovn::Ovn;

/// Router ports and machines with their MAC addresses.
#[derive(Debug, Default)]
pub(super) struct Directory {
    routers: BTreeMap<String, String>,
    machines: BTreeMap<(String, IpAddr), String>,
}

/// What `ovn-nbctl --format=json` prints.
#[derive(Deserialize)]
struct Table {
    data: Vec<Vec<Value>>,
}

impl Directory {
    /// Reads it.
    pub(super) async fn read(ovn: &Ovn) -> Result<Self> {
        let list = async |table: &str, columns: &str| -> Result<Vec<Vec<Value>>> {
            let text = ovn.nbctl(&["--format=json", &format!("--columns={columns}"), "list", table]).await?;
            Ok(serde_json::from_str::<Table>(&text)?.data)
        };
        let mut directory = Self::default();
        for row in list("Logical_Router_Port", "name,mac").await? {
            if let [Value::String(name), Value::String(mac)] = &row[..] {
                directory.routers.insert(name.clone(), mac.clone());
            }
        }
        for row in list("Logical_Switch_Port", "external_ids,addresses").await? {
            let [of, addresses] = &row[..] else { continue };
            let Some(switch) = switch(of) else { continue };
            for text in strings(addresses) {
                let mut words = text.split(' ');
                let Some(mac) = words.next() else { continue };
                for address in words.filter_map(|word| word.parse().ok()) {
                    directory.machines.insert((switch.to_owned(), address), mac.to_owned());
                }
            }
        }
        Ok(directory)
    }

    /// The MAC address of a router port.
    pub(super) fn router(&self, port: &str) -> Result<String> {
        self.routers.get(port).cloned().with_context(|| format!("OVN has no router port {port}"))
    }

    /// The MAC address of who has this address on a switch.
    pub(super) fn machine(&self, switch: &str, address: IpAddr) -> Option<String> {
        self.machines.get(&(switch.to_owned(), address)).cloned()
    }
}

/// The value of `ls` in `["map", [["ls", "<switch>"], …]]`; Kube-OVN notes it on every port of a machine.
fn switch(external_ids: &Value) -> Option<&str> {
    let pairs = external_ids.get(1)?.as_array()?;
    pairs.iter().find(|pair| pair.get(0).is_some_and(|key| key == "ls"))?.get(1)?.as_str()
}

/// A set of one is the text itself, any other is `["set", […]]`.
fn strings(set: &Value) -> Vec<&str> {
    match set {
        Value::String(text) => vec![text],
        set => set.get(1).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect(),
    }
}
