//! The fields of the explanation for programs.

use super::last_events;
use super::report::{Candidate, EventSummary, KIND, Reason, Summary, Task, VERSION};
use crate::events::RunEvent;
use crate::facts::Facts;
use crate::fit::Obstacle;
use crate::list;
use crate::view::{is_opted_out, is_placeholder, node, phase, task_name, unschedulable};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

pub(super) fn summary(facts: &Facts) -> Summary {
    let enrolled = facts.view.run.is_enrolled();
    let waiting = waiting(facts);
    let autoscaler = waiting.and_then(|pod| facts.autoscaler_about(pod));
    Summary {
        api_version: VERSION,
        kind: KIND,
        row: list::row(&facts.view, &facts.placeholder(), facts.config.as_ref().ok()),
        isolation: enrolled.then(|| facts.enrolment().isolation.as_str()),
        succeeded: facts.view.verdict.as_ref().map(|(succeeded, _)| *succeeded),
        scheduler: waiting.and_then(unschedulable).map(str::to_owned),
        autoscaler: autoscaler.map(|answer| answer.text.clone()),
        nodes: waiting.map(|pod| nodes(facts, pod)).unwrap_or_default(),
        tasks: facts.tasks().map(task).collect(),
        events: last_events(facts).into_iter().map(event).collect(),
    }
}

/// The pod that waits for a node: the placeholder before a task.
fn waiting(facts: &Facts) -> Option<&Pod> {
    let placeholder = facts.waiting().find(|pod| is_placeholder(pod));
    placeholder.or_else(|| facts.waiting().next())
}

fn nodes(facts: &Facts, pod: &Pod) -> Vec<Candidate> {
    let Some(fit) = facts.fit(pod) else {
        return Vec::new();
    };
    let mut nodes: Vec<_> = fit
        .nodes()
        .iter()
        .map(|node| Candidate {
            node: node.name_any(),
            reasons: fit.obstacles(node).iter().map(reason).collect(),
        })
        .collect();
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    nodes
}

fn reason(obstacle: &Obstacle) -> Reason {
    Reason {
        code: obstacle.code(),
        message: obstacle.to_string(),
    }
}

fn task(pod: &Pod) -> Task {
    Task {
        name: task_name(pod).to_owned(),
        pod: pod.name_any(),
        node: node(pod).map(str::to_owned),
        phase: phase(pod).to_owned(),
        opted_out: is_opted_out(pod),
    }
}

fn event(event: &RunEvent) -> EventSummary {
    EventSummary {
        time: event.at,
        reason: event.reason.clone(),
        message: event.text.clone(),
    }
}
