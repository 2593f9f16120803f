//! The fault proxy: stands between one of our processes and a server, and breaks what a test tells it to break.
//!
//! A [`Proxy`] speaks HTTP/1.1 (all that kube's client speaks) on a loopback port, with TLS where the server has it,
//! and passes requests and answers on as streams, so watches work; `Authorization` and `Host` go through unchanged.
//! Each connection of the client has one of its own to the server: nothing is pooled, retried or hidden, and when
//! one side goes, so does the other. Its core knows HTTP only; what it knows of Kubernetes is in [`kubernetes`].
//!
//! ```no_run
//! # use kmetal_e2e::{cluster::Cluster, chart::Chart, controller::{Circumstances, Controller}, wait::PATIENCE};
//! # use kmetal_e2e::faults::{Fault, Proxy, Select};
//! # async fn example(cluster: Cluster, chart: Chart, n: u64) -> anyhow::Result<()> {
//! let proxy = Proxy::before(&cluster).await?;                            // forwards all, breaks nothing
//! let circumstances = Circumstances { through: Some(&proxy), ..Circumstances::default() };
//! let mut replica = Controller::start_in(&cluster, &chart, "kmetal-x", 0, &circumstances).await?;
//!
//! proxy.fault(Select::useful_writes().nth(3), Fault::drop_answer());     // applied, the answer is lost
//! proxy.fault(Select::writes(), Fault::status(503));                     // all of them, until …
//! proxy.clear();                                                         // … every rule is lifted
//! proxy.silence(&Select::watches());                                     // those under way: silence, no FIN
//! proxy.fault(Select::ordinary(), Fault::blackhole());                   // and new requests too
//!
//! // K(n): killed after its n-th write was applied, before it heard of it …
//! let gate = proxy.hold_answer(Select::useful_writes().nth(n));
//! gate.reached(PATIENCE).await?;
//! replica.kill()?;
//! gate.abandon();
//! replica.restart()?;                                                    // behind the same proxy
//! // … and after it heard of it, before anything more of it happened: hold_request(….from(n + 1)).
//!
//! let passed = proxy.log();                                              // and what became of each
//! # drop(passed);
//! # Ok(())
//! # }
//! ```
//!
//! - A **rule** ([`Proxy::fault`], [`Proxy::hold_answer`], [`Proxy::hold_request`]) is about requests yet to come. It
//!   counts those that its [`Select`] takes, from 1, from when it was made; the count is exact under concurrency
//!   because a request is counted when its head has been read, under one lock. Several rules may meet in one request:
//!   what they do before it is sent is done in the order in which they were made, then what they do to the answer.
//! - A **strike** ([`Proxy::silence`], [`Proxy::sever`], [`Proxy::expire`]) is about the exchanges under way, and
//!   their connections. [`Proxy::door`] is about connections yet to come.
//! - [`Proxy::clear`] lifts all. What was swallowed stays lost, its connection breaks; what is held waits for its gate.
//!
//! A request whose answer is still outstanding when the client goes away is carried through all the same, as it would
//! be if the server had read it: "applied" never depends on who is faster. Upgrades (exec, port-forward) are not
//! spoken. It runs on the test's own runtime: the test must not block all of that runtime's threads.

mod asked;
mod body;
mod exchange;
mod fault;
mod gate;
pub mod kubernetes;
mod line;
mod select;
mod state;
mod tls;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use tokio::{net::TcpListener, task::JoinHandle};

pub use self::{
    asked::Asked,
    fault::{Fault, Reply},
    gate::Gate,
    select::{Select, Which},
    state::{Door, Passed, Rule},
    tls::Upstream,
};
use self::{fault::Act, line::Mood, state::State, tls::Serving};
use crate::{
    cluster::Cluster,
    pki::Identity,
    ports::{self, Port},
};

/// A proxy in front of one server. Dropping it breaks every connection.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    secure: bool,
    state: Arc<State>,
    serving: Arc<Serving>,
    acceptor: JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of a cluster's API server, with a certificate from the cluster's own authority.
    pub async fn before(cluster: &Cluster) -> Result<Self> {
        let authority = cluster.authority();
        let upstream = Upstream::https(&cluster.address(), &authority.identity().certificate)?;
        Self::start(upstream, Some(&serving(cluster)?)).await
    }

    /// The same for clients that have a certificate and no token (tenants' kubeconfigs): whoever comes is this user of
    /// this group to the API server.
    pub async fn before_as(cluster: &Cluster, (user, group): (&str, &str)) -> Result<Self> {
        let authority = cluster.authority();
        let client = authority.client(user, group)?;
        let upstream = Upstream::https_as(&cluster.address(), &authority.identity().certificate, &client)?;
        Self::start(upstream, Some(&serving(cluster)?)).await
    }

    /// A proxy in front of any server; with TLS towards the client if it is given a serving certificate.
    pub async fn start(upstream: Upstream, serving: Option<&Identity>) -> Result<Self> {
        let port = ports::take()?;
        let listener = TcpListener::bind(port.address()).await.context("listen as a proxy")?;
        let state = Arc::new(State::default());
        let serving = Arc::new(Serving::new(serving)?);
        let secure = serving.is_secure();
        let acceptor = tokio::spawn(line::accept(listener, serving.clone(), upstream, state.clone()));
        Ok(Self { port, secure, state, serving, acceptor })
    }

    /// Where it listens: `https://127.0.0.1:<port>`, or `http://…`.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.secure { "https" } else { "http" }, self.port.address())
    }

    /// A copy of a kubeconfig file that leads through this proxy, beside it; only bearer tokens reach the server.
    pub fn kubeconfig(&self, of: &Path) -> Result<PathBuf> {
        kubernetes::lead_through(of, &self.url(), self.port.number())
    }

    /// From now on the requests that `which` takes suffer this.
    pub fn fault(&self, which: impl Into<Which>, fault: Fault) -> Rule {
        self.state.add(which.into(), fault)
    }

    /// Holds these requests before they are sent to the server.
    pub fn hold_request(&self, which: impl Into<Which>) -> Gate {
        Gate::new(|hold| self.state.add(which.into(), Fault::Before(Act::Hold(hold))))
    }

    /// Holds the answers to these requests: the server has answered, the client does not know.
    pub fn hold_answer(&self, which: impl Into<Which>) -> Gate {
        Gate::new(|hold| self.state.add(which.into(), Fault::After(Act::Hold(hold))))
    }

    /// Lifts every rule, opens the door, and breaks the connections that are silent.
    pub fn clear(&self) {
        self.state.clear();
    }

    /// The connections on which such an exchange is under way fall silent, in both directions and without a FIN.
    /// Returns how many.
    pub fn silence(&self, select: &Select) -> usize {
        self.state.strike(Some(select), Mood::Silent)
    }

    /// All present connections fall silent, also those that are idle.
    pub fn silence_all(&self) -> usize {
        self.state.strike(None, Mood::Silent)
    }

    /// The connections on which such an exchange is under way break. Returns how many.
    pub fn sever(&self, select: &Select) -> usize {
        self.state.strike(Some(select), Mood::Broken)
    }

    /// All present connections break, also those that are idle.
    pub fn sever_all(&self) -> usize {
        self.state.strike(None, Mood::Broken)
    }

    /// The watches under way that `select` takes get an `ERROR` event with code 410 and end. Returns how many.
    pub fn expire(&self, select: &Select) -> usize {
        self.state.finish(&select.clone().and(&Select::watches()), &kubernetes::expired_event())
    }

    /// How new connections are received.
    pub fn door(&self, door: Door) {
        self.state.door(door);
    }

    /// Serves new connections with another certificate.
    pub fn serve_as(&self, identity: &Identity) -> Result<()> {
        self.serving.renew(identity)
    }

    /// Everything that was asked so far, in the order in which it came.
    pub fn log(&self) -> Vec<Passed> {
        self.state.log()
    }

    /// How many requests of this kind came so far.
    pub fn count(&self, select: &Select) -> usize {
        self.log().iter().filter(|passed| select.takes(&passed.asked)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.acceptor.abort();
        self.sever_all();
    }
}

fn serving(cluster: &Cluster) -> Result<Identity> {
    cluster.authority().server("kube-apiserver", &["127.0.0.1", "localhost"])
}

#[cfg(test)]
mod tests;
