//! The placeholder, the node or the reasons against each node, and the answer of an autoscaler.

use super::report::Section;
use super::reports;
use crate::facts::Facts;
use crate::fit::Obstacle;
use crate::state::State;
use crate::view::{created, is_placeholder, node as bound, unschedulable};
use crate::words::{age, count, list};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::node::Cause;
use std::collections::BTreeMap;

/// The most nodes with the same reasons that a line names.
const NAMED: usize = 4;
/// The most lines of reasons.
const LINES: usize = 12;

/// The placeholder.
pub(super) fn placeholder(facts: &Facts) -> Option<Section> {
    let text = match facts.state() {
        State::Held | State::WaitingForNode | State::Running | State::Moving | State::Reserved => {
            present(facts)?
        }
        State::HeldElsewhere => "none yet: a run that waits in a queue occupies no node.".to_owned(),
        State::Done if matches!(facts.set, Ok(None)) => "deleted when the run was done.".to_owned(),
        _ => return None,
    };
    Some(Section::new("Placeholder", text))
}

fn present(facts: &Facts) -> Option<String> {
    if facts.set.is_err() && facts.pods.is_err() {
        return None;
    }
    let name = facts.view.run.key.placeholder();
    let placeholder = facts.placeholder();
    Some(match (placeholder.set, placeholder.pod) {
        (_, Some(pod)) => {
            let since = created(&pod.metadata).map(|at| age(at, facts.now));
            let node = bound(pod).map_or("not on any node yet".to_owned(), |node| format!("on node {node}"));
            format!(
                "pod {}, made {} ago, {node}.",
                name.pod(),
                since.unwrap_or_default()
            )
        }
        (Some(_), None) if facts.has_made_room() => format!("{name}, scaled to 0: it comes back later."),
        (Some(_), None) if facts.is_scaled_down() => {
            format!("{name}, scaled to 0: it comes back where the run's next pod finds a node.")
        }
        (Some(_), None) => format!("{name}, whose pod has not been created yet."),
        (None, None) => "none yet.".to_owned(),
    })
}

/// The older runs for which a run without a placeholder waits.
pub(super) fn in_line(facts: &Facts) -> Option<Section> {
    facts
        .waits_in_line()
        .map(|event| Section::new("Line", event.text.clone()))
}

/// The node, or the reasons against each node.
pub(super) fn node(facts: &Facts) -> Option<Section> {
    let node = facts.last_node();
    let text = match facts.state() {
        State::WaitingForNode | State::Held => return Some(none_yet(facts)),
        State::Moving => return Some(moving(facts)),
        State::Running => here(facts, facts.node_name().or(node)?),
        State::Reserved => format!(
            "{} stays reserved until this PipelineRun is deleted, or an autoscaler removes the node (isolateAlways).",
            node?
        ),
        State::Done => format!("was {}, which this run does not keep.", node?),
        _ => return None,
    };
    Some(Section::new("Node", text))
}

fn here(facts: &Facts, node: &str) -> String {
    let unusable = facts.node_unusable().map(|cause| unusable(facts, node, cause));
    format!("{node}.{}", unusable.unwrap_or_default())
}

fn unusable(facts: &Facts, node: &str, cause: Cause) -> String {
    let stays = match (facts.only_volume_of(node), facts.config().move_after) {
        (Some(claim), _) => {
            format!(" The run stays there, because its PVC {claim} can be used on no other node.")
        }
        (None, None) => " The run stays there, because move-after is never.".to_owned(),
        (None, Some(_)) => String::new(),
    };
    format!(" No new pod can start there: the node {}.{stays}", cause.text())
}

fn moving(facts: &Facts) -> Section {
    if facts.has_made_room() {
        let text = "none is kept at the moment: a quota had no room for a task, so that the placeholder gave its place up. \
                    Tasks that are there stay, and it comes back later.";
        return Section::new("Node", text);
    }
    let before = facts.view.run.node.as_deref();
    let before = before
        .map(|node| format!(" It was on {node} before."))
        .unwrap_or_default();
    let next = facts.waiting().next();
    let name = next
        .map(|pod| format!(", {},", pod.name_any()))
        .unwrap_or_default();
    let text = format!(
        "none at the moment: the run moved off its node, and takes the node that its next pod{name} finds.{before}"
    );
    Section::new("Node", text).details(next.map(|pod| against(facts, pod)).unwrap_or_default())
}

fn none_yet(facts: &Facts) -> Section {
    let placeholder = facts.placeholder();
    if let Some(node) = placeholder.node() {
        return Section::new(
            "Node",
            format!("{node}, where the run starts when it is released."),
        );
    }
    let message = placeholder.pod.and_then(unschedulable);
    let message = message.map(|text| format!(" {}", reports("The scheduler", text)));
    let text = format!("none yet.{}", message.unwrap_or_default());
    Section::new("Node", text).details(placeholder.pod.map(|pod| against(facts, pod)).unwrap_or_default())
}

/// The reasons against each node; nodes with the same reasons are on one line.
fn against(facts: &Facts, pod: &Pod) -> Vec<String> {
    let Some(fit) = facts.fit(pod) else {
        return Vec::new();
    };
    if fit.nodes().is_empty() {
        return vec!["the cluster has no nodes".to_owned()];
    }
    let mut groups: BTreeMap<Vec<Obstacle>, Vec<String>> = BTreeMap::new();
    for node in fit.nodes() {
        groups
            .entry(fit.obstacles(node))
            .or_default()
            .push(node.name_any());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(_, nodes), (_, others)| nodes.cmp(others));
    let more = groups.len().saturating_sub(LINES);
    let lines = groups
        .iter()
        .take(LINES)
        .map(|(reasons, nodes)| line(reasons, nodes));
    let rest = (more > 0).then(|| format!("and {} for other nodes", count(more, "other reason")));
    lines.chain(rest).collect()
}

fn line(reasons: &[Obstacle], nodes: &[String]) -> String {
    let names = list(nodes, NAMED);
    let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    match reasons.as_slice() {
        [] => format!("{names}: no known reason against this node"),
        reasons => format!("{names}: {}", list(reasons, 3)),
    }
}

/// The answer of an autoscaler to the pod that waits.
pub(super) fn autoscaler(facts: &Facts) -> Option<Section> {
    let pod = facts.waiting().next()?;
    facts.events.as_ref().ok()?;
    let text = match facts.autoscaler_about(pod) {
        Some(answer) => {
            let name = if answer.by.is_empty() {
                "the autoscaler"
            } else {
                &answer.by
            };
            let reporter = format!("{name} ({})", answer.reason);
            format!(
                "{} ago, {}",
                age(answer.at, facts.now),
                reports(&reporter, &answer.text)
            )
        }
        None if is_placeholder(pod) => "none has answered the placeholder so far.".to_owned(),
        None => format!("none has answered pod {} so far.", pod.name_any()),
    };
    Some(Section::new("Autoscaler", text))
}
