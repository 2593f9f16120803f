//! What a process states to join the suite.

use anyhow::Result;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

use super::kind::Kind;
use crate::{chart::Chart, cluster::Cluster};

/// One telling of a scenario: what is applied is called by `name`, and lies in `namespace` if it lies in one.
///
/// Stories of different names get along with each other, in one namespace or in several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// An Environment that the suite has made.
    pub namespace: String,
    /// At most 40 characters of a DNS label, which begins and ends everything that is named.
    pub name: String,
    /// Which of the [`Scenario::PLOTS`].
    pub plot: usize,
}

/// What a rival does to an object that the process answers for.
#[derive(Debug, Clone)]
pub struct Tamper {
    /// The kind.
    pub resource: ApiResource,
    /// Where it lies, if it lies in a namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// A merge patch that changes what is ours; `None` deletes the object.
    pub change: Option<Value>,
}

/// A process of ours, the world that it needs, and what a person does with it.
///
/// Nothing in it waits longer than it must, and nothing asserts: the suite compares.
#[allow(async_fn_in_trait, reason = "only ever awaited by the suite, on the runtime of one test")]
pub trait Scenario: Sized {
    /// Package, binary, chart, ServiceAccount and Lease of the process: one name for all.
    const PROCESS: &'static str;

    /// In how many ways the story can be told; plot 0 does as much as one story can.
    const PLOTS: usize = 1;

    /// How many further plots there are that only `cargo e2e --full` has the time for.
    const MORE_PLOTS: usize = 0;

    /// Sets up everything but the process: the under cluster, peers, the chart with its values.
    async fn world(name: &str) -> Result<Self>;

    /// The under cluster.
    fn cluster(&self) -> &Cluster;

    /// The chart of the process, as it is installed.
    fn chart(&self) -> &Chart;

    /// The kinds that make up the end state.
    fn kinds() -> Vec<Kind>;

    /// Applies what a person applies, and returns; peers that the suite does not know do their part. When it has failed it
    /// is called again.
    async fn begin(&self, story: &Story) -> Result<()>;

    /// Waits until all of it is what it should be.
    async fn done(&self, story: &Story) -> Result<()>;

    /// Removes what a person applied, in an order that fits the plot, and returns.
    ///
    /// What must be waited for in between (a refusal that the plot is about) is waited for with patience: the process may
    /// be killed meanwhile.
    async fn remove(&self, story: &Story) -> Result<()>;

    /// What the end state has outside of the API, one line each: rows of a database, files of a bucket.
    async fn elsewhere(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// What a rival may do to this story's objects, each of which the process puts back; told of plot 0.
    async fn tampers(&self, story: &Story) -> Result<Vec<Tamper>>;

    /// Objects that the API server lets in and that nobody in their senses would make, of kinds that people apply; their
    /// names begin with that of the story and leave room for more.
    fn poison(&self, story: &Story) -> Vec<DynamicObject>;

    /// Ends a test that went well: the world stops, its folder goes.
    fn finish(self);
}
