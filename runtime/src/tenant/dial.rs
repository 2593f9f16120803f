//! Connecting to a tenant's API server: every address is asked of the platform's policy, one look-up at a time.
//!
//! The policy is asked about the very addresses that are then dialled, not about what a name meant earlier. A name whose
//! server never answers holds a thread of the process until the resolver gives up, which nothing can shorten; so there is
//! at most one look-up under way for each cluster.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

use http::Uri;
use hyper_util::client::legacy::connect::{HttpConnector, dns::Name};
use tokio::sync::Semaphore;
use tower::{BoxError, Service};

use super::policy::TenantOptions;
use crate::client::{CONNECT, IDLE};

/// Most addresses of one name that are tried.
const ADDRESSES: usize = 8;

/// Looks names up; gives out only addresses that may be dialled.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    policy: Arc<TenantOptions>,
    turn: Arc<Semaphore>,
}

/// Connects, also to hosts that are addresses, which no resolver sees.
#[derive(Clone, Debug)]
pub(super) struct Dial {
    policy: Arc<TenantOptions>,
    tcp: HttpConnector<Resolver>,
}

impl Dial {
    pub(super) fn new(policy: Arc<TenantOptions>) -> Self {
        let resolver = Resolver { policy: policy.clone(), turn: Arc::new(Semaphore::new(1)) };
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_keepalive(Some(IDLE));
        tcp.set_nodelay(true);
        Self { policy, tcp }
    }
}

type Pending<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl Service<Uri> for Dial {
    type Response = <HttpConnector<Resolver> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = Pending<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = uri.host().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        if let Ok(Err(denied)) = literal.map(|address| self.policy.check(address)) {
            return Box::pin(std::future::ready(Err(denied.into())));
        }
        let connecting = self.tcp.call(uri);
        Box::pin(async move { connecting.await.map_err(Into::into) })
    }
}

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = BoxError;
    type Future = Pending<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { policy, turn } = self.clone();
        Box::pin(async move {
            let permit = turn.acquire_owned().await?;
            let found = tokio::task::spawn_blocking(move || {
                // Kept by the thread: it may outlive the request that wanted to know.
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs().map(Iterator::collect::<Vec<_>>)
            });
            allowed(&policy, found.await??)
        })
    }
}

fn allowed(policy: &TenantOptions, found: Vec<SocketAddr>) -> Result<vec::IntoIter<SocketAddr>, BoxError> {
    let mut denied = None;
    let mut allowed = Vec::new();
    for address in found.into_iter().take(ADDRESSES) {
        match policy.check(address.ip()) {
            Ok(()) => allowed.push(address),
            Err(why) => denied = Some(why),
        }
    }
    match denied {
        Some(why) if allowed.is_empty() => Err(why.into()),
        None if allowed.is_empty() => Err(io::Error::from(io::ErrorKind::NotFound).into()),
        _ => Ok(allowed.into_iter()),
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    async fn dial(options: TenantOptions, uri: &str) -> String {
        let connected = Dial::new(Arc::new(options)).oneshot(uri.parse().unwrap()).await;
        connected.map_or_else(|error| crate::error::chain(error.as_ref()), |_| "connected".into())
    }

    #[tokio::test]
    async fn loopback_is_dialled_only_by_the_flag_however_it_is_named() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost"] {
            let uri = format!("https://{host}:{port}");
            let text = dial(TenantOptions::default(), &uri).await;
            assert!(text.contains("is a loopback address"), "{host}: {text}");
            let open = TenantOptions { tenant_api_loopback: true, ..TenantOptions::default() };
            assert_eq!(dial(open, &uri).await, "connected", "{host}");
        }
    }

    #[tokio::test]
    async fn a_clouds_metadata_are_not_dialled() {
        let text = dial(TenantOptions::default(), "https://169.254.169.254").await;
        assert_eq!(text, "169.254.169.254 is not the address of a machine");
    }

    #[test]
    fn of_a_names_addresses_only_those_allowed_are_dialled() {
        let found = ["127.0.0.1:0", "10.0.0.7:0"].map(|text| text.parse().unwrap()).to_vec();
        let kept: Vec<_> = allowed(&TenantOptions::default(), found).unwrap().collect();
        assert_eq!(kept, ["10.0.0.7:0".parse().unwrap()]);
        assert!(allowed(&TenantOptions::default(), Vec::new()).is_err());
    }
}
