//! Whoever sends a review gets a well-formed one back, with the uid that was sent.

use crate::edge::{PODS, RUNS, ask, patch_in, post, review, send};
use placement::keys::BY_NAMESPACE_PATH as BY_NAMESPACE;
use serde_json::{Value, json};

fn held(label: &str) -> Value {
    json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"generateName": "build-", "namespace": "ns", "labels": {placement::keys::OPT_IN: label}},
        "spec": {"pipelineRef": {"name": "build"}},
    })
}

fn unpatched() -> Value {
    json!({"uid": "6b1f", "allowed": true})
}

#[tokio::test]
async fn a_labelled_run_is_held() {
    let mut run = held("true");
    let response = ask(RUNS, &review("tekton.dev", "PipelineRun", &run)).await;
    assert_eq!(response["allowed"], true);
    json_patch::patch(&mut run, &patch_in(&response)).unwrap();
    assert_eq!(run["spec"]["status"], placement::keys::PENDING);
    assert!(
        run["metadata"]["annotations"]
            .get(placement::keys::HOLD)
            .is_some(),
        "{run}"
    );
}

/// The same, without a label.
fn unlabelled() -> Value {
    let mut run = held("");
    run["metadata"].as_object_mut().unwrap().remove("labels");
    run
}

#[tokio::test]
async fn a_run_in_a_labelled_namespace_gets_the_label_value_of_the_path() {
    let paths = [
        ("true", "true"),
        ("colocate-always", "colocateAlways"),
        ("colocate-completed", "colocateCompleted"),
        ("isolate-always", "isolateAlways"),
    ];
    for (path, value) in paths {
        let mut run = unlabelled();
        let path = format!("{BY_NAMESPACE}/{path}");
        let response = ask(&path, &review("tekton.dev", "PipelineRun", &run)).await;
        json_patch::patch(&mut run, &patch_in(&response)).unwrap();
        assert_eq!(run["spec"]["status"], placement::keys::PENDING);
        assert_eq!(run["metadata"]["labels"], json!({placement::keys::OPT_IN: value}));
    }
}

#[tokio::test]
async fn a_run_in_a_namespace_with_an_unknown_label_value_is_admitted_with_a_warning() {
    let path = format!("{BY_NAMESPACE}/unknown");
    let response = ask(&path, &review("tekton.dev", "PipelineRun", &unlabelled())).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patch"], Value::Null);
    let [warning] = response["warnings"].as_array().unwrap().as_slice() else {
        panic!("{response}")
    };
    assert!(
        warning.as_str().unwrap().starts_with("Namespace ns: "),
        "{warning}"
    );
}

#[tokio::test]
async fn other_label_values_of_a_namespace_have_no_path() {
    for value in ["", "false", "True", "nonsense"] {
        let review = review("tekton.dev", "PipelineRun", &unlabelled());
        let request = post(&format!("{BY_NAMESPACE}/{value}"), review.to_string());
        assert_eq!(send(request).await.0, 404, "{value}");
    }
}

/// A review of the change by which its user releases a run.
fn release() -> Value {
    let mut old = held("true");
    old["spec"]["status"] = placement::keys::PENDING.into();
    let mut review = review("tekton.dev", "PipelineRun", &held("true"));
    review["request"]["operation"] = "UPDATE".into();
    review["request"]["oldObject"] = old;
    review
}

#[tokio::test]
async fn a_run_that_its_user_releases_is_held() {
    let mut run = held("true");
    let response = ask(RUNS, &release()).await;
    assert_eq!(response["allowed"], true);
    json_patch::patch(&mut run, &patch_in(&response)).unwrap();
    assert_eq!(run["spec"]["status"], placement::keys::PENDING);
}

#[tokio::test]
async fn a_change_whose_objects_are_missing_or_unreadable_is_admitted_unpatched() {
    for member in ["object", "oldObject"] {
        let mut missing = release();
        missing["request"][member] = Value::Null;
        assert_eq!(ask(RUNS, &missing).await, unpatched(), "{member}");
        let mut odd = release();
        odd["request"][member] = json!(["not an object"]);
        assert_eq!(ask(RUNS, &odd).await, unpatched(), "{member}");
    }
}

#[tokio::test]
async fn a_change_of_a_pod_or_of_a_run_without_the_label_is_admitted_unpatched() {
    let by_namespace = format!("{BY_NAMESPACE}/true");
    for (path, group, kind, object) in [
        (PODS, "", "Pod", enrolled_pod()),
        (&by_namespace, "tekton.dev", "PipelineRun", unlabelled()),
    ] {
        let mut review = review(group, kind, &object);
        assert_ne!(ask(path, &review).await, unpatched(), "{kind} is created");
        review["request"]["operation"] = "UPDATE".into();
        review["request"]["oldObject"] = object;
        assert_eq!(ask(path, &review).await, unpatched(), "{kind} is changed");
    }
}

#[tokio::test]
async fn a_run_with_an_unknown_label_value_is_denied_with_a_message_and_the_uid() {
    let response = ask(RUNS, &review("tekton.dev", "PipelineRun", &held("sometimes"))).await;
    assert_eq!(response["uid"], "6b1f");
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 400);
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("sometimes") && message.contains("isolateAlways"),
        "{message}"
    );
}

fn enrolled_pod() -> Value {
    let labels = json!({
        placement::keys::GROUP: "9c2e", placement::keys::STRATEGY: "colocateCompleted",
        placement::keys::ISOLATION: "cluster-all", "tekton.dev/pipelineRun": "build-x",
    });
    json!({"metadata": {"name": "p", "labels": labels}, "spec": {"containers": []}})
}

#[tokio::test]
async fn a_pod_of_an_enrolled_run_gets_terms() {
    let mut pod = enrolled_pod();
    let response = ask(PODS, &review("", "Pod", &pod)).await;
    json_patch::patch(&mut pod, &patch_in(&response)).unwrap();
    assert!(pod["spec"]["affinity"]["podAffinity"].is_object(), "{pod}");
    assert!(pod["spec"]["affinity"]["podAntiAffinity"].is_object(), "{pod}");
}

#[tokio::test]
async fn other_operations_are_admitted_unpatched() {
    for operation in ["UPDATE", "DELETE", "CONNECT", "FROBNICATE", ""] {
        let mut review = review("tekton.dev", "PipelineRun", &held("true"));
        review["request"]["operation"] = operation.into();
        assert_eq!(ask(RUNS, &review).await, unpatched(), "{operation}");
    }
}

#[tokio::test]
async fn other_kinds_and_subresources_are_admitted_unpatched() {
    let (run, pod) = (held("true"), enrolled_pod());
    for (path, group, kind, object) in [
        (RUNS, "", "Pod", &run),
        (RUNS, "", "PipelineRun", &run),
        (RUNS, "other.dev", "PipelineRun", &run),
        (RUNS, "tekton.dev", "TaskRun", &run),
        (PODS, "tekton.dev", "PipelineRun", &pod),
        (PODS, "other.dev", "Pod", &pod),
        (PODS, "", "PodTemplate", &pod),
    ] {
        let response = ask(path, &review(group, kind, object)).await;
        assert_eq!(response, unpatched(), "{path}: {kind} of {group:?}");
    }
    for (path, group, kind, object) in [(RUNS, "tekton.dev", "PipelineRun", &run), (PODS, "", "Pod", &pod)] {
        let mut review = review(group, kind, object);
        review["request"]["subResource"] = "status".into();
        assert_eq!(ask(path, &review).await, unpatched(), "{kind}/status");
    }
}

#[tokio::test]
async fn a_creation_without_an_object_is_denied_with_the_uid() {
    for absent in [true, false] {
        let mut review = review("", "Pod", &Value::Null);
        if absent {
            review["request"].as_object_mut().unwrap().remove("object");
        }
        let response = ask(PODS, &review).await;
        assert_eq!(
            (response["uid"].as_str(), response["allowed"].as_bool()),
            (Some("6b1f"), Some(false))
        );
        assert!(
            response["status"]["message"]
                .as_str()
                .unwrap()
                .contains("no object"),
            "{response}"
        );
    }
}

#[tokio::test]
async fn an_affinity_nested_too_deep_is_denied_with_the_uid() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let pod = json!({"spec": {"affinity": {"podAffinity": "DEEP"}}});
    let text = review("", "Pod", &pod).to_string().replace("\"DEEP\"", &deep);
    let (_, answer) = crate::edge::send(crate::edge::post(PODS, text)).await;
    assert_eq!(answer["response"]["uid"], "6b1f");
    assert_eq!(answer["response"]["allowed"], false);
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(message.contains("recursion limit"), "{message}");
}

#[tokio::test]
async fn deep_nesting_outside_the_object_is_ignored() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = review("", "Node", &json!({})).to_string().replace("null", &deep);
    let (_, answer) = crate::edge::send(crate::edge::post(PODS, text)).await;
    assert_eq!(answer["response"], unpatched());
}

#[tokio::test]
async fn any_uid_is_returned_unchanged() {
    for uid in ["", "\u{1f98a}\"\\\n\u{0}", &"u".repeat(128)] {
        let mut review = review("", "Pod", &json!({}));
        review["request"]["uid"] = uid.into();
        assert_eq!(ask(PODS, &review).await["uid"], uid);
    }
}

#[tokio::test]
async fn malformed_objects_get_an_answer_with_the_uid() {
    for object in [
        json!([]),
        json!(1),
        json!("x"),
        json!({"metadata": []}),
        json!({"metadata": {"labels": 3}}),
    ] {
        for (path, group, kind) in [(RUNS, "tekton.dev", "PipelineRun"), (PODS, "", "Pod")] {
            assert_eq!(
                ask(path, &review(group, kind, &object)).await["uid"],
                "6b1f",
                "{object}"
            );
        }
    }
}
