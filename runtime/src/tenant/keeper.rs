//! The task that keeps one tenant cluster: finds its kubeconfig, connects, asks again and again whether it answers, and
//! takes everything down when the kubeconfig is another one or the Cluster goes.
//!
//! It asks when nothing else was answered for [`PROBE`], at once when a request was not, and while there is no answer after
//! 1 s, 2 s … 30 s. Each cluster is asked by its own task, one question at a time; no bound is shared with others.
//!
//! A change of the Cluster or its Secret is looked at within [`LOOK`].

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kmetal_crds::foreign::capi;
use kube::{Api, Client, ResourceExt, runtime::reflector::ObjectRef};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    ClusterId, TenantCluster,
    cluster::Link,
    clusters::{Attach, Shared, Under},
    connect::{self, Line},
    health::Health,
    kubeconfig::{self, Credentials},
    pulse::Pulse,
    quote::Quote,
};
use crate::{
    backoff::exponential,
    controller::DRAIN,
    error::{Result, describe},
};

/// How long a cluster may say nothing until it is asked: a watch is renewed every 40 s.
const PROBE: Duration = Duration::from_secs(45);
/// The first and the longest pause after no answer.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Time between two looks at the Secret: a tenant may write it as often as they like.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Keeper<S> {
    pub(super) id: ClusterId,
    pub(super) shared: Arc<Shared<S>>,
    pub(super) under: Under,
    pub(super) line: Line,
    pub(super) attach: Attach<S>,
    pub(super) health: watch::Sender<Health>,
    /// Notified when the Cluster or its Secret changed.
    pub(super) poke: Arc<Notify>,
    pub(super) stop: CancellationToken,
}

/// What a look at the under cluster found.
enum Look {
    /// A kubeconfig that can be used, and the version of its Secret.
    Usable(Box<Credentials>, String),
    /// Nothing to use until something changes.
    Not(Health),
}

/// A cluster that is connected to.
struct Held {
    credentials: Credentials,
    /// The version of the Secret that they are from.
    version: String,
    client: Client,
    quote: Quote,
    pulse: Arc<Pulse>,
}

impl<S: Send + Sync + 'static> Keeper<S> {
    /// Until the Cluster goes.
    pub(super) async fn run(self) {
        tokio::select! {
            () = self.end() => {}
            () = self.keep() => {}
        }
        self.shared.remove(&self.id.uid);
        tracing::info!("let go");
    }

    /// The end of the Cluster, or of the process: then what is under way in the cluster may come to its own end.
    async fn end(&self) {
        self.stop.cancelled().await;
        if self.shared.process.stop.is_cancelled() {
            sleep(DRAIN).await;
        }
    }

    async fn keep(&self) {
        let mut failures = 0;
        loop {
            let looked = Instant::now();
            match self.look().await {
                Ok(Look::Usable(credentials, version)) => {
                    failures = 0;
                    self.hold(*credentials, version).await;
                    self.shared.set(&self.id.uid, None);
                }
                Ok(Look::Not(health)) => {
                    failures = 0;
                    self.tell(health);
                    self.poke.notified().await;
                }
                Err(error) => {
                    failures += 1;
                    self.tell(Health::Waiting(format!("its kubeconfig cannot be read now: {error}")));
                    tokio::select! {
                        () = self.poke.notified() => {}
                        () = sleep(exponential(failures, PAUSES.0, PAUSES.1)) => {}
                    }
                }
            }
            sleep_until(looked + LOOK).await;
        }
    }

    /// Reads the Cluster and its kubeconfig.
    async fn look(&self) -> Result<Look> {
        let ClusterId { namespace, name, uid } = &self.id;
        let waiting = |why: String| Ok(Look::Not(Health::Waiting(why)));
        let cluster = self.under.clusters.get_in(namespace, name);
        let cluster = cluster.filter(|cluster| cluster.uid().as_ref() == Some(uid));
        if !cluster.is_some_and(|cluster| cluster.is_initialized()) {
            return waiting("its control plane has not answered Cluster API yet".to_owned());
        }
        let secret = capi::kubeconfig_secret(name);
        let known = self.version();
        let secret = match known? {
            Some(_) => {
                Api::<Secret>::namespaced(self.shared.process.client.clone(), namespace)
                    .get_opt(&secret)
                    .await?
            }
            None => None,
        };
        let Some(secret) = secret else {
            let (name, type_, label) = (capi::kubeconfig_secret(name), capi::SECRET_TYPE, capi::CLUSTER_NAME);
            return waiting(format!(
                "there is no Secret {namespace}/{name} of type {type_} with the label {label}"
            ));
        };
        match kubeconfig::credentials(&secret, name) {
            Ok(credentials) => {
                Ok(Look::Usable(Box::new(credentials), secret.resource_version().unwrap_or_default()))
            }
            Err(refusal) => Ok(Look::Not(Health::Refused(refusal))),
        }
    }

    /// The version of the Secret as it is known now.
    fn version(&self) -> Result<Option<String>> {
        let secret = ObjectRef::new(&capi::kubeconfig_secret(&self.id.name)).within(&self.id.namespace);
        self.under.secrets.read(|store| Some(store.get(&secret)?.resource_version().unwrap_or_default()))
    }

    /// Connects and stays connected until the kubeconfig is no longer this one. Everything that was begun ends with this
    /// future, also when it is dropped.
    async fn hold(&self, credentials: Credentials, version: String) {
        let (stop, wire) = (self.stop.child_token(), CancellationToken::new());
        let _end = (stop.clone().drop_guard(), wire.clone().drop_guard());
        let pulse = Arc::<Pulse>::default();
        let quote = Quote::hiding(credentials.token.as_deref());
        let client = match connect::client(&credentials, &self.line, quote.clone(), pulse.clone(), wire) {
            Ok(client) => client,
            Err(error) => {
                self.tell(Health::Waiting(format!(
                    "no client can be made: {}",
                    quote.say(&describe(&error))
                )));
                return self.poke.notified().await;
            }
        };
        tracing::info!(server = %credentials.server, "connecting");
        // The old kubeconfig's health says nothing about this one's.
        self.tell(Health::Waiting("it has not been asked yet".to_owned()));
        let process = self.shared.process.clone();
        let link = Link {
            id: self.id.clone(),
            serial: self.shared.serial.fetch_add(1, Ordering::Relaxed),
            events: process.events.towards(client.clone()),
            client: client.clone(),
            health: self.health.subscribe(),
            limits: self.line.limits,
            quote: quote.clone(),
            stop,
            process,
        };
        let Ok(seen) = catch_unwind(AssertUnwindSafe(|| (self.attach)(&link))) else {
            tracing::error!("a bug: beginning to watch panicked (the log has the place)");
            return self.poke.notified().await;
        };
        self.shared.set(&self.id.uid, Some(Arc::new(TenantCluster { link, seen })));
        self.stay(Held { credentials, version, client, quote, pulse }).await;
    }

    /// Until the kubeconfig is no longer this one: asks whether there is an answer.
    async fn stay(&self, mut held: Held) {
        let mut failures = 0;
        loop {
            let asked = Instant::now();
            let (client, quote) = (held.client.clone(), held.quote.clone());
            let mut asking = pin!(ask(&client, &quote));
            let answer = loop {
                tokio::select! {
                    answer = &mut asking => break answer,
                    () = self.poke.notified() => if self.replaced(&mut held).await { return },
                }
            };
            let pause = match answer {
                Ok(()) => {
                    failures = 0;
                    self.tell(Health::Reachable);
                    PROBE
                }
                Err(why) => {
                    failures += 1;
                    self.tell(Health::Unreachable { since: Timestamp::now(), why });
                    exponential(failures, PAUSES.0, PAUSES.1)
                }
            };
            let mut due = Instant::now() + pause;
            loop {
                tokio::select! {
                    () = sleep_until(due) => match held.pulse.last().map(|last| last + PROBE) {
                        Some(later) if failures == 0 && later > due => due = later,
                        _ => break,
                    },
                    () = held.pulse.failed(), if failures == 0 => break,
                    () = self.poke.notified() => {
                        if self.replaced(&mut held).await {
                            return;
                        }
                        // Cluster API may just have written that it answers.
                        if failures > 0 {
                            break;
                        }
                    }
                }
            }
            if self.replaced(&mut held).await {
                return;
            }
            sleep_until(asked + PAUSES.0).await;
        }
    }

    /// Whether the Secret leads elsewhere than what is held, or is gone. Not when that cannot be told now.
    async fn replaced(&self, held: &mut Held) -> bool {
        match self.version() {
            Ok(Some(now)) if now == held.version => return false,
            Err(_) => return false,
            Ok(_) => {}
        }
        sleep(LOOK).await;
        match self.look().await {
            Ok(Look::Usable(found, now)) if found.fingerprint == held.credentials.fingerprint => {
                held.version = now;
                false
            }
            Ok(_) => true,
            Err(_) => false,
        }
    }

    fn tell(&self, now: Health) {
        let changed = self.health.send_if_modified(|before| {
            let now = match (&*before, now) {
                (Health::Unreachable { since, .. }, Health::Unreachable { why, .. }) => {
                    Health::Unreachable { since: *since, why }
                }
                (_, now) => now,
            };
            let changed = *before != now;
            let moved = before.state() != now.state();
            *before = now;
            if moved {
                tracing::info!(health = before.state(), why = before.text(), "tenant cluster");
            }
            changed
        });
        if changed {
            self.shared.count();
        }
    }
}

/// Whether an API server answers that knows us. `/version` is open to everybody whom it knows.
async fn ask(client: &Client, quote: &Quote) -> Result<(), String> {
    match client.apiserver_version().await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(quote.say(&describe(&error))),
    }
}
