//! The run's tasks and their nodes, and why a task waits.

use super::report::Section;
use super::reports;
use crate::facts::Facts;
use crate::state::State;
use crate::view::{created, is_live, is_opted_out, node, phase, task_name, unschedulable};
use crate::words::{count, list};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::collections::BTreeSet;

/// The most tasks that are listed.
const LISTED: usize = 20;

pub(super) fn section(facts: &Facts) -> Option<Section> {
    facts.pods.as_ref().ok()?;
    let mut pods: Vec<&Pod> = facts.tasks().collect();
    pods.sort_by_key(|pod| (created(&pod.metadata), pod.metadata.name.clone()));
    if pods.is_empty() {
        let is_over = matches!(facts.state(), State::Done | State::Reserved | State::Ending);
        return (!is_over).then(|| Section::new("Tasks", "no pod so far."));
    }
    let lines = pods.iter().take(LISTED).map(|pod| line(facts, pod));
    let more = pods.len().saturating_sub(LISTED);
    let rest = (more > 0).then(|| format!("and {more} more"));
    Some(Section::new("Tasks", summary(facts, &pods)).details(lines.chain(rest)))
}

fn summary(facts: &Facts, pods: &[&Pod]) -> String {
    let members = pods.iter().copied().filter(|pod| !is_apart(facts, pod));
    let members: Vec<_> = members.collect();
    let nodes = nodes_of(members.iter().copied());
    let live = nodes_of(members.iter().copied().filter(|pod| is_live(pod)));
    let wait = members.iter().filter(|pod| node(pod).is_none()).count();
    let placed = members.len() - wait;
    let apart = pods.len() - members.len();
    let pods = count(members.len(), "pod");
    let summary = match nodes.as_slice() {
        [] => format!("{pods}, none of them on a node."),
        [one] if wait > 0 => format!("{pods}, {placed} on node {one} and {wait} on none yet."),
        [one] => format!("{pods}, all on node {one}.").replace("1 pod, all on", "1 pod, on"),
        _ if facts.view.run.is_enrolled() && live.len() > 1 => format!(
            "{pods}; they are on {} at the same time: {}. Some may lack their affinity: see `kubectl pod-affinity doctor`.",
            count(live.len(), "node"),
            list(&live, 5)
        ),
        several if facts.view.run.is_enrolled() => {
            format!("{pods}; the run has moved and was on {}.", list(several, 5))
        }
        several => format!(
            "{pods} on {}: {}.",
            count(several.len(), "node"),
            list(several, 5)
        ),
    };
    match apart {
        0 => summary,
        _ => format!("{summary} Opted out: {}.", count(apart, "pod")),
    }
}

fn nodes_of<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<String> {
    let nodes: BTreeSet<_> = pods.filter_map(node).map(str::to_owned).collect();
    nodes.into_iter().collect()
}

/// A pod that may be on another node than its run.
fn is_apart(facts: &Facts, pod: &Pod) -> bool {
    is_opted_out(pod) && facts.view.run.is_enrolled()
}

fn line(facts: &Facts, pod: &Pod) -> String {
    let name = task_name(pod);
    let apart = if is_apart(facts, pod) {
        " (opted out: it may be anywhere)"
    } else {
        ""
    };
    match (node(pod), unschedulable(pod)) {
        (Some(node), _) => format!("{name}: {} on {node}{apart}", status(pod)),
        (None, Some(message)) => format!("{name}: waits{apart}. {}", why(facts, pod, message)),
        (None, None) => format!("{name}: {}, not on any node yet{apart}", status(pod)),
    }
}

/// The status as `kubectl get pods` prints it.
fn status(pod: &Pod) -> String {
    if is_live(pod) && pod.metadata.deletion_timestamp.is_some() {
        return "terminating".to_owned();
    }
    phase(pod).to_lowercase()
}

/// A pod that must be on the node of its run has the reasons against that node. If the run has no node, the section about the
/// node has the reasons against all nodes.
fn why(facts: &Facts, pod: &Pod, message: &str) -> String {
    let reported = reports("The scheduler", message);
    let home = facts.node_name().and_then(|home| {
        let fit = facts.fit(pod)?;
        let node = fit.nodes().iter().find(|node| node.name_any() == home)?;
        let reasons = fit.obstacles(node);
        let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
        (!reasons.is_empty()).then(|| format!(" Node {home}, where the run is, {}.", list(&reasons, 3)))
    });
    format!("{reported}{}", home.unwrap_or_default())
}
