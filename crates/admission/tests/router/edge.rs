//! Drives the router as the API server would, without a socket.

use axum::Router;
use axum::body::{Body, to_bytes};
use http::{Method, Request, StatusCode, header};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const RUNS: &str = placement::keys::PIPELINE_RUN_PATH;
pub(crate) const PODS: &str = placement::keys::POD_PATH;

pub(crate) fn router() -> (Router, Registry) {
    let mut registry = Registry::default();
    let metrics = admission::Metrics::register(&mut registry);
    (admission::router(metrics), registry)
}

pub(crate) fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(body.into())
        .unwrap()
}

/// Status and JSON of the answer; fails if the answer is not JSON.
pub(crate) async fn send(request: Request<Body>) -> (StatusCode, Value) {
    let response = router().0.oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

/// The response part of the review that answers `review`.
pub(crate) async fn ask(path: &str, review: &Value) -> Value {
    let (status, answer) = send(post(path, review.to_string())).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    answer["response"].clone()
}

/// The patch of a response that has one.
pub(crate) fn patch_in(response: &Value) -> json_patch::Patch {
    assert_eq!(response["patchType"], "JSONPatch", "{response}");
    let bytes: k8s_openapi::ByteString = serde_json::from_value(response["patch"].clone()).unwrap();
    serde_json::from_slice(&bytes.0).unwrap()
}

pub(crate) fn review(group: &str, kind: &str, object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "6b1f",
            "kind": {"group": group, "version": "v1", "kind": kind},
            "resource": {"group": group, "version": "v1", "resource": "things"},
            "namespace": "ns",
            "operation": "CREATE",
            "userInfo": {"username": "someone", "groups": ["a", "b"]},
            "object": object,
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// The text of all metrics.
pub(crate) fn exposition(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// For property tests, which are no async functions.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}
