//! The server behind the proxy in these tests, and the client before it.
//!
//! The server keeps what it was asked and answers by path: `/bytes/N` with N bytes, a ConfigMap list or watch as
//! Kubernetes would, anything else with what it was sent; `/slow` after a while.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use futures::stream;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    client::conn::http1::{self as client, SendRequest},
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::super::{Proxy, Upstream};

/// Longer than anything here takes, shorter than a person's patience.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// For so long nothing must come.
pub(super) const SILENCE: Duration = Duration::from_millis(200);
/// Time between two pieces of a watch.
const BETWEEN_PIECES: Duration = Duration::from_millis(20);

type Seen = Arc<Mutex<Vec<String>>>;
type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A running server.
pub(super) struct Server {
    pub(super) address: String,
    asked: Seen,
    received: Seen,
    _connections: JoinSet<()>,
}

impl Server {
    pub(super) async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (asked, received) = (Seen::default(), Seen::default());
        let mut acceptor = JoinSet::new();
        let seen = (asked.clone(), received.clone());
        acceptor.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let seen = seen.clone();
                connections.spawn(async move {
                    let service = service_fn(|request| answer(&seen.0, &seen.1, request));
                    let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, asked, received, _connections: acceptor })
    }

    /// A proxy before it, without TLS.
    pub(super) async fn proxied() -> Result<(Self, Proxy)> {
        let server = Self::start().await?;
        let proxy = Proxy::start(Upstream::http(&server.address), None).await?;
        Ok((server, proxy))
    }

    /// What it was asked so far, `METHOD path`.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// The bodies, or what came of them, so far.
    pub(super) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }
}

async fn answer(asked: &Seen, received: &Seen, request: Request<Incoming>) -> Result<Answer, hyper::Error> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let (mut body, mut sent, mut broken) = (request.into_body(), Vec::new(), None);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => sent.extend(frame.into_data().unwrap_or_default()),
            Err(error) => broken = Some(error),
        }
    }
    received.lock().unwrap().push(String::from_utf8_lossy(&sent).into_owned());
    if let Some(error) = broken {
        return Err(error);
    }
    asked.lock().unwrap().push(format!("{method} {path}"));
    if path == "/slow" {
        tokio::time::sleep(SILENCE).await;
    }
    let whole = |body: Bytes| Response::new(Full::new(body).boxed_unsync());
    Ok(if let Some(count) = path.strip_prefix("/bytes/") {
        whole(vec![b'x'; count.parse().unwrap()].into())
    } else if watch {
        Response::new(StreamBody::new(Box::pin(events())).boxed_unsync())
    } else if path.ends_with("/configmaps") {
        let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}, "items": []});
        whole(list.to_string().into())
    } else {
        whole(sent.into())
    })
}

/// A watch's events for ever: one line each, in two pieces.
fn events() -> impl stream::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::unfold(2, async |piece| {
        tokio::time::sleep(BETWEEN_PIECES).await;
        let name = format!("m-{}", piece / 2);
        let metadata =
            json!({"name": name, "namespace": "default", "uid": name, "resourceVersion": name[2..]});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let event = format!("{}\n", json!({"type": "ADDED", "object": object}));
        let half = if piece % 2 == 0 { &event[..9] } else { &event[9..] };
        Some((Ok(Frame::data(Bytes::from(half.to_owned()))), piece + 1))
    })
}

/// What a client got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Got {
    /// A whole answer: code and body.
    Whole(u16, Bytes),
    /// This much of a body, then the connection broke.
    Part(u16, Bytes),
    /// The connection broke before an answer.
    Nothing,
}

impl Got {
    pub(super) fn code(&self) -> Option<u16> {
        match self {
            Self::Whole(code, _) | Self::Part(code, _) => Some(*code),
            Self::Nothing => None,
        }
    }
}

/// One connection of a client.
pub(super) struct Client(SendRequest<Full<Bytes>>);

impl Client {
    pub(super) async fn connect(proxy: &Proxy) -> Result<Self> {
        let address = proxy.url().trim_start_matches("http://").to_owned();
        let (sender, connection) =
            client::handshake(TokioIo::new(TcpStream::connect(address).await?)).await?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Asks, and reads the answer to its end.
    pub(super) async fn ask(&mut self, method: Method, path: &str) -> Got {
        let Ok(mut response) = self.open(method, path).await else { return Got::Nothing };
        let (code, mut body) = (response.status().as_u16(), Vec::new());
        while let Some(frame) = response.body_mut().frame().await {
            match frame {
                Ok(frame) => body.extend(frame.into_data().unwrap_or_default()),
                Err(_) => return Got::Part(code, body.into()),
            }
        }
        Got::Whole(code, body.into())
    }

    /// Asks, and returns as soon as the answer begins.
    pub(super) async fn open(&mut self, method: Method, path: &str) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder().method(method).uri(path).header("host", "test");
        self.0.ready().await?;
        self.0.send_request(request.body(Full::from("sent")).unwrap()).await
    }
}

/// Asks once, on a connection of its own.
pub(super) async fn ask(proxy: &Proxy, method: Method, path: &str) -> Got {
    match Client::connect(proxy).await {
        Ok(mut client) => client.ask(method, path).await,
        Err(_) => Got::Nothing,
    }
}
