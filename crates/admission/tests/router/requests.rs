//! Requests that carry no review get a 4xx and a sentence in JSON.

use crate::edge::{PODS, RUNS, exposition, post, review, router, send};
use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use serde_json::{Value, json};
use tower::ServiceExt;

async fn refused(request: Request<Body>, status: StatusCode, part: &str) {
    let (got, answer) = send(request).await;
    assert_eq!(got, status, "{answer}");
    assert_eq!(answer["kind"], "Status");
    assert_eq!(answer["code"], status.as_u16());
    let message = answer["message"].as_str().unwrap();
    assert!(message.contains(part), "{message:?} lacks {part:?}");
}

#[tokio::test]
async fn an_unknown_path_is_a_404() {
    refused(
        post("/mutate/nodes", "{}"),
        StatusCode::NOT_FOUND,
        "nothing is served",
    )
    .await;
}

#[tokio::test]
async fn another_method_is_a_405_that_names_post() {
    for method in [Method::GET, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let request = Request::builder()
            .method(method)
            .uri(PODS)
            .body(Body::empty())
            .unwrap();
        refused(request, StatusCode::METHOD_NOT_ALLOWED, "POST").await;
    }
}

#[tokio::test]
async fn another_content_type_is_a_415() {
    let request = Request::builder()
        .method(Method::POST)
        .uri(PODS)
        .body(Body::from("{}"))
        .unwrap();
    refused(request, StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json").await;
}

#[tokio::test]
async fn an_empty_body_is_a_400() {
    refused(post(RUNS, Body::empty()), StatusCode::BAD_REQUEST, "empty").await;
}

#[tokio::test]
async fn malformed_json_is_a_400_that_names_the_line() {
    for body in [
        "{",
        "nonsense",
        "[]",
        "null",
        "\"\"",
        "{}{}",
        "{\"request\": 1}",
        "\u{feff}{}",
    ] {
        let (status, answer) = send(post(PODS, body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
    }
    refused(post(PODS, "{\n\"kind\": }"), StatusCode::BAD_REQUEST, "line 2").await;
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_a_400() {
    let mut body = review("", "Pod", &json!({"a": "?"})).to_string().into_bytes();
    let at = body.iter().position(|byte| *byte == b'?').unwrap();
    body[at] = 0xff;
    refused(
        post(PODS, body),
        StatusCode::BAD_REQUEST,
        "not an AdmissionReview",
    )
    .await;
}

#[tokio::test]
async fn another_kind_or_version_is_a_400_that_names_the_kind_or_version() {
    let body = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": null});
    refused(
        post(RUNS, body.to_string()),
        StatusCode::BAD_REQUEST,
        "admission.k8s.io/v1beta1",
    )
    .await;
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}});
    refused(post(RUNS, body.to_string()), StatusCode::BAD_REQUEST, "\"Pod\"").await;
}

#[tokio::test]
async fn a_review_without_a_request_is_a_400() {
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
    refused(
        post(RUNS, body.to_string()),
        StatusCode::BAD_REQUEST,
        "no request",
    )
    .await;
}

#[tokio::test]
async fn a_request_without_a_uid_is_a_400() {
    let mut body = review("", "Pod", &json!({}));
    body["request"].as_object_mut().unwrap().remove("uid");
    refused(post(PODS, body.to_string()), StatusCode::BAD_REQUEST, "uid").await;
}

#[tokio::test]
async fn a_uid_that_the_response_cannot_repeat_is_a_400() {
    let mut body = review("", "Pod", &json!({}));
    body["request"]["uid"] = "u".repeat(129).into();
    refused(
        post(PODS, body.to_string()),
        StatusCode::BAD_REQUEST,
        "over 128 bytes",
    )
    .await;
}

#[tokio::test]
async fn a_duplicate_key_of_the_review_is_a_400() {
    let body = review("", "Pod", &json!({}))
        .to_string()
        .replacen('{', "{\"kind\":\"AdmissionReview\",", 1);
    refused(post(PODS, body), StatusCode::BAD_REQUEST, "duplicate").await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_a_413() {
    let body = format!("\"{}\"", "x".repeat(4 << 20));
    refused(post(PODS, body), StatusCode::PAYLOAD_TOO_LARGE, "4194304 bytes").await;
}

#[tokio::test]
async fn an_object_of_the_maximum_size_of_the_api_server_is_accepted() {
    let object = json!({"metadata": {"name": "big"}, "data": "x".repeat(3 << 20)});
    let (status, answer) = send(post(PODS, review("", "Pod", &object).to_string())).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Prometheus sees no increase in a series that begins with 1, and the alert on a fault would not fire.
#[test]
fn each_webhook_reports_zero_faults_before_the_first_request() {
    let text = exposition(&router().1);
    let update = r#"{webhook="pipelinerun",operation="UPDATE",verdict="failed"} 0"#;
    assert!(text.contains(update), "{text}");
    for webhook in ["pipelinerun", "pod"] {
        let labels = format!(r#"{{webhook="{webhook}""#);
        for line in [
            format!(r#"admissions_total{labels},operation="CREATE",verdict="failed"}} 0"#),
            format!("admission_seconds_count{labels}}} 0"),
        ] {
            assert!(text.contains(&line), "{line} is not in {text}");
        }
    }
}

#[tokio::test]
async fn each_answer_is_counted_for_its_webhook() {
    let (router, registry) = router();
    for body in ["{", &review("", "Pod", &Value::Null).to_string()] {
        router.clone().oneshot(post(PODS, body.to_owned())).await.unwrap();
    }
    let text = exposition(&registry);
    for line in [
        r#"admissions_total{webhook="pod",operation="none",verdict="malformed"} 1"#,
        r#"admissions_total{webhook="pod",operation="CREATE",verdict="malformed"} 1"#,
        r#"admission_seconds_count{webhook="pod"} 2"#,
    ] {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test]
async fn a_405_has_the_allow_header() {
    let request = Request::builder()
        .method(Method::GET)
        .uri(PODS)
        .body(Body::empty())
        .unwrap();
    let response = router().0.oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::ALLOW], "POST");
}
