//! Each rule of each kind: something that it lets pass, and the nearest thing that it refuses, as JSON of the spec.

/// One rule.
pub struct Case {
    /// The kind.
    pub kind: &'static str,
    /// The rule's own words, all of them.
    pub message: &'static str,
    /// What is there before, for rules about changes.
    pub before: Option<&'static str>,
    /// What passes.
    pub good: &'static str,
    /// What is refused, for this reason alone.
    pub bad: &'static str,
    /// The name of the object that passes.
    pub good_name: Option<&'static str>,
    /// The name of the one that is refused, if another.
    pub bad_name: Option<&'static str>,
}

const fn rule(kind: &'static str, message: &'static str, good: &'static str, bad: &'static str) -> Case {
    Case { kind, message, before: None, good, bad, good_name: None, bad_name: None }
}

const fn names(kind: &'static str, message: &'static str, spec: &'static str) -> Case {
    Case {
        good_name: Some("a-name-of-sixty-three-characters-is-the-longest-that-can-be-000"),
        bad_name: Some("a-name-of-sixty-four-characters-is-longer-than-the-longest-00000"),
        ..rule(kind, message, spec, spec)
    }
}

impl Case {
    const fn from(self, before: &'static str) -> Self {
        Self { before: Some(before), ..self }
    }
}

const VPC: &str = "VpcClaim";
const SUBNET: &str = "SubnetClaim";
const EIP: &str = "EipClaim";
const NAME: &str =
    "metadata.name must be a DNS label: at most 63 of a-z, 0-9 and '-', and no dots; choose another name";

/// Every rule, once.
pub const CASES: &[Case] = &[
    names(VPC, NAME, "{}"),
    rule(
        VPC,
        "egress.providerNetwork takes the name of a provider network: a-z, 0-9 and '-', for example internet; leave it out for the default",
        r#"{"egress": {"providerNetwork": "internet-2"}}"#,
        r#"{"egress": {"providerNetwork": "Internet"}}"#,
    ),
    rule(
        VPC,
        "egress.providerNetwork cannot change while the VPC is attached; remove spec.egress, wait until status.egress is gone, then add it with the other network",
        r#"{"egress": {"providerNetwork": "a"}}"#,
        r#"{"egress": {"providerNetwork": "b"}}"#,
    )
    .from(r#"{"egress": {"providerNetwork": "a"}}"#),
    names(EIP, NAME, "{}"),
    rule(
        EIP,
        "providerNetwork takes the name of a provider network: a-z, 0-9 and '-', for example internet; leave it out for the default",
        r#"{"providerNetwork": "internet-2"}"#,
        r#"{"providerNetwork": "Internet"}"#,
    ),
    rule(
        EIP,
        "providerNetwork is immutable; delete the EipClaim and create it anew on the other network",
        r#"{"providerNetwork": "a"}"#,
        r#"{"providerNetwork": "b"}"#,
    )
    .from(r#"{"providerNetwork": "a"}"#),
    rule(
        EIP,
        "address must be one IPv4 address, for example 203.0.113.10; leave it out to take any that is free",
        r#"{"address": "203.0.113.10"}"#,
        r#"{"address": "203.0.113.300"}"#,
    ),
    rule(
        EIP,
        "address is immutable; delete the EipClaim and create it anew with the other address",
        r#"{"address": "203.0.113.10"}"#,
        r#"{"address": "203.0.113.11"}"#,
    )
    .from(r#"{"address": "203.0.113.10"}"#),
    names(SUBNET, NAME, r#"{"vpc": "net", "cidr": "10.0.0.0/24"}"#),
    rule(
        SUBNET,
        "vpc takes the name of a VpcClaim in this Environment: a-z, 0-9 and '-', for example prod",
        r#"{"vpc": "net-2", "cidr": "10.0.0.0/24"}"#,
        r#"{"vpc": "other/net", "cidr": "10.0.0.0/24"}"#,
    ),
    rule(
        SUBNET,
        "vpc is immutable; delete the SubnetClaim and create it anew in the other VPC",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "dns": ["9.9.9.9"]}"#,
        r#"{"vpc": "other", "cidr": "10.0.0.0/24"}"#,
    )
    .from(r#"{"vpc": "net", "cidr": "10.0.0.0/24"}"#),
    rule(
        SUBNET,
        "cidr is immutable; delete the SubnetClaim and create it anew",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "excludeAddresses": ["10.0.0.9"]}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/23"}"#,
    )
    .from(r#"{"vpc": "net", "cidr": "10.0.0.0/24"}"#),
    rule(
        SUBNET,
        "cidr must be one CIDR, or 'IPv4,IPv6': for example 10.0.0.0/24 or 10.0.0.0/24,fd00:1::/64 (no spaces, no IPv4-mapped IPv6)",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24,fd00:1::/64"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24, fd00:1::/64"}"#,
    ),
    rule(
        SUBNET,
        "cidr has host bits set; write the network address, for example 10.0.0.0/24 instead of 10.0.0.7/24",
        r#"{"vpc": "net", "cidr": "10.0.0.8/29"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.9/29"}"#,
    ),
    rule(
        SUBNET,
        "cidr is too small or too large; use /8 to /30 for IPv4 and /8 to /126 for IPv6",
        r#"{"vpc": "net", "cidr": "10.0.0.0/30,fd00::/126"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/31,fd00::/126"}"#,
    ),
    rule(
        SUBNET,
        "a dual-stack cidr is one IPv4 range, a comma, and one IPv6 range, in this order",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24,fd00:1::/64"}"#,
        r#"{"vpc": "net", "cidr": "fd00:1::/64,10.0.0.0/24"}"#,
    ),
    rule(
        SUBNET,
        "cidr has addresses that no machine can have (loopback, link-local, multicast, broadcast or unspecified); use a private range, for example 10.0.0.0/24 or fd00:1::/64",
        r#"{"vpc": "net", "cidr": "169.253.0.0/16"}"#,
        r#"{"vpc": "net", "cidr": "169.254.0.0/24"}"#,
    ),
    rule(
        SUBNET,
        "gateway cannot be added or removed after creation; delete the SubnetClaim and create it anew",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}"#,
    )
    .from(r#"{"vpc": "net", "cidr": "10.0.0.0/24"}"#),
    rule(
        SUBNET,
        "gateway is immutable; delete the SubnetClaim and create it anew",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.9", "dns": ["9.9.9.9"]}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.8"}"#,
    )
    .from(r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.9"}"#),
    rule(
        SUBNET,
        "gateway must be an IP address, or 'IPv4,IPv6' for dual stack",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.9"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "::ffff:10.0.0.9"}"#,
    ),
    rule(
        SUBNET,
        "gateway must give one address for each range of cidr: 'IPv4', 'IPv6' or 'IPv4,IPv6'",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24,fd00::/64", "gateway": "10.0.0.1,fd00::1"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24,fd00::/64", "gateway": "10.0.0.1"}"#,
    ),
    rule(
        SUBNET,
        "gateway must be a host address inside cidr, in the same order: for 10.0.0.0/24 one of 10.0.0.1 to 10.0.0.254; or leave it out for the first",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1"}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.0"}"#,
    ),
    rule(
        SUBNET,
        "excludeAddresses takes addresses, 10.0.0.10, and ranges, 10.0.0.10..10.0.0.20",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "excludeAddresses": ["10.0.0.2..10.0.0.9", "10.0.0.20"]}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "excludeAddresses": ["10.0.0.2-10.0.0.9"]}"#,
    ),
    rule(
        SUBNET,
        "excludeAddresses must lie inside cidr; leave out what lies outside, it is never handed out",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24,fd00::/64", "excludeAddresses": ["10.0.0.2..10.0.0.9", "fd00::9"]}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24,fd00::/64", "excludeAddresses": ["10.0.0.2..10.0.1.9"]}"#,
    ),
    rule(
        SUBNET,
        "dns takes IP addresses, for example 9.9.9.9 or 2620:fe::fe",
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "dns": ["9.9.9.9", "2620:fe::fe"]}"#,
        r#"{"vpc": "net", "cidr": "10.0.0.0/24", "dns": ["dns.example.com"]}"#,
    ),
];

/// A change of an optional field: what is there, what it becomes, and for what it is refused.
pub struct Change {
    /// The kind.
    pub kind: &'static str,
    /// What is there.
    pub before: &'static str,
    /// What it becomes.
    pub after: &'static str,
    /// Part of the words of the refusal; it passes if none.
    pub refused: Option<&'static str>,
}

const fn passes(kind: &'static str, before: &'static str, after: &'static str) -> Change {
    Change { kind, before, after, refused: None }
}

const fn refused(kind: &'static str, before: &'static str, after: &'static str) -> Change {
    let words = match kind.len() {
        8 => "egress.providerNetwork cannot change",
        _ => "gateway cannot be added or removed",
    };
    Change { kind, before, after, refused: Some(words) }
}

const CLOSED: &str = "{}";
const CLOSED_BY_NULL: &str = r#"{"egress": null}"#;
const DEFAULT: &str = r#"{"egress": {}}"#;
const DEFAULT_BY_NULL: &str = r#"{"egress": {"providerNetwork": null}}"#;
const NAMED: &str = r#"{"egress": {"providerNetwork": "a"}}"#;
const FIRST: &str = r#"{"vpc": "net", "cidr": "10.0.0.0/24"}"#;
const FIRST_BY_NULL: &str = r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": null}"#;
const CHOSEN: &str = r#"{"vpc": "net", "cidr": "10.0.0.0/24", "gateway": "10.0.0.9"}"#;
const MORE: &str =
    r#"{"vpc": "net", "cidr": "10.0.0.0/24", "dns": ["9.9.9.9"], "excludeAddresses": ["10.0.0.9"]}"#;

/// Optional fields that appear and vanish; a `null` is never stored.
pub const CHANGES: &[Change] = &[
    passes(VPC, CLOSED, DEFAULT),
    passes(VPC, CLOSED, NAMED),
    passes(VPC, CLOSED, CLOSED_BY_NULL),
    passes(VPC, CLOSED_BY_NULL, CLOSED),
    passes(VPC, CLOSED_BY_NULL, NAMED),
    passes(VPC, DEFAULT, CLOSED),
    passes(VPC, DEFAULT, DEFAULT_BY_NULL),
    passes(VPC, DEFAULT_BY_NULL, DEFAULT),
    passes(VPC, NAMED, CLOSED),
    passes(VPC, NAMED, CLOSED_BY_NULL),
    refused(VPC, DEFAULT, NAMED),
    refused(VPC, DEFAULT_BY_NULL, NAMED),
    refused(VPC, NAMED, DEFAULT),
    refused(VPC, NAMED, DEFAULT_BY_NULL),
    passes(SUBNET, FIRST, FIRST_BY_NULL),
    passes(SUBNET, FIRST_BY_NULL, FIRST),
    passes(SUBNET, FIRST, MORE),
    passes(SUBNET, MORE, FIRST),
    refused(SUBNET, FIRST, CHOSEN),
    refused(SUBNET, FIRST_BY_NULL, CHOSEN),
    refused(SUBNET, CHOSEN, FIRST),
    refused(SUBNET, CHOSEN, FIRST_BY_NULL),
];
