//! A small API server in memory, for tests: list, watch, get, create, replace, delete with the real rules about
//! versions and uids; a kind that can vanish; an answer that can be scripted; a wire that can fall silent.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::{ServiceBuilder, service_fn};

use crate::{client::Manners, fence::Fence};

/// The body of an answer.
type Answer = UnsyncBoxBody<Bytes, Infallible>;

/// A request that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) content_type: String,
    pub(crate) body: Value,
}

type Script = Box<dyn FnMut(&Seen) -> Option<(u16, Value)> + Send>;

#[derive(Default)]
struct World {
    version: u64,
    /// Collection path → name → object.
    served: BTreeMap<String, BTreeMap<String, Value>>,
    /// Version, collection, watch event.
    history: Vec<(u64, String, Value)>,
    seen: Vec<Seen>,
    script: Option<Script>,
}

/// The server. Clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    world: Arc<Mutex<World>>,
    changed: watch::Sender<u64>,
}

/// One client's connection.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<AtomicBool>);

impl Wire {
    /// From now on requests arrive nowhere and open watches say nothing.
    pub(crate) fn silence(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_silent(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Server {
    /// Serves the collections with these paths, empty.
    pub(crate) fn new(collections: &[&str]) -> Self {
        let server = Self { world: Arc::default(), changed: watch::Sender::new(0) };
        for collection in collections {
            server.serve(collection);
        }
        server
    }

    /// Begins to serve a collection.
    pub(crate) fn serve(&self, collection: &str) {
        self.world.lock().unwrap().served.insert(collection.to_owned(), BTreeMap::new());
        self.changed.send_modify(|n| *n += 1);
    }

    /// The CRD is uninstalled: open watches end, and everything is 404.
    pub(crate) fn stop_serving(&self, collection: &str) {
        self.world.lock().unwrap().served.remove(collection);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Answers instead of the server where it returns something.
    pub(crate) fn script(&self, script: impl FnMut(&Seen) -> Option<(u16, Value)> + Send + 'static) {
        self.world.lock().unwrap().script = Some(Box::new(script));
    }

    /// The requests that arrived so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.world.lock().unwrap().seen.clone()
    }

    /// The object as it is stored.
    pub(crate) fn stored(&self, collection: &str, name: &str) -> Option<Value> {
        self.world.lock().unwrap().served.get(collection)?.get(name).cloned()
    }

    /// Creates or replaces an object.
    pub(crate) fn put(&self, collection: &str, object: Value) -> Value {
        self.change(|world| world.store(collection, object))
    }

    /// Deletes an object.
    pub(crate) fn remove(&self, collection: &str, name: &str) {
        self.change(|world| world.delete(collection, name));
    }

    /// A client of this server, behind our own layer.
    pub(crate) fn client(&self, fence: Fence) -> Client {
        self.client_over(fence, Wire::default())
    }

    /// [`Server::client`] over a wire that can fall silent.
    pub(crate) fn client_over(&self, fence: Fence, wire: Wire) -> Client {
        let server = self.clone();
        let service = ServiceBuilder::new().layer(Manners::new(fence)).service(service_fn(move |request| {
            let (server, wire) = (server.clone(), wire.clone());
            async move { Ok::<_, Infallible>(server.answer::<Body>(request, wire).await) }
        }));
        Client::new(service, "default")
    }

    fn change<T>(&self, with: impl FnOnce(&mut World) -> T) -> T {
        let value = with(&mut self.world.lock().unwrap());
        self.changed.send_modify(|n| *n += 1);
        value
    }

    /// What the server says, on whatever carries it.
    pub(crate) async fn answer<B>(&self, request: Request<B>, wire: Wire) -> Response<Answer>
    where
        B: http_body::Body<Error: Debug>,
    {
        if wire.is_silent() {
            std::future::pending::<()>().await;
        }
        let (parts, body) = request.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let header = parts.headers.get(http::header::CONTENT_TYPE);
        let seen = Seen {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: header.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default(),
            body: serde_json::from_slice(&bytes).unwrap_or_default(),
        };
        let scripted = self.change(|world| {
            world.seen.push(seen.clone());
            world.script.as_mut().and_then(|script| script(&seen))
        });
        if let Some((code, body)) = scripted {
            return reply(code, &body);
        }
        let place = self.world.lock().unwrap().locate(&seen.path);
        let Some((collection, name)) = place else { return plain(404, "404 page not found") };
        if seen.query.contains("watch=true") {
            return self.watch(&collection, &seen.query, wire);
        }
        let (code, body) = self.change(|world| world.answer(&seen, &collection, &name));
        reply(code, &body)
    }

    fn watch(&self, collection: &str, query: &str, wire: Wire) -> Response<Answer> {
        let field =
            |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)).map(ToOwned::to_owned);
        let from: u64 = field("resourceVersion=").and_then(|text| text.parse().ok()).unwrap_or(0);
        let seconds: u64 = field("timeoutSeconds=").and_then(|text| text.parse().ok()).unwrap_or(290);
        let end = tokio::time::sleep(Duration::from_secs(seconds));
        let events = self.events(collection.to_owned(), from, wire).take_until(end);
        let frames = events.map(|event| {
            let line = format!("{event}\n");
            Ok::<_, Infallible>(http_body::Frame::data(line.into()))
        });
        Response::new(Answer::new(StreamBody::new(frames)))
    }

    fn events(&self, collection: String, from: u64, wire: Wire) -> impl Stream<Item = Value> + Send + use<> {
        let changes = self.changed.subscribe();
        stream::unfold(
            (self.clone(), collection, from, wire, changes),
            |(server, collection, from, wire, mut changes)| async move {
                loop {
                    changes.borrow_and_update();
                    if !wire.is_silent() {
                        let world = server.world.lock().unwrap();
                        if !world.served.contains_key(&collection) {
                            return None;
                        }
                        let next = world
                            .history
                            .iter()
                            .find(|(version, of, _)| *version > from && *of == collection);
                        if let Some((version, _, event)) = next.cloned() {
                            drop(world);
                            return Some((event, (server, collection, version, wire, changes)));
                        }
                    }
                    changes.changed().await.ok()?;
                }
            },
        )
    }
}

impl World {
    fn locate(&self, path: &str) -> Option<(String, String)> {
        self.locate_in(path).or_else(|| {
            // An object of a collection that is served over all namespaces.
            let (group, rest) = path.split_once("/namespaces/")?;
            let (_, kind) = rest.split_once('/')?;
            self.locate_in(&format!("{group}/{kind}"))
        })
    }

    fn locate_in(&self, path: &str) -> Option<(String, String)> {
        self.served.keys().find_map(|collection| {
            let rest = path.strip_prefix(collection.as_str())?;
            match rest.strip_prefix('/') {
                Some(name) => Some((collection.clone(), name.split('/').next()?.to_owned())),
                None => rest.is_empty().then(|| (collection.clone(), String::new())),
            }
        })
    }

    fn answer(&mut self, seen: &Seen, collection: &str, name: &str) -> (u16, Value) {
        let present = self.served[collection].get(name).cloned();
        match (&seen.method, present) {
            (&Method::GET, _) if name.is_empty() => {
                let items: Vec<_> = self.served[collection].values().collect();
                let version = self.version.to_string();
                (200, json!({ "metadata": { "resourceVersion": version }, "items": items }))
            }
            (&Method::POST, _) => {
                let name = seen.body["metadata"]["name"].as_str().unwrap();
                if self.served[collection].contains_key(name) {
                    return status(409, "AlreadyExists", &format!("{name} already exists"));
                }
                (201, self.store(collection, seen.body.clone()))
            }
            (_, None) => status(404, "NotFound", &format!("{name} not found")),
            (&Method::GET, Some(object)) => (200, object),
            (&Method::PUT, Some(object)) => {
                if seen.body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return status(409, "Conflict", "the object has been modified");
                }
                (200, self.store(collection, seen.body.clone()))
            }
            (&Method::DELETE, Some(object)) => {
                let wanted = &seen.body["preconditions"]["uid"];
                if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
                    return status(409, "Conflict", "the UID in the precondition does not match");
                }
                self.delete(collection, name);
                (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
            }
            _ => status(405, "MethodNotAllowed", "not in this mock"),
        }
    }

    fn store(&mut self, collection: &str, mut object: Value) -> Value {
        self.version += 1;
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let before = self.served[collection].get(&name);
        let uid = before
            .map_or_else(|| json!(format!("uid-{}", self.version)), |old| old["metadata"]["uid"].clone());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["uid"] = uid;
        self.served.get_mut(collection).unwrap().insert(name, object.clone());
        let event = json!({ "type": kind, "object": object });
        self.history.push((self.version, collection.to_owned(), event));
        object
    }

    fn delete(&mut self, collection: &str, name: &str) {
        self.version += 1;
        if let Some(mut object) = self.served.get_mut(collection).and_then(|objects| objects.remove(name)) {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            let event = json!({ "type": "DELETED", "object": object });
            self.history.push((self.version, collection.to_owned(), event));
        }
    }
}

/// The body of a refusal.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message,
    });
    (code, body)
}

fn reply(code: u16, body: &Value) -> Response<Answer> {
    plain(code, &body.to_string())
}

fn plain(code: u16, text: &str) -> Response<Answer> {
    let mut response = Response::new(Answer::new(Full::from(text.to_owned())));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
