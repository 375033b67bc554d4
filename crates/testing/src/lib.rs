//! A fake API server in memory, for the unit tests of the other crates.
//!
//! [`FakeApi`] stores objects by path. Writes change the resourceVersion, and a write with an old resourceVersion is a conflict. Lists and
//! watches select by namespace, name and labels. A test can change the [`Behaviour`] of the server, forbid a resource, and script
//! responses. The server does not validate, default or authorize; the end-to-end tests use a real API server.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod requests;
mod selection;

use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// How the server responds to all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// The server responds at once.
    #[default]
    Healthy,
    /// Each request fails with the status 500.
    Unavailable,
    /// No request gets a response.
    Silent,
    /// The server acts, but no write gets a response.
    Unanswering,
    /// Each request fails with the status 403.
    Forbidding,
    /// The server acts at once and responds one second later.
    Slow,
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct Call {
    /// Method and path with query.
    pub line: String,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The body; null without a JSON body.
    pub body: Value,
}

/// A change of an object, for watches.
#[derive(Clone)]
struct Change {
    version: u64,
    kind: &'static str,
    path: String,
    object: Value,
}

/// A scripted response; the request is left without a response if there is no status.
type Scripted = (Option<u16>, Value);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    changes: Vec<Change>,
    writes: Vec<String>,
    calls: Vec<Call>,
    script: VecDeque<Scripted>,
    behaviour: Behaviour,
    forbidden: Option<&'static str>,
    not_served: Option<&'static str>,
}

/// The server. Clones share the objects.
#[derive(Clone)]
pub struct FakeApi {
    state: Arc<Mutex<State>>,
    version: Arc<watch::Sender<u64>>,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self {
            state: Arc::default(),
            version: Arc::new(watch::Sender::new(1)),
        }
    }
}

impl FakeApi {
    /// A server without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// A server that gives scripted responses only: each other request fails with the status 500.
    pub fn scripted() -> Self {
        let api = Self::new();
        api.set_behaviour(Behaviour::Unavailable);
        api
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        let api = self.clone();
        let answer = move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    /// Changes the behaviour for all later requests.
    pub fn set_behaviour(&self, behaviour: Behaviour) {
        self.state().behaviour = behaviour;
    }

    /// Makes each request for this resource, such as `pods`, fail with the status 403.
    pub fn forbid(&self, resource: &'static str) {
        self.state().forbidden = Some(resource);
    }

    /// Makes each request for this resource fail with the status 404, as after its definition was deleted.
    pub fn stop_serving(&self, resource: &'static str) {
        self.state().not_served = Some(resource);
    }

    /// Adds a response to the script. The next requests get the scripted responses, in this order.
    pub fn script(&self, status: u16, body: Value) {
        self.state().script.push_back((Some(status), body));
    }

    /// Adds a failure to the script.
    pub fn script_failure(&self, status: u16, reason: &str, message: &str) {
        self.script(status, requests::failure(status, reason, message));
    }

    /// Adds a request without a response to the script.
    pub fn script_silence(&self) {
        self.state().script.push_back((None, Value::Null));
    }

    /// The object at this path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.state().objects.get(path).cloned()
    }

    /// Writes an object as another client, without a precondition.
    pub fn put(&self, path: &str, object: Value) {
        let exists = self.get(path).is_some();
        self.commit(path, if exists { "MODIFIED" } else { "ADDED" }, object);
    }

    /// Deletes an object as another client.
    pub fn delete(&self, path: &str) {
        let deleted = self.state().objects.remove(path);
        if let Some(object) = deleted {
            self.record(path, "DELETED", object);
        }
    }

    /// Sends an error to the watches of this object. The watches go on.
    pub fn disturb_watches(&self, path: &str) {
        self.record(path, "ERROR", requests::failure(500, "InternalError", "a moment"));
    }

    /// `METHOD name` of each successful write, without dry runs.
    pub fn writes(&self) -> Vec<String> {
        self.state().writes.clone()
    }

    /// [`FakeApi::writes`] since the last call of this function.
    pub fn take_writes(&self) -> Vec<String> {
        std::mem::take(&mut self.state().writes)
    }

    /// All requests.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn commit(&self, path: &str, kind: &'static str, object: Value) -> Value {
        let object = self.record(path, kind, object);
        self.state().objects.insert(path.to_owned(), object.clone());
        object
    }

    /// Gives the object its name and the next resourceVersion, and reports the change to the watches.
    fn record(&self, path: &str, kind: &'static str, mut object: Value) -> Value {
        let version = *self.version.borrow() + 1;
        object["metadata"]["name"] = json!(selection::name(path));
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let change = Change {
            version,
            kind,
            path: path.to_owned(),
            object: object.clone(),
        };
        self.state().changes.push(change);
        self.version.send_replace(version);
        object
    }
}

#[cfg(test)]
mod tests;
