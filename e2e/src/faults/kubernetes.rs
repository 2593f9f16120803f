//! What the proxy knows of Kubernetes: which requests are what, how expiry is told, and kubeconfigs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Asked, Select};
use crate::audit::Reference;

impl Select {
    /// Watches.
    pub fn watches() -> Self {
        Self::new(is_watch)
    }

    /// Everything but watches.
    pub fn ordinary() -> Self {
        Self::all().but_not(&Self::watches())
    }

    /// Lists, with their continuations.
    pub fn lists() -> Self {
        Self::ordinary().and(&Self::new(|asked| {
            asked.method == http::Method::GET && reference(asked).is_some_and(|about| about.name.is_empty())
        }))
    }

    /// Second and later pages of lists.
    pub fn continuations() -> Self {
        Self::lists().and(&Self::new(|asked| asked.parameter("continue").is_some()))
    }

    /// Those about this resource, plural: `leases`, `vpcs`; with its sub-resources.
    pub fn resource(plural: &str) -> Self {
        let plural = plural.to_owned();
        Self::new(move |asked| reference(asked).is_some_and(|about| about.resource == plural))
    }

    /// Writes that do the work: no Lease, no Event, no review, no dry run.
    pub fn useful_writes() -> Self {
        Self::writes()
            .but_not(&Self::resource("leases"))
            .but_not(&Self::resource("events"))
            .but_not(&Self::new(|asked| asked.path.ends_with("reviews")))
            .but_not(&Self::new(|asked| asked.parameter("dryRun").is_some()))
    }
}

/// Whether it is a watch.
pub fn is_watch(asked: &Asked) -> bool {
    asked.parameter("watch").is_some_and(|value| value == "true" || value == "1")
}

/// What Kubernetes calls the request; empty if it is about no resource.
pub fn verb(asked: &Asked) -> &'static str {
    let Some(about) = reference(asked) else { return "" };
    let (named, watched) = (!about.name.is_empty(), is_watch(asked));
    match (asked.method.as_str(), named) {
        ("GET", _) if watched => "watch",
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    }
}

/// What a request is about; `None` if about no resource.
pub fn reference(asked: &Asked) -> Option<Reference> {
    let mut parts = asked.path.trim_matches('/').split('/');
    let api_group = match parts.next()? {
        "api" => String::new(),
        "apis" => parts.next()?.to_owned(),
        _ => return None,
    };
    let _version = parts.next()?;
    let parts: Vec<&str> = parts.collect();
    let (namespace, rest) = match parts[..] {
        // What is below a namespace, unless it is the namespace's own.
        ["namespaces", namespace, ref rest @ ..] if !matches!(rest, [] | ["status" | "finalize"]) => {
            (namespace, rest)
        }
        _ => ("", &parts[..]),
    };
    let part = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
    rest.first()?;
    Some(Reference {
        api_group,
        namespace: namespace.to_owned(),
        resource: part(0),
        name: part(1),
        subresource: part(2),
    })
}

/// A `Status` object of this code.
pub(super) fn status(code: StatusCode) -> Bytes {
    status_object(code).to_string().into()
}

/// The last line of a watch whose resourceVersion is too old.
pub(super) fn expired_event() -> Bytes {
    format!("{}\n", json!({"type": "ERROR", "object": status_object(StatusCode::GONE)})).into()
}

/// Reasons as <https://pkg.go.dev/k8s.io/apimachinery/pkg/apis/meta/v1#StatusReason> has them.
fn status_object(code: StatusCode) -> Value {
    let reason = match code {
        StatusCode::GONE => "Expired",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "InternalError",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": format!("the fault proxy says {code}"),
        "reason": reason,
        "code": code.as_u16(),
    })
}

/// A copy of a kubeconfig of the kit, beside it, whose cluster is at `url`.
pub(super) fn lead_through(kubeconfig: &Path, url: &str, port: u16) -> Result<PathBuf> {
    let text = fs::read_to_string(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let mut content: Value =
        serde_json::from_str(&text).context("a kubeconfig that the kit did not write")?;
    let server = content.pointer_mut("/clusters/0/cluster/server").context("a kubeconfig without server")?;
    *server = url.into();
    let path = kubeconfig.with_extension(format!("through-{port}.kubeconfig"));
    fs::write(&path, content.to_string()).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn asked(method: &Method, uri: &str) -> Asked {
        let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
        Asked::of(&request)
    }

    #[test]
    fn what_a_path_is_about() {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/p/log", "|a|pods|p|log"),
            ("/api/v1/namespaces/a/pods", "|a|pods||"),
            ("/api/v1/namespaces/a", "||namespaces|a|"),
            ("/api/v1/namespaces/a/finalize", "||namespaces|a|finalize"),
            ("/api/v1/namespaces", "||namespaces||"),
            ("/apis/kubeovn.io/v1/vpcs/v/status", "kubeovn.io||vpcs|v|status"),
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/l", "coordination.k8s.io|n|leases|l|"),
        ] {
            let r = reference(&asked(&Method::GET, path)).unwrap();
            let told = [r.api_group, r.namespace, r.resource, r.name, r.subresource].join("|");
            assert_eq!(told, expected, "{path}");
        }
        let verbs = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE].map(|method| {
            let on = |path: &str| verb(&asked(&method, path));
            (on("/api/v1/namespaces/a/pods/p"), on("/api/v1/pods?watch=true"), on("/api/v1/pods"))
        });
        assert_eq!(verbs[0], ("get", "watch", "list"));
        assert_eq!((verbs[1].2, verbs[2].0, verbs[3].0), ("create", "update", "patch"));
        assert_eq!((verbs[4].0, verbs[4].2), ("delete", "deletecollection"));
        for path in ["/readyz", "/version", "/api", "/apis/apps/v1", "/bucket/key"] {
            assert_eq!(reference(&asked(&Method::GET, path)).map(|r| r.resource), None, "{path}");
        }
    }

    #[test]
    fn useful_writes_leave_out_what_only_keeps_us_alive() {
        let useful = Select::useful_writes();
        for (method, uri) in [
            (Method::PATCH, "/apis/kubeovn.io/v1/vpcs/v?fieldManager=x"),
            (Method::DELETE, "/api/v1/namespaces/a/pods/p"),
            (Method::PATCH, "/apis/n/v1/namespaces/a/vpcclaims/v/status"),
        ] {
            assert!(useful.takes(&asked(&method, uri)), "{uri}");
        }
        for (method, uri) in [
            (Method::GET, "/apis/kubeovn.io/v1/vpcs/v"),
            (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/n/events"),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews"),
            (Method::PATCH, "/apis/kubeovn.io/v1/vpcs/v?dryRun=All&force=true"),
        ] {
            assert!(!useful.takes(&asked(&method, uri)), "{uri}");
        }
        assert!(Select::lists().takes(&asked(&Method::GET, "/api/v1/pods?limit=5&continue=x")));
        assert!(!Select::lists().takes(&asked(&Method::GET, "/api/v1/pods?watch=true")));
        assert!(!Select::lists().takes(&asked(&Method::GET, "/api/v1/namespaces/a/pods/p")));
    }
}
