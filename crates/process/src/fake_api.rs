//! An API server in memory for this crate's tests: objects by path, resourceVersions with conflicts, JSON patches, and
//! watches of one object. It can be told to be away, to be silent, or to run something right after a write.

use axum::body::{self, Body as AnyBody};
use futures::{StreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;

pub(crate) const SECRETS: &str = "/api/v1/namespaces/ns/secrets";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/ns/configmaps";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
pub(crate) const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const COLLECTIONS: [&str; 4] = [SECRETS, CONFIG_MAPS, LEASES, WEBHOOKS];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    Away,
    Silent,
    Forbidding,
    /// What it does, it tells a second later.
    Slow,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    history: Vec<(u64, &'static str, Value)>,
    writes: Vec<String>,
    mood: Mood,
}

#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    version: Arc<watch::Sender<u64>>,
}

impl FakeApi {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            version: Arc::new(watch::Sender::new(1)),
        }
    }

    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let answer = move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.answer(request).await) }
        };
        Client::new(tower::service_fn(answer), "ns")
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        self.state().mood = mood;
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Writes as somebody else, without a precondition.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let event = if self.get(path).is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.commit(path, event, object);
    }

    pub(crate) fn delete(&self, path: &str) {
        let gone = self.state().objects.remove(path);
        if let Some(object) = gone {
            self.record("DELETED", object);
        }
    }

    /// Has the watches of this object report an error, and go on.
    pub(crate) fn disturb_watches(&self, path: &str) {
        let error =
            json!({"status": "Failure", "reason": "InternalError", "code": 500, "message": "a moment"});
        self.record("ERROR", named(path, error));
    }

    /// `METHOD path` of every write that succeeded, and an empty list afterwards.
    pub(crate) fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    async fn answer(&self, request: Request<Body>) -> Response<AnyBody> {
        let mood = self.state().mood;
        match mood {
            Mood::Well => self.route(request).await,
            Mood::Away => status(StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Mood::Forbidding => status(StatusCode::FORBIDDEN, "Forbidden"),
            Mood::Silent => std::future::pending().await,
            Mood::Slow => {
                let answer = self.route(request).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer
            }
        }
    }

    async fn route(&self, request: Request<Body>) -> Response<AnyBody> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let bytes = body::to_bytes(AnyBody::new(body), 1 << 22).await.unwrap();
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        match (parts.method, COLLECTIONS.contains(&path.as_str())) {
            (Method::GET, true) if query.contains("watch=") => self.watch(&path, &query),
            (Method::GET, true) => self.list(&path, &query),
            (Method::GET, false) => self.found(&path),
            (Method::POST, _) => self.create(&path, sent),
            (Method::PUT, _) => self.replace(&path, sent),
            (Method::PATCH, _) => self.patch(&path, &sent),
            (method, _) => panic!("the fake API server knows no {method}"),
        }
    }

    fn found(&self, path: &str) -> Response<AnyBody> {
        self.get(path)
            .map_or_else(|| status(StatusCode::NOT_FOUND, "NotFound"), |object| ok(&object))
    }

    fn list(&self, path: &str, query: &str) -> Response<AnyBody> {
        let wanted = format!("{path}/{}", selected(query));
        let items: Vec<Value> = self.get(&wanted).into_iter().collect();
        let version = self.version.borrow().to_string();
        ok(
            &json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items}),
        )
    }

    fn watch(&self, path: &str, query: &str) -> Response<AnyBody> {
        let name = selected(query);
        let since = parameter(query, "resourceVersion").parse().unwrap();
        let kind = path.rsplit('/').next().unwrap().to_owned();
        let events = stream::unfold((self.clone(), since), move |(api, since)| {
            let (name, kind) = (name.clone(), kind.clone());
            async move {
                let (version, line) = api.next_event(since, &kind, &name).await;
                Some((line, (api, version)))
            }
        });
        Response::new(AnyBody::from_stream(events.map(Ok::<_, Infallible>)))
    }

    async fn next_event(&self, since: u64, kind: &str, name: &str) -> (u64, String) {
        let mut versions = self.version.subscribe();
        loop {
            versions.borrow_and_update();
            if let Some((at, event, object)) = self.event_after(since, kind, name) {
                return (at, format!("{}\n", json!({"type": event, "object": object})));
            }
            versions.changed().await.unwrap();
        }
    }

    fn event_after(&self, since: u64, kind: &str, name: &str) -> Option<(u64, &'static str, Value)> {
        let matches = |object: &Value| object["metadata"]["name"] == name && object["fakeKind"] == kind;
        let state = self.state();
        state
            .history
            .iter()
            .find(|(at, _, object)| *at > since && matches(object))
            .cloned()
    }

    fn create(&self, path: &str, object: Value) -> Response<AnyBody> {
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        if self.get(&path).is_some() {
            return status(StatusCode::CONFLICT, "AlreadyExists");
        }
        self.written("POST", &path, "ADDED", object)
    }

    fn replace(&self, path: &str, object: Value) -> Response<AnyBody> {
        let Some(current) = self.get(path) else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        if current["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return status(StatusCode::CONFLICT, "Conflict");
        }
        self.written("PUT", path, "MODIFIED", object)
    }

    fn patch(&self, path: &str, operations: &Value) -> Response<AnyBody> {
        let Some(mut object) = self.get(path) else {
            return status(StatusCode::NOT_FOUND, "NotFound");
        };
        let patch: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
        match json_patch::patch(&mut object, &patch) {
            Ok(()) => self.written("PATCH", path, "MODIFIED", object),
            Err(_) => status(StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
        }
    }

    fn written(&self, method: &str, path: &str, event: &'static str, object: Value) -> Response<AnyBody> {
        let name = path.rsplit('/').next().unwrap();
        self.state().writes.push(format!("{method} {name}"));
        ok(&self.commit(path, event, object))
    }

    fn commit(&self, path: &str, event: &'static str, object: Value) -> Value {
        let object = self.record(event, named(path, object));
        self.state().objects.insert(path.to_owned(), object.clone());
        object
    }

    fn record(&self, event: &'static str, mut object: Value) -> Value {
        let version = *self.version.borrow() + 1;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        self.state().history.push((version, event, object.clone()));
        self.version.send_replace(version);
        object
    }
}

/// The object with what the watches tell it by.
fn named(path: &str, mut object: Value) -> Value {
    let (collection, name) = path.rsplit_once('/').unwrap();
    object["metadata"]["name"] = json!(name);
    object["fakeKind"] = json!(collection.rsplit('/').next().unwrap());
    object
}

fn selected(query: &str) -> String {
    let selector = parameter(query, "fieldSelector");
    selector
        .strip_prefix("metadata.name%3D")
        .expect("a watch of one object by its name")
        .to_owned()
}

fn parameter(query: &str, name: &str) -> String {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value.to_owned())
        .next()
        .unwrap_or_default()
}

fn ok(object: &Value) -> Response<AnyBody> {
    Response::new(AnyBody::from(object.to_string()))
}

fn status(code: StatusCode, reason: &str) -> Response<AnyBody> {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(), "message": format!("the fake API server says {reason}")});
    Response::builder()
        .status(code)
        .body(AnyBody::from(body.to_string()))
        .unwrap()
}
