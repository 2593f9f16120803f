//! kmetal-networking's bars, and the scenes that measure them.
//!
//! Each scene has a bench of its own, so what one leaves behind is nobody's load. In Kube-OVN's place stands the ovn
//! actor ([`crate::ovn_actor`]) in all of them: the real one builds a few networks a second, and a figure would be
//! its own. The notes say so beside each figure that the actor has a part in.

mod burst;
mod claims;
mod exclusive;
mod idle;
mod latency;
mod neighbour;
mod outage;
mod restart;
mod soak;
mod waiters;

use anyhow::Result;

use super::{
    Settings,
    bar::{Bar, Limit, Run, Unit},
    record::Record,
};

const fn bar(id: &'static str, what: &'static str, unit: Unit, limit: Limit, run: Run) -> Bar {
    Bar { id, what, unit, limit, run }
}

static CLAIM_P50: Bar = bar(
    "B-P1",
    "claim to Vpc, p50 above a bare create's",
    Unit::Milliseconds,
    Limit::AtMost(15.0),
    Run::Median,
);
static CLAIM_P99: Bar =
    bar("B-P1", "claim to Vpc, p99 over a bare create's", Unit::Times, Limit::AtMost(5.0), Run::Median);
static CLAIM_GUARD: Bar =
    bar("B-P1", "claim to Vpc, p99 at 10 claims/s", Unit::Milliseconds, Limit::AtMost(100.0), Run::Median);
static NOISY_P99: Bar = bar(
    "B-P1",
    "the same beside a tenant who claims 600 subnets",
    Unit::Times,
    Limit::AtMost(5.0),
    Run::Median,
);
static NOISY_WORST: Bar =
    bar("B-P1", "the slowest claim beside that tenant", Unit::Milliseconds, Limit::None, Run::Median);
static NOISY_READY: Bar =
    bar("B-P1", "until those 600 SubnetClaims of one VPC are Ready", Unit::Seconds, Limit::None, Run::Median);
static BURST: Bar = bar(
    "B-P2",
    "1,000 claims at once, rate over bare creates of claims and Vpcs",
    Unit::Times,
    Limit::AtLeast(0.5),
    Run::Median,
);
static BURST_READY: Bar = bar("B-P2", "until all of them are Ready", Unit::Seconds, Limit::None, Run::Median);
static VPC_WRITES: Bar =
    bar("B-P2", "our writes for a VpcClaim", Unit::Count, Limit::AtMost(4.0), Run::Median);
static EIP_WRITES: Bar =
    bar("B-P2", "our writes for an EipClaim", Unit::Count, Limit::AtMost(4.0), Run::Median);
static SUBNET_WRITES: Bar =
    bar("B-P2", "our writes for a SubnetClaim, of two objects", Unit::Count, Limit::AtMost(5.0), Run::Median);
static RESTART_LINEAR: Bar =
    bar("B-P3", "restart until quiet, 4,000 claims over 2,000", Unit::Times, Limit::AtMost(2.2), Run::Median);
static RESTART_WRITES: Bar =
    bar("B-P3", "our writes after a restart", Unit::Count, Limit::AtMost(0.0), Run::Worst);
static MEMORY: Bar = bar(
    "B-P5",
    "peak memory with 4,000 claims over 64 MiB + 8 KiB a claim",
    Unit::Times,
    Limit::AtMost(1.0),
    Run::Median,
);
static RESTART_READY: Bar = bar(
    "X-2",
    "restart until ready with 2,000 claims over a bare LIST",
    Unit::Times,
    Limit::AtMost(1.5),
    Run::Median,
);
static IDLE_WRITES: Bar = bar(
    "X-1",
    "idle with 100 of each kind: our writes but the lease's",
    Unit::Count,
    Limit::AtMost(0.0),
    Run::Worst,
);
static IDLE_REQUESTS: Bar = bar(
    "X-1",
    "idle: other requests over twice what the watches need",
    Unit::Times,
    Limit::AtMost(1.0),
    Run::Worst,
);
static IDLE_CPU: Bar = bar("X-1", "idle: of one core", Unit::Percent, Limit::AtMost(0.5), Run::Worst);
static OUTAGE_CAUGHT_UP: Bar = bar(
    "X-7",
    "API server killed under load: slowest to catch up after readyz",
    Unit::Seconds,
    Limit::AtMost(10.0),
    Run::Worst,
);
static OUTAGE_TWICE: Bar =
    bar("X-7", "claims that got two Vpcs by it", Unit::Count, Limit::AtMost(0.0), Run::Worst);
static SOAK_MEMORY: Bar =
    bar("X-13", "soak: memory off its early level", Unit::Percent, Limit::AtMost(5.0), Run::Worst);
static SOAK_FILES: Bar =
    bar("X-13", "soak: open files off their early level", Unit::Percent, Limit::AtMost(5.0), Run::Worst);
static SOAK_THREADS: Bar =
    bar("X-13", "soak: threads off their early level", Unit::Percent, Limit::AtMost(5.0), Run::Worst);
static EXCLUSIVE: Bar = bar(
    "B-4",
    "64 clients, one address: rounds with one winner, 63 told why",
    Unit::Percent,
    Limit::AtLeast(100.0),
    Run::Worst,
);
static OLDEST_FIRST: Bar = bar(
    "B-7",
    "10 addresses, 100 claims: the oldest gets what is given back",
    Unit::Percent,
    Limit::AtLeast(100.0),
    Run::Worst,
);
static OLDEST_WITHIN: Bar = bar(
    "B-7",
    "slowest from a claim's deletion to the next one's Ready",
    Unit::Seconds,
    Limit::AtMost(1.0),
    Run::Worst,
);

/// What is measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scene {
    /// One claim after the other.
    Latency,
    /// A thousand at once.
    Burst,
    /// Restarts among many.
    Restart,
    /// One tenant beside another.
    Neighbour,
    /// All want the same.
    Exclusive,
    /// More want than there is.
    Waiters,
    /// The API server dies.
    Outage,
    /// Nothing happens.
    Idle,
    /// Much happens, for long.
    Soak,
}

impl Scene {
    /// All of them, in the order in which they are played.
    pub const ALL: &[Self] = &[
        Self::Latency,
        Self::Burst,
        Self::Restart,
        Self::Neighbour,
        Self::Exclusive,
        Self::Waiters,
        Self::Outage,
        Self::Idle,
        Self::Soak,
    ];

    /// What it measures.
    pub fn bars(self) -> Vec<&'static Bar> {
        match self {
            Self::Latency => vec![&CLAIM_P50, &CLAIM_P99, &CLAIM_GUARD],
            Self::Burst => vec![&BURST, &BURST_READY, &VPC_WRITES, &EIP_WRITES, &SUBNET_WRITES],
            Self::Restart => vec![&RESTART_LINEAR, &RESTART_WRITES, &MEMORY, &RESTART_READY],
            Self::Neighbour => vec![&NOISY_P99, &NOISY_WORST, &NOISY_READY],
            Self::Exclusive => vec![&EXCLUSIVE],
            Self::Waiters => vec![&OLDEST_FIRST, &OLDEST_WITHIN],
            Self::Outage => vec![&OUTAGE_CAUGHT_UP, &OUTAGE_TWICE],
            Self::Idle => vec![&IDLE_WRITES, &IDLE_REQUESTS, &IDLE_CPU],
            Self::Soak => vec![&SOAK_MEMORY, &SOAK_FILES, &SOAK_THREADS],
        }
    }

    /// Whether it takes so long that it is played only when it is named.
    pub fn is_long(self) -> bool {
        matches!(self, Self::Idle | Self::Soak)
    }

    /// Plays it.
    pub(super) async fn measure(self, settings: Settings, record: &mut Record) -> Result<()> {
        match self {
            Self::Latency => latency::measure(settings, record).await,
            Self::Burst => burst::measure(settings, record).await,
            Self::Restart => restart::measure(settings, record).await,
            Self::Neighbour => neighbour::measure(settings, record).await,
            Self::Exclusive => exclusive::measure(settings, record).await,
            Self::Waiters => waiters::measure(settings, record).await,
            Self::Outage => outage::measure(settings, record).await,
            Self::Idle => idle::measure(settings, record).await,
            Self::Soak => soak::measure(settings, record).await,
        }
    }
}
