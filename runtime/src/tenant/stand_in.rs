//! API servers of tenants for tests, on loopback and with TLS: one that is right, and every kind of wrong.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pki::{Identity, PKI, kubeconfig};
use crate::mock::{Server, Wire};

/// What a stand-in does with every connection.
#[derive(Clone)]
pub(super) enum Manner {
    /// Answers as an API server.
    Good(Server),
    /// Accepts, and never begins TLS.
    Mute,
    /// Never reads anything after TLS has begun, nor closes.
    Deaf,
    /// Reads the request, and says nothing more.
    Silent,
    /// Answers with these bytes and keeps the connection open.
    Says(Vec<u8>),
    /// [`Manner::Says`], and then one of these bytes every 20 ms, over and over.
    Drips(Vec<u8>, &'static [u8]),
    /// [`Manner::Says`], and then these bytes over and over, as fast as they are taken.
    Pours(Vec<u8>, &'static [u8]),
    /// Answers with these bytes and closes.
    Cuts(Vec<u8>),
}

/// A server; ends with all its connections when dropped.
pub(super) struct StandIn {
    pub(super) url: String,
    /// Connections accepted so far, those open now, and bytes poured.
    pub(super) accepted: Arc<AtomicUsize>,
    pub(super) open: Arc<AtomicUsize>,
    pub(super) poured: Arc<AtomicUsize>,
    _end: DropGuard,
}

impl StandIn {
    /// A server with a proper certificate.
    pub(super) async fn start(manner: Manner) -> Self {
        Self::start_as(&PKI.0.server(false), manner).await
    }

    /// A server with that certificate.
    pub(super) async fn start_as(identity: &Identity, manner: Manner) -> Self {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(identity.key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stop = CancellationToken::new();
        let server = Self {
            url: format!("https://{}", listener.local_addr().unwrap()),
            accepted: Arc::default(),
            open: Arc::default(),
            poured: Arc::default(),
            _end: stop.clone().drop_guard(),
        };
        let (accepted, open, poured) = (server.accepted.clone(), server.open.clone(), server.poured.clone());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, _) = tokio::select! {
                    () = stop.cancelled() => return,
                    Some(_) = connections.join_next() => continue,
                    accepted = listener.accept() => accepted.unwrap(),
                };
                accepted.fetch_add(1, Ordering::SeqCst);
                open.fetch_add(1, Ordering::SeqCst);
                let (acceptor, manner, poured, open) =
                    (acceptor.clone(), manner.clone(), poured.clone(), open.clone());
                connections.spawn(async move {
                    let _open = Closes(open);
                    serve(tcp, acceptor, manner, poured).await;
                });
            }
        });
        server
    }

    /// A kubeconfig that leads here.
    pub(super) fn kubeconfig(&self) -> Value {
        kubeconfig(&self.url, &PKI.0)
    }

    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

struct Closes(Arc<AtomicUsize>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(tcp: TcpStream, acceptor: TlsAcceptor, manner: Manner, poured: Arc<AtomicUsize>) {
    if matches!(manner, Manner::Mute) {
        return drop_when_closed(tcp).await;
    }
    let Ok(mut tls) = acceptor.accept(tcp).await else { return };
    if let Manner::Good(server) = manner {
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.answer(request, Wire::default()).await) }
        });
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
        return;
    }
    if matches!(manner, Manner::Deaf) {
        return std::future::pending().await;
    }
    let mut request = [0; 8192];
    while let Ok(read @ 1..) = tls.read(&mut request).await {
        // Requests of tests are short: the first read has it all.
        let _ = read;
        if misbehave(&manner, &mut tls, &poured).await.is_err() {
            return;
        }
    }
}

async fn misbehave(
    manner: &Manner,
    tls: &mut TlsStream<TcpStream>,
    poured: &AtomicUsize,
) -> std::io::Result<()> {
    match manner {
        Manner::Says(bytes) => tls.write_all(bytes).await,
        Manner::Drips(bytes, drops) => {
            tls.write_all(bytes).await?;
            for drop in drops.iter().cycle() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                tls.write_all(&[*drop]).await?;
                tls.flush().await?;
            }
            Ok(())
        }
        Manner::Pours(bytes, water) => {
            tls.write_all(bytes).await?;
            let water = water.repeat(16_384 / water.len() + 1);
            loop {
                tls.write_all(&water).await?;
                poured.fetch_add(water.len(), Ordering::SeqCst);
            }
        }
        Manner::Cuts(bytes) => {
            tls.write_all(bytes).await?;
            tls.shutdown().await?;
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        Manner::Good(_) | Manner::Mute | Manner::Deaf | Manner::Silent => Ok(()),
    }
}

/// Says nothing until the other side closes.
async fn drop_when_closed(mut tcp: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(1..) = tcp.read(&mut bytes).await {}
}

/// A whole answer.
pub(super) fn answer(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The head of an answer that goes on until the connection closes.
pub(super) fn head(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\r\n").into_bytes()
}
