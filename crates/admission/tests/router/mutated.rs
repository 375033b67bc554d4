//! Real reviews, recorded from an API server with Tekton and changed at random: whatever comes, the answer is well-formed, and
//! what it patches is as readable afterwards as it was before.
//!
//! The number of cases and the seed come from `PROPTEST_CASES` and `PROPTEST_RNG_SEED`; the seed is printed with a failure.

use crate::edge::{PODS, RUNS, patch_in, post, runtime, send};
use crate::mutation::{Change, changed, changes, noise, noisy};
use crate::tally::tally;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};

/// A review as it came, and the route that it is for.
#[derive(Clone)]
struct Recorded {
    path: &'static str,
    text: &'static str,
}

/// Without the text, which hides what was done to it.
impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let review = self.review();
        write!(f, "{} {}", self.path, review["request"]["object"]["metadata"])
    }
}

impl Recorded {
    fn review(&self) -> Value {
        serde_json::from_str(self.text).unwrap()
    }
}

const RECORDED: [Recorded; 7] = [
    run(include_str!("recorded/run.json")),
    run(include_str!("recorded/run-v1beta1.json")),
    run(include_str!("recorded/run-with-claim.json")),
    pod(include_str!("recorded/pod.json")),
    pod(include_str!("recorded/pod-with-claim.json")),
    pod(include_str!("recorded/assistant.json")),
    pod(include_str!("recorded/placeholder.json")),
];

const fn run(text: &'static str) -> Recorded {
    Recorded { path: RUNS, text }
}

const fn pod(text: &'static str) -> Recorded {
    Recorded { path: PODS, text }
}

fn recorded() -> impl Strategy<Value = Recorded> {
    select(RECORDED.to_vec())
}

/// In a debug build some hundred cases a second.
fn cases(usually: u32) -> Config {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = usually;
    }
    let seed = match config.rng_seed {
        RngSeed::Fixed(seed) => seed,
        RngSeed::Random => RandomState::new().hash_one(config.cases),
    };
    config.rng_seed = RngSeed::Fixed(seed);
    eprintln!(
        "to repeat it: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={}",
        config.cases
    );
    config
}

/// What the API server reads of a PipelineRun's metadata, and what Tekton does of its status.
#[derive(Deserialize)]
struct Run {
    #[serde(rename = "metadata")]
    _metadata: Metadata,
    #[serde(rename = "spec")]
    _spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "labels")]
    _labels: Option<BTreeMap<String, String>>,
    #[serde(rename = "annotations")]
    _annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(rename = "status")]
    _status: Option<String>,
}

fn is_readable(path: &str, object: &Value) -> bool {
    match path {
        RUNS => Run::deserialize(object).is_ok(),
        _ => Pod::deserialize(object).is_ok(),
    }
}

fn answered(path: &str, body: Vec<u8>) -> (bool, Value) {
    let (status, answer) = runtime().block_on(send(post(path, body)));
    assert!(
        status.is_success() || status.is_client_error(),
        "{status}: {answer}"
    );
    (status.is_success(), answer)
}

/// What an answer to a review hangs on. The rest need not even be readable.
#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    request: SentRequest<'a>,
}

#[derive(Deserialize)]
struct SentRequest<'a> {
    uid: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
}

/// What must hold whatever was sent. Returns what became of it.
fn check(path: &str, body: &[u8]) -> &'static str {
    let (is_review, answer) = answered(path, body.to_vec());
    if is_review {
        check_review(path, &serde_json::from_slice(body).unwrap(), &answer)
    } else {
        assert_eq!(answer["kind"], "Status", "{answer}");
        assert!(
            answer["message"]
                .as_str()
                .is_some_and(|message| !message.is_empty()),
            "{answer}"
        );
        "rejected"
    }
}

fn check_review(path: &str, sent: &Sent<'_>, answer: &Value) -> &'static str {
    assert_eq!(
        (answer["apiVersion"].as_str(), answer["kind"].as_str()),
        (Some("admission.k8s.io/v1"), Some("AdmissionReview"))
    );
    let response = &answer["response"];
    assert_eq!(response["uid"], sent.request.uid.as_str());
    assert!(response["allowed"].is_boolean(), "{answer}");
    assert!(response["warnings"].is_null(), "a fault of ours: {answer}");
    if response["allowed"] == true && !response["patch"].is_null() {
        let object = sent.request.object.map_or("null", RawValue::get);
        // The webhook does not decode fields that no rule reads, so such a field may be malformed.
        if let Ok(object) = serde_json::from_str(object) {
            check_patch(path, object, response);
        }
        "patched"
    } else {
        assert!(response["patch"].is_null(), "{answer}");
        "unpatched"
    }
}

fn check_patch(path: &str, mut object: Value, response: &Value) {
    let was_readable = is_readable(path, &object);
    json_patch::patch(&mut object, &patch_in(response)).unwrap();
    assert!(is_readable(path, &object) || !was_readable, "{object}");
}

/// The review after changes of its object, most of the time; else of anything in it.
fn changed_review(review: &Value, changes: &[Change], anywhere: bool) -> Value {
    let mut review = review.clone();
    if anywhere {
        return changed(review, changes);
    }
    let object = review["request"]["object"].take();
    review["request"]["object"] = changed(object, changes);
    review
}

#[test]
fn each_recorded_review_except_that_of_a_placeholder_is_answered_with_a_patch() {
    for recorded in RECORDED {
        let (is_review, answer) = answered(recorded.path, recorded.text.into());
        assert!(is_review, "{answer}");
        let is_placeholder = recorded
            .text
            .contains("\"app.kubernetes.io/component\": \"placeholder\"");
        assert_eq!(answer["response"]["patch"].is_null(), is_placeholder, "{answer}");
        check(recorded.path, recorded.text.as_bytes());
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn a_recorded_review_with_a_changed_structure_gets_a_valid_answer(
        recorded in recorded(), changes in changes(), anywhere in prop::bool::weighted(0.2),
        met in tally(&[("patched", 300), ("unpatched", 100), ("rejected", 10)]),
    ) {
        let review = changed_review(&recorded.review(), &changes, anywhere);
        met.count(check(recorded.path, review.to_string().as_bytes()));
    }

    #[test]
    fn a_recorded_review_with_changed_bytes_gets_a_valid_answer(
        recorded in recorded(), noise in noise(), met in tally(&[("patched", 10), ("unpatched", 1), ("rejected", 300)]),
    ) {
        met.count(check(recorded.path, &noisy(recorded.text.into(), &noise)));
    }
}
