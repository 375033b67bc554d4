//! What holds for the verdict of the PipelineRun webhook on any document.

use super::*;
use crate::arbitrary::{document, list, object, one_of, text};
use crate::tally::tally;
use proptest::strategy::BoxedStrategy;
use proptest::test_runner::Config as Cases;
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};

fn any_run() -> BoxedStrategy<Value> {
    let owner = object(vec![
        ("apiVersion", text(&["tekton.dev/v1", "batch/v1", "v1"])),
        ("kind", text(&["PipelineRun", "Job", "ConfigMap"])),
        ("controller", one_of(vec![json!(true), json!(false)])),
    ]);
    let labels = object(vec![
        (
            keys::OPT_IN,
            text(&["true", "", "isolateAlways", "false", "nonsense"]),
        ),
        (keys::GROUP, text(&["old-uid"])),
        (keys::STRATEGY, text(&["isolateAlways"])),
        (keys::ISOLATION, text(&["cluster-all"])),
        ("team", text(&["blue"])),
    ]);
    let annotations = object(vec![
        (keys::HOLD, text(&["true", "x"])),
        (keys::NODE, text(&["n"])),
        (keys::KEPT_UNTIL, text(&["x"])),
        (keys::OPTED_IN_BY, text(&["namespace"])),
        (keys::RESERVE, text(&["cpu=1", "cpu=1,memory=1Gi"])),
        ("team", text(&["blue"])),
    ]);
    let metadata = object(vec![
        ("labels", labels),
        ("annotations", annotations),
        ("ownerReferences", list(owner)),
    ]);
    let spec = object(vec![
        ("status", text(&["", "PipelineRunPending", "Cancelled"])),
        (
            "managedBy",
            text(&["tekton.dev/pipeline", "tekton.dev/pipeline", "other"]),
        ),
    ]);
    document(vec![("metadata", metadata), ("spec", spec)])
}

/// A held run, mostly held by the user or another controller.
fn waiting() -> BoxedStrategy<Value> {
    let spec = object(vec![("status", text(&["PipelineRunPending"]))]);
    document(vec![("metadata", object(Vec::new())), ("spec", spec)])
}

/// Removes everything that a patch may change.
fn untouchable(mut document: Value) -> Value {
    for map in ["labels", "annotations"] {
        if let Some(Value::Object(entries)) = document.pointer_mut(&format!("/metadata/{map}")) {
            entries.retain(|key, _| !key.starts_with(keys::OWN_PREFIX) || key == keys::RESERVE);
        }
        let emptied = document
            .pointer(&format!("/metadata/{map}"))
            .is_some_and(|map| *map == json!({}) || map.is_null());
        if let (true, Some(Value::Object(metadata))) = (emptied, document.get_mut("metadata")) {
            metadata.remove(map);
        }
    }
    if let Some(Value::Object(spec)) = document.get_mut("spec") {
        spec.remove("status");
    }
    document
}

/// The document as the webhook decodes it.
fn reduced(document: &Value) -> Value {
    FIELDS.decode(document).unwrap().value
}

proptest! {
    #![proptest_config(Cases::with_cases(2000))]

    #[test]
    fn any_change_is_admitted_and_only_runs_that_another_holder_releases_are_held(
        old in prop_oneof![any_run(), waiting()], document in any_run(), met in tally(&[
            ("held", 10), ("untouched", 500),
        ]),
    ) {
        let Verdict::Allow { patch, outcome } = admit_change(&old, &document) else {
            panic!("rejected")
        };
        let mut patched = document.clone();
        prop_assert!(json_patch::patch(&mut patched, &patch).is_ok(), "{patch} does not apply");
        prop_assert_eq!(untouchable(document.clone()), untouchable(patched.clone()));
        prop_assert_eq!(
            admit_change(&reduced(&old), &reduced(&document)),
            Verdict::Allow { patch, outcome },
            "the fields in FIELDS are sufficient"
        );
        if outcome == Outcome::Held {
            met.count("held");
            prop_assert_eq!(&old["spec"]["status"], keys::PENDING);
            prop_assert!(old.pointer("/metadata/annotations").and_then(|all| all.get(keys::HOLD)).is_none());
            prop_assert_eq!(&patched["spec"]["status"], keys::PENDING);
        } else {
            met.count("untouched");
            prop_assert_eq!(patched, document);
        }
    }

    #[test]
    fn any_patch_of_a_run_applies_is_idempotent_and_changes_only_own_keys_and_the_status(
        document in any_run(), met in tally(&[
            ("held", 50), ("left_held_by_other", 30), ("declined", 30), ("not_opted_in", 50), ("nested", 10),
            ("managed_elsewhere", 100), ("wrong_type", 200),
        ]),
    ) {
        let verdict = admit(&document);
        prop_assert_eq!(&admit(&reduced(&document)), &verdict, "the fields in FIELDS are sufficient");
        let Verdict::Allow { patch, outcome } = verdict else { return Ok(()) };
        let mut patched = document.clone();
        prop_assert!(json_patch::patch(&mut patched, &patch).is_ok(), "{patch} does not apply");
        prop_assert_eq!(untouchable(document.clone()), untouchable(patched.clone()));
        prop_assert_eq!(admit(&patched), Verdict::Allow { patch: Patch::default(), outcome });
        met.count(outcome.as_str());
        if outcome != Outcome::Held {
            prop_assert_eq!(document.pointer("/spec/status"), patched.pointer("/spec/status"));
        }
    }

    #[test]
    fn the_label_of_the_namespace_has_the_same_effect_on_any_run_as_a_label_of_the_run(
        document in any_run(), met in tally(&[
            ("held", 100), ("left_held_by_other", 50), ("declined", 30), ("nested", 10),
            ("managed_elsewhere", 100), ("wrong_type", 200), ("rejected", 30),
        ]),
    ) {
        let verdict = admit_by_namespace(&document, NamespaceLabel::Means("isolateAlways"));
        let mut labelled = document.clone();
        if let Ok(run) = PipelineRunDoc::parse(&document) && run.opt_in.is_none() {
            if run.labels.is_none() {
                labelled["metadata"]["labels"] = json!({});
            }
            labelled["metadata"]["labels"][keys::OPT_IN] = json!("isolateAlways");
        }
        match (verdict, admit(&labelled)) {
            (Verdict::Allow { patch, outcome }, Verdict::Allow { patch: own, outcome: same }) => {
                met.count(outcome.as_str());
                prop_assert_eq!(outcome, same);
                let (mut run, mut other) = (document, labelled);
                prop_assert!(json_patch::patch(&mut run, &patch).is_ok(), "{patch} does not apply");
                json_patch::patch(&mut other, &own).unwrap();
                if let Outcome::Held | Outcome::LeftHeldByOther = outcome {
                    prop_assert_eq!(&run["metadata"]["labels"], &other["metadata"]["labels"]);
                }
                prop_assert_eq!(&run["spec"], &other["spec"]);
            }
            (verdict, own) => {
                met.count("rejected");
                prop_assert_eq!(verdict, own);
            }
        }
    }

    #[test]
    fn a_held_run_is_pending_has_the_hold_annotation_and_is_in_no_group(document in any_run(), met in tally(&[("held", 50)])) {
        let Verdict::Allow { patch, outcome: Outcome::Held } = admit(&document) else { return Ok(()) };
        met.count("held");
        let mut patched = document;
        json_patch::patch(&mut patched, &patch).unwrap();
        prop_assert_eq!(&patched["spec"]["status"], keys::PENDING);
        prop_assert_eq!(&patched["metadata"]["annotations"][keys::HOLD], SINCE_CREATION);
        prop_assert_eq!(patched["metadata"]["labels"].get(keys::GROUP), None);
    }
}
