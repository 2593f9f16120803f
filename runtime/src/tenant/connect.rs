//! The client of one tenant cluster: that of the under cluster (`client.rs`: no hidden retries, the fence on every write),
//! inside the bounds of `bounds.rs`, and gone with all its connections when its token is cancelled.

use std::sync::Arc;

use hyper::rt::Executor;
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_util::{client::legacy::Client as HttpClient, rt::TokioTimer};
use kube::{Client, Config, client::ConfigExt};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceBuilder};

use super::{
    bounds::{Bounds, Limits},
    dial::Dial,
    kubeconfig::Credentials,
    policy::TenantOptions,
    pulse::Pulse,
    quote::Quote,
};
use crate::{
    client::{IDLE, Manners, introduce},
    fence::Fence,
};

/// Largest head of an answer, and largest piece of its body, in bytes.
const BUFFER: usize = 32 * 1024;
/// Most header fields of an answer.
const HEADERS: usize = 64;

/// What a client needs beside the credentials.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) agent: &'static str,
    pub(super) fence: Fence,
    pub(super) policy: Arc<TenantOptions>,
    pub(super) limits: Limits,
}

/// A client for `credentials`; `pulse` is told of every answer, `stop` ends every connection.
pub(super) fn client(
    credentials: &Credentials,
    line: &Line,
    quote: Quote,
    pulse: Arc<Pulse>,
    stop: CancellationToken,
) -> Result<Client, kube::Error> {
    // Made from the six things that were taken out, never from a kubeconfig: no command, no file, no proxy.
    let mut config = Config::new(credentials.server.clone());
    config.auth_info.token = credentials.token.clone().map(Into::into);
    introduce(&mut config, line.agent);
    let names: Arc<dyn ResolveServerName + Send + Sync> = match &credentials.server_name {
        Some(name) => Arc::new(FixedServerNameResolver::new(name.clone())),
        None => Arc::new(DefaultServerNameResolver::default()),
    };
    let https = HttpsConnector::new(Dial::new(line.policy.clone()), credentials.tls.clone(), true, names);
    let http = HttpClient::builder(Until(stop))
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(line.limits.requests)
        .pool_timer(TokioTimer::new())
        .http1_max_buf_size(BUFFER)
        .http1_max_headers(HEADERS)
        .build(https);
    let service = ServiceBuilder::new()
        .layer(Bounds::new(line.limits, pulse, quote))
        .layer(Manners::new(line.fence.clone()))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, "default"))
}

/// Runs the connections of one client until it is stopped: one that hangs in its last write would stay for ever.
#[derive(Clone)]
struct Until(CancellationToken);

impl<F> Executor<F> for Until
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, connection: F) {
        let stop = self.0.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = connection => {}
            }
        });
    }
}
