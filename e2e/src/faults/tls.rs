//! TLS on either side of the proxy, and none where there is none.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task,
};

use anyhow::{Context, Result};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{self, AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::pki::Identity;

/// The server behind a proxy.
#[derive(Clone)]
pub struct Upstream {
    address: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.address)
    }
}

impl Upstream {
    /// A server without TLS at `host:port`.
    pub fn http(address: &str) -> Self {
        Self { address: address.to_owned(), tls: None }
    }

    /// A server with TLS at `host:port`, whose certificate is signed by this authority (PEM).
    pub fn https(address: &str, authority: &str) -> Result<Self> {
        Self::with(address, authority, None)
    }

    /// The same, to which the proxy shows a client certificate: one that the client has cannot be passed on.
    pub fn https_as(address: &str, authority: &str, client: &Identity) -> Result<Self> {
        Self::with(address, authority, Some(client))
    }

    fn with(address: &str, authority: &str, client: Option<&Identity>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(authority)? {
            roots.add(certificate)?;
        }
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match client {
            Some(client) => config.with_client_auth_cert(certificates(&client.certificate)?, key(client)?)?,
            None => config.with_no_client_auth(),
        };
        let host = address.rsplit_once(':').context("an address without a port")?.0;
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
        Ok(Self { address: address.to_owned(), tls: Some((TlsConnector::from(Arc::new(config)), name)) })
    }

    pub(super) async fn connect(&self) -> Result<Stream> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            Some((connector, name)) => Stream(Box::new(connector.connect(name.clone(), stream).await?)),
            None => Stream(Box::new(stream)),
        })
    }
}

/// How clients are served; may change for those that come later.
pub(super) struct Serving(Mutex<Option<TlsAcceptor>>);

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Serving")
    }
}

impl Serving {
    pub(super) fn new(identity: Option<&Identity>) -> Result<Self> {
        Ok(Self(Mutex::new(identity.map(acceptor).transpose()?)))
    }

    pub(super) fn is_secure(&self) -> bool {
        self.acceptor().is_some()
    }

    pub(super) fn renew(&self, identity: &Identity) -> Result<()> {
        let acceptor = acceptor(identity)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(acceptor);
        Ok(())
    }

    pub(super) async fn receive(&self, stream: TcpStream) -> Result<Stream> {
        stream.set_nodelay(true)?;
        Ok(match self.acceptor() {
            Some(acceptor) => Stream(Box::new(acceptor.accept(stream).await?)),
            None => Stream(Box::new(stream)),
        })
    }

    fn acceptor(&self) -> Option<TlsAcceptor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn acceptor(identity: &Identity) -> Result<TlsAcceptor> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates(&identity.certificate)?, key(identity)?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Named, so that nothing depends on which provider the process has installed as its default.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certificates.context("a certificate that is no PEM")
}

fn key(identity: &Identity) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("a key that is no PEM")
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection, with TLS or without.
pub(super) struct Stream(Box<dyn Duplex>);

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> task::Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
        buf: &[u8],
    ) -> task::Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> task::Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
