//! Runs that are created without the opt-in label, in a Namespace that has the label.

use super::*;

const LABEL: NamespaceLabel = NamespaceLabel::Means("isolateAlways");

/// A run without the opt-in label.
fn unlabelled() -> Doc {
    let mut doc = run();
    doc.0["metadata"].as_object_mut().unwrap().remove("labels");
    doc
}

fn outcome(doc: &Doc) -> Outcome {
    patched(admit_by_namespace(&doc.0, LABEL)).1
}

fn admitted(mut doc: Doc) -> Value {
    let (patch, _) = patched(admit_by_namespace(&doc.0, LABEL));
    json_patch::patch(&mut doc.0, &patch).unwrap();
    doc.0
}

fn is_left_alone(doc: &Doc, because: Outcome) {
    let verdict = admit_by_namespace(&doc.0, LABEL);
    assert_eq!(patched(verdict), (Patch::default(), because), "{}", doc.0);
}

#[test]
fn a_run_gets_the_label_of_its_namespace_and_is_held() {
    let (patch, outcome) = patched(admit_by_namespace(&unlabelled().0, LABEL));
    assert_eq!(outcome, Outcome::Held);
    insta::assert_json_snapshot!("held_by_namespace", patch);
}

#[test]
fn a_run_that_gets_the_label_of_its_namespace_keeps_its_other_labels_and_annotations() {
    let doc = unlabelled().label("team", "blue").annotation("team", "blue");
    let metadata = admitted(doc)["metadata"].take();
    assert_eq!(
        metadata["labels"],
        json!({"team": "blue", keys::OPT_IN: "isolateAlways"})
    );
    assert_eq!(
        metadata["annotations"],
        json!({"team": "blue", keys::HOLD: "true", keys::OPTED_IN_BY: "namespace"})
    );
}

#[test]
fn a_run_that_waits_for_another_holder_is_labelled_and_not_held() {
    let others = [
        unlabelled().status(keys::PENDING),
        unlabelled().status("Cancelled"),
        unlabelled().label(keys::KUEUE_QUEUE_NAME, "team-a"),
    ];
    for doc in others {
        assert_eq!(outcome(&doc), Outcome::LeftHeldByOther);
        let status = doc.0["spec"]["status"].clone();
        let run = admitted(doc);
        assert_eq!(run["spec"]["status"], status);
        assert_eq!(run["metadata"]["labels"][keys::OPT_IN], "isolateAlways");
        assert_eq!(
            run["metadata"]["annotations"],
            json!({keys::OPTED_IN_BY: "namespace"})
        );
    }
}

#[test]
fn the_label_of_a_run_overrides_the_label_of_its_namespace() {
    let own = run().opt_in("colocateAlways");
    assert_eq!(patched(admit_by_namespace(&own.0, LABEL)), allowed(&own.0));
    is_left_alone(&run().opt_in("false"), Outcome::Declined);
}

#[test]
fn nested_runs_runs_of_other_controllers_and_malformed_runs_get_no_label() {
    let nested = unlabelled().owned_by("tekton.dev/v1", "PipelineRun", true);
    is_left_alone(&nested, Outcome::Nested);
    let elsewhere = unlabelled().set(&["spec", "managedBy"], "other");
    is_left_alone(&elsewhere, Outcome::ManagedElsewhere);
    is_left_alone(&unlabelled().set(&["spec"], json!([])), Outcome::WrongType);
}

#[test]
fn an_unlabelled_copy_of_an_enrolled_run_joins_no_group() {
    let copy = admitted(unlabelled().copied_from_an_enrolled_run());
    assert_eq!(copy, admitted(unlabelled().annotation(keys::OPTED_IN_BY, "x")));
    assert_eq!(copy["metadata"]["labels"], json!({keys::OPT_IN: "isolateAlways"}));
}

#[test]
fn a_labelled_copy_loses_the_annotation_about_the_namespace() {
    let copy = run().annotation(keys::OPTED_IN_BY, keys::BY_NAMESPACE);
    assert_eq!(copy.admitted(), run().admitted());
}

#[test]
fn an_invalid_run_in_a_labelled_namespace_is_rejected_like_a_labelled_run() {
    let bad = |doc: Doc| doc.annotation(keys::RESERVE, "cpu=4,memory=8");
    let rejection = rejected(admit_by_namespace(&bad(unlabelled()).0, LABEL));
    assert_eq!(rejection, bad(run()).rejection());
    let tied = |doc: Doc| doc.set(&["spec", "taskRunTemplate"], tied());
    let rejection = rejected(admit_by_namespace(&tied(unlabelled()).0, LABEL));
    assert_eq!(rejection, tied(run()).rejection());
    assert!(
        rejection.contains("also if its Namespace opts it in"),
        "{rejection}"
    );
}

#[test]
fn an_unknown_label_value_of_the_namespace_causes_a_warning_and_no_patch() {
    let verdict = admit_by_namespace(&unlabelled().0, NamespaceLabel::Unknown);
    let Verdict::Warn { warning, outcome } = verdict else {
        panic!("{verdict:?}")
    };
    assert!(warning.starts_with("Namespace ns: "), "{warning}");
    assert_eq!(outcome, Outcome::UnknownByNamespace);
}

#[test]
fn nested_runs_and_runs_of_other_controllers_cause_no_warning_and_no_patch() {
    let nested = unlabelled().owned_by("tekton.dev/v1", "PipelineRun", true);
    let elsewhere = unlabelled().set(&["spec", "managedBy"], "other");
    let elsewhere = elsewhere.annotation(keys::OPTED_IN_BY, "");
    for (doc, because) in [(nested, Outcome::Nested), (elsewhere, Outcome::ManagedElsewhere)] {
        let verdict = admit_by_namespace(&doc.0, NamespaceLabel::Unknown);
        assert_eq!(patched(verdict), (Patch::default(), because));
    }
}
