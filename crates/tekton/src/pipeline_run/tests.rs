//! The fields that the view keeps of a PipelineRun, the conversion to a `Run`, and the decoding of every object that Tekton admits.

use super::*;
use k8s_openapi::api::core::v1::Toleration;
use kube::Resource;
use kube::core::ObjectList;
use placement::run::PodTemplate;
use serde_json::{Value, json};

mod limits;
mod pruning;

fn metadata() -> Value {
    json!({
        "name": "build",
        "namespace": "ns",
        "uid": "u1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-02T03:04:05Z"
    })
}

fn document() -> Value {
    json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": metadata(), "spec": {}})
}

/// The view of a document that differs from the plain one in one place.
fn with(path: &[&str], value: impl Into<Value>) -> PipelineRun {
    let mut document = document();
    *path.iter().fold(&mut document, |at, key| &mut at[*key]) = value.into();
    serde_json::from_value(document).unwrap()
}

fn run_with(path: &[&str], value: impl Into<Value>) -> Run {
    with(path, value).run().unwrap()
}

fn plain() -> Run {
    serde_json::from_value::<PipelineRun>(document())
        .unwrap()
        .run()
        .unwrap()
}

const POD_TEMPLATE: [&str; 3] = ["spec", "taskRunTemplate", "podTemplate"];

fn template(value: impl Into<Value>) -> PodTemplate {
    run_with(&POD_TEMPLATE, value).template
}

#[test]
fn a_new_run_is_not_started_held_or_enrolled() {
    let run = plain();
    assert_eq!(
        run.key,
        RunKey {
            namespace: "ns".into(),
            name: "build".into(),
            uid: "u1".into()
        }
    );
    assert_eq!(run.created, Some("2026-01-02T03:04:05Z".parse().unwrap()));
    assert_eq!(run.status, SpecStatus::Unset);
    let facts = [run.deleting, run.done, run.managed_elsewhere, run.child, run.hold];
    assert_eq!(facts, [false; 5]);
    let labels = [
        run.opt_in,
        run.group,
        run.strategy,
        run.isolation,
        run.node,
        run.reserve,
    ];
    assert_eq!(labels, [const { None }; 6]);
    assert_eq!((run.template, run.claims), (PodTemplate::default(), Vec::new()));
}

#[test]
fn an_object_without_namespace_name_or_uid_is_no_run() {
    for key in ["namespace", "name", "uid"] {
        assert!(with(&["metadata", key], Value::Null).run().is_none(), "{key}");
    }
}

#[test]
fn the_spec_status_has_the_same_meaning_as_in_tekton() {
    let table = [
        (json!(null), SpecStatus::Unset),
        (json!(""), SpecStatus::Unset),
        (json!("PipelineRunPending"), SpecStatus::Pending),
        (
            json!("StoppedRunFinally"),
            SpecStatus::Other("StoppedRunFinally".into()),
        ),
    ];
    for (value, status) in table {
        assert_eq!(run_with(&["spec", "status"], value).status, status);
    }
}

#[test]
fn labels_and_annotations_of_pod_affinity_are_read() {
    let label = |key: &str| run_with(&["metadata", "labels", key], "x");
    let annotation = |key: &str| run_with(&["metadata", "annotations", key], "x");
    let x = Some("x".to_owned());
    assert_eq!(label(keys::OPT_IN).opt_in, x);
    assert_eq!(label(keys::GROUP).group, x);
    assert_eq!(label(keys::STRATEGY).strategy, x);
    assert_eq!(label(keys::ISOLATION).isolation, x);
    assert_eq!(annotation(keys::NODE).node, x);
    assert_eq!(annotation(keys::RESERVE).reserve, x);
    assert!(annotation(keys::HOLD).hold);
    assert!(label(keys::KUEUE_QUEUE_NAME).queued_by_kueue);
}

#[test]
fn a_hold_starts_at_the_time_in_its_annotation_or_at_the_creation_of_the_run() {
    let marked = |mark: &str| run_with(&["metadata", "annotations"], json!({keys::HOLD: mark}));
    let late = marked("2026-11-22T04:17:42Z");
    assert!(late.hold);
    assert_eq!(late.held_since(), Some("2026-11-22T04:17:42Z".parse().unwrap()));
    for mark in ["true", "", "soon"] {
        assert!(marked(mark).hold);
        assert_eq!(marked(mark).held_since(), marked(mark).created);
    }
    assert_eq!(marked("released").held_since(), None, "a policy has no clock");
}

#[test]
fn a_run_is_done_when_its_condition_succeeded_is_not_unknown_and_succeeded_when_it_is_true() {
    let run = |kind: &str, status: &str| {
        run_with(
            &["status", "conditions"],
            json!([{"type": kind, "status": status, "reason": "Any"}]),
        )
    };
    let done = |kind, status| (run(kind, status).done, run(kind, status).succeeded);
    assert_eq!(done("Succeeded", "True"), (true, true));
    assert_eq!(done("Succeeded", "False"), (true, false));
    assert_eq!(done("Succeeded", "Unknown"), (false, false));
    assert_eq!(done("Ready", "True"), (false, false));
    assert!(!run_with(&["status", "conditions"], json!([])).done);
}

#[test]
fn a_run_with_a_deletion_timestamp_is_being_deleted() {
    assert!(run_with(&["metadata", "deletionTimestamp"], "2026-01-02T03:05:00Z").deleting);
}

#[test]
fn a_run_is_managed_elsewhere_only_if_its_manager_is_not_tekton() {
    assert!(!run_with(&["spec", "managedBy"], "tekton.dev/pipeline").managed_elsewhere);
    assert!(run_with(&["spec", "managedBy"], "kueue.x-k8s.io/multikueue").managed_elsewhere);
}

#[test]
fn a_run_whose_controller_is_a_pipeline_run_is_nested() {
    let child = |version: &str, kind: &str, controller: bool| {
        let owner =
            json!({"apiVersion": version, "kind": kind, "name": "o", "uid": "o1", "controller": controller});
        run_with(&["metadata", "ownerReferences"], json!([owner])).child
    };
    assert!(child("tekton.dev/v1", "PipelineRun", true));
    assert!(child("tekton.dev/v1beta1", "PipelineRun", true));
    assert!(!child("tekton.dev/v1", "PipelineRun", false));
    assert!(!child("example.com/v1", "PipelineRun", true));
    assert!(!child("triggers.tekton.dev/v1", "EventListener", true));
}

#[test]
fn a_run_whose_controller_is_a_custom_task_is_nested_if_it_has_the_group_of_another_run() {
    let child = |kind: &str, group: &str| {
        let owner = json!({"apiVersion": "tekton.dev/v1beta1", "kind": kind, "name": "o", "uid": "o1", "controller": true});
        let metadata = json!({"name": "n", "namespace": "ns", "uid": "u1", "labels": {keys::GROUP: group}, "ownerReferences": [owner]});
        run_with(&["metadata"], metadata).child
    };
    assert!(child("CustomRun", "root") && child("Run", "root"));
    assert!(!child("CustomRun", "u1"), "its own group");
    assert!(!child("TaskRun", "root"));
}

#[test]
fn the_start_time_of_a_run_is_read() {
    let started = |value: Value| run_with(&["status", "startTime"], value).started;
    assert_eq!(
        started(json!("2026-01-02T03:04:05Z")),
        run_with(&["spec"], json!({})).created
    );
    assert_eq!((started(json!("soon")), started(json!(7))), (None, None));
}

#[test]
fn pvcs_of_workspaces_are_read_in_order_without_duplicates() {
    let workspaces = json!([
        {"name": "source", "persistentVolumeClaim": {"claimName": "b"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "cache", "persistentVolumeClaim": {"claimName": "a"}, "subPath": "x"},
        {"name": "again", "persistentVolumeClaim": {"claimName": "b"}},
        {"name": "made", "volumeClaimTemplate": {"spec": {}}},
        {"name": "later", "persistentVolumeClaim": {"claimName": "$(params.claim)"}},
        {"name": "later again", "persistentVolumeClaim": {"claimName": "$(params.claim)"}},
        {"name": "odd", "persistentVolumeClaim": "c"},
        7
    ]);
    let run = run_with(&["spec", "workspaces"], workspaces);
    assert_eq!(
        (run.claims.as_slice(), run.other_claims, run.templates),
        (["b", "a"].map(String::from).as_slice(), 1, 1)
    );
}

#[test]
fn a_task_opts_out_by_a_label_in_task_run_specs() {
    let opted_out = |labels: Value| {
        let task = json!({"pipelineTaskName": "b", "metadata": {"labels": labels}});
        run_with(
            &["spec", "taskRunSpecs"],
            json!([{"pipelineTaskName": "a"}, 7, task]),
        )
        .opted_out_tasks
    };
    assert!(opted_out(json!({"tekton.dev/custom-pod-affinity": "false"})));
    assert!(!opted_out(json!({"tekton.dev/custom-pod-affinity": "true"})));
    assert!(!opted_out(json!({"other": "false"})));
    assert!(!run_with(&["spec", "taskRunSpecs"], json!("all")).opted_out_tasks);
}

#[test]
fn the_scheduling_fields_of_the_pod_template_are_read() {
    let read = template(json!({
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "ci", "operator": "Exists"}],
        "schedulerName": "other",
        "priorityClassName": "urgent",
        "runtimeClassName": "gvisor",
        "imagePullSecrets": [{"name": "registry"}],
        "env": [{"name": "A", "value": "b"}],
        "securityContext": {"runAsUser": 1}
    }));
    assert_eq!(
        read.node_selector,
        BTreeMap::from([("disk".to_owned(), "ssd".to_owned())])
    );
    let toleration = Toleration {
        key: Some("ci".into()),
        operator: Some("Exists".into()),
        ..Toleration::default()
    };
    assert_eq!(read.tolerations, [toleration]);
    assert_eq!(read.scheduler_name.as_deref(), Some("other"));
    assert_eq!(read.priority_class_name.as_deref(), Some("urgent"));
    assert_eq!(read.runtime_class_name.as_deref(), Some("gvisor"));
    assert_eq!(read.image_pull_secrets[0].name, "registry");
}

#[test]
fn an_affinity_is_kept_without_required_pod_affinity() {
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]});
    let term = json!({"topologyKey": "zone"});
    let given = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": terms,
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [term],
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2, "podAffinityTerm": term}]
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    });
    let mut expected = given.clone();
    expected["podAffinity"]
        .as_object_mut()
        .unwrap()
        .remove("requiredDuringSchedulingIgnoredDuringExecution");
    let read = template(json!({"affinity": given})).affinity.unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), expected);
    let required = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    for nothing in [json!(null), json!({}), required] {
        assert_eq!(template(json!({"affinity": nothing})).affinity, None);
    }
}

#[test]
fn entries_with_variables_are_dropped_as_a_whole() {
    let read = template(json!({
        "nodeSelector": {"disk": "ssd", "arch": "$(params.arch)"},
        "tolerations": [{"key": "$(params.taint)", "operator": "Exists"}, {"key": "ci", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["$(params.a)"]}]}]
        }}},
        "schedulerName": "$(params.scheduler)"
    }));
    assert_eq!(
        read.node_selector,
        BTreeMap::from([("disk".to_owned(), "ssd".to_owned())])
    );
    assert_eq!(read.tolerations.len(), 1);
    assert_eq!((read.affinity, read.scheduler_name), (None, None));
}

#[test]
fn a_malformed_field_of_the_pod_template_affects_no_other_field() {
    let read = template(json!({
        "nodeSelector": ["disk"],
        "tolerations": {"key": "ci"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 7}},
        "imagePullSecrets": "registry",
        "priorityClassName": 7,
        "schedulerName": "other"
    }));
    let expected = PodTemplate {
        scheduler_name: Some("other".to_owned()),
        ..PodTemplate::default()
    };
    assert_eq!(read, expected);
}

#[test]
fn a_field_of_the_wrong_shape_counts_as_absent() {
    let fields = [
        "/spec",
        "/spec/status",
        "/spec/managedBy",
        "/spec/workspaces",
        "/spec/taskRunTemplate",
        "/spec/taskRunTemplate/podTemplate",
        "/status",
        "/status/conditions",
    ];
    for field in fields {
        let path: Vec<_> = field.split('/').skip(1).collect();
        for odd in [
            json!(null),
            json!(7),
            json!("odd"),
            json!(["odd"]),
            json!({"odd": [1]}),
        ] {
            let run = run_with(&path, odd.clone());
            assert!(
                !run.done && run.claims.is_empty() && run.template == PodTemplate::default(),
                "{field} {odd}"
            );
        }
    }
}

#[test]
fn a_run_without_spec_and_status_decodes() {
    let bare: PipelineRun = serde_json::from_value(json!({"metadata": metadata()})).unwrap();
    assert_eq!(bare.run().unwrap().status, SpecStatus::Unset);
}

#[test]
fn a_list_with_a_malformed_run_decodes() {
    let mut odd = document();
    odd["spec"] = json!({"taskRunTemplate": {"podTemplate": {"tolerations": 7}}, "workspaces": "none"});
    odd["status"] = json!({"conditions": {}, "childReferences": 7});
    let list = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRunList", "metadata": {}, "items": [document(), odd]
    });
    let list: ObjectList<PipelineRun> = serde_json::from_value(list).unwrap();
    assert_eq!(list.items.len(), 2);
}

#[test]
fn the_view_has_the_api_path_and_the_kind_of_a_pipeline_run() {
    assert_eq!(
        PipelineRun::url_path(&(), Some("ns")),
        "/apis/tekton.dev/v1/namespaces/ns/pipelineruns"
    );
    let reference = with(&["spec", "status"], "").object_ref(&());
    assert_eq!(reference.kind.as_deref(), Some("PipelineRun"));
    assert_eq!(reference.uid.as_deref(), Some("u1"));
}
