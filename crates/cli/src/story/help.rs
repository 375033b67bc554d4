//! What would help: one or two things that somebody can do, the most likely first.

use super::room;
use super::unfit::{see_why, uncordon};
use crate::facts::Facts;
use crate::fit::{Refusal, Tenant, refusals};
use crate::state::State;
use crate::view::is_placeholder;
use crate::words::after;
use k8s_openapi::api::core::v1::Pod;
use placement::keys;
use placement::strategy::Strategy;
use std::collections::BTreeSet;

const MOST: usize = 2;

pub(super) fn help(facts: &Facts) -> Vec<String> {
    let mut advice = match facts.state() {
        State::Held if is_overdue(facts) => vec![doctor()],
        State::Held | State::WaitingForNode => node_wanted(facts),
        State::Running | State::Moving => room::advice(facts),
        State::Reserved => vec![format!(
            "Delete the run when its node is needed: {}.",
            delete(facts)
        )],
        State::HeldElsewhere => queued(facts),
        State::TooLate | State::Unlabelled => vec![label_it()],
        State::Invalid => vec![relabel()],
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
    after(since, facts.config().hold_deadline) < facts.now
}

fn doctor() -> String {
    "Check pod-affinity: `kubectl pod-affinity doctor`.".to_owned()
}

fn label_it() -> String {
    format!("Create the run with the label {}: \"true\".", keys::OPT_IN)
}

fn relabel() -> String {
    format!(
        "Create the run again with {}: \"true\", or remove the label.",
        keys::OPT_IN
    )
}

fn explain(facts: &Facts, run: &str) -> String {
    let namespace = &facts.view.run.key.namespace;
    format!("Ask about the run that started it: `kubectl pod-affinity explain -n {namespace} {run}`.")
}

fn delete(facts: &Facts) -> String {
    let key = &facts.view.run.key;
    format!("`kubectl delete pipelinerun -n {} {}`", key.namespace, key.name)
}

fn queued(facts: &Facts) -> Vec<String> {
    let key = &facts.view.run.key;
    vec![if let Some(queue) = &facts.view.queue {
        format!("See why Kueue does not admit it: `kubectl describe workload` (queue {queue:?}).")
    } else {
        let patch = r#"[{"op":"remove","path":"/spec/status"}]"#;
        format!(
            "Let it start, if it was you who held it: `kubectl patch pipelinerun -n {} {} --type=json -p '{patch}'`.",
            key.namespace, key.name
        )
    }]
}

/// The placeholder finds no node.
fn node_wanted(facts: &Facts) -> Vec<String> {
    let overdue = is_overdue(facts).then(doctor);
    let Some(pod) = facts.waiting().find(|pod| is_placeholder(pod)) else {
        return overdue.into_iter().collect();
    };
    let mut advice: Vec<_> = overdue.into_iter().chain(by_refusals(facts, pod)).collect();
    if advice.is_empty() {
        advice.push(add_node());
    }
    if facts.strategy().isolates() && is_crowded(facts, pod) {
        advice.push(format!(
            "Or share a node with other runs: create the run with {}: {}.",
            keys::OPT_IN,
            Strategy::ColocateAlways
        ));
    }
    advice
}

fn add_node() -> String {
    "Add a node, or let an autoscaler do it.".to_owned()
}

/// Each node's last obstacle is the cheapest to remove, so nodes with few reasons come first.
fn by_refusals(facts: &Facts, pod: &Pod) -> Vec<String> {
    let Some(scene) = facts.scene() else {
        return Vec::new();
    };
    let mut nodes: Vec<(String, Vec<Refusal>)> = scene
        .nodes
        .iter()
        .map(|node| {
            (
                node.metadata.name.clone().unwrap_or_default(),
                refusals(pod, node, &scene),
            )
        })
        .filter(|(_, reasons)| !reasons.is_empty())
        .collect();
    nodes.sort_by_key(|(_, reasons)| (reasons.len(), reasons.iter().map(effort).max()));
    let mut seen = BTreeSet::new();
    nodes
        .iter()
        .filter_map(|(node, reasons)| remedy(node, reasons.first()?))
        .filter(|advice| seen.insert(advice.clone()))
        .take(MOST)
        .collect()
}

/// Lower is less to do.
fn effort(refusal: &Refusal) -> u8 {
    match refusal {
        Refusal::Cordoned => 0,
        Refusal::Occupied(tenant) if tenant.reserved => 1,
        Refusal::Taint(_) => 2,
        Refusal::Selector(_) => 3,
        Refusal::Volume { .. } => 4,
        Refusal::Short { .. } => 5,
        Refusal::Occupied(_) => 6,
        Refusal::Repelled(_) => 7,
        Refusal::NotReady => 8,
        Refusal::Away(_) => 9,
    }
}

fn remedy(node: &str, refusal: &Refusal) -> Option<String> {
    Some(match refusal {
        Refusal::Cordoned => uncordon(node),
        Refusal::NotReady => see_why(node),
        Refusal::Taint(taint) => format!(
            "Tolerate the taint {taint} in the run's spec.taskRunTemplate.podTemplate.tolerations, if the run may use \
             such nodes."
        ),
        Refusal::Selector(_) => {
            "Add a node with the labels that the run's podTemplate requires, or require others.".to_owned()
        }
        Refusal::Volume { claim, needs } => {
            format!("Add a node that can use the volume of PVC {claim}: {needs}.")
        }
        Refusal::Occupied(tenant) => occupied(tenant),
        Refusal::Repelled(pod) => {
            format!("Check the required podAntiAffinity that keeps pod {pod} and the run apart.")
        }
        Refusal::Short { resource, .. } => {
            format!("Add a node with more {resource}, or request less.")
        }
        Refusal::Away(_) => return None,
    })
}

fn occupied(tenant: &Tenant) -> String {
    if tenant.reserved {
        return format!(
            "Delete a finished run that keeps a node: `kubectl delete pipelinerun -n {} {}`.",
            tenant.namespace, tenant.name
        );
    }
    "Wait until one of the other runs is done, or add a node.".to_owned()
}

/// Only this run's own wish to be alone is in the way; others that are isolated would keep it out all the same.
fn is_crowded(facts: &Facts, pod: &Pod) -> bool {
    facts.scene().is_some_and(|scene| {
        let mut nodes = scene.nodes.iter();
        nodes.any(|node| refusals(pod, node, &scene).iter().all(lets_in))
    })
}

fn lets_in(refusal: &Refusal) -> bool {
    let shares = |tenant: &Tenant| {
        tenant
            .strategy
            .as_deref()
            .is_none_or(|it| it == Strategy::ColocateAlways.as_str())
    };
    matches!(refusal, Refusal::Occupied(tenant) if shares(tenant))
}
