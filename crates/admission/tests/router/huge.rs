//! Objects that are much larger than usual, but not malformed.

use crate::edge::{PODS, RUNS, ask, exposition, patch_in, post, review, router, send};
use http::StatusCode;
use placement::keys;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use tower::ServiceExt;

/// Far below the ten seconds for which the API server waits; a debug build takes many times as long as the one that ships.
const SECONDS: i64 = 3;

/// The CPU time of this thread, which does not depend on other tests.
fn seconds_used() -> i64 {
    clock_gettime(ClockId::ThreadCPUTime).tv_sec
}

fn labels(more: impl Iterator<Item = (String, String)>) -> Value {
    let own = [
        (keys::OPT_IN, "true"),
        (keys::GROUP, "9c2e"),
        (keys::STRATEGY, "colocateCompleted"),
        (keys::ISOLATION, "cluster-all"),
    ];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let all: Map<_, _> = more.chain(own).map(|(key, value)| (key, json!(value))).collect();
    Value::Object(all)
}

fn pod(labels: &Value) -> Value {
    json!({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": []}})
}

fn run(labels: &Value) -> Value {
    json!({"metadata": {"name": "r", "labels": labels}, "spec": {"pipelineRef": {"name": "p"}}})
}

/// The object as it is after our patch.
async fn patched(path: &str, mut object: Value) -> Value {
    let (group, kind) = if path == RUNS {
        ("tekton.dev", "PipelineRun")
    } else {
        ("", "Pod")
    };
    let begun = seconds_used();
    let response = ask(path, &review(group, kind, &object)).await;
    assert!(seconds_used() - begun < SECONDS);
    json_patch::patch(&mut object, &patch_in(&response)).unwrap();
    object
}

async fn is_held_and_is_placed(labels: &Value) {
    let run = patched(RUNS, run(labels)).await;
    assert_eq!(run["spec"]["status"], keys::PENDING);
    assert!(run["metadata"]["labels"][keys::GROUP].is_null());
    let pod = patched(PODS, pod(labels)).await;
    assert!(pod["spec"]["affinity"]["podAntiAffinity"].is_object());
}

#[tokio::test]
async fn an_object_with_ten_thousand_labels_is_patched() {
    is_held_and_is_placed(&labels(
        (0..10_000).map(|n| (format!("example.com/label-{n}"), "v".repeat(63))),
    ))
    .await;
}

#[tokio::test]
async fn an_object_with_long_labels_in_any_script_is_patched() {
    let long = ("a".repeat(253) + "/" + &"b".repeat(63), "c".repeat(63));
    let foreign = (
        "\u{65e5}\u{672c}/~1\u{1f98a}".to_owned(),
        "\u{202e}\u{0}".to_owned(),
    );
    is_held_and_is_placed(&labels([long, foreign].into_iter())).await;
}

fn pod_with_terms(terms: usize) -> Value {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}});
    let mut pod = pod(&labels(std::iter::empty()));
    pod["spec"]["affinity"] =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": vec![term; terms]}});
    pod
}

#[tokio::test]
async fn a_hundred_terms_of_a_pod_are_kept() {
    let patched = patched(PODS, pod_with_terms(100)).await;
    let terms = &patched["spec"]["affinity"]["podAffinity"];
    let count = |kind: &str| terms[kind].as_array().map(Vec::len);
    assert_eq!(count("requiredDuringSchedulingIgnoredDuringExecution"), Some(1));
    assert_eq!(
        count("preferredDuringSchedulingIgnoredDuringExecution"),
        Some(100)
    );
}

#[tokio::test]
async fn a_pod_with_more_than_a_hundred_terms_is_admitted_unchanged_with_a_warning() {
    let (router, registry) = router();
    let review = review("", "Pod", &pod_with_terms(101)).to_string();
    let response = router.oneshot(post(PODS, review.clone())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let (_, answer) = send(post(PODS, review)).await;
    let response = &answer["response"];
    assert!(
        response["allowed"] == true && response["patch"].is_null(),
        "{response}"
    );
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(warning.contains("the field podAffinity"), "{warning}");
    let text = exposition(&registry);
    let line = r#"admission_fields_over_limit_total{webhook="pod"} 1"#;
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn a_run_with_too_many_task_run_specs_is_held_with_a_warning() {
    let mut run = run(&labels(std::iter::empty()));
    run["spec"]["taskRunSpecs"] = json!(vec![json!({"pipelineTaskName": "t"}); 101]);
    let response = ask(RUNS, &review("tekton.dev", "PipelineRun", &run)).await;
    json_patch::patch(&mut run, &patch_in(&response)).unwrap();
    assert_eq!(run["spec"]["status"], keys::PENDING);
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(warning.contains("the field taskRunSpecs"), "{warning}");
}

#[tokio::test]
async fn the_run_that_owns_another_run_is_found_among_any_number_of_owners() {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "n", "uid": "u"});
    let mut owners = vec![owner; 20_000];
    owners.push(json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "controller": true}));
    let mut child = run(&labels(std::iter::empty()));
    child["metadata"]["ownerReferences"] = json!(owners);
    let response = ask(RUNS, &review("tekton.dev", "PipelineRun", &child)).await;
    assert!(
        response["patch"].is_null() && response["warnings"].is_null(),
        "{response}"
    );
}

#[tokio::test]
async fn a_run_and_a_pod_of_three_megabytes_are_patched() {
    let mut big = run(&labels(std::iter::empty()));
    big["spec"]["params"] = json!([{"name": "big", "value": "x".repeat(3 << 20)}]);
    assert_eq!(patched(RUNS, big).await["spec"]["status"], keys::PENDING);
    let mut big = pod(&labels(std::iter::empty()));
    big["spec"]["containers"] = json!([{"name": "big", "args": vec!["x"; 750_000]}]);
    assert!(patched(PODS, big).await["spec"]["affinity"].is_object());
}

/// A body without a Content-Length gets the same response as a body with one.
#[tokio::test]
async fn a_streamed_body_of_many_megabytes_is_a_413() {
    for megabytes in [5, 64] {
        let piece = axum::body::Bytes::from(vec![b' '; 1 << 20]);
        let pieces = (0..megabytes).map(move |_| Ok::<_, std::io::Error>(piece.clone()));
        let body = axum::body::Body::from_stream(futures::stream::iter(pieces));
        let (status, answer) = send(post(PODS, body)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
    }
}

/// As for the API server, whose own decoder takes the last one too.
#[tokio::test]
async fn the_last_of_two_labels_with_the_same_key_counts() {
    let twice = |first: &str, second: &str| {
        let run = run(&json!({keys::OPT_IN: first})).to_string();
        let (key, value) = (json!(keys::OPT_IN), json!(first));
        let run = run.replace(
            &format!("{key}:{value}"),
            &format!("{key}:{value},{key}:{}", json!(second)),
        );
        review("tekton.dev", "PipelineRun", &json!("OBJECT"))
            .to_string()
            .replace("\"OBJECT\"", &run)
    };
    let (_, answer) = send(post(RUNS, twice("false", "true"))).await;
    assert!(answer["response"]["patch"].is_string(), "{answer}");
    let (_, answer) = send(post(RUNS, twice("true", "false"))).await;
    assert!(
        answer["response"]["patch"].is_null() && answer["response"]["allowed"] == true,
        "{answer}"
    );
}

/// In fields that a rule reads, and in fields that no rule reads. Only a value of any form has a limit on its depth.
#[tokio::test]
async fn a_review_with_thousands_of_nested_levels_in_any_field_gets_a_valid_answer() {
    let deep = "{\"a\":".repeat(5_000) + "1" + &"}".repeat(5_000);
    let places = [
        "/metadata/labels",
        "/metadata/annotations",
        "/spec/affinity",
        "/spec/affinity/podAffinity",
        "/spec/x",
        "/metadata",
    ];
    for place in places {
        for (path, group, kind) in [(RUNS, "tekton.dev", "PipelineRun"), (PODS, "", "Pod")] {
            let mut object = json!({
                "metadata": {"labels": {}, "annotations": {}}, "spec": {"affinity": {"podAffinity": {}}, "x": {}}
            });
            *object.pointer_mut(place).unwrap() = json!("DEEP");
            let body = review(group, kind, &object)
                .to_string()
                .replace("\"DEEP\"", &deep);
            let (status, answer) = send(post(path, body)).await;
            assert_eq!(status, StatusCode::OK, "{answer}");
            assert_eq!(answer["response"]["uid"], "6b1f");
            let is_kept = path == PODS && place == "/spec/affinity/podAffinity";
            assert_eq!(answer["response"]["allowed"], !is_kept, "{place}: {answer}");
        }
    }
}
