//! A kubeconfig Secret is hostile input: its tenant can write it. This is where it is taken apart. Pure.
//!
//! Only six things are ever taken: the server's address, the name in its certificate, the authority that signed that
//! certificate, and a client certificate with its key, or a token; all as bytes that lie in the Secret itself. kube's
//! own loader is not used at all: it runs commands and reads files that a kubeconfig names. What would change the meaning of
//! the six (a command, a file, a proxy, another identity) is refused by name, so that a person learns why; every other
//! field is not looked at.
//!
//! The YAML has no anchors, aliases or merges, so it cannot grow while it is read. Texts name the Secret, the cause and
//! the remedy; where the content does not parse, only the place is told, because the parser's own words quote it.

use std::{
    collections::hash_map::DefaultHasher,
    fmt::{self, Debug},
    hash::{Hash, Hasher},
    sync::{Arc, LazyLock},
};

use http::Uri;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kmetal_crds::foreign::capi;
use kube::ResourceExt;
use rustls::{
    ClientConfig, RootCertStore,
    client::Resumption,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

pub use self::refusal::{Refusal, Unusable};
use self::{file::File, server::server};

mod file;
mod refusal;
mod server;

/// Largest kubeconfig in bytes; Cluster API's have about 6 KiB.
pub const LARGEST: usize = 64 * 1024;
/// Most certificates of the authority.
const AUTHORITIES: usize = 32;

static CRYPTO: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// All that is needed to reach a tenant cluster. Shows no secret.
#[derive(Clone)]
pub struct Credentials {
    /// `https://host:port`, nothing more.
    pub(crate) server: Uri,
    /// The name in the server's certificate, where it is not the host of `server`.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// Whom to trust, and the client certificate if there is one.
    pub(crate) tls: Arc<ClientConfig>,
    /// The bearer token, if there is one.
    pub(crate) token: Option<String>,
    /// Of the Secret's bytes: the same number, the same kubeconfig.
    pub(crate) fingerprint: u64,
}

impl Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Takes the kubeconfig out of `secret`, which must be that of the Cluster named `cluster` in the Secret's namespace.
///
/// The type and the label of the Secret are required, since Cluster API sets both, but they prove nothing: who may
/// write Secrets in the Cluster's namespace may write this one. So everything behind the kubeconfig is as trustworthy as
/// that namespace's tenant, and no more.
pub fn credentials(secret: &Secret, cluster: &str) -> Result<Credentials, Refusal> {
    let refuse = |cause| Refusal {
        secret: format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any()),
        cause,
    };
    let bytes = value(secret, cluster).map_err(refuse)?;
    parse(bytes).map_err(refuse)
}

fn value<'s>(secret: &'s Secret, cluster: &str) -> Result<&'s [u8], Unusable> {
    if secret.type_.as_deref() != Some(capi::SECRET_TYPE) {
        return Err(Unusable::Type);
    }
    if secret.labels().get(capi::CLUSTER_NAME).map(String::as_str) != Some(cluster) {
        return Err(Unusable::Label);
    }
    let value = secret.data.as_ref().and_then(|data| data.get(capi::KUBECONFIG_KEY));
    match value {
        Some(ByteString(bytes)) if bytes.len() > LARGEST => Err(Unusable::TooLarge),
        Some(ByteString(bytes)) if !bytes.is_empty() => Ok(bytes),
        _ => Err(Unusable::Empty),
    }
}

fn parse(bytes: &[u8]) -> Result<Credentials, Unusable> {
    let (cluster, user) = File::read(bytes)?.only()?;
    cluster.check()?;
    user.check()?;
    let server = server(cluster.server.as_deref().unwrap_or_default())?;
    let server_name = match cluster.tls_server_name.filter(|name| !name.is_empty()) {
        Some(name) => Some(ServerName::try_from(name).map_err(|_| Unusable::ServerName)?),
        None => None,
    };
    let authority = authority(&cluster.authority.ok_or(Unusable::Authority)?.0)?;
    let builder = ClientConfig::builder_with_provider(CRYPTO.clone())
        .with_safe_default_protocol_versions()
        .map_err(|_| Unusable::Authority)?
        .with_root_certificates(authority);
    let token = user.token.filter(|token| !token.is_empty());
    if token.as_ref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(Unusable::Token);
    }
    let mut tls = match (user.certificate, user.key) {
        (Some(certificate), Some(key)) => {
            let (chain, key) = identity(&certificate.0, &key.0)?;
            builder.with_client_auth_cert(chain, key).map_err(|_| Unusable::Identity)?
        }
        (None, None) if token.is_some() => builder.with_no_client_auth(),
        (None, None) => return Err(Unusable::NoIdentity),
        _ => return Err(Unusable::Identity),
    };
    // The default keeps room for 256 servers; there is one.
    tls.resumption = Resumption::in_memory_sessions(1);
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok(Credentials { server, server_name, tls: Arc::new(tls), token, fingerprint: hasher.finish() })
}

fn authority(pem: &[u8]) -> Result<RootCertStore, Unusable> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem).take(AUTHORITIES) {
        let certificate = certificate.map_err(|_| Unusable::Authority)?;
        store.add(certificate).map_err(|_| Unusable::Authority)?;
    }
    if store.is_empty() { Err(Unusable::Authority) } else { Ok(store) }
}

fn identity(
    certificate: &[u8],
    key: &[u8],
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Unusable> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    match (chain, PrivateKeyDer::from_pem_slice(key)) {
        (Ok(chain), Ok(key)) if !chain.is_empty() => Ok((chain, key)),
        _ => Err(Unusable::Identity),
    }
}

#[cfg(test)]
mod tests;
