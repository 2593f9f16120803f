//! A real OVN: the two databases and ovn-northd, enough to ask what would become of a packet.
//!
//! The schemas come from the Kube-OVN module, because Debian's are older than its client asks for. No ovn-controller
//! and no Open vSwitch run, so no packet ever flows: `ovn-trace` follows one through the logical flows that northd
//! computed, which are the same on every node. [`kube_ovn`] fills the northbound database, [`crate::reach`] asks;
//! [`under_cluster`] puts all of it under a control plane.

mod acls;
mod default_vpc;
pub mod kube_ovn;
pub mod provider_network;
mod rows;
pub mod under_cluster;
pub mod workload;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::{
    child::{Child, Launch},
    ports::{self, Port},
    programs,
    rig::Rig,
};

const READY_WITHIN: Duration = Duration::from_secs(30);

/// A running OVN. Dropping it stops everything.
#[derive(Debug)]
pub struct Ovn {
    // Dropped in this order: northd reconnects for ever to a database that is gone.
    northd: Child,
    northbound: Database,
    southbound: Database,
}

/// One database server; Kube-OVN comes by TCP, the kit's own tools by the socket.
#[derive(Debug)]
struct Database {
    server: Child,
    port: Port,
    socket: PathBuf,
}

impl Ovn {
    /// Starts the databases, empty, and ovn-northd; `name` sets it apart from others in the rig.
    pub async fn start(rig: &Arc<Rig>, name: &str) -> Result<Self> {
        let folder = rig.subfolder(name)?;
        let rig = rig.clone();
        let name = name.to_owned();
        let ovn = tokio::task::spawn_blocking(move || {
            let northbound = Database::start(&rig, &folder, &name, "nb")?;
            let southbound = Database::start(&rig, &folder, &name, "sb")?;
            let northd = Launch::new(format!("{name}-northd"), "ovn-northd")
                .arg(format!("--ovnnb-db={}", northbound.address()))
                .arg(format!("--ovnsb-db={}", southbound.address()))
                .arg(format!("--unixctl={}", folder.join("northd.ctl").display()))
                .start(&rig)?;
            anyhow::Ok(Self { northd, northbound, southbound })
        })
        .await??;
        let deadline = Instant::now() + READY_WITHIN;
        while let Err(error) = ovn.sync().await {
            ovn.must_run()?;
            if Instant::now() > deadline {
                return Err(error.context(ovn.northd.log_tail(20)));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(ovn)
    }

    /// `tcp:127.0.0.1:<port>` of the northbound database.
    pub fn northbound(&self) -> String {
        format!("tcp:{}", self.northbound.port.address())
    }

    /// `tcp:127.0.0.1:<port>` of the southbound database.
    pub fn southbound(&self) -> String {
        format!("tcp:{}", self.southbound.port.address())
    }

    /// Runs `ovn-nbctl` and returns what it prints.
    pub async fn nbctl(&self, args: &[&str]) -> Result<String> {
        run("ovn-nbctl", &self.northbound, args).await
    }

    /// Runs `ovn-sbctl` and returns what it prints.
    pub async fn sbctl(&self, args: &[&str]) -> Result<String> {
        run("ovn-sbctl", &self.southbound, args).await
    }

    /// Runs `ovn-trace` for one microflow that enters at this logical switch, every connection being a new one.
    pub async fn trace(&self, switch: &str, microflow: &str) -> Result<String> {
        // One --ct per step that consults conntrack; more than a path can have does no harm.
        let args =
            ["--detailed", "--ct=new", "--ct=new", "--ct=new", "--ct=new", "--ct=new", switch, microflow];
        run("ovn-trace", &self.southbound, &args).await
    }

    /// Waits until northd has turned all that is in the northbound database into flows.
    pub async fn sync(&self) -> Result<()> {
        self.nbctl(&["--timeout=30", "--wait=sb", "sync"]).await.map(drop)
    }

    /// Makes the chassis of a node, as its ovn-controller would.
    pub async fn chassis(&self, name: &str, node: &str) -> Result<()> {
        self.sbctl(&["--may-exist", "chassis-add", name, "geneve", "127.0.0.1"]).await?;
        self.sbctl(&["set", "chassis", name, &format!("hostname={node}")]).await.map(drop)
    }

    /// Teaches a router port who has this address, as its ovn-controller would learn from an ARP reply or a
    /// neighbour advertisement.
    pub async fn learn(&self, router_port: &str, address: &str, mac: &str) -> Result<()> {
        let query = format!("logical_port={router_port}");
        let columns = ["--bare", "--columns=datapath", "find", "Port_Binding", &query];
        let datapath = self.sbctl(&columns).await?.trim().to_owned();
        anyhow::ensure!(!datapath.is_empty(), "OVN has no router port {router_port}");
        let binding = [
            &format!("logical_port=\"{router_port}\""),
            &format!("ip=\"{address}\""),
            &format!("mac=\"{mac}\""),
            &format!("datapath={datapath}"),
        ];
        let known = ["--bare", "--columns=_uuid", "find", "MAC_Binding", binding[0], binding[1]];
        for row in self.sbctl(&known).await?.split_whitespace() {
            self.sbctl(&["destroy", "MAC_Binding", row]).await?;
        }
        let mut create = vec!["create", "MAC_Binding"];
        create.extend(binding.map(String::as_str));
        self.sbctl(&create).await.map(drop)
    }

    fn must_run(&self) -> Result<()> {
        self.northbound.server.must_run()?;
        self.southbound.server.must_run()?;
        self.northd.must_run()
    }
}

impl Database {
    fn start(rig: &Rig, folder: &Path, name: &str, which: &str) -> Result<Self> {
        let schema = folder.join(format!("{which}.ovsschema"));
        let text = Launch::new("ovn-schema", programs::ovn_schema()).arg(which).output()?;
        fs::write(&schema, text).with_context(|| format!("write {}", schema.display()))?;
        let file = folder.join(format!("{which}.db"));
        Launch::new("ovsdb-tool", "ovsdb-tool").arg("create").arg(&file).arg(&schema).output()?;
        let port = ports::take()?;
        let socket = folder.join(format!("{which}.sock"));
        let server = Launch::new(format!("{name}-{which}"), "ovsdb-server")
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(format!("--remote=ptcp:{}:127.0.0.1", port.number()))
            .arg(format!("--unixctl={}", folder.join(format!("{which}.ctl")).display()))
            .arg(&file)
            .start(rig)?;
        Ok(Self { server, port, socket })
    }

    fn address(&self) -> String {
        format!("unix:{}", self.socket.display())
    }
}

async fn run(tool: &'static str, database: &Database, args: &[&str]) -> Result<String> {
    let launch = Launch::new(tool, tool).arg(format!("--db={}", database.address())).args(args);
    tokio::task::spawn_blocking(move || launch.output()).await?
}
