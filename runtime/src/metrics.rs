//! What a monitoring system sees: one registry per process, prefix `kmetal_`, every label bounded.
//!
//! No object name is ever a label: a tenant must not be able to grow our memory by creating objects.

use std::{
    fmt::{Debug, Error as FmtError},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use tokio::runtime::Handle;

/// Media type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of a reconcile's duration in seconds.
const SECONDS: [f64; 9] = [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 600.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    controller: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Kind {
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindClass {
    kind: String,
    class: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Name {
    gate: String,
}

/// The process's metrics. Clones share one registry.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    reconciles: Family<Outcome, Counter>,
    seconds: Family<Controller, Histogram, fn() -> Histogram>,
    gates: Family<Name, Gauge>,
    objects: Family<Kind, Gauge>,
    invalid: Family<Kind, Gauge>,
    watch_errors: Family<KindClass, Counter>,
    leading: Gauge,
    events_lost: Counter,
    tasks: Gauge,
}

impl Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix("kmetal"))),
            reconciles: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            gates: Family::default(),
            objects: Family::default(),
            invalid: Family::default(),
            watch_errors: Family::default(),
            leading: Gauge::default(),
            events_lost: Counter::default(),
            tasks: Gauge::default(),
        };
        metrics.register("reconcile", "Reconciles by how they ended", metrics.reconciles.clone());
        metrics.register("reconcile_seconds", "Duration of a reconcile", metrics.seconds.clone());
        metrics.register("gate_open", "1 when a readiness gate is open", metrics.gates.clone());
        metrics.register("watched_objects", "Objects in the cache", metrics.objects.clone());
        metrics.register("watched_invalid", "Objects that could not be decoded", metrics.invalid.clone());
        metrics.register("watch_errors", "Failed lists and watches", metrics.watch_errors.clone());
        metrics.register("leading", "1 when this replica leads", metrics.leading.clone());
        metrics.register("events_lost", "Events that could not be published", metrics.events_lost.clone());
        metrics.register("tasks", "Tasks of the runtime that have not ended", metrics.tasks.clone());
        metrics
    }
}

impl Metrics {
    /// Adds a metric of the process's own; `name` without prefix and without `_total`, `help` without a full stop.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner).register(name, help, metric);
    }

    /// The registry in the Prometheus text format ([`CONTENT_TYPE`]).
    pub fn encode(&self) -> Result<String, FmtError> {
        if let Ok(runtime) = Handle::try_current() {
            self.tasks.set(i64::try_from(runtime.metrics().num_alive_tasks()).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        prometheus_text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// Counts one pass of a controller. `outcome` is `ok` or an [`crate::Error::class`].
    pub fn reconciled(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Outcome { controller, outcome }).inc();
        self.seconds.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
    }

    pub(crate) fn gate(&self, gate: &str, open: bool) {
        self.gates.get_or_create(&Name { gate: gate.to_owned() }).set(open.into());
    }

    /// The share of one cache in the counts of `kind`.
    pub(crate) fn watched(&self, kind: &str) -> Counted {
        let kind = Kind { kind: kind.to_owned() };
        let (objects, invalid) =
            (self.objects.get_or_create_owned(&kind), self.invalid.get_or_create_owned(&kind));
        Counted { objects: (objects, 0), invalid: (invalid, 0) }
    }

    pub(crate) fn watch_failed(&self, kind: &str, class: &'static str) {
        self.watch_errors.get_or_create(&KindClass { kind: kind.to_owned(), class }).inc();
    }

    pub(crate) fn leading(&self, leading: bool) {
        self.leading.set(leading.into());
    }

    pub(crate) fn event_lost(&self) {
        self.events_lost.inc();
    }
}

/// What one cache adds to the counts of its kind: there is one cache for each tenant cluster. Taken back on drop.
#[derive(Debug)]
pub(crate) struct Counted {
    objects: (Gauge, i64),
    invalid: (Gauge, i64),
}

impl Counted {
    pub(crate) fn set(&mut self, objects: usize, invalid: usize) {
        for ((gauge, before), now) in [(&mut self.objects, objects), (&mut self.invalid, invalid)] {
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            gauge.inc_by(now - *before);
            *before = now;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_prometheus_0_0_4_with_our_prefix() {
        let metrics = Metrics::default();
        metrics.reconciled("vpc", "ok", Duration::from_millis(3));
        metrics.reconciled("vpc", "conflict", Duration::from_millis(3));
        metrics.gate("kube-ovn", false);
        let (mut one, mut two) = (metrics.watched("vpcs.kubeovn.io"), metrics.watched("vpcs.kubeovn.io"));
        one.set(9, 3);
        one.set(4, 1);
        two.set(3, 0);
        let mut gone = metrics.watched("vpcs.kubeovn.io");
        gone.set(5, 5);
        drop(gone);
        let text = metrics.encode().unwrap();
        for line in [
            r#"kmetal_reconcile_total{controller="vpc",outcome="ok"} 1"#,
            r#"kmetal_reconcile_total{controller="vpc",outcome="conflict"} 1"#,
            r#"kmetal_reconcile_seconds_bucket{controller="vpc",le="0.005"} 2"#,
            r#"kmetal_gate_open{gate="kube-ovn"} 0"#,
            r#"kmetal_watched_objects{kind="vpcs.kubeovn.io"} 7"#,
            r#"kmetal_watched_invalid{kind="vpcs.kubeovn.io"} 1"#,
            "kmetal_leading 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn tasks_that_never_end_are_seen() {
        let metrics = Metrics::default();
        assert!(metrics.encode().unwrap().contains("kmetal_tasks 0"));
        let _two = [tokio::spawn(std::future::pending::<()>()), tokio::spawn(std::future::pending())];
        assert!(metrics.encode().unwrap().contains("kmetal_tasks 2"));
    }

    #[test]
    fn a_process_adds_its_own_metrics_to_the_same_registry() {
        let metrics = Metrics::default();
        let claims: Gauge = Gauge::default();
        metrics.register("claims", "Claims", claims.clone());
        claims.set(3);
        assert!(metrics.clone().encode().unwrap().contains("kmetal_claims 3"));
    }
}
