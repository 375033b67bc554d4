//! Node selectors and required node affinity, by the rules of the scheduler.

use super::{NodeFacts, untolerated};
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Toleration,
};
use std::collections::BTreeMap;

/// The labels and the node affinity that a pod requires of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRequirements {
    /// `spec.nodeSelector`.
    pub labels: BTreeMap<String, String>,
    /// The required node affinity.
    pub affinity: Option<NodeSelector>,
}

impl NodeRequirements {
    /// The requirements of a pod.
    pub fn new(labels: BTreeMap<String, String>, affinity: Option<NodeAffinity>) -> Self {
        let affinity = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution);
        Self { labels, affinity }
    }

    /// Whether a node meets the requirements.
    pub fn are_met_by(&self, node: &NodeFacts) -> bool {
        let has = |(key, value): (&String, &String)| node.labels.get(key) == Some(value);
        let affinity = self.affinity.as_ref();
        self.labels.iter().all(has)
            && affinity.is_none_or(|selector| matches(selector, &node.name, &node.labels))
    }

    /// Whether a pod with these requirements and tolerations can start on a node, apart from what other pods use.
    pub fn allow(&self, node: &NodeFacts, tolerations: &[Toleration]) -> bool {
        untolerated(node, tolerations).next().is_none() && self.are_met_by(node)
    }
}

/// Whether a node with this name and these labels matches a term of the selector.
pub fn matches(selector: &NodeSelector, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let terms = &selector.node_selector_terms;
    terms.iter().any(|term| term_matches(term, name, labels))
}

/// A term without requirements matches no node.
pub(crate) fn term_matches(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = || term.match_expressions.iter().flatten();
    let fields = || term.match_fields.iter().flatten();
    let is_empty = expressions().chain(fields()).next().is_none();
    let field = |key: &str| (key == "metadata.name").then_some(name);
    !is_empty
        && expressions().all(|it| is_met(it, labels.get(&it.key).map(String::as_str)))
        && fields().all(|it| is_met(it, field(&it.key)))
}

fn is_met(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = || value.is_some_and(|value| values.iter().any(|it| it == value));
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers(value, values).is_some_and(|(own, bound)| own > bound),
        "Lt" => numbers(value, values).is_some_and(|(own, bound)| own < bound),
        _ => false,
    }
}

pub(super) fn numbers(value: Option<&str>, values: &[String]) -> Option<(i64, i64)> {
    Some((value?.parse().ok()?, values.first()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> NodeFacts {
        let labels = [("disk", "ssd"), ("cores", "8")];
        NodeFacts {
            name: "n1".into(),
            labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
            ..NodeFacts::default()
        }
    }

    fn affinity_matches(terms: &Value) -> bool {
        let affinity =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let affinity = serde_json::from_value(affinity).unwrap();
        NodeRequirements::new(BTreeMap::new(), Some(affinity)).are_met_by(&node())
    }

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn each_operator_matches_as_in_the_scheduler() {
        let matching = [
            ("disk", "In", &["hdd", "ssd"][..]),
            ("disk", "NotIn", &["hdd"]),
            ("gpu", "NotIn", &["yes"]),
            ("disk", "Exists", &[]),
            ("gpu", "DoesNotExist", &[]),
            ("cores", "Gt", &["7"]),
            ("cores", "Lt", &["9"]),
        ];
        let other = [
            ("disk", "In", &["hdd"][..]),
            ("gpu", "In", &["yes"]),
            ("disk", "NotIn", &["ssd"]),
            ("gpu", "Exists", &[]),
            ("disk", "DoesNotExist", &[]),
            ("cores", "Gt", &["8"]),
            ("cores", "Lt", &["8"]),
            ("disk", "Gt", &["1"]),
            ("disk", "Unknown", &["ssd"]),
        ];
        for (key, operator, values) in matching {
            assert!(
                affinity_matches(&json!([expression(key, operator, values)])),
                "{key} {operator}"
            );
        }
        for (key, operator, values) in other {
            assert!(
                !affinity_matches(&json!([expression(key, operator, values)])),
                "{key} {operator}"
            );
        }
    }

    #[test]
    fn one_matching_term_is_sufficient_and_an_empty_term_matches_no_node() {
        let (ssd, hdd) = (
            expression("disk", "In", &["ssd"]),
            expression("disk", "In", &["hdd"]),
        );
        assert!(affinity_matches(&json!([hdd, ssd])));
        assert!(!affinity_matches(&json!([{}])));
        assert!(!affinity_matches(&json!([])));
        let both = json!({"matchExpressions": [ssd["matchExpressions"][0], hdd["matchExpressions"][0]]});
        assert!(!affinity_matches(&json!([both])));
    }

    #[test]
    fn match_fields_compare_the_name_of_the_node() {
        let named = |name: &str| json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]);
        assert!(affinity_matches(&named("n1")));
        assert!(!affinity_matches(&named("n2")));
    }

    #[test]
    fn a_node_selector_requires_each_of_its_labels() {
        let requires = |labels: &[(&str, &str)]| {
            let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into()));
            NodeRequirements::new(labels.collect(), None).are_met_by(&node())
        };
        assert!(requires(&[]) && requires(&[("disk", "ssd")]));
        assert!(!requires(&[("disk", "hdd")]) && !requires(&[("disk", "ssd"), ("gpu", "yes")]));
    }
}
