//! How long a logical switch is without its ACLs, as the northbound database itself tells.
//!
//! kube-ovn-controller clears a Subnet's ACLs and adds them again each time it processes the Subnet. Asking again and
//! again could miss that; the database announces every transaction to who monitors it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::Ovn;

/// Within this a reconcile that was asked for is over.
const PATIENCE: Duration = Duration::from_secs(30);

/// Watches one switch.
#[derive(Debug)]
pub struct AclWatch {
    socket: UnixStream,
    buffer: Vec<u8>,
    switch: String,
    acls: usize,
}

impl Ovn {
    /// Watches the ACLs of a switch from now on.
    pub async fn watch_acls(&self, switch: &str) -> Result<AclWatch> {
        let socket = UnixStream::connect(&self.northbound.socket).await?;
        let mut watch = AclWatch { socket, buffer: Vec::new(), switch: switch.to_owned(), acls: 0 };
        let columns = json!({"Logical_Switch": {"columns": ["name", "acls"]}});
        watch
            .send(json!({"method": "monitor", "params": ["OVN_Northbound", null, columns], "id": 0}))
            .await?;
        loop {
            let message = watch.message().await?;
            if message["id"] == 0 && message.get("result").is_some() {
                let counts = watch.counts(&message["result"]);
                watch.acls = *counts.last().with_context(|| format!("OVN has no switch {switch}"))?;
                return Ok(watch);
            }
        }
    }
}

impl AclWatch {
    /// How many there are.
    pub fn acls(&self) -> usize {
        self.acls
    }

    /// Waits until they have been taken away and as many are there again; returns for how long they were not. The
    /// database's announcements carry no time, so on a busy machine, where they are read late, a gap may look shorter.
    pub async fn gap(&mut self) -> Result<Duration> {
        let wanted = self.acls;
        let whole = tokio::time::timeout(PATIENCE, async {
            let mut began = None;
            loop {
                let message = self.message().await?;
                if message["method"] != "update" {
                    continue;
                }
                for count in self.counts(&message["params"][1]) {
                    self.acls = count;
                    if count < wanted {
                        began.get_or_insert_with(Instant::now);
                    } else if let Some(began) = began {
                        return anyhow::Ok(began.elapsed());
                    }
                }
            }
        });
        match whole.await {
            Ok(gap) => gap,
            Err(_) => bail!("{} has {} ACLs of {wanted} after {PATIENCE:?}", self.switch, self.acls),
        }
    }

    /// The numbers of ACLs that an update tells of our switch.
    fn counts(&self, update: &Value) -> Vec<usize> {
        let rows = update["Logical_Switch"].as_object().into_iter().flat_map(|rows| rows.values());
        rows.map(|row| &row["new"]).filter(|row| row["name"] == self.switch.as_str()).map(acls).collect()
    }

    async fn send(&mut self, message: Value) -> Result<()> {
        Ok(self.socket.write_all(message.to_string().as_bytes()).await?)
    }

    /// The next message; the server's own questions whether we live are answered.
    async fn message(&mut self) -> Result<Value> {
        loop {
            let mut stream = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Value>();
            match stream.next() {
                Some(Ok(message)) => {
                    let read = stream.byte_offset();
                    self.buffer.drain(..read);
                    if message["method"] != "echo" {
                        return Ok(message);
                    }
                    self.send(json!({"id": message["id"], "result": message["params"], "error": null}))
                        .await?;
                }
                Some(Err(error)) if !error.is_eof() => return Err(error.into()),
                _ => {
                    if self.socket.read_buf(&mut self.buffer).await? == 0 {
                        bail!("the database has closed the connection");
                    }
                }
            }
        }
    }
}

/// A set of one is `["uuid", "…"]`, any other `["set", […]]`.
fn acls(row: &Value) -> usize {
    match &row["acls"][0] {
        Value::String(kind) if kind == "set" => row["acls"][1].as_array().map_or(0, Vec::len),
        Value::String(_) => 1,
        _ => 0,
    }
}
