//! The northbound database as text, to compare it with what it was.
//!
//! Whole tables and not what a test thinks of: a kind of row that is left over unexpectedly shows as well.

use anyhow::{Context, Result, ensure};

use super::Ovn;

/// What tells a row of each table from others, restarts of Kube-OVN notwithstanding.
const TABLES: &[(&str, &str)] = &[
    ("Logical_Router", "name"),
    ("Logical_Router_Port", "name,networks"),
    ("Logical_Router_Policy", "priority,match,action"),
    ("Logical_Router_Static_Route", "ip_prefix,nexthop,policy"),
    ("Logical_Switch", "name"),
    ("Logical_Switch_Port", "name,type"),
    ("NAT", "type,external_ip,logical_ip"),
    ("DHCP_Options", "cidr"),
    ("ACL", "priority,direction,match"),
    ("Gateway_Chassis", "name"),
    ("Port_Group", "name"),
    ("Address_Set", "name,addresses"),
    ("Load_Balancer", "name,vips"),
];

/// Kube-OVN 1.16 makes six load balancers and two address sets for each Vpc and forgets them with it, until its own
/// collection (every six minutes, and at its start). As long as nothing is in them they do nothing.
const SHELLS: [&str; 2] = ["Address_Set", "Load_Balancer"];

impl Ovn {
    /// Every row, sorted: the table and the columns that tell one row from another.
    pub async fn rows(&self) -> Result<Vec<String>> {
        // One call for all: a comparison that waits asks again and again.
        let columns: Vec<String> = TABLES.iter().map(|(_, columns)| format!("--columns={columns}")).collect();
        let mut args = vec!["--format=csv", "--data=bare"];
        for ((table, _), columns) in TABLES.iter().zip(&columns) {
            args.extend(["--", columns, "list", table]);
        }
        let text = self.nbctl(&args).await?;
        let mut rows = parse(&text)?;
        rows.sort();
        Ok(rows)
    }
}

/// Tells the tables apart by their headings, which come in the order in which they were asked for.
fn parse(text: &str) -> Result<Vec<String>> {
    let (mut tables, mut now, mut rows) = (TABLES.iter().peekable(), None, Vec::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some((table, _)) = tables.next_if(|(_, columns)| line == *columns) {
            now = Some(table);
            continue;
        }
        let table = now.with_context(|| format!("'{line}' before any heading"))?;
        let is_shell = SHELLS.contains(table) && line.trim_end_matches('"').ends_with(',');
        if !is_shell {
            rows.push(format!("{table}: {line}"));
        }
    }
    ensure!(tables.next().is_none(), "a table without heading: {text}");
    Ok(rows)
}
