//! The reachability matrix: every tenant against every kind of destination, in both families.
//!
//! A cell is one word, so that the truth a test expects is a table written by hand, and what is printed reads like it.
//! Where several packets stand behind a cell (two other tenants, three segments), the cell tells the worst of them.

use std::{fmt, fmt::Write as _, net::IpAddr};

use anyhow::{Result, bail};

use super::{Port, Reach, Verdict, liar::stranger};
use crate::ovn::provider_network::ProviderNetwork;

/// The columns, in order.
pub const COLUMNS: [&str; 9] =
    ["own", "sibling", "other", "provider", "management", "control", "internet", "forged", "inbound"];

/// A tenant's part in the matrix.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// What the row is called.
    pub name: String,
    /// The machine that sends, and that the hostile packet is meant for.
    pub machine: Port,
    /// Another machine on its Subnet.
    pub neighbour: Option<Port>,
    /// A machine on another Subnet of its Vpc.
    pub sibling: Option<Port>,
    /// The segment that its Vpc leaves through.
    pub egress: Option<ProviderNetwork>,
}

/// What lies outside of all tenants.
#[derive(Debug, Clone)]
pub struct Outside {
    /// Every provider segment there is.
    pub segments: Vec<ProviderNetwork>,
    /// Addresses of the platform: nodes, its pods and services.
    pub management: Vec<IpAddr>,
    /// Where tenants' API servers listen.
    pub control_planes: Vec<IpAddr>,
    /// Addresses that are none of these.
    pub internet: Vec<IpAddr>,
}

/// What a cell says, from harmless to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// There is no such destination for this tenant.
    Absent,
    /// It ends without having come out anywhere, though no rule was needed for that.
    Nowhere,
    /// A policy or an ACL dropped it.
    Dropped,
    /// It comes out at a port of the sender's own Vpc, because the address is one of its own.
    Home,
    /// It leaves, with its source translated.
    Leaves,
    /// It comes out where it was meant to.
    Reached,
    /// It leaves with the machine's own source address.
    Untranslated,
    /// It comes out at somebody else's port.
    Breach,
}

impl fmt::Display for Word {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Self::Absent => "-",
            Self::Nowhere => "nowhere",
            Self::Dropped => "dropped",
            Self::Home => "home",
            Self::Leaves => "leaves",
            Self::Reached => "reached",
            Self::Untranslated => "UNTRANSLATED",
            Self::Breach => "BREACH",
        })
    }
}

/// One word and the packets behind it.
#[derive(Debug, Clone)]
pub struct Cell {
    /// The worst of them.
    pub word: Word,
    /// Each packet and its fate.
    pub packets: Vec<String>,
}

/// One tenant in one family.
#[derive(Debug, Clone)]
pub struct Row {
    /// The tenant's name.
    pub tenant: String,
    /// `IPv4` or `IPv6`.
    pub family: &'static str,
    /// In the order of [`COLUMNS`].
    pub cells: Vec<Cell>,
}

/// All answers.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Two rows for each tenant with both families.
    pub rows: Vec<Row>,
}

impl Matrix {
    /// Compares with a table written by hand: tenant, family and a word for each of [`COLUMNS`] on each line; empty
    /// lines and lines that begin with `tenant` are passed over.
    pub fn expect(&self, truth: &str) -> Result<()> {
        let mut wrong = String::new();
        for (what, cell) in self.wrong(truth) {
            writeln!(wrong, "{what}")?;
            cell.packets.iter().try_for_each(|packet| writeln!(wrong, "    {packet}"))?;
        }
        let wanted = lines(truth).len();
        if wanted != self.rows.len() {
            writeln!(wrong, "{} rows instead of {wanted}", self.rows.len())?;
        }
        if wrong.is_empty() { Ok(()) } else { bail!("the matrix is not as it must be\n{wrong}\n{self}") }
    }

    /// The cells that are not as the table has them, such as `acme IPv4 provider: leaves instead of dropped`. Rows that
    /// were not asked for are not missed.
    pub fn wrong(&self, truth: &str) -> Vec<(String, &Cell)> {
        let wanted = lines(truth);
        let mut wrong = Vec::new();
        for row in &self.rows {
            let line = wanted.iter().find(|line| line[..].starts_with(&[row.tenant.as_str(), row.family]));
            for (at, cell) in row.cells.iter().enumerate() {
                let wanted = line.and_then(|line| line.get(at + 2)).copied().unwrap_or("nothing known");
                if cell.word.to_string() != wanted {
                    let (tenant, family, column) = (&row.tenant, row.family, COLUMNS[at]);
                    wrong.push((
                        format!("{tenant} {family} {column}: {} instead of {wanted}", cell.word),
                        cell,
                    ));
                }
            }
        }
        wrong
    }
}

fn lines(truth: &str) -> Vec<Vec<&str>> {
    let lines = truth.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.filter(|line| line.first().is_some_and(|word| *word != "tenant")).collect()
}

impl fmt::Display for Matrix {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines =
            vec![["tenant", "family"].iter().chain(&COLUMNS).map(ToString::to_string).collect::<Vec<_>>()];
        for row in &self.rows {
            let words = row.cells.iter().map(|cell| cell.word.to_string());
            lines.push([row.tenant.clone(), row.family.to_owned()].into_iter().chain(words).collect());
        }
        let width =
            |at: usize| lines.iter().map(|line: &Vec<String>| line[at].len()).max().unwrap_or_default();
        let widths: Vec<usize> = (0..COLUMNS.len() + 2).map(width).collect();
        for line in &lines {
            let padded = line.iter().zip(&widths).map(|(word, width)| format!("{word:width$}"));
            writeln!(to, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

impl Reach<'_> {
    /// Asks everything.
    pub async fn matrix(&self, tenants: &[Tenant], outside: &Outside) -> Result<Matrix> {
        self.rows_of(tenants, tenants, outside).await
    }

    /// Asks what some of the tenants reach.
    pub async fn rows_of(&self, some: &[Tenant], tenants: &[Tenant], outside: &Outside) -> Result<Matrix> {
        let rows = some.iter().flat_map(|tenant| {
            tenant.machine.addresses.iter().map(async |address| {
                let cells = self.row(tenant, *address, tenants, outside).await?;
                let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
                anyhow::Ok(Row { tenant: tenant.name.clone(), family, cells })
            })
        });
        Ok(Matrix { rows: futures::future::try_join_all(rows).await? })
    }

    async fn row(
        &self,
        me: &Tenant,
        like: IpAddr,
        tenants: &[Tenant],
        outside: &Outside,
    ) -> Result<Vec<Cell>> {
        let same = |address: &&IpAddr| address.is_ipv4() == like.is_ipv4();
        let mut cells = Vec::new();
        for friend in [&me.neighbour, &me.sibling] {
            let mut cell = Asked::default();
            if let Some(to) = friend.as_ref().and_then(|port| port.address_like(like)) {
                let verdict = self.probe(&me.machine, to).await?;
                cell.add(me, friend.as_ref(), to, &verdict);
            }
            cells.push(cell.done());
        }
        let mut others = Asked::default();
        for other in tenants.iter().filter(|other| other.name != me.name) {
            for port in other.ports() {
                let Some(to) = port.address_like(like) else { continue };
                for verdict in
                    [self.probe(&me.machine, to).await?, self.probe_through_router(&me.machine, to).await?]
                {
                    others.add(me, None, to, &verdict);
                }
            }
        }
        cells.push(others.done());
        let hosts: Vec<IpAddr> =
            outside.segments.iter().filter_map(|segment| segment.host(like.is_ipv6())).collect();
        for addresses in [&hosts, &outside.management, &outside.control_planes, &outside.internet] {
            let mut cell = Asked::default();
            for to in addresses.iter().filter(same) {
                cell.add(me, None, *to, &self.probe(&me.machine, *to).await?);
            }
            cells.push(cell.done());
        }
        cells.push(self.forgeries(me, like, &hosts, outside).await?);
        let mut inbound = Asked::default();
        if let Some(segment) = &me.egress {
            for (what, verdict) in self.hostile(segment, &me.machine.router, like).await? {
                inbound.add_as(&what, me, Some(&me.machine), like, &verdict);
            }
        }
        cells.push(inbound.done());
        Ok(cells)
    }

    /// The machine poses as a host of each segment, even to its own sibling, and as a stranger to all that is outside.
    async fn forgeries(
        &self,
        me: &Tenant,
        like: IpAddr,
        hosts: &[IpAddr],
        outside: &Outside,
    ) -> Result<Cell> {
        let far = || {
            let far = outside.internet.iter().chain(&outside.control_planes).copied();
            far.filter(|to| to.is_ipv4() == like.is_ipv4())
        };
        let sibling = me.sibling.as_ref().and_then(|port| port.address_like(like));
        let posing = hosts.iter().flat_map(|host| sibling.into_iter().chain(far()).map(|to| (*host, to)));
        let mut forged = Asked::default();
        for (source, to) in posing.chain(far().map(|to| (stranger(like), to))) {
            let verdict = self.forged(&me.machine, source, to).await?;
            let goal = me.sibling.as_ref().filter(|_| Some(to) == sibling);
            forged.add_as(&format!("from {source}"), me, goal, to, &verdict);
        }
        Ok(forged.done())
    }
}

impl Tenant {
    fn ports(&self) -> impl Iterator<Item = &Port> {
        [Some(&self.machine), self.neighbour.as_ref(), self.sibling.as_ref()].into_iter().flatten()
    }
}

#[derive(Default)]
struct Asked {
    word: Option<Word>,
    packets: Vec<String>,
}

impl Asked {
    /// Notes the fate of a packet of `me` that was meant for `goal`, if for a port at all.
    fn add(&mut self, me: &Tenant, goal: Option<&Port>, to: IpAddr, verdict: &Verdict) {
        self.add_as("", me, goal, to, verdict);
    }

    /// The same for a packet that is special.
    fn add_as(&mut self, what: &str, me: &Tenant, goal: Option<&Port>, to: IpAddr, verdict: &Verdict) {
        let word = match verdict {
            Verdict::Delivered { to } if goal.is_some_and(|goal| goal.name == *to) => Word::Reached,
            Verdict::Delivered { to } if me.ports().any(|port| port.name == *to) => Word::Home,
            Verdict::Delivered { .. } => Word::Breach,
            Verdict::Leaves { source: Some(_), .. } => Word::Leaves,
            Verdict::Leaves { source: None, .. } => Word::Untranslated,
            Verdict::Dropped { .. } if verdict.is_forbidden() => Word::Dropped,
            Verdict::Dropped { .. } | Verdict::NoRoute | Verdict::Unanswered { .. } => Word::Nowhere,
        };
        self.word = self.word.max(Some(word));
        self.packets.push(format!("{what} to {to}: {verdict}").trim_start().to_owned());
    }

    fn done(self) -> Cell {
        Cell { word: self.word.unwrap_or(Word::Absent), packets: self.packets }
    }
}
