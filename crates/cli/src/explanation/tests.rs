//! An explanation for each state, and for each reason that keeps a run from a node.

use super::*;
use crate::facts::Facts;
use crate::fit::BoundVolume;
use crate::fixture::{
    NOWHERE, UID, at, done, facts, forbidden, merged, node, object, placeholder, released, statefulset,
    stranger, task, told, unschedulable, waiting,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn text(facts: &Facts) -> String {
    explain(facts).text(str::to_owned)
}

fn home() -> Pod {
    placeholder("build", UID, Some("node-1"), &json!({}))
}

fn with_set(facts: Facts, replicas: i32) -> Facts {
    Facts {
        set: Ok(Some(statefulset(replicas, &json!({})))),
        ..facts
    }
}

fn running(pods: Vec<Pod>) -> Facts {
    let facts = Facts {
        events: Ok(vec![
            told(0, "Held", "Held by pod-affinity."),
            told(
                19,
                "Released",
                "Released: all pods of this run go to node node-1.",
            ),
        ]),
        ..facts(&released(), pods)
    };
    with_set(facts, 1)
}

/// The line about one node, and what would help.
fn against(node: Node, pods: Vec<Pod>) -> String {
    let explanation = explain(&waiting(vec![node], pods));
    let section = explanation
        .sections
        .iter()
        .find(|section| section.title == "Node")
        .unwrap();
    format!("{}\n{}", section.details.join("\n"), explanation.help.join("\n"))
}

#[test]
fn an_automatic_reserve_is_explained_by_its_event_or_said_to_be_unknown() {
    let automatic = json!({"metadata": {"annotations": {keys::RESERVE: "auto"}}});
    let facts = |told| Facts {
        events: Ok(told),
        ..facts(&merged(released(), &automatic), Vec::new())
    };
    let flat = |facts| text(&facts).split_whitespace().collect::<Vec<_>>().join(" ");
    let known = flat(facts(vec![told(
        3,
        "ReserveChosen",
        "Room for cpu=4, as PipelineRun build-7 used.",
    )]));
    assert!(
        known.contains("Room for cpu=4, as PipelineRun build-7 used."),
        "{known}"
    );
    let unknown = flat(facts(Vec::new()));
    assert!(unknown.contains("no event has its size"), "{unknown}");
}

macro_rules! explanations {
    ($($name:ident: $facts:expr;)+) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(text(&$facts));
        }
    )+};
}

explanations! {
    held_without_placeholder: facts(&json!({}), vec![]);
    held_with_a_placeholder_that_the_scheduler_has_not_seen:
        with_set(facts(&json!({}), vec![placeholder("build", UID, None, &json!({}))]), 1);
    waiting_without_any_node: waiting(vec![], vec![]);
    waiting_for_others_with_an_autoscaler: autoscaled();
    held_longer_than_the_deadline: Facts { now: at(700), ..waiting(vec![], vec![]) };
    held_by_its_user: facts(&users(), vec![]);
    held_since_its_user_released_it: facts(&release(), vec![]);
    released_after_its_user_released_it: released_late();
    held_by_kueue: facts(&merged(users(), &json!({"metadata": {"labels": {keys::KUEUE_QUEUE_NAME: "main"}}})), vec![]);
    running_on_its_node: running(vec![home(), task("fetch", Some("node-1"), &json!({"status": {"phase": "Succeeded"}})), task("build", Some("node-1"), &json!({}))]);
    running_on_two_nodes_at_the_same_time: running(vec![home(), task("fetch", Some("node-1"), &json!({})), task("build", Some("node-2"), &json!({}))]);
    running_with_a_task_that_does_not_fit: crowded();
    moving: with_set(facts(&released(), vec![task("build", None, &unschedulable(NOWHERE))]), 0);
    released_at_the_deadline: late();
    done_and_free: cleaned();
    done_and_reserved: reserved();
    failed: facts(&merged(done(), &json!({"status": {"conditions": [{"type": "Succeeded", "status": "False", "reason": "PipelineRunTimeout"}]}})), vec![]);
    declined: facts(&json!({"metadata": {"labels": {keys::OPT_IN: "false"}, "annotations": null}, "spec": {"status": null}}), vec![]);
    declined_and_running: facts(&json!({"metadata": {"labels": {keys::OPT_IN: "false"}, "annotations": null}, "spec": {"status": null}}), vec![task("fetch", Some("node-1"), &json!({"metadata": {"labels": {keys::OPT_IN: "false"}}}))]);
    running_beside_an_opted_out_task: running(vec![home(), task("fetch", Some("node-1"), &json!({})), task("probe", Some("node-2"), &json!({"metadata": {"labels": {keys::OPT_IN: "false"}}}))]);
    labelled_too_late: facts(&too_late(), vec![stranger("build", "node-1"), stranger("build2", "node-2")]);
    invalid: facts(&json!({"metadata": {"labels": {keys::OPT_IN: "perhaps"}}, "spec": {"status": null}}), vec![]);
    unlabelled: facts(&json!({"metadata": {"labels": null, "annotations": null}, "spec": {"status": null}}), vec![]);
    nested: facts(&nested_run(), vec![]);
    managed_elsewhere: facts(&json!({"spec": {"managedBy": "example.com/other"}}), vec![]);
    being_deleted: facts(&json!({"metadata": {"deletionTimestamp": at(100).to_string()}}), vec![]);
    refused_by_a_quota: refused();
    seen_with_few_rights: half_blind();
    labelled_by_its_namespace: facts(&by_namespace(), vec![]);
    with_a_reserve_and_a_narrow_isolation: facts(&narrow(), vec![home()]);
}

fn by_namespace() -> Value {
    json!({"metadata": {"annotations": {keys::OPTED_IN_BY: keys::BY_NAMESPACE}}})
}

fn users() -> Value {
    json!({"metadata": {"annotations": null}})
}

/// Ten minutes after its creation.
fn release() -> Value {
    json!({"metadata": {"creationTimestamp": at(-600).to_string(), "annotations": {keys::HOLD: at(90).to_string()}}})
}

fn released_late() -> Facts {
    let mut facts = running(vec![]);
    facts.events = Ok(vec![
        told(1, "Enrolled", "Enrolled. Another holder holds this run."),
        told(80, "Held", "Held by pod-affinity."),
        told(90, "Released", "Released: the node is there."),
    ]);
    facts
}

fn too_late() -> Value {
    json!({
        "metadata": {"annotations": null},
        "spec": {"status": null},
        "status": {"startTime": at(5).to_string(), "childReferences": [{"name": "x"}]},
    })
}

fn nested_run() -> Value {
    let owner = json!([{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "root", "uid": "r", "controller": true}]);
    merged(released(), &json!({"metadata": {"ownerReferences": owner}}))
}

fn narrow() -> Value {
    merged(
        released(),
        &json!({"metadata": {
            "labels": {keys::OPT_IN: "isolateAlways", keys::STRATEGY: "isolateAlways", keys::ISOLATION: "namespace-enrolled"},
            "annotations": {keys::RESERVE: "cpu=4"},
        }}),
    )
}

fn autoscaled() -> Facts {
    let others = vec![
        placeholder(
            "other",
            "u2",
            Some("node-1"),
            &json!({"metadata": {"namespace": "web"}}),
        ),
        stranger("plain", "node-2"),
    ];
    let mut facts = waiting(
        vec![node("node-1", &json!({})), node("node-2", &json!({}))],
        others,
    );
    let uid = facts
        .placeholder()
        .pod
        .and_then(|pod| pod.metadata.uid.clone())
        .unwrap();
    let mut answer = told(
        60,
        "TriggeredScaleUp",
        "pod triggered scale-up: [{pool 2->3 (max: 9)}]",
    );
    answer.about = uid;
    answer.by = "cluster-autoscaler".into();
    facts.events = Ok(vec![answer]);
    facts
}

fn crowded() -> Facts {
    let big = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "8"}}}]}});
    let pods = vec![home(), task("build", None, &merged(unschedulable(NOWHERE), &big))];
    let surroundings = waiting(
        vec![node("node-1", &json!({})), node("node-2", &json!({}))],
        pods.clone(),
    )
    .surroundings;
    Facts {
        surroundings,
        ..running(pods)
    }
}

fn late() -> Facts {
    let mut facts = running(vec![]);
    facts.events = Ok(vec![
        told(
            90,
            "HoldDeadlineExceeded",
            "The hold reached hold-deadline (90s) without a node.",
        ),
        told(90, "Released", "Released without a node."),
    ]);
    facts
}

fn cleaned() -> Facts {
    let ended = json!({"status": {"phase": "Succeeded"}});
    Facts {
        set: Ok(None),
        ..facts(&done(), vec![task("build", Some("node-1"), &ended)])
    }
}

fn reserved() -> Facts {
    let adopted = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": UID},
    ]}});
    let kept = merged(
        done(),
        &json!({"metadata": {"labels": {keys::OPT_IN: "isolateAlways", keys::STRATEGY: "isolateAlways"}}}),
    );
    facts(&kept, vec![placeholder("build", UID, Some("node-1"), &adopted)])
}

fn refused() -> Facts {
    let text = "The placeholder's pod cannot be created: exceeded quota: tight.";
    let told = vec![
        told(10, "PlaceholderRefused", "An older text."),
        told(100, "PlaceholderRefused", text),
        told(1, "Held", "Held by pod-affinity."),
    ];
    with_set(
        Facts {
            events: Ok(told),
            ..facts(&json!({}), vec![])
        },
        1,
    )
}

fn half_blind() -> Facts {
    let mut facts = waiting(vec![], vec![]);
    let surroundings = facts.surroundings.as_mut().unwrap();
    surroundings.nodes = Err(forbidden("list", "nodes"));
    surroundings.pods.errors = vec![forbidden("list", "pods")];
    facts.config = Err(forbidden("get", "configmaps config-pod-affinity"));
    facts
}

/// Whether a run moves depends on the configuration, too.
#[test]
fn a_configuration_that_cannot_be_read_is_told_until_the_run_is_done() {
    for (of, is_told) in [(running(vec![home()]), true), (cleaned(), false)] {
        let config = Err(forbidden("get", "configmaps config-pod-affinity"));
        let text = text(&Facts { config, ..of });
        assert_eq!(text.contains("config-pod-affinity"), is_told, "{text}");
    }
}

#[test]
fn each_reason_against_a_node_is_told_with_a_remedy() {
    let other = |strategy: &str| {
        placeholder(
            "other",
            "u2",
            Some("n"),
            &json!({"metadata": {"namespace": "web", "labels": {keys::STRATEGY: strategy}}}),
        )
    };
    let kept = json!({"metadata": {"ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "old", "uid": "u3"}]}});
    let taint = |key: &str, effect: &str| json!({"spec": {"taints": [{"key": key, "value": "yes", "effect": effect}]}});
    let mut dead = taint("node.kubernetes.io/unreachable", "NoExecute");
    dead["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown"}]);
    let small = json!({"status": {"allocatable": {"cpu": "20m", "memory": "1Gi", "pods": "0"}}});
    let table = [
        against(node("n", &json!({})), vec![other("colocateCompleted")]),
        against(
            node("n", &json!({})),
            vec![placeholder("old", "u3", Some("n"), &kept)],
        ),
        against(node("n", &json!({})), vec![stranger("plain", "n")]),
        against(node("n", &json!({"spec": {"unschedulable": true}})), vec![]),
        against(
            node(
                "n",
                &merged(small.clone(), &json!({"spec": {"unschedulable": true}})),
            ),
            vec![],
        ),
        against(node("n", &taint("gpu", "NoSchedule")), vec![]),
        against(node("n", &taint("gpu", "PreferNoSchedule")), vec![]),
        against(node("n", &dead), vec![]),
        against(node("n", &small), vec![]),
    ];
    insta::assert_snapshot!(table.join("\n--\n"));
}

#[test]
fn what_the_podtemplate_and_the_claims_ask_of_a_node_is_told() {
    let asks = |spec: Value| {
        let own = placeholder(
            "build",
            UID,
            None,
            &merged(unschedulable(NOWHERE), &json!({"spec": spec})),
        );
        let mut facts = waiting(vec![node("n", &json!({}))], vec![]);
        facts.pods = Ok(vec![own]);
        facts
    };
    let affinity = |operator: &str, values: Value| {
        let expression = json!({"key": "disk", "operator": operator, "values": values});
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [expression]}],
        }}}})
    };
    let with_volume = |mut facts: Facts| {
        facts.volumes = Some(Ok(vec![volume()]));
        facts
    };
    let mounted = json!({"volumes": [{"name": "w", "persistentVolumeClaim": {"claimName": "cache"}}]});
    let zonal = with_volume(asks(mounted));
    let west = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["west"]});
    let mut restricted = affinity("In", json!(["ssd"]));
    let term = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0";
    let term = restricted.pointer_mut(term).unwrap();
    term["matchExpressions"].as_array_mut().unwrap().push(west);
    let of_one_pod = with_volume(asks(restricted));
    let told = |facts: &Facts| {
        let explanation = explain(facts);
        let section = explanation
            .sections
            .iter()
            .find(|section| section.title == "Node")
            .unwrap();
        format!("{}\n{}", section.details.join("\n"), explanation.help.join("\n"))
    };
    let table = [
        told(&asks(json!({"nodeSelector": {"disk": "ssd"}}))),
        told(&asks(affinity("In", json!(["ssd", "nvme"])))),
        told(&asks(affinity("Exists", json!([])))),
        told(&asks(affinity("NotIn", json!(["hdd"])))),
        told(&asks(affinity("Gt", json!(["3"])))),
        told(&zonal),
        told(&of_one_pod),
    ];
    insta::assert_snapshot!(table.join("\n--\n"));
}

fn volume() -> BoundVolume {
    let here = json!({"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["west"]});
    let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}}}});
    BoundVolume::of("cache", &object(volume, &json!({}))).unwrap()
}

#[test]
fn many_nodes_with_the_same_reason_are_told_together() {
    let nodes = (0..9).map(|index| node(&format!("n{index}"), &json!({"spec": {"unschedulable": true}})));
    let explanation = explain(&waiting(nodes.collect(), vec![]));
    let section = explanation
        .sections
        .iter()
        .find(|section| section.title == "Node")
        .unwrap();
    assert_eq!(section.details, ["n0, n1, n2, n3 and 5 more: is cordoned"]);
}

#[test]
fn no_line_is_longer_than_eighty_columns() {
    for line in text(&autoscaled()).lines().chain(text(&crowded()).lines()) {
        assert!(line.chars().count() <= 80 || line.contains('`'), "{line}");
    }
}

#[test]
fn the_explanation_is_data_too() {
    insta::assert_json_snapshot!(explain(&autoscaled()));
}

/// Paths of all fields of a document.
fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            let path = format!("{path}{name}");
            found.insert(path.clone());
            fields(value, &format!("{path}."), found);
        }),
        Value::Array(items) => items
            .iter()
            .for_each(|item| fields(item, &format!("{}[].", path.trim_end_matches('.')), found)),
        _ => {}
    }
}

#[test]
fn the_documentation_has_each_field_of_the_data() {
    let mut found = BTreeSet::new();
    let placed = running(vec![home(), task("build", Some("node-1"), &json!({}))]);
    let explanations = vec![
        autoscaled(),
        crowded(),
        refused(),
        half_blind(),
        reserved(),
        placed,
    ];
    for facts in explanations {
        fields(&serde_json::to_value(explain(&facts)).unwrap(), "", &mut found);
    }
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md")).unwrap();
    let (_, section) = page.split_once("| field |").unwrap();
    let rows = section.split("\n\n").next().unwrap().lines().skip(2);
    let documented = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(','));
    let documented: BTreeSet<_> = documented
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect();
    assert_eq!(found, documented);
}

mod unfit;

#[test]
fn a_run_without_a_placeholder_says_for_which_other_runs_it_waits() {
    let line = "No node for this run yet: 2 older runs of the same kind wait for a node, and no autoscaler adds one.";
    let told = |reason: &str, text: &str, run: &Value| {
        let enrolled = json!({"metadata": {"labels": {keys::GROUP: UID}}});
        let held = merged(enrolled, run);
        text_of(&held, vec![told(3, reason, text)])
    };
    let in_line = told("WaitingForNode", line, &json!({}));
    assert!(
        in_line.contains("Line         No node for this run yet: 2 older runs"),
        "{in_line}"
    );
    assert!(in_line.contains("Waits for other runs"), "{in_line}");
    let unschedulable = told(
        "WaitingForNode",
        "No node for this run yet. The scheduler reports",
        &json!({}),
    );
    assert!(!unschedulable.contains("Line "), "{unschedulable}");
    let over_cap = json!({"metadata": {"annotations": {keys::HOLD: "over-cap"}}});
    let over_cap = told("OverCap", "max-runs allows 5 labelled runs.", &over_cap);
    assert!(
        over_cap.contains("a cap has no room") && over_cap.contains("max-runs"),
        "{over_cap}"
    );
    assert!(over_cap.contains("Waits for other runs"), "{over_cap}");
}

fn text_of(run: &Value, events: Vec<RunEvent>) -> String {
    text(&Facts {
        events: Ok(events),
        ..facts(run, Vec::new())
    })
}
