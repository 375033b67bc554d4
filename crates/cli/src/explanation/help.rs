//! What would help: at most two things that the user can do, the most likely first.

use super::running::{self, see_why, uncordon};
use crate::facts::Facts;
use crate::fit::{Obstacle, Occupant};
use crate::state::State;
use crate::view::is_placeholder;
use crate::words::after;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::keys;
use placement::strategy::Strategy;

const MOST: usize = 2;

pub(super) fn help(facts: &Facts) -> Vec<String> {
    let label = keys::OPT_IN;
    let mut advice = match facts.state() {
        State::Held if is_overdue(facts) => vec![doctor()],
        State::Held | State::WaitingForNode => node_wanted(facts),
        State::Running | State::Moving => running::advice(facts),
        State::Reserved => {
            let key = &facts.view.run.key;
            let delete = delete(&key.namespace, &key.name);
            vec![format!("Delete the run when its node is needed: {delete}.")]
        }
        State::HeldElsewhere => vec![queued(facts)],
        State::TooLate | State::Unlabelled => {
            vec![format!("Create the run with the label {label}: \"true\".")]
        }
        State::Invalid => vec![format!(
            "Create the run again with {label}: \"true\", or remove the label."
        )],
        State::Nested => facts
            .view
            .parent
            .iter()
            .map(|parent| explain(facts, parent))
            .collect(),
        State::Done | State::Ending | State::Declined | State::ManagedElsewhere => Vec::new(),
    };
    advice.truncate(MOST);
    advice
}

fn is_overdue(facts: &Facts) -> bool {
    let since = facts.view.run.held_since().unwrap_or(facts.now);
    facts.config.is_ok() && after(since, facts.config().hold_deadline) < facts.now
}

fn doctor() -> String {
    "Check pod-affinity: `kubectl pod-affinity doctor`.".to_owned()
}

fn explain(facts: &Facts, run: &str) -> String {
    let namespace = &facts.view.run.key.namespace;
    format!("Explain the run that started it: `kubectl pod-affinity explain -n {namespace} {run}`.")
}

fn delete(namespace: &str, name: &str) -> String {
    format!("`kubectl delete pipelinerun -n {namespace} {name}`")
}

fn queued(facts: &Facts) -> String {
    if let Some(queue) = &facts.view.queue {
        return format!(
            "See why Kueue does not admit it: `kubectl describe workload -n {}` (queue {queue:?}).",
            facts.view.run.key.namespace
        );
    }
    let key = &facts.view.run.key;
    let patch = r#"[{"op":"remove","path":"/spec/status"}]"#;
    format!(
        "Let it start, if it was you who held it: `kubectl patch pipelinerun -n {} {} --type=json -p '{patch}'`.",
        key.namespace, key.name
    )
}

/// The scheduler finds no node for the placeholder.
fn node_wanted(facts: &Facts) -> Vec<String> {
    let mut advice: Vec<_> = is_overdue(facts).then(doctor).into_iter().collect();
    let Some(pod) = facts.waiting().find(|pod| is_placeholder(pod)) else {
        return advice;
    };
    advice.extend(by_obstacles(facts, pod));
    if advice.is_empty() {
        advice.push("Add a node, or let an autoscaler do it.".to_owned());
    }
    if facts.enrolment().strategy.isolates() && only_own_isolation_matters(facts, pod) {
        advice.push(format!(
            "Or share a node with other runs: create the run with {}: {}.",
            keys::OPT_IN,
            Strategy::ColocateAlways
        ));
    }
    advice
}

/// A node with few obstacles is the easiest to use. The remedy of its hardest obstacle is named.
fn by_obstacles(facts: &Facts, pod: &Pod) -> Vec<String> {
    let Some(fit) = facts.fit(pod) else {
        return Vec::new();
    };
    let nodes = fit.nodes().iter();
    let nodes = nodes.map(|node| (node.name_any(), fit.obstacles(node)));
    let mut nodes: Vec<_> = nodes.filter(|(_, obstacles)| !obstacles.is_empty()).collect();
    nodes.sort_by_key(|(_, obstacles)| (obstacles.len(), obstacles.iter().map(effort).max()));
    let mut advice = Vec::new();
    for remedy in nodes
        .iter()
        .filter_map(|(node, obstacles)| remedy(node, obstacles.iter().rev().max_by_key(|it| effort(it))?))
    {
        if !advice.contains(&remedy) {
            advice.push(remedy);
        }
    }
    advice.truncate(MOST);
    advice
}

/// The order of obstacles by the effort to remove them.
fn effort(obstacle: &Obstacle) -> u8 {
    match obstacle {
        Obstacle::Cordoned => 0,
        Obstacle::Occupied(occupant) if occupant.reserved => 1,
        Obstacle::Taint(_) => 2,
        Obstacle::Selector(_) => 3,
        Obstacle::Volume { .. } => 4,
        Obstacle::Short { .. } => 5,
        Obstacle::Occupied(_) => 6,
        Obstacle::Repelled(_) => 7,
        Obstacle::NotReady => 8,
        Obstacle::Away(_) => 9,
    }
}

fn remedy(node: &str, obstacle: &Obstacle) -> Option<String> {
    Some(match obstacle {
        Obstacle::Cordoned => uncordon(node),
        Obstacle::NotReady => see_why(node),
        Obstacle::Taint(taint) => format!(
            "Tolerate the taint {taint} in the run's spec.taskRunTemplate.podTemplate.tolerations, if the run may use \
             such nodes."
        ),
        Obstacle::Selector(_) => {
            "Add a node with the labels that the run's podTemplate requires, or require others.".to_owned()
        }
        Obstacle::Volume { claim, needs } => {
            format!("Add a node that can use the volume of PVC {claim}: {needs}.")
        }
        Obstacle::Occupied(occupant) if occupant.reserved => format!(
            "Delete a finished run that keeps a node: {}.",
            delete(&occupant.namespace, &occupant.name)
        ),
        Obstacle::Occupied(_) => "Wait until one of the other runs is done, or add a node.".to_owned(),
        Obstacle::Repelled(pod) => {
            format!("Check the required podAntiAffinity that keeps pod {pod} and the run apart.")
        }
        Obstacle::Short { resource, .. } => format!("Add a node with more {resource}, or request less."),
        Obstacle::Away(_) => return None,
    })
}

/// On one of the nodes, this run's own isolation is the only obstacle: the other runs there would share the node.
fn only_own_isolation_matters(facts: &Facts, pod: &Pod) -> bool {
    let shares = |occupant: &Occupant| {
        let strategy = occupant.strategy.as_deref();
        strategy.is_none_or(|it| it == Strategy::ColocateAlways.as_str())
    };
    let lets_in = |it: &Obstacle| matches!(it, Obstacle::Occupied(occupant) if shares(occupant));
    facts.fit(pod).is_some_and(|fit| {
        let mut nodes = fit.nodes().iter();
        nodes.any(|node| {
            let obstacles = fit.obstacles(node);
            !obstacles.is_empty() && obstacles.iter().all(lets_in)
        })
    })
}
