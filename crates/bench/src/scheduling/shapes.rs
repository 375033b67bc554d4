//! The pods of runs with different affinity terms. pod-affinity's terms come from `placement`; the others are written out here.

use crate::variants::{
    CLUSTER, ISOLATE, NAMESPACE, NO_TERMS, NODE_NAME_APART, NODE_NAME_ONLY, NODE_NAME_TOO,
};
use k8s_openapi::api::core::v1::Pod;
use placement::keys;
use placement::names::Group;
use placement::strategy::Strategy;
use placement::terms::terms;
use serde_json::{Value, json};

/// Affinity terms that keep the pods of a run together and runs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermsShape {
    /// No terms.
    None,
    /// The terms of Tekton's mode `isolate-pipelinerun`.
    InTree,
    /// The terms of pod-affinity, with anti-affinity to all runs in the cluster.
    Ours,
    /// The terms of pod-affinity with `isolation-scope: namespace`.
    OursNamespace,
    /// Like `Ours`, and tasks name the node of the placeholder.
    NodeNameToo,
    /// Tasks have the affinity of `Ours` and name the node of the placeholder. Only the placeholder has the anti-affinity.
    NodeNameApart,
    /// Tasks name the node of the placeholder, and have no other terms.
    NodeNameOnly,
}

pub(super) const TASKS: usize = 4;
const INSTANCE: &str = "app.kubernetes.io/instance";

impl TermsShape {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => NO_TERMS,
            Self::InTree => ISOLATE,
            Self::Ours => CLUSTER,
            Self::OursNamespace => NAMESPACE,
            Self::NodeNameToo => NODE_NAME_TOO,
            Self::NodeNameApart => NODE_NAME_APART,
            Self::NodeNameOnly => NODE_NAME_ONLY,
        }
    }

    /// Whether a task names the node of its placeholder, and so can only be created after the placeholder is bound.
    pub(super) fn has_node_name(self) -> bool {
        match self {
            Self::NodeNameToo | Self::NodeNameApart | Self::NodeNameOnly => true,
            Self::None | Self::InTree | Self::Ours | Self::OursNamespace => false,
        }
    }

    /// The first pod of a run. Without terms, the pod has no effect on the others.
    pub(super) fn placeholder(self, run: usize) -> Pod {
        let (uid, labels) = (uid(run), self.placeholder_labels(run));
        let affinity = match self {
            Self::None => json!({}),
            Self::InTree => json!({"podAntiAffinity": required(&assistant_term(None))}),
            Self::Ours | Self::NodeNameToo | Self::NodeNameApart | Self::NodeNameOnly => {
                ours(&uid, "cluster-all")
            }
            Self::OursNamespace => ours(&uid, "namespace-all"),
        };
        pod(
            &placeholder_name(run),
            &labels,
            &affinity,
            &json!({"cpu": "50m", "memory": "100Mi"}),
        )
    }

    /// A task's pod, and the node of its placeholder if the placeholder is bound.
    pub(super) fn task(self, run: usize, task: usize, node: Option<&str>) -> Pod {
        let uid = uid(run);
        let mut affinity = match self {
            Self::None | Self::NodeNameOnly => json!({}),
            Self::InTree => json!({"podAffinity": required(&assistant_term(Some(&assistant(run))))}),
            Self::Ours | Self::NodeNameToo => ours(&uid, "cluster-all"),
            Self::OursNamespace => ours(&uid, "namespace-all"),
            Self::NodeNameApart => only_together(&uid),
        };
        if let Some(node) = node.filter(|_| self.has_node_name()) {
            affinity["nodeAffinity"] = on_node(node);
        }
        let labels = json!({
            keys::TEKTON_PIPELINE_RUN: name(run), keys::GROUP: uid, "tekton.dev/pipelineTask": format!("task-{task}"),
        });
        pod(&format!("run-{run}-task-{task}"), &labels, &affinity, &json!({}))
    }

    fn placeholder_labels(self, run: usize) -> Value {
        match self {
            Self::InTree => json!({
                keys::TEKTON_PIPELINE_RUN: name(run),
                keys::COMPONENT: keys::ASSISTANT,
                INSTANCE: assistant(run),
            }),
            _ => json!({
                keys::TEKTON_PIPELINE_RUN: name(run), keys::GROUP: uid(run), keys::COMPONENT: keys::PLACEHOLDER,
            }),
        }
    }
}

/// A pod that belongs to no run.
pub(super) fn unrelated(index: usize) -> Pod {
    pod(
        &format!("unrelated-{index}"),
        &json!({"app": "unrelated"}),
        &json!({}),
        &json!({}),
    )
}

pub(super) fn placeholder_name(run: usize) -> String {
    format!("run-{run}-placeholder")
}

fn name(run: usize) -> String {
    format!("run-{run}")
}

/// As long as the UID of a real run.
fn uid(run: usize) -> String {
    format!("00000000-0000-4000-8000-{run:012}")
}

fn assistant(run: usize) -> String {
    format!("affinity-assistant-{run:010}")
}

fn assistant_term(instance: Option<&str>) -> Value {
    let mut labels = json!({keys::COMPONENT: keys::ASSISTANT});
    if let Some(instance) = instance {
        labels[INSTANCE] = json!(instance);
    }
    json!({"topologyKey": keys::HOSTNAME, "labelSelector": {"matchLabels": labels}})
}

fn ours(uid: &str, isolation: &str) -> Value {
    let isolation = isolation.parse().unwrap_or_default();
    let terms = terms(&Group::of(uid), Strategy::ColocateCompleted, isolation);
    json!({"podAffinity": required(&json!(terms.affinity)), "podAntiAffinity": required(&json!(terms.anti_affinity))})
}

fn only_together(uid: &str) -> Value {
    let mut affinity = ours(uid, "cluster-all");
    if let Some(kinds) = affinity.as_object_mut() {
        kinds.remove("podAntiAffinity");
    }
    affinity
}

fn on_node(name: &str) -> Value {
    let field = json!({"key": "metadata.name", "operator": "In", "values": [name]});
    json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}})
}

fn required(term: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
}

/// The JSON is written in this file. If a mistake makes it unreadable, the pod is empty, and the API server rejects it.
fn pod(name: &str, labels: &Value, affinity: &Value, requests: &Value) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "affinity": affinity,
            "automountServiceAccountToken": false,
            "containers": [{"name": "step", "image": "testbed.invalid/step", "resources": {"requests": requests}}],
        },
    });
    serde_json::from_value(pod).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [TermsShape; 7] = [
        TermsShape::None,
        TermsShape::InTree,
        TermsShape::Ours,
        TermsShape::OursNamespace,
        TermsShape::NodeNameToo,
        TermsShape::NodeNameApart,
        TermsShape::NodeNameOnly,
    ];

    #[test]
    fn every_pod_has_its_name_and_its_run() {
        for shape in ALL {
            for pod in [shape.placeholder(7), shape.task(7, 0, None)] {
                let labels = pod.metadata.labels.unwrap();
                assert!(pod.metadata.name.unwrap().starts_with("run-7-"), "{shape:?}");
                assert_eq!(labels[keys::TEKTON_PIPELINE_RUN], "run-7", "{shape:?}");
            }
        }
    }

    #[test]
    fn the_shapes_differ_in_the_pods_with_anti_affinity() {
        let apart = |pod: Pod| pod.spec.unwrap().affinity.unwrap().pod_anti_affinity.is_some();
        let of = |shape: TermsShape| (apart(shape.placeholder(1)), apart(shape.task(1, 1, None)));
        assert_eq!(of(TermsShape::Ours), (true, true));
        assert_eq!(of(TermsShape::InTree), (true, false));
        assert_eq!(of(TermsShape::NodeNameToo), (true, true));
        assert_eq!(of(TermsShape::NodeNameApart), (true, false));
        assert_eq!(of(TermsShape::None), (false, false));
    }

    #[test]
    fn a_task_names_the_node_of_its_placeholder_in_these_shapes_only() {
        for shape in ALL {
            let affinity = shape.task(1, 1, Some("node-4")).spec.unwrap().affinity.unwrap();
            assert_eq!(
                affinity.node_affinity.is_some(),
                shape.has_node_name(),
                "{shape:?}"
            );
        }
    }
}
