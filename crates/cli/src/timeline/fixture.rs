//! Objects for tests: runs with their TaskRuns, pods, placeholders and events, on nodes.

use super::model::Timeline;
use super::read::{History, NodeEnd, TaskRun};
use super::{Selection, TimeRange, timeline};
use crate::events::RunEvent;
use crate::fixture::{at, done, merged, node, object, released, run, told};
use k8s_openapi::api::core::v1::{Node, Pod};
use placement::config::Config;
use placement::keys;
use serde_json::{Value, json};
use std::time::Duration;

/// All runs of the fixture's namespace.
pub(crate) const CI: Selection<'static> = Selection {
    namespace: Some("ci"),
    run: None,
    labels: None,
};

/// Two nodes and no run, two minutes after the creation of the fixture's run.
pub(crate) fn nothing() -> History {
    History {
        now: at(120),
        runs: Vec::new(),
        sets: Ok(Vec::new()),
        pods: Ok(Vec::new()),
        task_runs: Ok(Vec::new()),
        events: Ok(Vec::new()),
        nodes: Ok(vec![here("node-1"), here("node-2")]),
        node_ends: Ok(Vec::new()),
        config: Ok(Config::default()),
    }
}

/// A node that was created long before the runs.
pub(crate) fn here(name: &str) -> Node {
    since(name, -90_000)
}

/// A node that was created at this second.
pub(crate) fn since(name: &str, second: i64) -> Node {
    node(
        name,
        &json!({"metadata": {"creationTimestamp": at(second).to_string()}}),
    )
}

/// The removal of a node.
pub(crate) fn end(name: &str, second: i64) -> NodeEnd {
    NodeEnd {
        node: name.to_owned(),
        at: at(second),
    }
}

/// Changes the name and the UID of the fixture's run.
pub(crate) fn named(name: &str, uid: &str) -> Value {
    json!({"metadata": {"name": name, "uid": uid}})
}

/// Makes the fixture's run an unlabelled run from second 20 to 60.
pub(crate) fn unlabelled() -> Value {
    let plain = json!({
        "metadata": {"creationTimestamp": at(20).to_string(), "labels": null, "annotations": null},
    });
    merged(done(), &plain)
}

/// A TaskRun of a run; a TaskRun without an end is running.
pub(crate) fn task_run(uid: &str, task: &str, from: i64, to: Option<i64>) -> TaskRun {
    let base = json!({
        "metadata": {
            "namespace": "ci", "name": format!("{uid}-{task}"), "creationTimestamp": at(from).to_string(),
            "labels": {super::read::TASK: task},
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "x", "uid": uid}],
        },
        "status": {
            "podName": format!("{uid}-{task}-pod"), "startTime": at(from).to_string(),
            "completionTime": to.map(|to| at(to).to_string()),
        },
    });
    object(base, &json!({}))
}

/// The pod of that TaskRun.
pub(crate) fn pod_of(run: &str, uid: &str, task: &str, node: Option<&str>, bound: i64) -> Pod {
    let scheduled =
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(bound).to_string()}]);
    let base = json!({
        "metadata": {
            "namespace": "ci", "name": format!("{uid}-{task}-pod"), "creationTimestamp": at(bound).to_string(),
            "labels": {keys::TEKTON_PIPELINE_RUN: run, super::read::TASK: task},
        },
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "conditions": if node.is_some() { scheduled } else { json!([]) }},
    });
    object(base, &json!({}))
}

/// The events of a run that was held, waited, and got a node.
pub(crate) fn life_on(node: &str) -> Vec<RunEvent> {
    vec![
        told(0, "Held", "Held by pod-affinity."),
        told(5, "WaitingForNode", "No node for this run yet."),
        told(
            20,
            "Released",
            &format!("Released: all pods of this run go to node {node}; no other can use it."),
        ),
    ]
}

/// The timeline of the last five minutes.
pub(crate) fn drawn(history: &History) -> Timeline {
    timeline(history, CI, TimeRange::Last(Duration::from_mins(5)))
}

/// Three runs: one that moved, one that waits, and one without the label.
pub(crate) fn three() -> History {
    let moved = [
        told(
            40,
            "MovedOff",
            "Moved off node node-1: it is cordoned. The next pod can go to any node.",
        ),
        told(
            50,
            "Moved",
            "The placeholder is on node node-2 (before: node-1); its pods are there.",
        ),
    ];
    let second = |uid: &str, task: &str, from, to| task_run(uid, task, from, to);
    History {
        runs: vec![
            run(&merged(
                released(),
                &json!({"metadata": {"annotations": {keys::NODE: "node-2"}}}),
            )),
            run(&merged(
                named("next", "u2"),
                &json!({"metadata": {"creationTimestamp": at(60).to_string()}}),
            )),
            run(&merged(unlabelled(), &named("plain", "u3"))),
        ],
        events: Ok(life_on("node-1").into_iter().chain(moved).collect()),
        task_runs: Ok(vec![
            second("u1", "clone", 21, Some(38)),
            second("u1", "build", 51, None),
            second("u3", "only", 22, Some(58)),
        ]),
        pods: Ok(vec![
            pod_of("build", "u1", "clone", Some("node-1"), 21),
            pod_of("build", "u1", "build", Some("node-2"), 51),
            pod_of("plain", "u3", "only", Some("node-3"), 22),
        ]),
        nodes: Ok(vec![here("node-1"), since("node-2", 45)]),
        ..nothing()
    }
}

/// Many runs, some of them at the same time. Equal seeds give equal runs.
pub(crate) fn many(number: i64, nodes: i64, seed: i64) -> History {
    let mut history = History {
        now: at(3600),
        ..nothing()
    };
    let random = |at: i64, most: i64| ((at + 1) * 7_919 * (seed + 13)).rem_euclid(104_729) % most;
    let (mut pods, mut task_runs) = (Vec::new(), Vec::new());
    for index in 0..number {
        let (name, uid) = (format!("build-{index}"), format!("uid-{index}"));
        let created = random(index, 3300);
        let started = created + random(index + 7, 200);
        let ended = (started + 2 + random(index + 11, 600)).min(3590);
        let node = format!("node-{}", random(index + 17, nodes));
        let is_plain = index % 5 == 4;
        let times = times(created, started, ended, is_plain, &node);
        history.runs.push(run(&merged(
            merged(times, &named(&name, &uid)),
            &labels(is_plain, &uid),
        )));
        for task in 0..3 {
            let (from, to) = (
                started + task,
                (started + task + 1 + random(index * 3 + task, 100)).min(ended),
            );
            task_runs.push(task_run(&uid, &format!("task-{task}"), from, Some(to.max(from))));
            pods.push(pod_of(&name, &uid, &format!("task-{task}"), Some(&node), from));
        }
    }
    history.pods = Ok(pods);
    history.task_runs = Ok(task_runs);
    history.nodes = Ok((0..nodes)
        .map(|it| since(&format!("node-{it}"), it * 200 - 900))
        .collect());
    history
}

fn times(created: i64, started: i64, ended: i64, is_plain: bool, node: &str) -> Value {
    let base = if is_plain { unlabelled() } else { done() };
    let annotations = if is_plain {
        Value::Null
    } else {
        json!({keys::NODE: node, keys::HOLD: null})
    };
    let own = json!({
        "metadata": {"creationTimestamp": at(created).to_string(), "annotations": annotations},
        "status": {"startTime": at(started).to_string(), "completionTime": at(ended).to_string()},
    });
    merged(base, &own)
}

fn labels(is_plain: bool, uid: &str) -> Value {
    if is_plain {
        json!({})
    } else {
        json!({"metadata": {"labels": {keys::GROUP: uid}}})
    }
}
