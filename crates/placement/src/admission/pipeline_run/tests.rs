//! The rules of the PipelineRun webhook, with a test for each. `properties` has what holds for any document.

use super::*;
use crate::admission::pod::REQUIRED;
use serde_json::json;

mod properties;

mod by_namespace;

/// An opted-in run as a user writes it. The methods below change it.
struct Doc(Value);

fn run() -> Doc {
    Doc(json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"namespace": "ns", "generateName": "build-", "labels": {keys::OPT_IN: "true"}},
        "spec": {"pipelineRef": {"name": "build"}}
    }))
}

impl Doc {
    fn set(mut self, path: &[&str], value: impl Into<Value>) -> Self {
        let leaf = path.iter().fold(&mut self.0, |at, key| &mut at[*key]);
        *leaf = value.into();
        self
    }

    fn opt_in(self, value: &str) -> Self {
        self.label(keys::OPT_IN, value)
    }

    fn label(self, key: &str, value: &str) -> Self {
        self.set(&["metadata", "labels", key], value)
    }

    fn annotation(self, key: &str, value: &str) -> Self {
        self.set(&["metadata", "annotations", key], value)
    }

    fn status(self, value: &str) -> Self {
        self.set(&["spec", "status"], value)
    }

    fn owned_by(self, api_version: &str, kind: &str, controller: bool) -> Self {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": controller});
        self.set(&["metadata", "ownerReferences"], json!([owner]))
    }

    fn copied_from_an_enrolled_run(self) -> Self {
        self.label(keys::GROUP, "old-uid")
            .label(keys::STRATEGY, "isolateAlways")
            .label(keys::ISOLATION, "cluster-all")
            .annotation(keys::NODE, "old-node")
            .annotation(keys::KEPT_UNTIL, "2026-11-22T04:17:42Z")
            .annotation(keys::OPTED_IN_BY, keys::BY_NAMESPACE)
    }

    fn outcome(&self) -> Outcome {
        allowed(&self.0).1
    }

    fn patch(&self) -> Value {
        serde_json::to_value(allowed(&self.0).0).unwrap()
    }

    fn admitted(mut self) -> Value {
        let (patch, _) = allowed(&self.0);
        json_patch::patch(&mut self.0, &patch).unwrap();
        self.0
    }

    fn rejection(&self) -> String {
        rejected(admit(&self.0))
    }
}

fn allowed(object: &Value) -> (Patch, Outcome) {
    patched(admit(object))
}

fn patched(verdict: Verdict) -> (Patch, Outcome) {
    match verdict {
        Verdict::Allow { patch, outcome } => (patch, outcome),
        Verdict::Warn { warning, .. } => panic!("{warning}"),
        Verdict::Deny { message, .. } => panic!("{message}"),
    }
}

fn rejected(verdict: Verdict) -> String {
    match verdict {
        Verdict::Deny { message, outcome } => {
            assert_eq!(outcome, Outcome::Denied);
            message
        }
        Verdict::Allow { outcome, .. } | Verdict::Warn { outcome, .. } => panic!("{outcome:?}"),
    }
}

#[test]
fn a_labelled_run_is_held_and_gets_the_hold_annotation() {
    assert_eq!(run().outcome(), Outcome::Held);
    insta::assert_json_snapshot!("held", run().patch());
}

#[test]
fn all_label_values_that_opt_in_cause_the_same_hold() {
    for value in ["true", "", "colocateAlways", "colocateCompleted", "isolateAlways"] {
        assert_eq!(run().opt_in(value).patch(), run().patch(), "{value}");
    }
}

#[test]
fn a_held_run_keeps_its_own_annotations() {
    let doc = run().annotation("team", "blue");
    insta::assert_json_snapshot!("held_beside_other_annotations", doc.patch());
    assert_eq!(
        doc.admitted()["metadata"]["annotations"],
        json!({"team": "blue", keys::HOLD: "true"})
    );
}

#[test]
fn a_run_with_an_empty_or_null_status_is_held() {
    assert_eq!(run().status("").admitted(), run().admitted());
    assert_eq!(
        run().set(&["spec", "status"], Value::Null).admitted(),
        run().admitted()
    );
}

#[test]
fn null_annotations_are_replaced() {
    let doc = run().set(&["metadata", "annotations"], Value::Null);
    assert_eq!(doc.admitted(), run().admitted());
}

#[test]
fn a_v1beta1_run_is_held_like_a_v1_run() {
    let old = run()
        .set(&["apiVersion"], "tekton.dev/v1beta1")
        .set(&["spec", "podTemplate"], json!({"nodeSelector": {"disk": "ssd"}}))
        .set(&["spec", "serviceAccountName"], "builder");
    assert_eq!(old.patch(), run().patch());
}

#[test]
fn a_run_that_its_user_created_as_pending_is_admitted_unchanged() {
    let doc = run().status("PipelineRunPending");
    assert_eq!(doc.outcome(), Outcome::LeftHeldByOther);
    assert_eq!(doc.patch(), json!([]));
}

#[test]
fn a_run_with_any_other_status_is_admitted_unchanged() {
    for status in [
        "Cancelled",
        "CancelledRunFinally",
        "StoppedRunFinally",
        "Whatever",
    ] {
        assert_eq!(run().status(status).outcome(), Outcome::LeftHeldByOther);
        assert_eq!(run().status(status).patch(), json!([]), "{status}");
    }
}

#[test]
fn a_run_in_a_queue_of_kueue_is_admitted_unchanged() {
    let doc = run().label(keys::KUEUE_QUEUE_NAME, "team-a");
    assert_eq!(doc.outcome(), Outcome::LeftHeldByOther);
    assert_eq!(doc.patch(), json!([]));
}

#[test]
fn a_copy_of_an_enrolled_run_joins_no_group() {
    let doc = run().copied_from_an_enrolled_run();
    insta::assert_json_snapshot!("copied", doc.patch());
    let admitted = doc.admitted();
    assert_eq!(admitted["metadata"]["labels"], json!({keys::OPT_IN: "true"}));
    assert_eq!(admitted["metadata"]["annotations"], json!({keys::HOLD: "true"}));
}

#[test]
fn the_keys_of_pod_affinity_are_removed_from_copies_that_are_not_held_as_well() {
    let not_held = [
        run().status("Cancelled"),
        run().opt_in("false"),
        run().label(keys::KUEUE_QUEUE_NAME, "team-a"),
        run().set(&["spec", "managedBy"], "kueue.x-k8s.io/multikueue"),
    ];
    for doc in not_held {
        let original = doc.0.clone();
        let copy = doc
            .copied_from_an_enrolled_run()
            .annotation(keys::HOLD, "true")
            .admitted();
        assert_eq!(copy["metadata"]["labels"], original["metadata"]["labels"]);
        assert_eq!(copy["metadata"]["annotations"], json!({}));
        assert_eq!(copy["spec"], original["spec"]);
    }
}

#[test]
fn a_copy_of_a_held_run_that_is_not_opted_in_keeps_the_mark_with_which_the_controller_releases_it() {
    for copy in [
        run().opt_in("false"),
        run().set(&["metadata", "labels"], json!({})),
    ] {
        let doc = copy
            .status("PipelineRunPending")
            .copied_from_an_enrolled_run()
            .annotation(keys::HOLD, "true");
        let admitted = doc.admitted();
        assert_eq!(admitted["metadata"]["annotations"], json!({keys::HOLD: "true"}));
        assert!(!admitted["metadata"]["labels"].to_string().contains(keys::GROUP));
    }
}

#[test]
fn a_copy_of_a_held_run_is_held() {
    let doc = run()
        .status("PipelineRunPending")
        .annotation(keys::HOLD, "true")
        .annotation(keys::NODE, "n");
    assert_eq!(doc.outcome(), Outcome::Held);
    let admitted = doc.admitted();
    assert_eq!(admitted["spec"]["status"], "PipelineRunPending");
    assert_eq!(admitted["metadata"]["annotations"], json!({keys::HOLD: "true"}));
}

#[test]
fn a_run_with_the_hold_annotation_and_without_pending_is_held() {
    let doc = run().annotation(keys::HOLD, "true");
    assert_eq!(
        doc.patch(),
        json!([{"op": "add", "path": "/spec/status", "value": "PipelineRunPending"}])
    );
}

#[test]
fn a_nested_run_keeps_the_group_of_its_root_and_is_not_held() {
    for version in ["tekton.dev/v1", "tekton.dev/v1beta1"] {
        let doc = run()
            .copied_from_an_enrolled_run()
            .owned_by(version, "PipelineRun", true);
        assert_eq!(doc.outcome(), Outcome::Nested);
        assert_eq!(doc.patch(), json!([]));
    }
}

#[test]
fn a_run_of_a_custom_task_is_nested_if_it_has_the_group_of_another_run() {
    let of_task =
        |version: &str, kind: &str| run().copied_from_an_enrolled_run().owned_by(version, kind, true);
    for (version, kind) in [
        ("tekton.dev/v1beta1", "CustomRun"),
        ("tekton.dev/v1alpha1", "Run"),
    ] {
        let nested = of_task(version, kind);
        assert_eq!(nested.outcome(), Outcome::Nested, "{kind}");
        let without_group = run().owned_by(version, kind, true);
        assert_eq!(without_group.outcome(), Outcome::Held, "{kind}");
    }
    let of_another_group = of_task("example.com/v1", "CustomRun");
    assert_eq!(of_another_group.outcome(), Outcome::Held);
}

#[test]
fn a_run_with_any_other_owner_is_not_nested() {
    let others = [
        run().owned_by("tekton.dev/v1", "PipelineRun", false),
        run().owned_by("example.com/v1", "PipelineRun", true),
        run().owned_by("tekton.dev/v1", "TaskRun", true),
        run().set(&["metadata", "ownerReferences"], json!([1, null, {}])),
    ];
    for doc in others {
        assert_eq!(doc.outcome(), Outcome::Held);
    }
}

#[test]
fn only_runs_that_tekton_manages_are_held() {
    let managed_by = |manager: &str| run().set(&["spec", "managedBy"], manager);
    assert_eq!(managed_by("tekton.dev/pipeline").outcome(), Outcome::Held);
    assert_eq!(
        managed_by("kueue.x-k8s.io/multikueue").outcome(),
        Outcome::ManagedElsewhere
    );
    assert_eq!(
        managed_by("kueue.x-k8s.io/multikueue").opt_in("nonsense").patch(),
        json!([])
    );
}

#[test]
fn a_run_that_is_not_opted_in_is_left_alone() {
    assert_eq!(run().opt_in("false").outcome(), Outcome::Declined);
    assert_eq!(run().opt_in("false").patch(), json!([]));
    let unlabelled = run().set(&["metadata", "labels"], json!({}));
    assert_eq!(unlabelled.outcome(), Outcome::NotOptedIn);
    assert_eq!(unlabelled.patch(), json!([]));
}

#[test]
fn the_rejection_of_an_unknown_opt_in_value_names_the_run_the_value_and_the_remedy() {
    insta::assert_snapshot!("unknown_opt_in_value", run().opt_in("isolate").rejection());
}

#[test]
fn the_rejection_of_an_invalid_reserve_names_the_run_the_value_and_the_remedy() {
    let doc = run()
        .set(&["metadata", "name"], "build-7")
        .annotation(keys::RESERVE, "cpu=4,memory=8");
    insta::assert_snapshot!("bad_reserve", doc.rejection());
}

#[test]
fn a_rejection_quotes_only_the_beginning_of_a_long_value() {
    let long = "\u{7f}".repeat(100_000);
    let named = || run().set(&["metadata", "name"], long.as_str());
    let rejected = [
        named().opt_in(&long),
        named().annotation(keys::RESERVE, &long),
        named().annotation(keys::RESERVE, &format!("cpu={long}")),
        named().annotation(keys::RESERVE, &format!("{long}=1")),
        named().annotation(keys::RESERVE, &format!("cpu=0.{}", "0".repeat(100_000))),
    ];
    for doc in rejected {
        let message = doc.rejection();
        assert!(message.len() < 5000, "{}", message.len());
    }
}

fn tied() -> Value {
    let term = json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": {"app": "cache"}}});
    json!({"podTemplate": {"affinity": {"podAffinity": {REQUIRED: [term]}}}})
}

/// A run with a required podAffinity for the pods of one task.
fn with_a_tied_task(labels: &Value) -> Doc {
    let mut task = tied();
    task["metadata"] = json!({"labels": labels});
    run().set(&["spec", "taskRunSpecs"], json!([{}, task]))
}

#[test]
fn the_rejection_of_a_required_pod_affinity_names_the_field_and_the_remedy() {
    let doc = run().set(&["spec", "taskRunTemplate"], tied());
    insta::assert_snapshot!("required_pod_affinity", doc.rejection());
    let rejection = with_a_tied_task(&json!({})).rejection();
    assert!(
        rejection.contains("spec.taskRunSpecs[1].podTemplate"),
        "{rejection}"
    );
}

#[test]
fn opted_out_tasks_and_runs_may_have_a_required_pod_affinity() {
    let apart = with_a_tied_task(&json!({keys::OPT_IN: "false"}));
    assert_eq!(apart.outcome(), Outcome::Held);
    let declined = run().set(&["spec", "taskRunTemplate"], tied()).opt_in("false");
    assert_eq!(declined.outcome(), Outcome::Declined);
    let preferred = json!({"podTemplate": {"affinity": {"podAffinity": {REQUIRED: []}}}});
    assert_eq!(
        run().set(&["spec", "taskRunTemplate"], preferred).outcome(),
        Outcome::Held
    );
}

#[test]
fn a_valid_reserve_is_kept() {
    let doc = run().annotation(keys::RESERVE, "cpu=4,memory=8Gi,nvidia.com/gpu=1");
    assert_eq!(doc.outcome(), Outcome::Held);
    assert_eq!(
        doc.admitted()["metadata"]["annotations"][keys::RESERVE],
        "cpu=4,memory=8Gi,nvidia.com/gpu=1"
    );
}

#[test]
fn the_reserve_of_a_run_that_pod_affinity_ignores_is_not_validated() {
    let bad = || run().annotation(keys::RESERVE, "nonsense");
    assert_eq!(bad().opt_in("false").outcome(), Outcome::Declined);
    assert_eq!(
        bad().set(&["spec", "managedBy"], "other").outcome(),
        Outcome::ManagedElsewhere
    );
    assert_eq!(
        bad().owned_by("tekton.dev/v1", "PipelineRun", true).outcome(),
        Outcome::Nested
    );
}

#[test]
fn the_rejection_of_a_run_without_a_name_is_readable() {
    let doc = run().set(&["metadata"], json!({"labels": {keys::OPT_IN: "x"}}));
    assert!(
        doc.rejection().starts_with("PipelineRun without a name: label "),
        "{}",
        doc.rejection()
    );
}

#[test]
fn a_malformed_run_is_left_to_the_validation_of_tekton() {
    let odd = [
        json!(null),
        json!([]),
        json!("run"),
        json!({}),
        json!({"metadata": null, "spec": {}}),
        run().set(&["spec"], Value::Null).0,
        run().set(&["spec"], json!([])).0,
        run().set(&["spec", "status"], 7).0,
        run().set(&["spec", "managedBy"], json!({})).0,
        run().set(&["metadata", "labels"], json!(["a"])).0,
        run().set(&["metadata", "annotations"], "a").0,
        run().set(&["metadata", "labels", keys::OPT_IN], true).0,
    ];
    for object in odd {
        assert_eq!(
            allowed(&object),
            (Patch::default(), Outcome::WrongType),
            "{object}"
        );
    }
}

/// A run that its user holds, and the same run when its user releases it.
fn release() -> (Doc, Doc) {
    (run().status(keys::PENDING), run())
}

fn on_change(old: &Doc, new: &Doc) -> (Patch, Outcome) {
    patched(admit_change(&old.0, &new.0))
}

fn is_untouched(old: &Doc, new: &Doc, outcome: Outcome) {
    assert_eq!(on_change(old, new), (Patch::default(), outcome), "{}", new.0);
}

#[test]
fn a_run_is_held_when_its_user_releases_it() {
    let (old, new) = release();
    let (patch, outcome) = on_change(&old, &new);
    assert_eq!(outcome, Outcome::Held);
    insta::assert_json_snapshot!("release", patch);
}

#[test]
fn a_run_is_held_when_its_status_becomes_empty_and_keeps_the_labels_of_its_group() {
    let enrolled = |doc: Doc| doc.label(keys::GROUP, "its-uid").annotation("team", "blue");
    let (old, new) = release();
    let (old, mut new) = (enrolled(old), enrolled(new.status("")));
    let (patch, _) = on_change(&old, &new);
    json_patch::patch(&mut new.0, &patch).unwrap();
    assert_eq!(
        new.0,
        enrolled(run())
            .status(keys::PENDING)
            .annotation(keys::HOLD, "released")
            .0
    );
}

#[test]
fn a_run_with_the_hold_annotation_is_not_held_again_after_its_release() {
    for mark in ["true", "2026-11-22T04:17:42Z", ""] {
        let old = run().status(keys::PENDING).annotation(keys::HOLD, mark);
        is_untouched(&old, &run().annotation(keys::HOLD, mark), Outcome::NotReleased);
        is_untouched(&old, &run(), Outcome::NotReleased);
    }
}

#[test]
fn a_change_that_releases_no_run_is_admitted_unpatched() {
    let held = || run().status(keys::PENDING);
    let changes = [
        (held(), held().label("team", "blue")),
        (held(), held().status("Cancelled")),
        (held(), held().status("StoppedRunFinally")),
        (run(), run().label("team", "blue")),
        (run(), held()),
        (run().status("Cancelled"), run()),
    ];
    for (old, new) in changes {
        is_untouched(&old, &new, Outcome::NotReleased);
    }
}

#[test]
fn only_runs_that_are_opted_in_at_their_release_are_held() {
    let new = || run().label("team", "blue");
    let table = [
        (new().opt_in("false"), Outcome::Declined),
        (new().opt_in("nonsense"), Outcome::NotOptedIn),
        (
            new().set(&["metadata", "labels", keys::OPT_IN], Value::Null),
            Outcome::NotOptedIn,
        ),
        (new().label(keys::KUEUE_QUEUE_NAME, "q"), Outcome::LeftHeldByOther),
        (
            new().set(&["spec", "managedBy"], "other"),
            Outcome::ManagedElsewhere,
        ),
        (
            new().owned_by("tekton.dev/v1", "PipelineRun", true),
            Outcome::Nested,
        ),
    ];
    for (new, outcome) in table {
        is_untouched(&release().0, &new, outcome);
    }
}

#[test]
fn a_run_with_an_invalid_reserve_is_held_at_its_release() {
    let (old, new) = release();
    let (_, outcome) = on_change(&old, &new.annotation(keys::RESERVE, "nonsense"));
    assert_eq!(outcome, Outcome::Held);
}

#[test]
fn a_change_from_or_to_a_malformed_run_is_admitted_unpatched() {
    let (old, new) = release();
    is_untouched(&Doc(Value::Null), &new, Outcome::WrongType);
    is_untouched(&old, &Doc(Value::Null), Outcome::WrongType);
}
