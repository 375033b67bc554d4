//! An API server for tests: keeps objects by their path, lists them by label, and logs what is written.

use crate::ask::Server;
use crate::client::Cluster;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COLLECTIONS: [&str; 7] = [
    "pipelineruns",
    "taskruns",
    "statefulsets",
    "pods",
    "deployments",
    "events",
    "nodes",
];

#[derive(Clone, Default)]
pub(crate) struct FakeApi(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    objects: BTreeMap<String, Value>,
    writes: Vec<String>,
    forbidden: Option<&'static str>,
}

/// The path of a run in namespace `ci`.
pub(crate) fn run_path(name: &str) -> String {
    format!("/apis/tekton.dev/v1/namespaces/ci/pipelineruns/{name}")
}

impl FakeApi {
    pub(crate) fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap().objects.insert(path.to_owned(), object);
    }

    /// Nobody may do anything to objects of this kind.
    pub(crate) fn forbid(&self, plural: &'static str) {
        self.0.lock().unwrap().forbidden = Some(plural);
    }

    fn is_forbidden(&self, path: &str) -> bool {
        let forbidden = self.0.lock().unwrap().forbidden;
        forbidden.is_some_and(|plural| format!("{path}/").contains(&format!("/{plural}/")))
    }

    pub(crate) fn remove(&self, path: &str) {
        self.0.lock().unwrap().objects.remove(path);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap().objects.get(path).cloned()
    }

    /// Method and last part of the path of each write that was not a trial.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.0.lock().unwrap().writes.clone()
    }

    /// This server, and the namespace `ci`.
    pub(crate) fn cluster(&self) -> Cluster {
        let api = self.clone();
        let answer = move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, std::io::Error>(api.answer(request).await) }
        };
        Cluster {
            server: Server {
                client: Client::new(tower::service_fn(answer), "ci"),
                limit: Some(Duration::from_secs(5)),
            },
            namespace: "ci".into(),
            url: "https://fake".into(),
        }
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default());
        let is_list = COLLECTIONS.iter().any(|kind| path.ends_with(&format!("/{kind}")));
        let is_tried = query.contains("dryRun=");
        let sent = body.collect_bytes().await.unwrap();
        match parts.method {
            _ if self.is_forbidden(&path) => failure(StatusCode::FORBIDDEN, "User \"u\" cannot do that"),
            Method::GET if query.contains("watch=") => std::future::pending().await,
            Method::GET if path == "/version" => response(StatusCode::OK, &json!({})),
            Method::GET if is_list => self.list(&path, query),
            Method::GET => self
                .get(&path)
                .map_or_else(missing, |it| response(StatusCode::OK, &it)),
            Method::PATCH => self.patch(&path, &sent, is_tried),
            Method::DELETE => self.delete(&path, is_tried),
            method => panic!("the fake API server knows no {method}"),
        }
    }

    fn list(&self, path: &str, query: &str) -> Response<Body> {
        let kept = self.0.lock().unwrap();
        let found = kept.objects.iter().filter(|(key, object)| {
            let (collection, _) = key.rsplit_once('/').unwrap();
            (collection == path || everywhere(collection) == path) && is_selected(object, query)
        });
        let items: Vec<_> = found.map(|(_, object)| object.clone()).collect();
        response(
            StatusCode::OK,
            &json!({"metadata": {"resourceVersion": "1"}, "items": items}),
        )
    }

    fn patch(&self, path: &str, sent: &[u8], is_tried: bool) -> Response<Body> {
        let Some(mut object) = self.get(path) else {
            return missing();
        };
        let patch: json_patch::Patch = serde_json::from_slice(sent).unwrap();
        if json_patch::patch(&mut object, &patch).is_err() {
            return status(StatusCode::UNPROCESSABLE_ENTITY);
        }
        if !is_tried {
            self.put(path, object.clone());
            self.log("PATCH", path);
        }
        response(StatusCode::OK, &object)
    }

    fn delete(&self, path: &str, is_tried: bool) -> Response<Body> {
        let Some(object) = self.get(path) else {
            return missing();
        };
        if !is_tried {
            self.remove(path);
            self.log("DELETE", path);
        }
        response(StatusCode::OK, &object)
    }

    fn log(&self, method: &str, path: &str) {
        let name = path.rsplit('/').next().unwrap();
        self.0.lock().unwrap().writes.push(format!("{method} {name}"));
    }
}

/// The collection of all namespaces.
fn everywhere(collection: &str) -> String {
    let mut parts: Vec<_> = collection.split('/').collect();
    if let Some(at) = parts.iter().position(|part| *part == "namespaces") {
        parts.drain(at..at + 2);
    }
    parts.join("/")
}

fn is_selected(object: &Value, query: &str) -> bool {
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.find(|(key, _)| *key == name).map(|(_, value)| value);
        let text = value.unwrap_or_default();
        text.replace("%2F", "/").replace("%3D", "=").replace("%2C", ",")
    };
    let labels = &object["metadata"]["labels"];
    let selector = parameter("labelSelector");
    let mut terms = selector.split(',').filter(|term| !term.is_empty());
    let named = parameter("fieldSelector");
    let named = named.strip_prefix("metadata.name=");
    named.is_none_or(|name| object["metadata"]["name"] == name)
        && terms.all(|term| match term.split_once('=') {
            Some((key, value)) => labels[key] == value,
            None => labels.get(term).is_some(),
        })
}

fn missing() -> Response<Body> {
    status(StatusCode::NOT_FOUND)
}

fn status(code: StatusCode) -> Response<Body> {
    failure(code, &format!("the fake API server says {code}"))
}

fn failure(code: StatusCode, text: &str) -> Response<Body> {
    let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
    let body = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": text, "code": code.as_u16()});
    response(code, &body)
}

fn response(code: StatusCode, body: &Value) -> Response<Body> {
    let body = Body::from(body.to_string().into_bytes());
    Response::builder().status(code).body(body).unwrap()
}
