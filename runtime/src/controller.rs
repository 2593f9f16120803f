//! When a reconcile runs: the only caller of `Controller::run`, and the loop for what is not per object.
//!
//! kube's default error handling drops errors; here each is logged, counted, told as an Event when it is news, and
//! retried after a delay that grows per object. Concurrency is always bounded, a panic in one reconcile is an error of
//! that object and of no other, and on stop the reconciles under way have [`DRAIN`] to end.

use std::{
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::{FutureExt, Stream, StreamExt, future::BoxFuture, stream, stream::BoxStream};
use kube::{
    ResourceExt,
    runtime::{
        Controller,
        controller::{self, Action},
        events::EventType,
        reflector::ObjectRef,
        watcher,
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    backoff::{self, Attempts, exponential},
    error::{Error, Result},
    event::Events,
    metrics::Metrics,
    process::Process,
    tenant::Quote,
    watched::{Watchable, Watched},
};

/// How long reconciles under way may take after the process was asked to stop.
pub const DRAIN: Duration = Duration::from_millis(1500);
/// Triggers of [`repeat`] within this time are one.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// The longest delay of [`repeat`] after failures: it has no other trigger that is per object.
const LONGEST_REPEAT: Duration = Duration::from_secs(30);

/// What [`drive`] drives.
pub struct Drive<K: Watchable> {
    name: &'static str,
    primary: Watched<K>,
    triggers: Vec<BoxStream<'static, ObjectRef<K>>>,
    everything: Vec<BoxStream<'static, ()>>,
    concurrency: u16,
}

impl<K: Watchable> Drive<K> {
    /// Reconciles the objects of `primary` when they change; `name` is the label in metrics and logs.
    pub fn new(name: &'static str, primary: &Watched<K>) -> Self {
        Self { name, primary: primary.clone(), triggers: Vec::new(), everything: Vec::new(), concurrency: 4 }
    }

    /// Reconciles also each object named by `trigger`.
    #[must_use]
    pub fn on(mut self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        self.triggers.push(trigger.boxed());
        self
    }

    /// Reconciles all objects whenever `trigger` has an item.
    #[must_use]
    pub fn everything_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.everything.push(trigger.boxed());
        self
    }

    /// At most so many reconciles at a time (default 4); one object is never reconciled twice at a time.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// The concurrency that was asked for, but no more than `bound`.
    pub(crate) fn at_most(self, bound: u16) -> Self {
        let wanted = self.concurrency.min(bound);
        self.concurrency(wanted)
    }
}

/// What surrounds a controller.
pub(crate) struct Around {
    pub(crate) metrics: Metrics,
    /// Where failures are told to people; `None` where they are only logged.
    pub(crate) events: Option<Events>,
    pub(crate) stop: CancellationToken,
    /// A reconcile that takes longer is dropped.
    pub(crate) within: Option<Duration>,
    /// The longest delay after failures of one object.
    pub(crate) longest: Duration,
    /// How to repeat errors of a server that is not trusted.
    pub(crate) quote: Option<Quote>,
}

/// Runs `reconcile` for every object of the primary kind whenever it may be needed, until the process stops.
pub async fn drive<K, Ctx, F, Fut>(process: &Process, drive: Drive<K>, context: Arc<Ctx>, reconcile: F)
where
    K: Watchable,
    Ctx: Send + Sync + 'static,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action>> + Send + 'static,
{
    let around = Around {
        metrics: process.metrics.clone(),
        events: Some(process.events.clone()),
        stop: process.stop.clone(),
        within: None,
        longest: backoff::LONGEST,
        quote: None,
    };
    drive_around(around, drive, context, reconcile).await;
}

/// [`drive`] in other surroundings than the process's own.
pub(crate) async fn drive_around<K, Ctx, F, Fut>(
    around: Around,
    drive: Drive<K>,
    context: Arc<Ctx>,
    reconcile: F,
) where
    K: Watchable,
    Ctx: Send + Sync + 'static,
    F: Fn(Arc<K>, Arc<Ctx>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action>> + Send + 'static,
{
    let (name, stop) = (drive.name, around.stop.clone());
    let pass = Arc::new(Pass::new(name, around));
    let own = drive.primary.changes().map(|object| ObjectRef::from_obj(&*object));
    let mut controller =
        Controller::for_stream(stream::pending::<Result<K, watcher::Error>>(), drive.primary.store())
            .reconcile_on(own)
            .with_config(controller::Config::default().concurrency(drive.concurrency))
            .graceful_shutdown_on(stop.clone().cancelled_owned());
    for trigger in drive.triggers {
        controller = controller.reconcile_on(trigger);
    }
    for trigger in drive.everything {
        controller = controller.reconcile_all_on(trigger);
    }
    let reconcile = Arc::new(reconcile);
    let guarded = move |object: Arc<K>, context: Arc<Ctx>| {
        let (pass, reconcile) = (pass.clone(), reconcile.clone());
        // The call, too, is inside of what is caught when it panics.
        async move { pass.run(object.clone(), async move { reconcile(object, context).await }).await }
    };
    let results = controller.run(guarded, |_, failed: &Failed, _| Action::requeue(failed.delay), context);
    drain(name, results, stop).await;
}

/// Runs `work` at the start, after every item of `triggers` and at least every `interval`, until the process stops.
///
/// For work on the whole world (an orphan sweep, labels of nodes). Triggers that come close together are one; after a
/// failure it waits 1 s, 2 s … 30 s.
pub async fn repeat<W, Fut>(
    process: &Process,
    name: &'static str,
    triggers: impl Stream<Item = ()> + Send,
    interval: Duration,
    mut work: W,
) where
    W: FnMut() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let mut triggers = pin!(triggers.chain(stream::pending()));
    let mut failures = 0;
    while !process.stop.is_cancelled() {
        let started = Instant::now();
        let outcome = tokio::select! {
            biased;
            outcome = AssertUnwindSafe(work()).catch_unwind() => outcome.unwrap_or_else(|_| Err(panicked())),
            () = overdue(&process.stop) => return tracing::warn!(controller = name, "abandoned on stop"),
        };
        let class = outcome.as_ref().map_or_else(Error::class, |()| "ok");
        process.metrics.reconciled(name, class, started.elapsed());
        let pause = match outcome {
            Ok(()) => {
                failures = 0;
                tokio::select! {
                    () = process.stop.cancelled() => return,
                    () = tokio::time::sleep(interval) => {}
                    _ = triggers.next() => {}
                }
                DEBOUNCE
            }
            Err(error) => {
                failures += 1;
                let delay = exponential(failures, backoff::FIRST, LONGEST_REPEAT);
                tracing::warn!(controller = name, %error, delay = delay.as_secs(), "failed; trying again");
                delay
            }
        };
        tokio::select! {
            () = process.stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        while triggers.next().now_or_never().flatten().is_some() {}
    }
}

/// A failed reconcile on its way through the controller: only the delay matters there.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
struct Failed {
    error: Error,
    delay: Duration,
}

/// What surrounds each reconcile of one controller.
struct Pass {
    name: &'static str,
    around: Around,
    attempts: Mutex<Attempts<String>>,
}

impl Pass {
    fn new(name: &'static str, around: Around) -> Self {
        Self { name, around, attempts: Mutex::default() }
    }

    async fn run<K: Watchable>(
        &self,
        object: Arc<K>,
        reconcile: impl Future<Output = Result<Action>>,
    ) -> Result<Action, Failed> {
        let started = Instant::now();
        let reconcile = AssertUnwindSafe(reconcile).catch_unwind();
        let outcome = match self.around.within {
            Some(limit) => {
                let in_time = tokio::time::timeout(limit, reconcile).await;
                in_time.unwrap_or_else(|_| Ok(Err(Error::TookTooLong(limit))))
            }
            None => reconcile.await,
        };
        let outcome = outcome.unwrap_or_else(|_| Err(panicked()));
        let class = outcome.as_ref().map_or_else(Error::class, |_| "ok");
        self.around.metrics.reconciled(self.name, class, started.elapsed());
        let key = object.uid().unwrap_or_else(|| object.name_any());
        let error = match outcome {
            Ok(action) => {
                if self.attempts().succeeded(&key) {
                    tracing::info!(controller = self.name, object = %ObjectRef::from_obj(&*object), "recovered");
                }
                return Ok(action);
            }
            Err(error) => error,
        };
        let text = match &self.around.quote {
            Some(quote) => quote.say(&error.to_string()),
            None => error.to_string(),
        };
        let verdict = self.attempts().failed(key.clone(), &text, Instant::now());
        let delay = verdict.delay.min(self.around.longest);
        let told = verdict.news && verdict.failures >= patience(class);
        tracing::warn!(
            controller = self.name,
            object = %ObjectRef::from_obj(&*object),
            error = text,
            class,
            failures = verdict.failures,
            delay = delay.as_secs(),
            "reconcile failed"
        );
        if let Some(events) = self.around.events.as_ref().filter(|_| told) {
            let regarding = object.object_ref(&K::DynamicType::default());
            events.publish(&regarding, EventType::Warning, "ReconcileFailed", &text, "Reconcile").await;
            self.attempts().told(&key, text);
        }
        Err(Failed { error, delay })
    }

    fn attempts(&self) -> std::sync::MutexGuard<'_, Attempts<String>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From which failure in a row on a person is told. Races and an API server that is away pass by themselves.
fn patience(class: &str) -> u32 {
    match class {
        "conflict" => 4,
        "transient" | "timeout" | "unknown" => 3,
        _ => 1,
    }
}

fn panicked() -> Error {
    Error::Other(anyhow::anyhow!("a bug: the reconcile panicked (the log has the place)"))
}

/// Returns [`DRAIN`] after `stop`.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(DRAIN).await;
}

/// Polls the controller to its end. What is under way [`DRAIN`] after the stop is dropped, as a crash would.
async fn drain<K: Watchable>(
    name: &'static str,
    results: impl Stream<Item = Result<(ObjectRef<K>, Action), controller::Error<Failed, watcher::Error>>>,
    stop: CancellationToken,
) {
    let mut results = pin!(results);
    let mut overdue: BoxFuture<'_, ()> = overdue(&stop).boxed();
    loop {
        let result = tokio::select! {
            biased;
            () = &mut overdue => return tracing::warn!(controller = name, "reconciles abandoned on stop"),
            result = results.next() => result,
        };
        match result {
            None => return,
            // Logged, counted and told where it happened.
            Some(Ok(_) | Err(controller::Error::ReconcilerFailed(..))) => {}
            Some(Err(error @ controller::Error::ObjectNotFound(_))) => {
                tracing::debug!(controller = name, %error);
            }
            Some(Err(error)) => tracing::error!(controller = name, %error, "the controller's queue failed"),
        }
    }
}

#[cfg(test)]
mod tests;
