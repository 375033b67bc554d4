//! Any bytes get a valid HTTP answer, and any review a well-formed one with the same uid and a patch that applies.

use crate::edge::{PODS, RUNS, ask, patch_in, post, review, runtime, send};
use crate::mutation::key;
use crate::tally::tally;
use http::StatusCode;
use placement::keys;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn answered(path: &'static str, body: Vec<u8>) -> (StatusCode, Value) {
    runtime().block_on(send(post(path, body)))
}

fn path() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(RUNS), Just(PODS)]
}

fn leaf() -> impl Strategy<Value = Value> {
    let words = [
        "",
        "true",
        "false",
        "isolateAlways",
        "cluster-all",
        "PipelineRun",
        keys::PENDING,
        "cpu=4",
    ];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ]
}

fn tree() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            3 => prop::collection::vec((key(), inner), 0..6)
                .prop_map(|pairs| Value::from(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A tree, or a real-looking object with trees in the places that the rules read.
fn object() -> impl Strategy<Value = Value> {
    let labels = [
        json!({keys::OPT_IN: "true"}),
        json!({keys::OPT_IN: "sometimes"}),
        json!({keys::GROUP: "u1"}),
    ];
    let labels = prop_oneof![tree(), prop::sample::select(labels.to_vec())];
    let shaped = (labels, tree(), tree()).prop_map(|(labels, annotations, spec)| {
        json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
    });
    prop_oneof![tree(), shaped]
}

/// Returns what became of it.
fn check(mut object: Value, response: &Value, uid: &str) -> &'static str {
    assert_eq!(response["uid"], uid);
    let allowed = response["allowed"].as_bool().unwrap();
    assert!(
        allowed || !response["status"]["message"].as_str().unwrap().is_empty(),
        "{response}"
    );
    assert!(response.get("warnings").is_none(), "a fault of ours: {response}");
    if response.get("patch").is_none() {
        return if allowed { "untouched" } else { "denied" };
    }
    assert!(allowed, "{response}");
    let patch = patch_in(response);
    assert!(!patch.is_empty());
    json_patch::patch(&mut object, &patch).unwrap();
    "patched"
}

proptest! {
    #[test]
    fn any_bytes_get_a_4xx_in_json(path in path(), body in prop::collection::vec(any::<u8>(), 0..512)) {
        let (status, answer) = answered(path, body);
        prop_assert!(status.is_client_error(), "{status}: {answer}");
        prop_assert!(answer["message"].is_string());
    }

    #[test]
    fn any_json_gets_an_answer_in_json(path in path(), body in tree()) {
        let (status, _) = answered(path, body.to_string().into_bytes());
        prop_assert!(status.is_client_error() || status.is_success());
    }

    #[test]
    fn a_truncated_or_changed_review_gets_an_answer_in_json(
        path in path(),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        keep in any::<bool>(),
    ) {
        let mut body = review("", "Pod", &json!({"metadata": {"labels": {"a": "b"}}})).to_string().into_bytes();
        let at = cut.index(body.len());
        body[at] = byte;
        body.truncate(if keep { body.len() } else { at });
        let (status, _) = answered(path, body);
        prop_assert!(status.is_client_error() || status.is_success());
    }

    #[test]
    fn any_object_gets_a_review_with_its_uid(
        object in object(), uid in ".{0,30}", met in tally(&[("patched", 5), ("untouched", 100), ("denied", 1)]),
    ) {
        for (path, group, kind) in [(RUNS, "tekton.dev", "PipelineRun"), (PODS, "", "Pod")] {
            let mut review = review(group, kind, &object);
            review["request"]["uid"] = Value::from(uid.as_str());
            let response = runtime().block_on(ask(path, &review));
            met.count(check(object.clone(), &response, &uid));
        }
    }

    #[test]
    fn any_operation_kind_and_resource_gets_a_review_with_its_uid(
        path in path(),
        operation in ".{0,12}",
        group in ".{0,12}",
        kind in ".{0,12}",
        object in object(),
    ) {
        let mut review = review(&group, &kind, &object);
        review["request"]["operation"] = Value::from(operation);
        let response = runtime().block_on(ask(path, &review));
        check(object, &response, "6b1f");
    }
}
