//! Objects for tests, and the facts of a run. Arguments change fields as JSON merge patches.

use crate::events::RunEvent;
use crate::facts::{Facts, PartialPods, Surroundings};
use crate::requests::{RequestAttributes, RequestError};
use crate::view::{PipelineRun, RunView};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use placement::config::Config;
use placement::keys;
use placement::names::PlaceholderName;
use placement::quota_room::RejectedTask;
use placement::statefulset_quota::Quota;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// UID of the run that the facts are about.
pub(crate) const UID: &str = "u1";

/// The moment this many seconds after the creation of the run.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Applies a merge patch.
pub(crate) fn merged(mut base: Value, changes: &Value) -> Value {
    json_patch::merge(&mut base, changes);
    base
}

pub(crate) fn object<K: DeserializeOwned>(base: Value, changes: &Value) -> K {
    serde_json::from_value(merged(base, changes)).unwrap()
}

/// A labelled run that pod-affinity holds.
pub(crate) fn view(changes: &Value) -> RunView {
    RunView::of(&run(changes)).unwrap()
}

pub(crate) fn run(changes: &Value) -> PipelineRun {
    let base = json!({
        "apiVersion": "tekton.dev/v1", "kind": "PipelineRun",
        "metadata": {
            "namespace": "ci", "name": "build", "uid": UID, "creationTimestamp": at(0).to_string(),
            "labels": {keys::OPT_IN: "true"},
            "annotations": {keys::HOLD: "true"},
        },
        "spec": {"status": "PipelineRunPending"},
        "status": {},
    });
    object(base, changes)
}

/// The labels that make that run a group.
fn enrolled() -> Value {
    json!({keys::GROUP: UID, keys::STRATEGY: "colocateCompleted", keys::ISOLATION: "cluster-all"})
}

/// The changes of that run after its release.
pub(crate) fn released() -> Value {
    json!({
        "metadata": {
            "labels": enrolled(),
            "annotations": {keys::HOLD: null, keys::NODE: "node-1"},
        },
        "spec": {"status": null},
        "status": {"startTime": at(20).to_string(), "childReferences": [{"name": "x"}]},
    })
}

/// The changes of that run when it is done.
pub(crate) fn done() -> Value {
    let verdict = json!({
        "status": {
            "completionTime": at(60).to_string(),
            "conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded"}],
        },
    });
    merged(released(), &verdict)
}

fn terms(uid: &str) -> Value {
    let here =
        |label: Value| json!([{"topologyKey": keys::HOSTNAME, "labelSelector": {"matchExpressions": label}}]);
    let mut apart = here(json!([
        {"key": keys::TEKTON_PIPELINE_RUN, "operator": "Exists"},
        {"key": keys::GROUP, "operator": "NotIn", "values": [uid]},
    ]));
    apart[0]["namespaceSelector"] = json!({});
    let together = here(json!([{"key": keys::GROUP, "operator": "In", "values": [uid]}]));
    json!({
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": together},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart},
    })
}

fn member(run: &str, uid: &str, name: &str, node: Option<&str>) -> Value {
    json!({
        "metadata": {
            "namespace": "ci", "name": name, "uid": format!("uid-of-{name}"), "creationTimestamp": at(1).to_string(),
            "labels": {
                keys::GROUP: uid, keys::STRATEGY: "colocateCompleted", keys::TEKTON_PIPELINE_RUN: run,
            },
        },
        "spec": {
            "nodeName": node,
            "affinity": terms(uid),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "50m", "memory": "100Mi"}}}],
        },
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}

/// The placeholder's StatefulSet of that run.
pub(crate) fn statefulset(replicas: i32, changes: &Value) -> StatefulSet {
    let name = PlaceholderName::of_uid(UID);
    let base = json!({
        "metadata": {
            "namespace": "ci", "name": name.as_str(), "uid": "s1", "generation": 1,
            "ownerReferences": [{"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": "build", "uid": UID}],
        },
        "spec": {"replicas": replicas, "selector": {}, "template": {}, "serviceName": ""},
        "status": {"observedGeneration": 1},
    });
    object(base, changes)
}

/// The placeholder's pod of a run.
pub(crate) fn placeholder(run: &str, uid: &str, node: Option<&str>, changes: &Value) -> Pod {
    let name = PlaceholderName::of_uid(uid).pod();
    let ours = json!({
        "metadata": {
            "labels": {keys::COMPONENT: keys::PLACEHOLDER, keys::APP: keys::APP_NAME},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s1"}],
        },
    });
    let base = merged(member(run, uid, &name, node), &ours);
    object(base, changes)
}

/// A pod of a task of the run.
pub(crate) fn task(name: &str, node: Option<&str>, changes: &Value) -> Pod {
    let base = member("build", UID, &format!("build-{name}-pod"), node);
    let task = json!({"metadata": {"labels": {"tekton.dev/pipelineTask": name}}});
    object(merged(base, &task), changes)
}

/// A pod of a run that is not labelled.
pub(crate) fn stranger(run: &str, node: &str) -> Pod {
    let base = member(run, "none", &format!("{run}-only-pod"), Some(node));
    let plain = json!({
        "metadata": {"labels": {keys::GROUP: null, keys::STRATEGY: null}},
        "spec": {"affinity": null},
    });
    object(base, &plain)
}

/// The status of a pod for which the scheduler finds no node.
pub(crate) fn unschedulable(message: &str) -> Value {
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    json!({"status": {"phase": "Pending", "conditions": [condition]}})
}

/// A Ready node with 8 CPUs.
pub(crate) fn node(name: &str, changes: &Value) -> Node {
    let base = json!({
        "metadata": {"name": name, "labels": {keys::HOSTNAME: name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    object(base, changes)
}

/// The scheduler's message.
pub(crate) const NOWHERE: &str = "0/1 nodes are available: 1 node(s) did not fit.";

/// The facts of a run whose placeholder finds no node, in a cluster of these nodes and pods.
pub(crate) fn waiting(nodes: Vec<Node>, pods: Vec<Pod>) -> Facts {
    let own = placeholder("build", UID, None, &unschedulable(NOWHERE));
    let enrolled = json!({"metadata": {"labels": enrolled()}});
    Facts {
        surroundings: Some(Surroundings {
            nodes: Ok(nodes),
            pods: PartialPods {
                pods,
                errors: Vec::new(),
            },
        }),
        set: Ok(Some(statefulset(1, &json!({})))),
        ..facts(&enrolled, vec![own])
    }
}

/// The facts of a run with these pods, two minutes after its creation.
pub(crate) fn facts(changes: &Value, pods: Vec<Pod>) -> Facts {
    Facts {
        now: at(120),
        config: Ok(Config::default()),
        view: RunView::of(&run(changes)).unwrap(),
        set: Ok(None),
        pods: Ok(pods),
        events: Ok(Vec::new()),
        node: None,
        surroundings: None,
        refusal: None,
        volumes: Some(Ok(Vec::new())),
        quota: Some(Ok(Quota::default())),
        rejected_tasks: Some(Ok(Vec::new())),
        failed_create: Some(Ok(None)),
    }
}

/// An event of pod-affinity on the run.
pub(crate) fn told(second: i64, reason: &str, text: &str) -> RunEvent {
    RunEvent {
        at: at(second),
        since: at(second),
        about: UID.to_owned(),
        by: format!("{}controller", keys::OWN_PREFIX),
        reason: reason.to_owned(),
        text: text.to_owned(),
        warning: false,
    }
}

/// The error of a missing right.
pub(crate) fn forbidden(verb: &'static str, resource: &str) -> RequestError {
    RequestError::Forbidden(attributes(verb, resource))
}

/// The error for a resource that the API server does not serve.
pub(crate) fn not_served(resource: &str) -> RequestError {
    RequestError::NotServed(attributes("list", resource))
}

fn attributes(verb: &'static str, resource: &str) -> RequestAttributes {
    RequestAttributes {
        verb,
        resource: resource.to_owned(),
        name: None,
        namespace: None,
        namespaced: resource == "pods",
    }
}

/// A TaskRun whose pod a quota rejected, without figures.
pub(crate) fn rejected_task() -> RejectedTask {
    RejectedTask {
        name: "build-test".to_owned(),
        message: String::new(),
    }
}
