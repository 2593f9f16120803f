//! HTTP: what is asked for, and the answer.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};

use super::{
    KINDS, Kind,
    object::{self, Part},
    store::{Refused, Store},
};

type Body = BoxBody<Bytes, Infallible>;

/// An error as the API server words it: code, reason, message.
type Failure = (StatusCode, &'static str, String);

/// Parameters whose meaning is played, or that change nothing here.
const PARAMETERS: [&str; 10] = [
    "allowWatchBookmarks",
    "fieldManager",
    "fieldValidation",
    "force",
    "limit",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
];
const BETWEEN_BOOKMARKS: Duration = Duration::from_secs(30);

/// Receives connections until it is aborted.
pub(super) async fn accept(listener: TcpListener, store: Arc<Store>, token: String) {
    let token: Arc<str> = format!("Bearer {token}").into();
    while let Ok((stream, _)) = listener.accept().await {
        let (store, token) = (store.clone(), token.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, store.clone(), token.clone()));
            // A client that goes away is no news.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    store: Arc<Store>,
    token: Arc<str>,
) -> Result<Response<Body>, Infallible> {
    let shown = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let answer = if shown == Some(&token) {
        asked(request, &store).await
    } else {
        Err((StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized".to_owned()))
    };
    Ok(answer.unwrap_or_else(|(code, reason, message)| {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code.as_u16(),
        });
        json_answer(code, &status)
    }))
}

/// A request for objects.
struct Target<'a> {
    kind: &'static Kind,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    part: Part,
}

impl<'a> Target<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (api_version, rest) = match parts[..] {
            ["api", version, ..] => (version.to_owned(), &parts[2..]),
            ["apis", group, version, ..] => (format!("{group}/{version}"), &parts[3..]),
            _ => return None,
        };
        let (namespace, rest) = match *rest {
            ["namespaces", namespace, plural, ..] if plural != "status" => (Some(namespace), &rest[2..]),
            _ => (None, rest),
        };
        let (plural, name, part) = match *rest {
            [plural] => (plural, None, Part::Main),
            [plural, name] => (plural, Some(name), Part::Main),
            [plural, name, "status"] => (plural, Some(name), Part::Status),
            _ => return None,
        };
        let kind = KINDS.iter().find(|kind| kind.plural == plural && kind.api_version == api_version)?;
        (kind.namespaced || namespace.is_none()).then_some(Self { kind, namespace, name, part })
    }
}

async fn asked(request: Request<Incoming>, store: &Arc<Store>) -> Result<Response<Body>, Failure> {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let query = head.uri.query().unwrap_or_default();
    let parameters: Vec<(&str, &str)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('=').or((!pair.is_empty()).then_some((pair, ""))))
        .collect();
    let parameter = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    match path {
        "/version" => return Ok(json_answer(StatusCode::OK, &version())),
        "/readyz" | "/livez" | "/healthz" => return Ok(response(StatusCode::OK, "text/plain", "ok".into())),
        _ => {}
    }
    let target = Target::of(path).ok_or_else(|| not_found(path))?;
    if let Some((unknown, _)) = parameters.iter().find(|(key, _)| !PARAMETERS.contains(key)) {
        return Err((
            StatusCode::BAD_REQUEST,
            "BadRequest",
            format!("a stand-in does not play the parameter {unknown}"),
        ));
    }
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.contains("as=") {
        return Err((
            StatusCode::NOT_ACCEPTABLE,
            "NotAcceptable",
            format!("a stand-in does not play {accept}"),
        ));
    }
    if let ("true" | "1", Method::GET) = (parameter("watch").unwrap_or_default(), head.method.clone()) {
        let after = parameter("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or(0);
        let seconds = parameter("timeoutSeconds").and_then(|seconds| seconds.parse().ok()).unwrap_or(290);
        return Ok(watch(store.clone(), &target, after, Duration::from_secs(seconds)));
    }
    let content =
        head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let body = body.collect().await.map_err(|error| bad(&error))?.to_bytes();
    let (code, object) = carry_out(store, &head.method, &target, content, &body)?;
    Ok(json_answer(code, &object))
}

fn carry_out(
    store: &Store,
    method: &Method,
    target: &Target<'_>,
    content: &str,
    body: &[u8],
) -> Result<(StatusCode, Value), Failure> {
    let Target { kind, namespace, name, part } = *target;
    let refused = |why: Refused| refusal(why, kind, name.unwrap_or_default());
    let at = (namespace.unwrap_or_default(), name.unwrap_or_default());
    let object = match (method, name) {
        (&Method::GET, None) => {
            let (version, items) = store.list(kind, namespace);
            let metadata = json!({"resourceVersion": version.to_string()});
            let list = format!("{}List", kind.kind);
            json!({"apiVersion": kind.api_version, "kind": list, "metadata": metadata, "items": items})
        }
        (&Method::GET, Some(name)) => {
            store.get(kind.plural, at.0, name).ok_or_else(|| refused(Refused::NotFound))?
        }
        (&Method::POST, None) => {
            let object = read(body, namespace)?;
            return store.create(kind, object).map(|object| (StatusCode::CREATED, object)).map_err(refused);
        }
        (&Method::PUT, Some(_)) => {
            let new = read(body, namespace)?;
            store.update(kind, at, part, |_| new).map_err(refused)?
        }
        (&Method::PATCH, Some(name)) => {
            let mut patch = read(body, None)?;
            let apply = content.starts_with("application/apply-patch");
            if !apply
                && !content.starts_with("application/merge-patch")
                && !content.starts_with("application/strategic")
            {
                let message = format!("a stand-in does not play {content}");
                return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message));
            }
            if apply && part == Part::Main && store.get(kind.plural, at.0, name).is_none() {
                patch["metadata"]["namespace"] = json!(namespace);
                return store
                    .create(kind, patch)
                    .map(|object| (StatusCode::CREATED, object))
                    .map_err(refused);
            }
            let merged = |old: &Value| {
                let mut new = old.clone();
                object::merge(&mut new, &patch);
                new
            };
            store.update(kind, at, part, merged).map_err(refused)?
        }
        (&Method::DELETE, Some(name)) => store.delete(kind, at.0, name).map_err(refused)?,
        _ => {
            let message = format!("a stand-in does not play {method} here");
            return Err((StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message));
        }
    };
    Ok((StatusCode::OK, object))
}

/// What changes after this version, for so long.
fn watch(store: Arc<Store>, target: &Target<'_>, after: u64, lasts: Duration) -> Response<Body> {
    let (kind, namespace) = (target.kind, target.namespace.map(str::to_owned));
    let until = Instant::now() + lasts;
    let versions = store.versions();
    let lines = stream::unfold((store, versions, after), move |(store, mut versions, after)| {
        let namespace = namespace.clone();
        async move {
            loop {
                versions.mark_unchanged();
                let (version, changes) = store.changes(kind, namespace.as_deref(), after);
                if !changes.is_empty() {
                    let lines: String =
                        changes.iter().map(|change| line(change.what, &change.object)).collect();
                    return Some((lines, (store, versions, version)));
                }
                let bookmark = Instant::now() + BETWEEN_BOOKMARKS;
                tokio::select! {
                    news = versions.changed() => news.ok()?,
                    () = tokio::time::sleep_until(until) => return None,
                    () = tokio::time::sleep_until(bookmark) => {
                        let metadata = json!({"resourceVersion": version.to_string()});
                        let object = json!({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata});
                        return Some((line("BOOKMARK", &object), (store, versions, version)));
                    }
                }
            }
        }
    });
    let frames = lines.map(|lines| Ok(Frame::data(Bytes::from(lines))));
    let mut response = response(StatusCode::OK, "application/json", Bytes::new());
    *response.body_mut() = BodyExt::boxed(StreamBody::new(frames));
    response
}

fn line(what: &str, object: &Value) -> String {
    format!("{}\n", json!({"type": what, "object": object}))
}

/// An object from a body; apply's YAML included.
fn read(body: &[u8], namespace: Option<&str>) -> Result<Value, Failure> {
    let text = std::str::from_utf8(body).map_err(|error| bad(&error))?;
    let mut object: Value = serde_saphyr::from_str(text).map_err(|error| bad(&error))?;
    if !object.is_object() {
        return Err(bad(&"not an object"));
    }
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    Ok(object)
}

fn refusal(why: Refused, kind: &Kind, name: &str) -> Failure {
    let what = format!("{} \"{name}\"", kind.plural);
    match why {
        Refused::NotFound => not_found(&what),
        Refused::Exists => (StatusCode::CONFLICT, "AlreadyExists", format!("{what} already exists")),
        Refused::Conflict => {
            let message = format!("Operation cannot be fulfilled on {what}: the object has been modified");
            (StatusCode::CONFLICT, "Conflict", message)
        }
    }
}

fn not_found(what: &str) -> Failure {
    (StatusCode::NOT_FOUND, "NotFound", format!("{what} not found (a stand-in)"))
}

fn bad(error: &dyn std::fmt::Display) -> Failure {
    (StatusCode::BAD_REQUEST, "BadRequest", error.to_string())
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": "v1.35.4+stand-in", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}

fn json_answer(code: StatusCode, value: &Value) -> Response<Body> {
    response(code, "application/json", value.to_string().into())
}

fn response(code: StatusCode, content: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body).boxed());
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content));
    response
}
