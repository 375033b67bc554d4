//! Kept nodes: after a run has ended, a pod keeps autoscalers from removing the node for some time, so that the next run finds the
//! node with its images and caches.
//!
//! The pod has no affinity terms to other pods and requests nothing, so every pod can use the node beside it. Its priority is low, so
//! every pod can preempt it. It is a pod of the installation's namespace and not of the run's: it uses no quota of a tenant, no tenant
//! can create such pods to use up `keep-nodes-at-most`, and it ends with the installation.
//!
//! The pods have a fixed set of names, as many as `keep-nodes-at-most`, so the API server itself enforces the limit, also beside a
//! previous leader.

use crate::config::{Config, parse_duration_or_zero};
use crate::keys;
use crate::placeholder::spec::name_requirement;
use crate::placeholder::{idle_container, idle_pod};
use crate::run::Run;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Pod, PodSpec, Toleration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub mod record;

/// The `PriorityClass` of the pods, of the manifest `203-priorityclass.yaml`.
pub const PRIORITY_CLASS: &str = "pod-affinity-kept-node";
/// The most names that one attempt tries.
const ATTEMPTS: usize = 5;

/// A node to keep after the end of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct NewKeptNode {
    /// The node.
    pub node: String,
    /// For how long.
    pub length: Duration,
    /// Until when.
    pub until: Timestamp,
    /// The tolerations of the run's placeholder.
    pub tolerations: Vec<Toleration>,
    /// The possible names of the pod, the first choice first.
    pub names: Vec<String>,
}

/// The pod that keeps a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptNode {
    /// UID of the pod, the precondition of its deletion.
    pub uid: String,
    /// The node that the pod is bound to.
    pub node: Option<String>,
    /// Until when; `None` if the annotation is malformed.
    pub until: Option<Timestamp>,
    /// When the pod was created.
    pub created: Option<Timestamp>,
    /// Namespace and name of the run that has ended.
    pub after: String,
    /// UID of this run; `None` without the annotation.
    pub run: Option<String>,
    /// The phase is Succeeded or Failed.
    pub ended: bool,
}

/// How long the node of a run is kept after the end of the run. The annotation of the run may exceed `keep-node-for` up to
/// `keep-node-for-maximum`. An invalid annotation has no effect.
pub fn length(run: &Run, config: &Config) -> Duration {
    let annotation = run.keep_node_for.as_deref().and_then(parse_duration_or_zero);
    let most = config.keep_node_for_maximum.max(config.keep_node_for);
    annotation.map_or(config.keep_node_for, |wanted| wanted.min(most))
}

impl NewKeptNode {
    /// The node to keep after a run, unless the run keeps no node or no name is free.
    pub fn after_run(
        run: &Run,
        config: &Config,
        node: &str,
        tolerations: &[Toleration],
        taken: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<Self> {
        let length = length(run, config);
        let until = now.checked_add(length).ok()?;
        let names = free_names(&run.key.uid, usize::from(config.keep_nodes_at_most), taken);
        (!length.is_zero() && !names.is_empty()).then(|| Self {
            node: node.to_owned(),
            length,
            until,
            tolerations: tolerations.to_vec(),
            names,
        })
    }

    /// The pod, without a name and a namespace. The kubelet ends the pod even if the controller does not run.
    pub fn pod(&self, run: &Run, image: &str) -> Pod {
        Pod {
            metadata: ObjectMeta {
                labels: Some(labels()),
                annotations: Some(strings([
                    (keys::KEPT_UNTIL, self.until.to_string()),
                    (keys::KEPT_AFTER, run.key.to_string()),
                    (keys::KEPT_AFTER_UID, run.key.uid.clone()),
                    (keys::SAFE_TO_EVICT, "false".to_owned()),
                    (keys::DO_NOT_DISRUPT, "true".to_owned()),
                ])),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                affinity: Some(on_node(&self.node)),
                tolerations: (!self.tolerations.is_empty()).then(|| self.tolerations.clone()),
                priority_class_name: Some(PRIORITY_CLASS.to_owned()),
                active_deadline_seconds: Some(seconds(self.length)),
                ..idle_pod(idle_container(keys::KEPT_NODE, image))
            }),
            status: None,
        }
    }
}

impl KeptNode {
    /// Whether the pod should be deleted: its time is over, or a run uses the node. `is_used`: a run other than the one that has
    /// ended has its placeholder on the node.
    pub fn is_over(&self, now: Timestamp, is_used: bool) -> bool {
        self.ended || is_used || self.until.is_none_or(|until| until <= now)
    }
}

/// The names that are free, from a name on that depends on the run: runs that end at the same time try different names.
fn free_names(uid: &str, limit: usize, taken: &BTreeSet<String>) -> Vec<String> {
    let first = uid.bytes().fold(0, |sum: usize, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(byte))
    });
    let all = (0..limit).map(|number| {
        format!(
            "pod-affinity-{}-{}",
            keys::KEPT_NODE,
            (first % limit + number) % limit
        )
    });
    all.filter(|name| !taken.contains(name)).take(ATTEMPTS).collect()
}

/// Without Tekton's labels and those of a group, so that no affinity term of a run matches the pod.
fn labels() -> BTreeMap<String, String> {
    strings([
        (keys::APP, keys::APP_NAME.to_owned()),
        (keys::COMPONENT, keys::KEPT_NODE.to_owned()),
        (keys::MANAGED_BY, keys::FIELD_MANAGER.to_owned()),
    ])
}

fn strings<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.map(|(key, value)| (key.to_owned(), value)).into()
}

/// The scheduler, and not `spec.nodeName`, binds the pod: the kubelet would reject another pod that the scheduler binds meanwhile.
fn on_node(node: &str) -> Affinity {
    let required = NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: None,
            match_fields: Some(vec![name_requirement(node)]),
        }],
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(required),
            preferred_during_scheduling_ignored_during_execution: None,
        }),
        ..Affinity::default()
    }
}

/// At least 1, which the API server requires.
fn seconds(length: Duration) -> i64 {
    i64::try_from(length.as_secs()).unwrap_or(i64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    const MINUTE: Duration = Duration::from_mins(1);

    fn config() -> Config {
        Config {
            keep_node_for: 5 * MINUTE,
            keep_node_for_maximum: 20 * MINUTE,
            keep_nodes_at_most: 3,
            ..Config::default()
        }
    }

    fn of(annotation: Option<&str>) -> Run {
        Run {
            keep_node_for: annotation.map(str::to_owned),
            ..run()
        }
    }

    fn names(numbers: &[usize]) -> BTreeSet<String> {
        numbers
            .iter()
            .map(|number| format!("pod-affinity-kept-node-{number}"))
            .collect()
    }

    fn kept(run: &Run, config: &Config, taken: &[usize]) -> Option<NewKeptNode> {
        NewKeptNode::after_run(run, config, "n1", &[], &names(taken), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn the_annotation_of_a_run_counts_up_to_the_maximum() {
        for (annotation, minutes) in [
            (None, 5),
            (Some("1m"), 1),
            (Some("20m"), 20),
            (Some("1h"), 20),
            (Some("0"), 0),
            (Some("soon"), 5),
        ] {
            assert_eq!(
                length(&of(annotation), &config()),
                minutes * MINUTE,
                "{annotation:?}"
            );
        }
        let no_maximum = Config {
            keep_node_for_maximum: Duration::ZERO,
            ..config()
        };
        assert_eq!(length(&of(Some("1h")), &no_maximum), 5 * MINUTE);
        assert_eq!(length(&of(Some("1h")), &Config::default()), Duration::ZERO);
    }

    #[test]
    fn a_node_is_kept_only_with_a_length_and_a_free_name() {
        assert_eq!(kept(&run(), &Config::default(), &[]), None);
        let free = kept(&run(), &config(), &[]).unwrap();
        assert_eq!(
            free.names.iter().cloned().collect::<BTreeSet<_>>(),
            names(&[0, 1, 2])
        );
        assert_eq!(
            kept(&run(), &config(), &[0, 2]).unwrap().names,
            ["pod-affinity-kept-node-1"]
        );
        assert_eq!(kept(&run(), &config(), &[0, 1, 2]), None);
        let none = Config {
            keep_nodes_at_most: 0,
            ..config()
        };
        assert_eq!(kept(&run(), &none, &[]), None);
        let for_ever = Config {
            keep_node_for: Duration::MAX,
            ..config()
        };
        assert_eq!(kept(&run(), &for_ever, &[]), None);
    }

    #[test]
    fn the_pod_has_no_label_of_a_run_and_no_requests_and_ends_by_itself() {
        let pod = kept(&run(), &config(), &[]).unwrap().pod(&run(), "image");
        let labels = pod.metadata.labels.unwrap();
        assert!(!labels.contains_key(keys::TEKTON_PIPELINE_RUN) && !labels.contains_key(keys::GROUP));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.active_deadline_seconds, Some(300));
        assert_eq!(spec.containers[0].resources, None);
        assert_eq!(spec.priority_class_name.as_deref(), Some(PRIORITY_CLASS));
        let affinity = spec.affinity.unwrap();
        assert_eq!((affinity.pod_affinity, affinity.pod_anti_affinity), (None, None));
    }

    #[test]
    fn a_kept_node_is_over_at_its_time_or_when_a_run_uses_it() {
        let kept = |second| KeptNode {
            uid: "u".to_owned(),
            node: Some("n1".to_owned()),
            until: second,
            created: None,
            after: "ns/build".to_owned(),
            run: None,
            ended: false,
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(!kept(Some(at(10))).is_over(at(9), false));
        assert!(kept(Some(at(10))).is_over(at(9), true));
        assert!(kept(Some(at(10))).is_over(at(10), false));
        assert!(kept(None).is_over(at(9), false), "malformed");
    }
}
