//! The pods of runs under different shapes of terms. Ours come from `placement`; the others are written out.

use k8s_openapi::api::core::v1::Pod;
use placement::keys;
use placement::names::Group;
use placement::strategy::Strategy;
use placement::terms::terms;
use serde_json::{Value, json};

/// How the pods of a run are kept together and runs apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Not at all.
    None,
    /// As Tekton does with `isolate-pipelinerun`.
    InTree,
    /// As we do, from all runs in the cluster.
    Ours,
    /// As we do with `isolation-scope: namespace`.
    OursNamespace,
    /// As ours, written with keys that the API server replaces by values.
    Keys,
    /// As ours, but only the placeholder keeps others away.
    ApartByPlaceholder,
    /// Tasks follow the placeholder and nothing else; only the placeholder keeps others away.
    ToPlaceholder,
}

pub(crate) const TASKS: usize = 4;
const INSTANCE: &str = "app.kubernetes.io/instance";

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "no terms",
            Self::InTree => "Tekton, isolate-pipelinerun",
            Self::Ours => "pod-affinity, cluster",
            Self::OursNamespace => "pod-affinity, namespace",
            Self::Keys => "tried: matchLabelKeys and mismatchLabelKeys",
            Self::ApartByPlaceholder => "tried: only the placeholder keeps away",
            Self::ToPlaceholder => "tried: tasks tied to the placeholder, which keeps away",
        }
    }

    /// Whether every run is alone on one node, in whatever order the pods come.
    pub(crate) fn isolates(self) -> bool {
        match self {
            Self::InTree | Self::Ours | Self::OursNamespace | Self::Keys | Self::ToPlaceholder => true,
            Self::None | Self::ApartByPlaceholder => false,
        }
    }

    /// The pod that finds the run its node; without terms a pod as any other.
    pub(crate) fn placeholder(self, run: usize) -> Pod {
        let (uid, labels) = (uid(run), self.placeholder_labels(run));
        let affinity = match self {
            Self::None => json!({}),
            Self::InTree => json!({"podAntiAffinity": required(&assistant_term(None))}),
            Self::Ours | Self::ApartByPlaceholder | Self::ToPlaceholder => ours(&uid, "cluster-all"),
            Self::OursNamespace => ours(&uid, "namespace-all"),
            Self::Keys => by_keys(),
        };
        pod(
            &format!("run-{run}-placeholder"),
            &labels,
            &affinity,
            &json!({"cpu": "50m", "memory": "100Mi"}),
        )
    }

    /// A task's pod.
    pub(crate) fn task(self, run: usize, task: usize) -> Pod {
        let uid = uid(run);
        let affinity = match self {
            Self::None => json!({}),
            Self::InTree => json!({"podAffinity": required(&assistant_term(Some(&assistant(run))))}),
            Self::Ours => ours(&uid, "cluster-all"),
            Self::OursNamespace => ours(&uid, "namespace-all"),
            Self::Keys => by_keys(),
            Self::ApartByPlaceholder => only_together(&uid),
            Self::ToPlaceholder => json!({"podAffinity": required(&placeholder_term(&uid))}),
        };
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

/// A pod that has nothing to do with any run.
pub(crate) fn stranger(index: usize) -> Pod {
    pod(
        &format!("stranger-{index}"),
        &json!({"app": "stranger"}),
        &json!({}),
        &json!({}),
    )
}

fn name(run: usize) -> String {
    format!("run-{run}")
}

/// As long as a real one.
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

fn placeholder_term(uid: &str) -> Value {
    let labels = json!({keys::GROUP: uid, keys::COMPONENT: keys::PLACEHOLDER});
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

fn by_keys() -> Value {
    let exists = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let together = json!({
        "topologyKey": keys::HOSTNAME,
        "labelSelector": {"matchExpressions": [{"key": keys::OPT_IN, "operator": "NotIn", "values": ["false"]}]},
        "matchLabelKeys": [keys::GROUP],
    });
    let apart = json!({
        "topologyKey": keys::HOSTNAME,
        "namespaceSelector": {},
        "labelSelector": exists(keys::TEKTON_PIPELINE_RUN),
        "mismatchLabelKeys": [keys::GROUP],
    });
    json!({"podAffinity": required(&together), "podAntiAffinity": required(&apart)})
}

fn required(term: &Value) -> Value {
    json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
}

/// Written by hand above, so that whatever does not read is a mistake of ours, which the API server would refuse.
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

    const ALL: [Shape; 7] = [
        Shape::None,
        Shape::InTree,
        Shape::Ours,
        Shape::OursNamespace,
        Shape::Keys,
        Shape::ApartByPlaceholder,
        Shape::ToPlaceholder,
    ];

    #[test]
    fn every_pod_has_its_name_and_its_run() {
        for shape in ALL {
            for pod in [shape.placeholder(7), shape.task(7, 0)] {
                let labels = pod.metadata.labels.unwrap();
                assert!(pod.metadata.name.unwrap().starts_with("run-7-"), "{shape:?}");
                assert_eq!(labels[keys::TEKTON_PIPELINE_RUN], "run-7", "{shape:?}");
            }
        }
    }

    #[test]
    fn the_shapes_differ_in_who_keeps_away() {
        let apart = |pod: Pod| pod.spec.unwrap().affinity.unwrap().pod_anti_affinity.is_some();
        let of = |shape: Shape| (apart(shape.placeholder(1)), apart(shape.task(1, 1)));
        assert_eq!(of(Shape::Ours), (true, true));
        assert_eq!(of(Shape::Keys), (true, true));
        assert_eq!(of(Shape::InTree), (true, false));
        assert_eq!(of(Shape::ApartByPlaceholder), (true, false));
        assert_eq!(of(Shape::None), (false, false));
    }
}
