//! The responses to requests: reads, lists, watches and writes.

use crate::{
    Behaviour, Call, Change, FakeApi, selection::Selection, selection::is_collection, selection::name,
};
use axum::body::Body as AnyBody;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, header::CONTENT_TYPE};
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

/// A request whose body is read.
struct Read {
    method: Method,
    path: String,
    query: String,
    body: Value,
}

impl Read {
    fn is_dry_run(&self) -> bool {
        self.query.contains("dryRun=")
    }
}

impl FakeApi {
    pub(crate) async fn respond(&self, request: Request<Body>) -> Response<AnyBody> {
        let request = self.read(request).await;
        let scripted = self.state().script.pop_front();
        if let Some((status, body)) = scripted {
            return match status {
                Some(status) => response(status, &body),
                None => pending().await,
            };
        }
        let behaviour = self.state().behaviour;
        match behaviour {
            Behaviour::Healthy => self.route(&request),
            Behaviour::Unavailable => failed(500, "InternalError"),
            Behaviour::Forbidding => forbidden(),
            Behaviour::Silent => pending().await,
            Behaviour::Unanswering if request.method == "GET" => self.route(&request),
            Behaviour::Unanswering => {
                self.route(&request);
                pending().await
            }
            Behaviour::Slow => {
                let response = self.route(&request);
                tokio::time::sleep(Duration::from_secs(1)).await;
                response
            }
        }
    }

    /// Reads the request, and adds it to the calls.
    async fn read(&self, request: Request<Body>) -> Read {
        let (parts, body) = request.into_parts();
        let content_type = parts.headers.get(CONTENT_TYPE);
        let bytes = body.collect_bytes().await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        self.state().calls.push(Call {
            line: format!("{} {}", parts.method, parts.uri),
            content_type: content_type
                .map_or("", |value| value.to_str().unwrap())
                .to_owned(),
            body: body.clone(),
        });
        Read {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body,
        }
    }

    fn route(&self, request: &Read) -> Response<AnyBody> {
        let Read {
            method, path, query, ..
        } = request;
        match method.as_str() {
            _ if has_part(path, self.state().forbidden) => forbidden(),
            // The reason that kube gives to the text `404 page not found`.
            _ if has_part(path, self.state().not_served) => failed(404, "Failed to parse error data"),
            "GET" if is_collection(path) && query.contains("watch=") => self.watch(path, query),
            "GET" if is_collection(path) => self.list(path, query),
            "GET" => self.get(path).map_or_else(not_found, |object| ok(&object)),
            "POST" => self.create(request),
            "PUT" => self.replace(request),
            "PATCH" => self.patch(request),
            "DELETE" => self.delete_object(request),
            _ => failed(405, "MethodNotAllowed"),
        }
    }

    fn list(&self, path: &str, query: &str) -> Response<AnyBody> {
        let selection = Selection::new(path, query);
        let state = self.state();
        let found = state
            .objects
            .iter()
            .filter(|(path, object)| selection.contains(path, object));
        let items: Vec<_> = found.map(|(_, object)| object.clone()).collect();
        let version = self.version.borrow().to_string();
        ok(&json!({
            "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version}, "items": items,
        }))
    }

    fn watch(&self, path: &str, query: &str) -> Response<AnyBody> {
        let selection = Selection::new(path, query);
        let since: u64 = selection.parameter("resourceVersion").parse().unwrap();
        let events = stream::unfold(
            (self.clone(), selection, since),
            async |(api, selection, since)| {
                let change = api.next_change(&selection, since).await;
                let line = format!("{}\n", json!({"type": change.kind, "object": change.object}));
                Some((Ok::<_, Infallible>(line), (api, selection, change.version)))
            },
        );
        Response::new(AnyBody::from_stream(events.boxed()))
    }

    async fn next_change(&self, selection: &Selection, since: u64) -> Change {
        let mut versions = self.version.subscribe();
        loop {
            versions.borrow_and_update();
            if let Some(change) = self.change_after(selection, since) {
                return change;
            }
            versions.changed().await.unwrap();
        }
    }

    fn change_after(&self, selection: &Selection, since: u64) -> Option<Change> {
        let state = self.state();
        let mut later = state.changes.iter().filter(|change| change.version > since);
        later
            .find(|change| selection.contains(&change.path, &change.object))
            .cloned()
    }

    fn create(&self, request: &Read) -> Response<AnyBody> {
        let path = format!(
            "{}/{}",
            request.path,
            request.body["metadata"]["name"].as_str().unwrap()
        );
        if self.get(&path).is_some() {
            return failed(409, "AlreadyExists");
        }
        self.write(request, &path, "ADDED", request.body.clone())
    }

    fn replace(&self, request: &Read) -> Response<AnyBody> {
        let Some(current) = self.get(&request.path) else {
            return not_found();
        };
        if current["metadata"]["resourceVersion"] != request.body["metadata"]["resourceVersion"] {
            return failed(409, "Conflict");
        }
        self.write(request, &request.path, "MODIFIED", request.body.clone())
    }

    /// Applies a JSON patch.
    fn patch(&self, request: &Read) -> Response<AnyBody> {
        let Some(mut object) = self.get(&request.path) else {
            return not_found();
        };
        let patch: json_patch::Patch = serde_json::from_value(request.body.clone()).unwrap();
        match json_patch::patch(&mut object, &patch) {
            Ok(()) => self.write(request, &request.path, "MODIFIED", object),
            Err(_) => failed(422, "Invalid"),
        }
    }

    fn write(&self, request: &Read, path: &str, kind: &'static str, object: Value) -> Response<AnyBody> {
        if request.is_dry_run() {
            return ok(&object);
        }
        self.log(request, path);
        ok(&self.commit(path, kind, object))
    }

    fn delete_object(&self, request: &Read) -> Response<AnyBody> {
        let Some(object) = self.get(&request.path) else {
            return not_found();
        };
        if !request.is_dry_run() {
            self.log(request, &request.path);
            self.delete(&request.path);
        }
        ok(&object)
    }

    fn log(&self, request: &Read, path: &str) {
        let write = format!("{} {}", request.method, name(path));
        self.state().writes.push(write);
    }
}

/// A Status object that reports a failure.
pub(crate) fn failure(code: u16, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message,
    })
}

fn failed(code: u16, reason: &str) -> Response<AnyBody> {
    let message = format!("the fake API server responds with {reason}");
    response(code, &failure(code, reason, &message))
}

fn has_part(path: &str, resource: Option<&str>) -> bool {
    resource.is_some_and(|resource| path.split('/').any(|part| part == resource))
}

fn forbidden() -> Response<AnyBody> {
    let status = failure(403, "Forbidden", "Forbidden: User \"test\" cannot do this");
    response(403, &status)
}

fn not_found() -> Response<AnyBody> {
    failed(404, "NotFound")
}

fn ok(object: &Value) -> Response<AnyBody> {
    response(200, object)
}

fn response(status: u16, body: &Value) -> Response<AnyBody> {
    let body = AnyBody::from(body.to_string());
    Response::builder().status(status).body(body).unwrap()
}
