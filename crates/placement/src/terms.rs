//! The two affinity terms of a group: be on the node of the group, and keep other groups off the node.

use crate::keys;
use crate::names::Group;
use crate::opt_in::DECLINED;
use crate::strategy::{IsolateFrom, Isolation, Scope, Strategy};
use k8s_openapi::api::core::v1::PodAffinityTerm;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// The required terms of every pod of a group, its placeholder included.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Be on the node of the group. The first pod of a group matches its own term, so the scheduler may choose any node
    /// for it.
    pub affinity: PodAffinityTerm,
    /// Be on no node with pods of other runs, unless the strategy shares the node.
    pub anti_affinity: Option<PodAffinityTerm>,
}

/// The terms of a member of this group.
pub fn terms(group: &Group, strategy: Strategy, isolation: Isolation) -> Terms {
    Terms {
        affinity: same_node(members(group), None),
        anti_affinity: strategy.isolates().then(|| keep_away(group, isolation)),
    }
}

impl Terms {
    /// The terms of an affinity assistant. An assistant may be only where other pods of its group are: it does not
    /// match its own term, so it is never the first pod of the group on a node.
    #[must_use]
    pub fn for_assistant(mut self) -> Self {
        let selector = self.affinity.label_selector.get_or_insert_default();
        let others = requirement(keys::COMPONENT, "NotIn", keys::ASSISTANT);
        selector.match_expressions.get_or_insert_default().push(others);
        self
    }
}

/// The pod of a task that opted out has the group label as well, but the other pods do not follow it to its node.
fn members(group: &Group) -> Vec<LabelSelectorRequirement> {
    vec![
        requirement(keys::GROUP, "In", group.as_str()),
        requirement(keys::OPT_IN, "NotIn", DECLINED),
    ]
}

/// `NotIn` also matches pods without the label: with `isolate-from: all` the term matches pods of runs that are not
/// enrolled.
fn keep_away(group: &Group, isolation: Isolation) -> PodAffinityTerm {
    let others = exists(match isolation.from {
        IsolateFrom::All => keys::TEKTON_PIPELINE_RUN,
        IsolateFrom::Enrolled => keys::GROUP,
    });
    same_node(
        vec![others, requirement(keys::GROUP, "NotIn", group.as_str())],
        namespaces(isolation.scope),
    )
}

/// An empty selector selects every namespace; without a selector, a term selects the namespace of the pod.
fn namespaces(scope: Scope) -> Option<LabelSelector> {
    match scope {
        Scope::Cluster => Some(LabelSelector::default()),
        Scope::Namespace => None,
    }
}

fn same_node(pods: Vec<LabelSelectorRequirement>, namespaces: Option<LabelSelector>) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(LabelSelector {
            match_expressions: Some(pods),
            match_labels: None,
        }),
        namespace_selector: namespaces,
        topology_key: keys::HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    }
}

fn requirement(key: &str, operator: &str, value: &str) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![value.to_owned()]),
    }
}

fn exists(key: &str) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: "Exists".to_owned(),
        values: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json, to_value};

    fn anti_affinity(strategy: Strategy, isolation: &str) -> Option<Value> {
        let terms = terms(&Group::of("u1"), strategy, isolation.parse().unwrap());
        terms.anti_affinity.map(|term| to_value(term).unwrap())
    }

    fn kept_away_from(isolation: &str) -> Value {
        anti_affinity(Strategy::ColocateCompleted, isolation).unwrap()
    }

    #[test]
    fn the_affinity_term_selects_the_group_in_its_namespace_with_each_strategy() {
        for name in Strategy::NAMES {
            let terms = terms(&Group::of("u1"), name.parse().unwrap(), Isolation::default());
            assert_eq!(
                to_value(terms.affinity).unwrap(),
                json!({
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchExpressions": [
                        {"key": "pod-affinity.tekton.dev/group", "operator": "In", "values": ["u1"]},
                        {"key": "tekton.dev/custom-pod-affinity", "operator": "NotIn", "values": ["false"]}
                    ]}
                })
            );
        }
    }

    #[test]
    fn colocate_always_has_no_anti_affinity_term() {
        assert_eq!(anti_affinity(Strategy::ColocateAlways, "cluster-all"), None);
    }

    #[test]
    fn both_isolating_strategies_have_the_same_anti_affinity_term() {
        let completed = anti_affinity(Strategy::ColocateCompleted, "cluster-all");
        assert!(completed.is_some());
        assert_eq!(completed, anti_affinity(Strategy::IsolateAlways, "cluster-all"));
    }

    #[test]
    fn isolation_from_all_in_the_cluster_selects_the_pods_of_all_other_runs() {
        assert_eq!(
            kept_away_from("cluster-all"),
            json!({
                "topologyKey": "kubernetes.io/hostname",
                "namespaceSelector": {},
                "labelSelector": {"matchExpressions": [
                    {"key": "tekton.dev/pipelineRun", "operator": "Exists"},
                    {"key": "pod-affinity.tekton.dev/group", "operator": "NotIn", "values": ["u1"]}
                ]}
            })
        );
    }

    #[test]
    fn isolation_from_enrolled_runs_selects_pods_with_the_group_label() {
        let term = kept_away_from("cluster-enrolled");
        let first = &term["labelSelector"]["matchExpressions"][0];
        assert_eq!(
            first,
            &json!({"key": "pod-affinity.tekton.dev/group", "operator": "Exists"})
        );
    }

    #[test]
    fn isolation_within_the_namespace_has_no_namespace_selector() {
        for isolation in ["namespace-all", "namespace-enrolled"] {
            assert_eq!(kept_away_from(isolation).get("namespaceSelector"), None);
        }
    }
}
