//! Node selectors and required node affinity: what they ask of a node, and the first thing that it does not meet.

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};
use std::collections::BTreeMap;

/// What the pod asks of its node's labels and this node lacks.
pub(super) fn refusal(spec: &PodSpec, node: &Node) -> Option<String> {
    let labels = labels(node);
    let selector = spec.node_selector.iter().flatten();
    let mut lacking = selector.filter(|(key, value)| labels.get(*key) != Some(value));
    if let Some((key, value)) = lacking.next() {
        return Some(format!("lacks the label {key}={value} (nodeSelector)"));
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    (!matches(required, node)).then(|| format!("does not match the node affinity ({})", text(required)))
}

/// Whether one of the terms holds for the node.
pub(super) fn matches(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| holds(term, node))
}

/// The terms, as people would say them.
pub(super) fn text(selector: &NodeSelector) -> String {
    let terms: Vec<_> = selector.node_selector_terms.iter().map(term_text).collect();
    terms.join(", or ")
}

fn term_text(term: &NodeSelectorTerm) -> String {
    let all = expressions(term).chain(fields(term));
    all.map(requirement_text).collect::<Vec<_>>().join(" and ")
}

fn requirement_text(requirement: &NodeSelectorRequirement) -> String {
    let values = requirement.values.as_deref().unwrap_or_default().join(", ");
    let key = &requirement.key;
    match requirement.operator.as_str() {
        "In" => format!("{key} in {values}"),
        "NotIn" => format!("{key} not in {values}"),
        "Exists" => format!("{key} is there"),
        "DoesNotExist" => format!("{key} is not there"),
        "Gt" => format!("{key} above {values}"),
        "Lt" => format!("{key} below {values}"),
        other => format!("{key} {other} {values}"),
    }
}

fn expressions(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_expressions.iter().flatten()
}

fn fields(term: &NodeSelectorTerm) -> impl Iterator<Item = &NodeSelectorRequirement> {
    term.match_fields.iter().flatten()
}

/// A term that asks nothing holds for no node.
fn holds(term: &NodeSelectorTerm, node: &Node) -> bool {
    let asks = expressions(term).chain(fields(term)).next().is_some();
    let name = node.metadata.name.as_ref();
    asks && expressions(term).all(|it| is_met(it, labels(node).get(&it.key)))
        && fields(term).all(|it| is_met(it, name.filter(|_| it.key == "metadata.name")))
}

fn is_met(requirement: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_listed = || value.is_some_and(|value| values.contains(value));
    match requirement.operator.as_str() {
        "In" => is_listed(),
        "NotIn" => !is_listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(value, values).is_some_and(|(own, bound)| own > bound),
        "Lt" => compare(value, values).is_some_and(|(own, bound)| own < bound),
        _ => false,
    }
}

fn compare(value: Option<&String>, values: &[String]) -> Option<(i64, i64)> {
    Some((value?.parse().ok()?, values.first()?.parse().ok()?))
}

fn labels(node: &Node) -> BTreeMap<String, String> {
    node.metadata.labels.clone().unwrap_or_default()
}
