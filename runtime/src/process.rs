//! What happens between `main` and the first reconcile, and on SIGTERM.
//!
//! `main` is [`run`]: it parses the settings, starts the process and calls the one function of the binary. That
//! function starts its watches (on every replica, so that a new leader knows the world already), waits in
//! [`Process::lead`], drives its controllers, and returns when they have drained. Then the lease is given back.
//!
//! Losing the lease ends the process with status 1: the fence has refused every write before that.

use std::{
    fmt::Debug,
    io::IsTerminal,
    net::SocketAddr,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, Client};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{
    admin::{self, Gates},
    client,
    event::Events,
    fence::Fence,
    lease::{Candidate, Ended, Terms},
    metrics::Metrics,
};

/// How long giving the lease back may take.
const RELEASE: Duration = Duration::from_millis(1500);

/// The settings that every process has. Flatten it into the process's own, and give out a reference with `AsRef`.
#[derive(clap::Args, Debug, Clone)]
pub struct Options {
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "KMETAL_ADMIN_ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// Namespace of the Lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "kmetal-system")]
    pub lease_namespace: String,
    /// Seconds after which a silent leader is replaced; the leader itself gives up after two thirds of it.
    #[arg(long, env = "KMETAL_LEASE_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u16).range(5..=600))]
    pub lease_seconds: u16,
    /// Name of this replica in the Lease and in Events.
    #[arg(long, env = "POD_NAME", default_value = "local")]
    pub pod_name: String,
    /// Format of the log.
    #[arg(long, env = "KMETAL_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// What is logged, as `level` or `target=level,…`.
    #[arg(long, env = "KMETAL_LOG_FILTER", default_value = "info,kube_runtime=warn")]
    pub log_filter: String,
}

/// See [`Options::log_format`].
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The process was asked to stop before it led; not a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("asked to stop before leading")]
pub struct Stopped;

/// What every part of the process is given. Clones are the same process.
#[derive(Clone)]
pub struct Process {
    /// Name of the binary: field manager, Lease and reporter of Events.
    pub name: &'static str,
    /// Client of the under cluster, behind the fence.
    pub client: Client,
    /// Cancelled when the process has to end.
    pub stop: CancellationToken,
    /// Readiness.
    pub gates: Gates,
    /// Metrics.
    pub metrics: Metrics,
    /// Events.
    pub events: Events,
    /// Whether writes are allowed; give it to every other client ([`client::connect`]).
    pub fence: Fence,
    election: Arc<Election>,
}

struct Election {
    /// Outside the fence, with connections of its own.
    client: Client,
    namespace: String,
    identity: String,
    terms: Terms,
    release: CancellationToken,
    keeping: Mutex<Option<JoinHandle<()>>>,
}

impl Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The whole of a `main`: parses `A`, starts the process, runs `main`, gives the lease back.
///
/// `A` must not show secrets in `Debug`: it is logged.
pub fn run<A, F, Fut>(name: &'static str, main: F) -> ExitCode
where
    A: clap::Parser + AsRef<Options> + Debug,
    F: FnOnce(Process, A) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let settings = A::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{name}: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        let process = Process::start(name, settings.as_ref()).await?;
        tracing::info!(?settings, "started");
        let outcome = main(process.clone(), settings).await;
        process.finish().await;
        outcome
    });
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Stopped>() => ExitCode::SUCCESS,
        Err(error) => {
            if tracing::dispatcher::has_been_set() {
                tracing::error!("{name} ends: {error:#}");
            } else {
                eprintln!("{name}: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

impl Process {
    /// Logging, TLS, clients, admin server and signals. Fails when a setting is wrong or the admin address is taken.
    pub async fn start(name: &'static str, options: &Options) -> anyhow::Result<Self> {
        log(options)?;
        // Two providers may be compiled in; the first to be installed wins, and it must be this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = kube::Config::infer().await.context("find the API server")?;
        tracing::info!(server = %config.cluster_url, "under cluster");
        let fence = Fence::default();
        let client = client::connect(config.clone(), name, fence.clone())?;
        let election_client = client::connect(config, name, Fence::default())?;
        let process = Self::assemble(name, options, client, election_client, fence);

        let address = options.admin_address;
        let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
        let router = admin::router(process.gates.clone(), process.metrics.clone());
        // Not ended by the stop token: the process stays alive and observable while it drains.
        tokio::spawn(admin::serve(listener, router, CancellationToken::new()));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = process.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("asked to stop");
            stop.cancel();
        });
        Ok(process)
    }

    /// The parts, without any of the world.
    pub(crate) fn assemble(
        name: &'static str,
        options: &Options,
        client: Client,
        election_client: Client,
        fence: Fence,
    ) -> Self {
        let metrics = Metrics::default();
        let election = Election {
            client: election_client,
            namespace: options.lease_namespace.clone(),
            identity: identity(&options.pod_name),
            terms: Terms { duration: Duration::from_secs(options.lease_seconds.into()) },
            release: CancellationToken::new(),
            keeping: Mutex::default(),
        };
        Self {
            name,
            events: Events::new(client.clone(), name, &options.pod_name, metrics.clone()),
            client,
            stop: CancellationToken::new(),
            gates: Gates::new(metrics.clone()),
            metrics,
            fence,
            election: Arc::new(election),
        }
    }

    /// Returns when this replica leads. From the call on, nothing is written unless it does.
    ///
    /// [`Stopped`] when the process is asked to stop first; [`run`] takes that for success. When leadership is lost
    /// later, the process ends at once with status 1.
    pub async fn lead(&self) -> anyhow::Result<()> {
        let Election { client, namespace, identity, terms, release, .. } = &*self.election;
        let api = Api::<Lease>::namespaced(client.clone(), namespace);
        let candidate = Candidate::new(api, self.name, identity, *terms, self.fence.clone());
        let held = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(Stopped.into()),
            held = candidate.acquire() => held,
        };
        self.metrics.leading(true);
        let (stop, release) = (self.stop.clone(), release.clone());
        let keeping = tokio::spawn(async move {
            if let Ended::Lost(why) = held.keep(release).await {
                stop.cancel();
                tracing::error!(why, "the lease is lost; ending");
                std::process::exit(1);
            }
        });
        *self.election.keeping.lock().unwrap_or_else(PoisonError::into_inner) = Some(keeping);
        Ok(())
    }

    /// Asks everything to stop and gives the lease back. Call it when the controllers have drained; [`run`] does.
    pub async fn finish(&self) {
        self.stop.cancel();
        self.election.release.cancel();
        let keeping = self.election.keeping.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeping) = keeping {
            self.metrics.leading(false);
            if tokio::time::timeout(RELEASE, keeping).await.is_err() {
                tracing::warn!("the lease was not released in time; it will expire");
            }
        }
    }
}

/// Unique per start, so that a restarted container is never taken for the process it replaces.
fn identity(pod_name: &str) -> String {
    format!("{pod_name}_{}_{:x}", std::process::id(), Timestamp::now().as_nanosecond())
}

fn log(options: &Options) -> anyhow::Result<()> {
    // At `warn`, the client logs the whole body of an answer that does not decode: that may be a Secret.
    let bodies = "kube_client::client=error".parse()?;
    // At `warn`, the watcher logs whatever the server of a tenant says.
    let words = "kube_runtime::watcher=error".parse()?;
    let filter = EnvFilter::try_new(&options.log_filter).context("log filter")?;
    let filter = filter.add_directive(bodies).add_directive(words);
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(std::io::stdout().is_terminal());
    let outcome = match options.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    outcome.map_err(|error| anyhow::anyhow!("logging: {error}"))
}

#[cfg(test)]
pub(crate) mod tests;
