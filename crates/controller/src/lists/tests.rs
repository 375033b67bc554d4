use super::*;
use http_body_util::Limited;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tower::service_fn;

type Lines = Arc<Mutex<Vec<String>>>;
type Response = http::Response<Limited<Body>>;

fn respond(code: u16, body: &str, limit: usize) -> Response {
    let body = Limited::new(Body::from(body.as_bytes().to_vec()), limit);
    http::Response::builder().status(code).body(body).unwrap()
}

/// A client of an API server that answers in this way, and the queries of its requests.
fn server(answer: impl Fn(&str) -> Response + Send + Sync + 'static) -> (Api<ConfigMap>, Lines) {
    let (lines, answer) = (Lines::default(), Arc::new(answer));
    let queries = lines.clone();
    let service = service_fn(move |request: http::Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let response = answer(&query);
        queries.lock().unwrap().push(query);
        future::ready(Ok::<_, Infallible>(response))
    });
    (Api::all(Client::new(service, "default")), lines)
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": "1"}})
}

fn page(names: &[&str], next: &str) -> String {
    let items: Vec<_> = names.iter().map(|name| object(name)).collect();
    json!({"metadata": {"resourceVersion": "1", "continue": next}, "items": items}).to_string()
}

/// The names of the first list of a watch.
async fn first_list(api: &Api<ConfigMap>) -> Vec<String> {
    let mut events = std::pin::pin!(watch(api.clone(), Config::default()));
    let mut names = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            Event::Init => names.clear(),
            Event::InitApply(map) => names.push(map.metadata.name.unwrap()),
            Event::InitDone => return names,
            Event::Apply(_) | Event::Delete(_) => panic!("no list"),
        }
    }
}

fn unsupported() -> Response {
    let status = json!({"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "sendInitialEvents"});
    respond(422, &status.to_string(), usize::MAX)
}

#[tokio::test]
async fn the_first_list_is_a_stream_of_objects() {
    let (api, lines) = server(|_| {
        let end = json!({"k8s.io/initial-events-end": "true"});
        let end = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "2", "annotations": end}});
        let events = [
            json!({"type": "ADDED", "object": object("a")}),
            json!({"type": "ADDED", "object": object("b")}),
            json!({"type": "BOOKMARK", "object": end}),
        ];
        respond(
            200,
            &events.map(|event| format!("{event}\n")).concat(),
            usize::MAX,
        )
    });
    assert_eq!(first_list(&api).await, ["a", "b"]);
    let lines = lines.lock().unwrap();
    assert!(
        lines.len() == 1 && lines[0].contains("sendInitialEvents=true"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn without_streaming_lists_the_first_list_comes_in_pages() {
    let (api, lines) = server(|query| match query {
        query if query.contains("sendInitialEvents") => unsupported(),
        query if query.contains("continue=next") => respond(200, &page(&["b"], ""), usize::MAX),
        _ => respond(200, &page(&["a"], "next"), usize::MAX),
    });
    assert_eq!(first_list(&api).await, ["a", "b"]);
    let lines = lines.lock().unwrap();
    assert!(lines.len() == 3 && lines[1].contains("limit=100"), "{lines:?}");
}

/// The second page is too large, except in pages of 8 objects.
fn too_large(query: &str) -> Response {
    let limit = if query.contains("limit=8") { usize::MAX } else { 10 };
    match query {
        query if query.contains("sendInitialEvents") => unsupported(),
        query if query.contains("continue") => respond(200, &page(&["b"], ""), limit),
        _ => respond(200, &page(&["a"], "next"), usize::MAX),
    }
}

#[tokio::test]
async fn a_page_that_is_too_large_is_read_again_in_smaller_pages() {
    let (api, lines) = server(too_large);
    assert_eq!(first_list(&api).await, ["a", "b"]);
    assert_eq!(lines.lock().unwrap().len(), 5);
    let (api, lines) = server(too_large);
    let and_one = |mut names: Vec<_>, map: ConfigMap| {
        names.extend(map.metadata.name);
        names
    };
    let folded = fold(Operation::Count, &api, ListParams::default(), Vec::new(), and_one);
    assert_eq!(folded.await.unwrap(), ["a", "b"]);
    assert_smaller_last_page(&lines);
}

fn assert_smaller_last_page(lines: &Lines) {
    let lines = lines.lock().unwrap();
    assert!(
        lines.len() == 3 && lines[2].contains("limit=8&continue=next"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_page_of_metadata_that_is_too_large_is_read_again_in_smaller_pages() {
    let (api, lines) = server(too_large);
    let and_one = |mut names: Vec<_>, map: PartialObjectMeta<ConfigMap>| {
        names.extend(map.metadata.name);
        names
    };
    let folded = fold_metadata(Operation::Count, &api, Vec::new(), and_one);
    assert_eq!(folded.await.unwrap(), ["a", "b"]);
    assert!(lines.lock().unwrap()[0].contains("limit=500"));
    assert_smaller_last_page(&lines);
}

#[tokio::test]
async fn a_page_that_is_always_too_large_is_an_error() {
    let (api, _) = server(|_| respond(200, &page(&["a"], ""), 10));
    let folded = fold(Operation::Count, &api, ListParams::default(), (), |(), _| ());
    assert!(folded.await.is_err());
}
