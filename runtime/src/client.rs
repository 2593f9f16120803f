//! The client: time-outs, no hidden retries, the fence on every write, one request at a time after a 429.
//!
//! kube's own stack is not used because its choices are wrong for a controller: it retries 429/503/504 up to 15 times
//! before a reconcile learns of it, has no time-out for ordinary requests, its read time-out would also cut idle
//! watches, and it keeps idle connections for 90 s (a connection that a firewall has silently dropped is then handed
//! out again and again). Here:
//!
//! - connecting takes at most [`CONNECT`]; the head of an answer must come within [`ANSWER`] and each further piece
//!   of an ordinary body within [`ANSWER`];
//! - idle connections live [`IDLE`]: after one time-out no older dead connection is left to try;
//! - a watch asks the server to end it after [`WATCH_SECONDS`], and the watcher gives up 5 s later, so a silent peer is
//!   noticed within 45 s plus one [`ANSWER`] in the worst case, below the 60 s that we promise;
//! - a write leaves only while the [`Fence`] allows it and is dropped when the fence closes under way;
//! - proxies from the environment are ignored: the API server is dialled directly.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{RETRY_AFTER, USER_AGENT},
};
use hyper_util::{
    client::legacy::{Client as HttpClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use tokio::time::Instant;
use tower::{BoxError, Layer, Service, ServiceBuilder};
use tower_http::timeout::TimeoutBody;

use self::throttle::Throttle;
use crate::fence::Fence;

mod throttle;

/// Time to connect.
pub const CONNECT: Duration = Duration::from_secs(5);
/// Time to the head of an answer, and between two pieces of its body.
pub const ANSWER: Duration = Duration::from_secs(13);
/// How long an idle connection is kept.
pub const IDLE: Duration = Duration::from_secs(10);
/// How long one watch request lasts, in seconds.
pub const WATCH_SECONDS: u32 = 40;
/// Silence allowed in a stream (watch, log); the watcher's own limit is shorter.
const STREAM: Duration = Duration::from_mins(5);

/// No answer within the time allowed.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path}: {what} within {} s", limit.as_secs())]
pub struct TimedOut {
    method: Method,
    path: String,
    what: &'static str,
    limit: Duration,
}

impl TimedOut {
    /// `request` had no answer within `limit`; `what` is missing.
    pub(crate) fn new<B>(request: &Request<B>, what: &'static str, limit: Duration) -> Self {
        Self { method: request.method().clone(), path: request.uri().path().to_owned(), what, limit }
    }
}

#[cfg(test)]
impl TimedOut {
    pub(crate) fn for_test() -> Self {
        Self { method: Method::GET, path: "/api".into(), what: "no answer", limit: ANSWER }
    }
}

/// A client for `config` that calls itself `agent` and writes only while `fence` allows it.
///
/// `config` must be trusted: an `exec` entry in it would be run.
pub fn connect(mut config: Config, agent: &str, fence: Fence) -> Result<Client, kube::Error> {
    introduce(&mut config, agent);
    if let Some(proxy) = &config.proxy_url {
        tracing::info!(host = proxy.host(), "a proxy is configured; the API server is dialled directly");
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(IDLE));
    tcp.set_nodelay(true);
    let https = config.rustls_https_connector_with_connector(tcp)?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(https);
    let service = ServiceBuilder::new()
        .layer(Manners::new(fence))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// Every request says who sends it.
pub(crate) fn introduce(config: &mut Config, agent: &str) {
    let agent = HeaderValue::from_str(&format!("{agent}/{}", env!("CARGO_PKG_VERSION")));
    config.headers.extend(agent.ok().map(|agent| (USER_AGENT, agent)));
}

/// What is between every request of ours and the wire; a layer so that tests can put it before a mock.
#[derive(Clone, Debug)]
pub(crate) struct Manners {
    fence: Fence,
    throttle: Throttle,
}

impl Manners {
    pub(crate) fn new(fence: Fence) -> Self {
        Self { fence, throttle: Throttle::default() }
    }
}

impl<S> Layer<S> for Manners {
    type Service = Polite<S>;

    fn layer(&self, inner: S) -> Polite<S> {
        Polite { inner, manners: self.clone() }
    }
}

/// See [`Manners`].
#[derive(Clone, Debug)]
pub(crate) struct Polite<S> {
    inner: S,
    manners: Manners,
}

impl<S, B> Service<Request<Body>> for Polite<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        Box::pin(send(inner, self.manners.clone(), request))
    }
}

async fn send<S, B>(
    mut inner: S,
    manners: Manners,
    request: Request<Body>,
) -> Result<Response<TimeoutBody<B>>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
{
    let Manners { fence, throttle } = manners;
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let late = |what| TimedOut { method: method.clone(), path: path.clone(), what, limit: ANSWER };
    let streams = is_stream(request.uri().query().unwrap_or_default());
    let writes = is_write(&method, &path);
    // The server answers 429 to an eviction that a PodDisruptionBudget forbids; that says nothing about its load.
    let paced = !path.ends_with("/eviction");

    if paced {
        let now = Instant::now();
        let turn = throttle.turn(&method, now, ANSWER).ok_or_else(|| late("throttled, no turn"))?;
        tokio::time::sleep_until(turn).await;
    }
    if writes {
        fence.check()?;
    }
    let lapsed = async {
        if writes {
            fence.lapsed().await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let answer = tokio::select! {
        biased;
        () = lapsed => return Err(crate::fence::NotLeading.into()),
        answer = tokio::time::timeout(ANSWER, inner.call(request)) => answer,
    };
    let response = answer.map_err(|_| late("no answer"))?.map_err(Into::into)?;
    if paced {
        match response.status() {
            StatusCode::TOO_MANY_REQUESTS => {
                throttle.refused(&method, Instant::now(), retry_after(&response).unwrap_or(throttle::PACE));
            }
            _ => throttle.accepted(&method),
        }
    }
    let silence = if streams { STREAM } else { ANSWER };
    Ok(response.map(|body| TimeoutBody::new(silence, body)))
}

/// Reviews are questions in the form of a POST.
fn is_write(method: &Method, path: &str) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) && !path.ends_with("reviews")
}

/// Whether the answer is a stream that ends when the server wants, or never.
pub(crate) fn is_stream(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "follow=true" | "follow=1"))
}

/// Seconds only: an API server sends no dates here.
fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
