//! Reading what `ovn-trace --detailed` prints.
//!
//! The text is a walk: a heading for each pipeline entered, a line for each table that matched, the actions of that
//! match below it. Only what decides a packet's fate is kept. Packets that the network makes on its own account (the
//! question who has an address, an ICMP error) are marked by a heading of theirs, and what becomes of *them* is not
//! counted as the fate of the packet that was asked about.

use std::net::IpAddr;

use super::Verdict;

/// One thing that happened to the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// It left the logical network through a port with something behind it.
    Output {
        /// The port.
        port: String,
        /// Whether that is the wire to a physical network.
        wire: bool,
    },
    /// A rule dropped it.
    Dropped {
        /// The table of the rule.
        table: String,
        /// The rule's match and priority.
        rule: String,
    },
    /// The network asked a question instead of forwarding it.
    Asked {
        /// The router port behind which it asked.
        behind: String,
    },
    /// It would have gone out where it came in.
    Returned,
}

/// A parsed walk.
#[derive(Debug, Clone)]
pub struct Trace {
    events: Vec<Event>,
    source: Option<IpAddr>,
    text: String,
}

impl Trace {
    /// Reads the text; unknown lines are passed over.
    pub fn parse(text: &str) -> Self {
        let mut walk = Walk::default();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let heading = lines.get(at + 1).is_some_and(|next| is_rule(next));
            walk.read(line, heading);
        }
        Self { events: walk.events, source: walk.source, text: text.to_owned() }
    }

    /// The fate of a packet to one receiver; `None` when the text does not tell.
    pub fn verdict(&self) -> Option<Verdict> {
        let outputs = || self.events.iter().filter(|event| matches!(event, Event::Output { .. }));
        // A flooded packet goes to a machine before it counts as having left.
        let machine = outputs().find(|event| matches!(event, Event::Output { wire: false, .. }));
        let event = machine.or_else(|| outputs().next()).or_else(|| self.events.first())?;
        Some(match event.clone() {
            Event::Output { port, wire: false } => Verdict::Delivered { to: port },
            Event::Output { port, wire: true } => Verdict::Leaves { via: port, source: self.source },
            Event::Dropped { table, .. } if table == "lr_in_ip_routing" => Verdict::NoRoute,
            Event::Dropped { table, .. } if table == "ls_in_l2_unknown" => {
                Verdict::Unanswered { behind: None }
            }
            Event::Dropped { table, rule } => Verdict::Dropped { table, rule },
            Event::Asked { behind } => Verdict::Unanswered { behind: Some(behind) },
            Event::Returned => Verdict::Unanswered { behind: None },
        })
    }

    /// Whether this port is on the way or at the end of it.
    pub fn passes(&self, port: &str) -> bool {
        self.text.contains(&format!("/* output to \"{port}\""))
    }

    /// The text itself, for the reader of a failure.
    pub fn text(&self) -> &str {
        &self.text
    }
}

#[derive(Default)]
struct Walk {
    events: Vec<Event>,
    source: Option<IpAddr>,
    /// Table and rule of the last match.
    rule: Option<(String, String)>,
    outport: String,
    /// How deep the heading of a packet of the network's own is indented.
    own: Option<usize>,
}

impl Walk {
    fn read(&mut self, line: &str, heading: bool) {
        let depth = line.len() - line.trim_start().len();
        let text = line.trim();
        if text.is_empty() || is_rule(text) {
            return;
        }
        if self.own.is_some_and(|own| depth < own) {
            self.own = None;
        }
        if heading {
            self.enter(text, depth);
        } else if self.own.is_none() {
            self.act(text);
        }
    }

    fn enter(&mut self, text: &str, depth: usize) {
        let word = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        let question = matches!(word, "arp" | "nd_ns");
        let answer =
            matches!(word, "nd_na" | "tcp_reset" | "reject" | "sctp_abort") || word.starts_with("icmp");
        if (question || answer) && self.own.is_none() {
            self.own = Some(depth);
            if question {
                self.events.push(Event::Asked { behind: self.outport.clone() });
            }
        } else if word.starts_with("ct_snat") && self.own.is_none() {
            let translated = text.split_once("src=").and_then(|(_, rest)| rest.split([')', ' ']).next());
            self.source = translated.and_then(|address| address.parse().ok()).or(self.source);
        }
    }

    fn act(&mut self, text: &str) {
        if let Some((table, rule)) = table_line(text) {
            if rule.starts_with("no match") {
                self.events.push(Event::Dropped { table: table.to_owned(), rule: rule.to_owned() });
            }
            self.rule = Some((table.to_owned(), rule.to_owned()));
        } else if let Some(port) = text.strip_prefix("outport = \"") {
            port.trim_end_matches(['"', ';']).clone_into(&mut self.outport);
        } else if text == "drop;" {
            let (table, rule) = self.rule.clone().unwrap_or_default();
            self.events.push(Event::Dropped { table, rule });
        } else if let Some(rest) = text.strip_prefix("/* output to \"") {
            let Some((port, rest)) = rest.split_once('"') else { return };
            let kind = rest.split('"').nth(1).unwrap_or_default();
            // Other kinds (patch, l3gateway, chassisredirect) only lead to the next pipeline.
            if matches!(kind, "" | "localnet") {
                self.events.push(Event::Output { port: port.to_owned(), wire: kind == "localnet" });
            }
        } else if text.starts_with("/* omitting output because inport == outport") {
            self.events.push(Event::Returned);
        }
    }
}

/// ` 8. ls_in_acl (northd.c:6588): <match>, priority 3000, uuid …` → table, match and priority.
fn table_line(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.split_once(". ")?;
    number.parse::<u32>().ok()?;
    let end = rest.find([' ', ':'])?;
    let (table, rest) = rest.split_at(end);
    let (_, rule) = rest.split_once(": ")?;
    Some((table, rule.split(", uuid ").next().unwrap_or(rule)))
}

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() >= 3 && line.bytes().all(|byte| byte == b'-')
}

#[cfg(test)]
mod tests;
