//! The run's tasks and their nodes; for one that waits, why.

use super::reports;
use crate::facts::Facts;
use crate::fit::refusals;
use crate::report::Chapter;
use crate::state::State;
use crate::view::{created, is_live, is_opted_out, label, node, phase, unschedulable};
use crate::words::{count, list};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeSet;

/// Tasks that are listed; the rest is counted.
const LISTED: usize = 20;
const TASK: &str = "tekton.dev/pipelineTask";

pub(super) fn chapter(facts: &Facts) -> Option<Chapter> {
    facts.pods.as_ref().ok()?;
    let mut pods: Vec<&Pod> = facts.tasks().collect();
    pods.sort_by_key(|pod| (created(&pod.metadata), pod.metadata.name.clone()));
    if pods.is_empty() {
        return none(facts);
    }
    let lines = pods.iter().take(LISTED).map(|pod| line(facts, pod));
    let more = pods.len().saturating_sub(LISTED);
    let rest = (more > 0).then(|| format!("and {more} more"));
    Some(Chapter::new("Tasks", summary(facts, &pods)).details(lines.chain(rest)))
}

fn none(facts: &Facts) -> Option<Chapter> {
    match facts.state() {
        State::Done | State::Reserved | State::Ending => None,
        _ => Some(Chapter::new("Tasks", "no pod so far.")),
    }
}

fn summary(facts: &Facts, pods: &[&Pod]) -> String {
    let members = pods.iter().filter(|pod| !is_opted_out(pod));
    let nodes: BTreeSet<_> = members.filter_map(|pod| node(pod)).map(str::to_owned).collect();
    let nodes: Vec<_> = nodes.into_iter().collect();
    let wait = pods.iter().filter(|pod| node(pod).is_none()).count();
    let placed = pods.len() - wait;
    let pods = count(pods.len(), "pod");
    match nodes.as_slice() {
        [] => format!("{pods}, none of them on a node."),
        [one] if wait > 0 => format!("{pods}, {placed} on node {one} and {wait} on none yet."),
        [one] => format!("{pods}, all on node {one}.").replace("1 pod, all on", "1 pod, on"),
        several if facts.view.run.is_enrolled() => {
            format!("{pods}; the run has moved and was on {}.", list(several, 5))
        }
        several => format!(
            "{pods} on {}: {}.",
            count(several.len(), "node"),
            list(several, 5)
        ),
    }
}

fn line(facts: &Facts, pod: &Pod) -> String {
    let name = label(&pod.metadata, TASK)
        .or(pod.metadata.name.as_deref())
        .unwrap_or_default();
    let apart = if is_opted_out(pod) && facts.view.run.is_enrolled() {
        " (opted out: it may be anywhere)"
    } else {
        ""
    };
    match (node(pod), unschedulable(pod)) {
        (Some(node), _) => format!("{name}: {} on {node}{apart}", condition(pod)),
        (None, Some(message)) => format!("{name}: waits{apart}. {}", why(facts, pod, message)),
        (None, None) => format!("{name}: {}, not on any node yet{apart}", condition(pod)),
    }
}

/// The phase, in the words of `kubectl get pods`.
fn condition(pod: &Pod) -> String {
    if is_live(pod) && pod.metadata.deletion_timestamp.is_some() {
        return "terminating".to_owned();
    }
    phase(pod).to_lowercase()
}

/// For a pod that must be where its run is, only that node matters; if the run is nowhere, the chapter on its node tells of
/// all of them.
fn why(facts: &Facts, pod: &Pod, message: &str) -> String {
    let said = reports("The scheduler", message);
    let home = facts.home_name().and_then(|home| {
        let scene = facts.scene()?;
        let is_home = |name: Option<&str>| name == Some(home);
        let node = scene
            .nodes
            .iter()
            .find(|node| is_home(node.metadata.name.as_deref()))?;
        let reasons: Vec<_> = refusals(pod, node, &scene)
            .iter()
            .map(ToString::to_string)
            .collect();
        (!reasons.is_empty()).then(|| format!(" Node {home}, where the run is, {}.", list(&reasons, 3)))
    });
    format!("{said}{}", home.unwrap_or_default())
}
