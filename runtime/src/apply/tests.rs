use http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Node};

use super::*;
use crate::{
    fence::Fence,
    mock::{Seen, Server, status},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": { "name": name, "resourceVersion": "7", "uid": "uid-7", "finalizers": ["x/other"] }
    }))
    .unwrap()
}

fn maps(server: &Server) -> Api<ConfigMap> {
    Api::default_namespaced(server.client(Fence::default()))
}

/// A server that answers everything with this.
fn answering(code: u16, reason: &'static str) -> Server {
    let server = Server::new(&[MAPS]);
    server.script(move |_| Some(status(code, reason, "because")));
    server
}

/// A server on which the map of this uid is, which answers each write to it with `write`.
fn there(
    uid: &'static str,
    managed_fields: &Value,
    write: impl Fn(&Seen) -> (u16, Value) + Send + 'static,
) -> Server {
    let meta =
        json!({ "name": "a", "uid": uid, "resourceVersion": "8", "managedFields": managed_fields.clone() });
    let server = Server::new(&[MAPS]);
    server.script(move |seen| {
        Some(if seen.method == Method::GET { (200, json!({ "metadata": meta })) } else { write(seen) })
    });
    server
}

fn only(server: &Server) -> Seen {
    let seen = server.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen[0].clone()
}

#[tokio::test]
async fn what_exists_is_never_changed_by_creation() {
    let server = Server::new(&[MAPS]);
    let api = maps(&server);
    let new = ConfigMap { metadata: map("a").metadata, ..ConfigMap::default() };
    assert!(matches!(create(&api, "me", &new).await.unwrap(), Created::New(_)));
    assert!(server.seen()[0].query.contains("fieldManager=me"));
    let mut other = map("a");
    other.data = Some([("x".to_owned(), "y".to_owned())].into());
    match create(&api, "me", &other).await.unwrap() {
        Created::Exists(found) => assert_eq!(found.data, None),
        Created::New(_) => panic!("created over an existing object"),
    }
}

#[tokio::test]
async fn an_object_that_vanishes_between_the_refusal_and_the_read_is_a_race() {
    let server = Server::new(&[MAPS]);
    server.script(|seen| (seen.method == Method::POST).then(|| status(409, "AlreadyExists", "a exists")));
    let error = create(&maps(&server), "me", &map("a")).await.unwrap_err();
    assert_eq!(error.class(), "conflict");
}

#[tokio::test]
async fn an_update_carries_the_uid_and_nothing_that_came_from_the_server() {
    let server = there("uid-9", &json!([]), |seen| (200, seen.body.clone()));
    update(&maps(&server), "me", "uid-9", &map("a")).await.unwrap();
    let seen = &server.seen()[1];
    assert_eq!(server.seen().len(), 2);
    assert_eq!(seen.method, Method::PATCH);
    assert_eq!(seen.content_type, "application/apply-patch+yaml");
    assert!(seen.query.contains("force=true") && seen.query.contains("fieldManager=me"), "{}", seen.query);
    let expected = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "a", "uid": "uid-9", "finalizers": ["x/other"] },
    });
    assert_eq!(seen.body, expected);
}

#[tokio::test]
async fn an_update_of_a_stranger_or_of_nothing_is_a_race() {
    for (code, reason, class) in
        [(409, "Conflict", "conflict"), (404, "NotFound", "conflict"), (403, "Forbidden", "forbidden")]
    {
        let server = there("u", &json!([]), move |_| status(code, reason, "because"));
        let error = update(&maps(&server), "me", "u", &map("a")).await.unwrap_err();
        assert_eq!(error.class(), class);
        assert!(class != "conflict" || error.to_string() == "a changed meanwhile: because", "{error}");
    }
    for server in [answering(404, "NotFound"), there("another", &json!([]), |_| unreachable!())] {
        let error = update(&maps(&server), "me", "u", &map("a")).await.unwrap_err();
        assert_eq!((error.class(), server.seen().len()), ("conflict", 1));
    }
}

#[tokio::test]
async fn deletion_hits_only_the_object_that_was_meant() {
    let server = Server::new(&[MAPS]);
    let api = maps(&server);
    assert!(!delete_if_present(&api, "a", "uid-1").await.unwrap());
    server.put(MAPS, json!({ "metadata": { "name": "a" } }));
    assert!(!delete_if_present(&api, "a", "another").await.unwrap());
    assert!(server.stored(MAPS, "a").is_some());
    assert!(delete_if_present(&api, "a", "uid-1").await.unwrap());
    assert!(server.stored(MAPS, "a").is_none());
    assert_eq!(server.seen().last().unwrap().body["propagationPolicy"], json!("Background"));
    let error = delete_if_present(&maps(&answering(500, "InternalError")), "a", "u").await.unwrap_err();
    assert_eq!(error.class(), "transient");
}

#[tokio::test]
async fn a_finalizer_is_changed_only_on_the_version_that_was_read() {
    let server = Server::new(&[MAPS]);
    server.script(|_| Some((200, json!({ "metadata": { "name": "a" } }))));
    let api = maps(&server);
    set_finalizer(&api, &map("a"), "x/ours", true).await.unwrap();
    let expected = json!({ "metadata": {
        "resourceVersion": "7", "uid": "uid-7", "finalizers": ["x/other", "x/ours"],
    }});
    assert_eq!(only(&server).body, expected);
    assert_eq!(only(&server).content_type, "application/merge-patch+json");
    set_finalizer(&api, &map("a"), "x/other", false).await.unwrap();
    assert_eq!(server.seen()[1].body["metadata"]["finalizers"], json!([]));
}

#[tokio::test]
async fn a_finalizer_that_already_is_as_wanted_costs_no_request() {
    let server = Server::new(&[MAPS]);
    set_finalizer(&maps(&server), &map("a"), "x/other", true).await.unwrap();
    set_finalizer(&maps(&server), &map("a"), "x/ours", false).await.unwrap();
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn finalizers_of_an_object_that_is_gone_or_going() {
    for (code, present, finalizer, class) in [
        (404, false, "x/other", None),
        (404, true, "x/ours", Some("conflict")),
        (409, true, "x/ours", Some("conflict")),
        (409, false, "x/other", Some("conflict")),
        (422, true, "x/ours", Some("conflict")),
        (403, true, "x/ours", Some("forbidden")),
    ] {
        let outcome = set_finalizer(&maps(&answering(code, "Reason")), &map("a"), finalizer, present).await;
        assert_eq!(outcome.err().map(|error| error.class()), class, "{code} {present}");
    }
}

#[tokio::test]
async fn a_name_that_belongs_to_another_object_now_is_a_race() {
    let server = there("u", &json!([]), |_| {
        let (code, mut body) = status(422, "Invalid", "field is immutable");
        body["details"] = json!({ "causes": [{ "reason": "FieldValueInvalid", "field": "metadata.uid" }] });
        (code, body)
    });
    let error = update(&maps(&server), "me", "u", &map("a")).await.unwrap_err();
    assert_eq!(error.class(), "conflict");
    let server = there("u", &json!([]), |_| status(422, "Invalid", "because"));
    let error = update(&maps(&server), "me", "u", &map("a")).await.unwrap_err();
    assert_eq!(error.class(), "invalid");
}

#[tokio::test]
async fn the_first_update_after_creation_takes_over_what_was_created_and_then_applies_once() {
    let created =
        json!([{ "manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsV1": { "f:data": {} } }]);
    let server = there("u", &created, |seen| (200, seen.body.clone()));
    update(&maps(&server), "me", "u", &map("a")).await.unwrap();
    let seen = server.seen();
    let kinds: Vec<&str> = seen.iter().map(|seen| seen.content_type.as_str()).collect();
    assert_eq!(kinds[1..], ["application/merge-patch+json", "application/apply-patch+yaml"]);
    assert_eq!(seen[1].body["metadata"]["resourceVersion"], "8");
    assert_eq!(seen[1].body["metadata"]["uid"], "u");
    assert_eq!(seen[1].body["metadata"]["managedFields"][0]["operation"], "Apply");
    assert_eq!(seen[1].body.as_object().unwrap().len(), 1, "nothing but the ownership");
}

fn node() -> Node {
    serde_json::from_value(json!({ "metadata": { "name": "n", "uid": "u", "resourceVersion": "3" } }))
        .unwrap()
}

/// Refuses the first `times` writes as outdated; the live object is `live`.
fn outdated(mut times: u32, live: Option<Node>) -> (Server, Api<Node>) {
    let server = Server::new(&["/api/v1/nodes"]);
    server.script(move |seen| {
        Some(if seen.method == Method::GET {
            match &live {
                Some(live) => (200, json!(live)),
                None => status(404, "NotFound", "gone"),
            }
        } else if times > 0 {
            times -= 1;
            status(409, "Conflict", "the object has been modified")
        } else {
            (200, json!({ "metadata": { "name": "n" } }))
        })
    });
    let api = Api::all(server.client(Fence::default()));
    (server, api)
}

#[tokio::test]
async fn a_status_names_its_type_and_the_version_it_was_decided_on() {
    let status = json!({ "phase": "Running" });
    let (server, api) = outdated(0, None);
    write_status(&api, "me", &node(), Guard::Uid, &status).await.unwrap();
    let seen = only(&server);
    assert_eq!(seen.path, "/api/v1/nodes/n/status");
    let expected = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "n", "resourceVersion": "3" }, "status": status,
    });
    assert_eq!(seen.body, expected);
}

#[tokio::test]
async fn an_old_version_matters_to_an_exclusive_status_only() {
    let mut live = node();
    live.metadata.resource_version = Some("4".into());
    let (server, api) = outdated(1, Some(live.clone()));
    write_status(&api, "me", &node(), Guard::Uid, &json!({})).await.unwrap();
    assert_eq!(server.seen()[2].body["metadata"]["resourceVersion"], "4");

    let (server, api) = outdated(1, Some(live.clone()));
    let error = write_status(&api, "me", &node(), Guard::Version, &json!({})).await.unwrap_err();
    assert_eq!((error.class(), server.seen().len()), ("conflict", 1));

    let (_, api) = outdated(100, Some(live));
    let error = write_status(&api, "me", &node(), Guard::Uid, &json!({})).await.unwrap_err();
    assert_eq!(error.class(), "conflict", "it does not try for ever");
}

#[tokio::test]
async fn a_status_never_lands_on_another_object_of_the_name() {
    let mut other = node();
    other.metadata.uid = Some("another".into());
    let (server, api) = outdated(1, Some(other));
    let error = write_status(&api, "me", &node(), Guard::Uid, &json!({})).await.unwrap_err();
    assert_eq!((error.class(), server.seen().len()), ("conflict", 2));
}

#[tokio::test]
async fn the_status_of_an_object_that_is_gone_is_nobodys_loss() {
    let (_, api) = outdated(1, None);
    write_status(&api, "me", &node(), Guard::Uid, &json!({})).await.unwrap();
    write_status(&maps(&answering(404, "R")), "me", &map("a"), Guard::Version, &json!({})).await.unwrap();
    let outcome = write_status(&maps(&answering(500, "R")), "me", &map("a"), Guard::Uid, &json!({})).await;
    assert_eq!(outcome.unwrap_err().class(), "transient");
}
