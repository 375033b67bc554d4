//! The placeholder, the node or why there is none, and what an autoscaler says to that.

use super::{reports, unfit};
use crate::events::Told;
use crate::facts::Facts;
use crate::fit::{Refusal, refusals};
use crate::report::Chapter;
use crate::state::State;
use crate::view::{created, label, node as bound, unschedulable};
use crate::words::{age, count, list};
use k8s_openapi::api::core::v1::Pod;
use placement::keys;
use placement::strategy::Strategy;
use std::collections::BTreeMap;

/// Nodes with the same reason that are named; the rest is counted.
const NAMED: usize = 4;
/// Reasons that are told; the rest is counted.
const TOLD: usize = 12;

/// The placeholder.
pub(super) fn placeholder(facts: &Facts) -> Option<Chapter> {
    let text = match facts.state() {
        State::Held | State::WaitingForNode | State::Running | State::Moving | State::Reserved => {
            present(facts)?
        }
        State::HeldElsewhere => "none yet: a run that waits in a queue occupies no node.".to_owned(),
        State::Done => gone(facts)?,
        State::Ending
        | State::Declined
        | State::TooLate
        | State::Invalid
        | State::Nested
        | State::ManagedElsewhere
        | State::Unlabelled => return None,
    };
    Some(Chapter::new("Placeholder", text))
}

fn gone(facts: &Facts) -> Option<String> {
    let set = facts.set.as_ref().ok()?;
    set.is_none().then(|| "deleted when the run was done.".to_owned())
}

fn present(facts: &Facts) -> Option<String> {
    if facts.set.is_err() && facts.pods.is_err() {
        return None;
    }
    let name = facts.view.run.key.placeholder();
    let seat = facts.seat();
    Some(match (seat.set, seat.pod) {
        (_, Some(pod)) => format!("pod {}, {}.", name.pod(), pod_state(pod, facts)),
        (Some(_), None) if seat.has_made_room() => format!("{name}, scaled to 0: it comes back later."),
        (Some(_), None) if seat.is_vacant() => {
            format!("{name}, scaled to 0: it comes back where the run's next pod finds a node.")
        }
        (Some(_), None) => format!("{name}, whose pod has not been created yet."),
        (None, None) => "none yet.".to_owned(),
    })
}

fn pod_state(pod: &Pod, facts: &Facts) -> String {
    let since = created(&pod.metadata)
        .map(|at| age(at, facts.now))
        .unwrap_or_default();
    match bound(pod) {
        Some(node) => format!("made {since} ago, on node {node}"),
        None => format!("made {since} ago, not on any node yet"),
    }
}

/// The node, or why there is none.
pub(super) fn node(facts: &Facts) -> Option<Chapter> {
    match facts.state() {
        State::WaitingForNode | State::Held => Some(none_yet(facts)),
        State::Running => facts.home_name().or(facts.node()).map(|node| here(facts, node)),
        State::Moving => Some(moving(facts)),
        State::Reserved => facts.node().map(reserved),
        State::Done => facts.node().map(was),
        State::HeldElsewhere
        | State::Ending
        | State::Declined
        | State::TooLate
        | State::Invalid
        | State::Nested
        | State::ManagedElsewhere
        | State::Unlabelled => None,
    }
}

fn here(facts: &Facts, node: &str) -> Chapter {
    let company = match facts.strategy() {
        Strategy::ColocateAlways => "other runs may be there too",
        Strategy::ColocateCompleted => "its own until it is done",
        Strategy::IsolateAlways => "its own until it is deleted",
    };
    let unfit = unfit::sentence(facts).map(|sentence| format!(" {sentence}"));
    Chapter::new("Node", format!("{node}, {company}.{}", unfit.unwrap_or_default()))
}

fn moving(facts: &Facts) -> Chapter {
    if facts.seat().has_made_room() {
        let text = "none is kept at the moment: a quota had no room for a task, so that the placeholder gave its place up. \
                    Tasks that are there stay, and it comes back later.";
        return Chapter::new("Node", text);
    }
    let from = facts.view.run.node.as_deref();
    let from = from
        .map(|node| format!(" It was on {node} before."))
        .unwrap_or_default();
    let next = facts.waiting().next();
    let name = next.and_then(|pod| pod.metadata.name.as_deref());
    let name = name.map(|name| format!(", {name},")).unwrap_or_default();
    let text = format!(
        "none at the moment: the run moved off its node, and takes the node that its next pod{name} finds.{from}"
    );
    Chapter::new("Node", text).details(next.map(|pod| against(facts, pod)).unwrap_or_default())
}

fn reserved(node: &str) -> Chapter {
    let text = format!(
        "{node} stays reserved until this PipelineRun is deleted, or an autoscaler removes the node (isolateAlways)."
    );
    Chapter::new("Node", text)
}

fn was(node: &str) -> Chapter {
    Chapter::new("Node", format!("was {node}, which this run does not keep."))
}

fn none_yet(facts: &Facts) -> Chapter {
    let seat = facts.seat();
    if let Some(node) = seat.node() {
        return Chapter::new("Node", format!("{node}; the run is about to be released."));
    }
    let message = seat.pod.and_then(unschedulable);
    let message = message.map(|text| format!(" {}", reports("The scheduler", text)));
    let text = format!("none yet.{}", message.unwrap_or_default());
    let details = seat.pod.map(|pod| against(facts, pod)).unwrap_or_default();
    Chapter::new("Node", text).details(details)
}

/// What speaks against each node, nodes with the same reasons together.
fn against(facts: &Facts, pod: &Pod) -> Vec<String> {
    let Some(scene) = facts.scene() else {
        return Vec::new();
    };
    if scene.nodes.is_empty() {
        return vec!["the cluster has no nodes".to_owned()];
    }
    let mut groups: BTreeMap<Vec<Refusal>, Vec<String>> = BTreeMap::new();
    for node in scene.nodes {
        let name = node.metadata.name.clone().unwrap_or_default();
        groups.entry(refusals(pod, node, &scene)).or_default().push(name);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(_, one), (_, other)| one.cmp(other));
    let more = groups.len().saturating_sub(TOLD);
    let told = groups
        .iter()
        .take(TOLD)
        .map(|(reasons, nodes)| reason(reasons, nodes));
    let rest = (more > 0).then(|| format!("and {} for other nodes", count(more, "other reason")));
    told.chain(rest).collect()
}

fn reason(reasons: &[Refusal], nodes: &[String]) -> String {
    let names = list(nodes, NAMED);
    let why: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    match why.as_slice() {
        [] => format!("{names}: nothing that can be seen from here speaks against it"),
        why => format!("{names}: {}", list(why, 3)),
    }
}

/// What an autoscaler says to a pod that waits.
pub(super) fn autoscaler(facts: &Facts) -> Option<Chapter> {
    let pod = facts.waiting().next()?;
    facts.told.as_ref().ok()?;
    let text = match answer(facts, pod) {
        Some(answer) => format!(
            "{} ago, {}",
            age(answer.at, facts.now),
            reports(
                &format!("{} ({})", speaker(&answer.by), answer.reason),
                &answer.text
            )
        ),
        None => format!("none has answered {} so far.", who_waits(pod)),
    };
    Some(Chapter::new("Autoscaler", text))
}

/// The last answer of an autoscaler to a pod.
pub(super) fn answer<'a>(facts: &'a Facts, pod: &Pod) -> Option<&'a Told> {
    let uid = pod.metadata.uid.as_deref()?;
    let told = facts.told.as_deref().ok()?;
    let answers = told
        .iter()
        .filter(|event| event.about == uid && event.is_of_autoscaler());
    answers.max_by_key(|event| event.at)
}

fn speaker(by: &str) -> &str {
    match by {
        "" => "the autoscaler",
        name => name,
    }
}

fn who_waits(pod: &Pod) -> String {
    match label(&pod.metadata, keys::COMPONENT) {
        Some(keys::PLACEHOLDER) => "the placeholder".to_owned(),
        _ => format!("pod {}", pod.metadata.name.as_deref().unwrap_or_default()),
    }
}
