//! What a tenant's API server can take of us: time, connections, requests, memory. A layer around every request.
//!
//! | it may | and gets |
//! |---|---|
//! | keep an ordinary request waiting, or drip its answer | [`Limits::within`], from first to last byte |
//! | keep a watch silent or endless | [`Limits::watch`] |
//! | end a watch at once, again and again | an error, so that whoever watches pauses |
//! | answer much | [`Limits::answer`], a watch event [`Limits::event`], a watch [`Limits::stream`] |
//! | let lists go on for ever | [`Pace`] requests; the watcher gives up a list that takes too long |
//! | redirect | an error: credentials go to one address |
//!
//! One that is over a limit fails this one request; nothing is shared between clusters, so no other notices.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Either, Full, Limited};
use kube::client::Body;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tower::{BoxError, Layer, Service};

use self::{metered::Metered, pace::Pace};
use super::{pulse::Pulse, quote::Quote};
use crate::{
    client::{TimedOut, is_stream},
    fence::NotLeading,
};

mod metered;
mod pace;

/// Most bytes of a refusal.
const REFUSAL: usize = 64 * 1024;

/// What one tenant cluster may take. Sizes are weights, see `weight.rs`: about the memory that the decoded text needs.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time of an ordinary request, all of it.
    pub within: Duration,
    /// Time of a watch, all of it: it asks the server to end it after 40 s.
    pub watch: Duration,
    /// Ordinary requests at a time; watches are not counted, there is one for each kind.
    pub requests: usize,
    /// Weight of an ordinary answer.
    pub answer: usize,
    /// Weight of one event of a watch.
    pub event: usize,
    /// Weight of all events of one watch request.
    pub stream: usize,
    /// Weight of all objects of one kind that are kept.
    pub cache: usize,
}

impl Default for Limits {
    /// For controllers that watch a few kinds.
    fn default() -> Self {
        const MEBI: usize = 1 << 20;
        Self {
            within: Duration::from_secs(10),
            watch: Duration::from_mins(1),
            requests: 4,
            answer: 8 * MEBI,
            event: 4 * MEBI,
            stream: 32 * MEBI,
            cache: 16 * MEBI,
        }
    }
}

/// The server redirected, or switched protocols.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {0} where an answer was due; it is not followed")]
struct NotAnAnswer(StatusCode);

/// The layer; one for each cluster.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    limits: Limits,
    turns: Arc<Semaphore>,
    pace: Arc<Pace>,
    pulse: Arc<Pulse>,
    quote: Quote,
}

impl Bounds {
    /// `pulse` is told of every answer, and of its absence.
    pub(super) fn new(limits: Limits, pulse: Arc<Pulse>, quote: Quote) -> Self {
        let turns = Arc::new(Semaphore::new(limits.requests.max(1)));
        Self { limits, turns, pace: Arc::default(), pulse, quote }
    }
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner, bounds: self.clone() }
    }
}

/// See [`Bounds`].
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    bounds: Bounds,
}

/// A refusal as we repeat it, or an answer that is counted as it comes.
type Answer<B> = Either<Full<Bytes>, Metered<B>>;

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Answer<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let bounds = self.bounds.clone();
        Box::pin(async move {
            let pulse = bounds.pulse.clone();
            let answer = send(inner, bounds, request).await;
            match &answer {
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => pulse.fail(),
                Ok(answer) if answer.status().is_server_error() => {}
                Ok(_) => pulse.answer(),
                // A write that may not leave says nothing about the server.
                Err(error) if error.is::<NotLeading>() => {}
                Err(_) => pulse.fail(),
            }
            answer
        })
    }
}

async fn send<S, B>(
    mut inner: S,
    bounds: Bounds,
    request: Request<Body>,
) -> Result<Response<Answer<B>>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let Limits { within, watch, answer, event, stream, .. } = bounds.limits;
    let began = Instant::now();
    let deadline = began + within;
    let late = TimedOut::new(&request, "no answer", within);
    let streams = is_stream(request.uri().query().unwrap_or_default());
    let answered = timeout_at(deadline, async {
        tokio::time::sleep_until(bounds.pace.turn(Instant::now())).await;
        let turn = if streams { None } else { Some(bounds.turns.clone().acquire_owned().await?) };
        Ok::<_, BoxError>((inner.call(request).await?, turn))
    });
    let Ok(answered) = answered.await else { return Err(late.into()) };
    let (response, turn) = answered?;
    let (mut parts, body) = response.into_parts();
    let code = parts.status;
    if code.is_client_error() || code.is_server_error() {
        let Ok(body) = timeout_at(deadline, Limited::new(body, REFUSAL).collect()).await else {
            return Err(late.into());
        };
        // One that is cut, or too long, is still a refusal.
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        parts.headers.remove(http::header::CONTENT_LENGTH);
        let told = bounds.quote.refusal(code.as_u16(), &body);
        return Ok(Response::from_parts(parts, Either::Left(Full::from(told))));
    }
    if !code.is_success() {
        return Err(NotAnAnswer(code).into());
    }
    let metered = if streams {
        Metered::stream(body, began + watch, event, stream)
    } else {
        Metered::answer(body, deadline, late, answer, turn)
    };
    Ok(Response::from_parts(parts, Either::Right(metered)))
}

#[cfg(test)]
mod tests;
