//! The admin server: `/livez`, `/readyz`, `/metrics`, plain HTTP.
//!
//! Ready means "able to do its work as soon as it leads": a standby is Ready, and what does not answer in a tenant
//! cluster is never a gate here. A gate is a named precondition with a text that says what to do about it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::{self, Metrics};

/// The text of a gate that nobody has opened or closed yet.
const STARTING: &str = "starting";

/// All readiness gates of the process. Clones share them.
#[derive(Clone, Debug)]
pub struct Gates {
    /// Name → why it is closed; `None` is open.
    closed: Arc<Mutex<BTreeMap<String, Option<String>>>>,
    metrics: Metrics,
}

/// One precondition of readiness. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    name: String,
    gates: Gates,
}

impl Gates {
    /// No gates yet: ready.
    pub fn new(metrics: Metrics) -> Self {
        Self { closed: Arc::default(), metrics }
    }

    /// The gate of that name, closed ("starting") if it is new.
    pub fn gate(&self, name: &str) -> Gate {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let state = closed.entry(name.to_owned()).or_insert_with(|| Some(STARTING.to_owned()));
        self.metrics.gate(name, state.is_none());
        Gate { name: name.to_owned(), gates: self.clone() }
    }

    /// Whether every gate is open, and one line per gate.
    pub fn report(&self) -> (bool, String) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for (name, why) in &*closed {
            // Writing into a String cannot fail.
            let _ = match why {
                Some(why) => writeln!(text, "[-] {name}: {why}"),
                None => writeln!(text, "[+] {name}"),
            };
        }
        (closed.values().all(Option::is_none), text)
    }

    fn set(&self, name: &str, why: Option<String>) {
        let open = why.is_none();
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = closed.insert(name.to_owned(), why.clone());
        drop(closed);
        if before.as_ref() != Some(&why) {
            self.metrics.gate(name, open);
            match why {
                None => tracing::info!(gate = name, "gate opened"),
                Some(why) => tracing::warn!(gate = name, why, "gate closed"),
            }
        }
    }
}

impl Gate {
    /// The precondition holds.
    pub fn open(&self) {
        self.gates.set(&self.name, None);
    }

    /// The precondition does not hold; `why` names the object, the cause and the remedy.
    pub fn close(&self, why: impl Into<String>) {
        self.gates.set(&self.name, Some(why.into()));
    }
}

/// The three endpoints. Tests call it without a socket.
pub fn router(gates: Gates, metrics: Metrics) -> Router {
    Router::new()
        .route("/livez", get(async || "ok\n"))
        .route("/readyz", get(readyz))
        .with_state(gates)
        .route("/metrics", get(expose).with_state(metrics))
}

/// Serves `router` until `stop`.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await {
        tracing::error!(%error, "the admin server ended");
    }
}

async fn readyz(State(gates): State<Gates>) -> Response {
    let (ready, report) = gates.report();
    if ready {
        (StatusCode::OK, format!("{report}ready\n")).into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{report}not ready\n")).into_response()
    }
}

async fn expose(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_closed_gate_makes_the_process_unready_and_says_what_to_do() {
        let metrics = Metrics::default();
        let gates = Gates::new(metrics.clone());
        let router = router(gates.clone(), metrics);
        assert_eq!(ask(&router, "/readyz").await.0, 200);

        let ovn = gates.gate("kube-ovn");
        gates.gate("nodes").open();
        assert_eq!(ask(&router, "/readyz").await.0, 503);
        ovn.close("CRD vpcs.kubeovn.io is not installed; install Kube-OVN");
        let (status, text) = ask(&router, "/readyz").await;
        assert_eq!(status, 503);
        assert!(
            text.contains("[-] kube-ovn: CRD vpcs.kubeovn.io is not installed; install Kube-OVN"),
            "{text}"
        );
        assert!(text.contains("[+] nodes"), "{text}");
        assert_eq!(ask(&router, "/livez").await, (200, "ok\n".to_owned()));

        ovn.open();
        assert_eq!(ask(&router, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn asking_for_a_gate_twice_does_not_close_it() {
        let gates = Gates::new(Metrics::default());
        gates.gate("a").open();
        let _ = gates.gate("a");
        assert!(gates.report().0);
    }

    #[tokio::test]
    async fn metrics_are_served_as_prometheus_text() {
        let metrics = Metrics::default();
        let gates = Gates::new(metrics.clone());
        let _ = gates.gate("a");
        let (status, text) = ask(&router(gates, metrics), "/metrics").await;
        assert_eq!(status, 200);
        assert!(text.contains(r#"kmetal_gate_open{gate="a"} 0"#), "{text}");
    }
}
