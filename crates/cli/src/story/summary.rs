//! The facts of a story, for programs.

use super::last_events;
use crate::events::Told;
use crate::facts::Facts;
use crate::fit::{Refusal, refusals};
use crate::list;
use crate::report::{Candidate, KIND, Reason, Said, Summary, Task, VERSION};
use crate::state::State;
use crate::view::{is_opted_out, is_placeholder, label, node, phase, unschedulable};
use crate::words::after;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

const TASK: &str = "tekton.dev/pipelineTask";

pub(super) fn summary(facts: &Facts) -> Summary {
    let default = facts.config.as_ref().ok().map(|config| config.default_strategy);
    let enrolled = facts.view.run.is_enrolled();
    let waiting = waiting(facts);
    let autoscaler = waiting.and_then(|pod| super::place::answer(facts, pod));
    Summary {
        api_version: VERSION,
        kind: KIND,
        row: list::row(&facts.view, &facts.seat(), default),
        isolation: enrolled.then(|| facts.isolation().as_str()),
        hold_ends: hold_ends(facts),
        succeeded: facts.view.verdict.as_ref().map(|(well, _)| *well),
        scheduler: waiting.and_then(unschedulable).map(str::to_owned),
        autoscaler: autoscaler.map(|answer| answer.text.clone()),
        nodes: waiting.map(|pod| nodes(facts, pod)).unwrap_or_default(),
        tasks: facts.tasks().map(task).collect(),
        events: last_events(facts).into_iter().map(said).collect(),
    }
}

/// The pod whose node is looked for: the placeholder, or a task that finds no node.
fn waiting(facts: &Facts) -> Option<&Pod> {
    let placeholder = facts.waiting().find(|pod| is_placeholder(pod));
    placeholder.or_else(|| facts.waiting().next())
}

fn hold_ends(facts: &Facts) -> Option<Timestamp> {
    let is_held = matches!(facts.state(), State::Held | State::WaitingForNode);
    let since = facts.view.run.held_since().filter(|_| is_held)?;
    Some(after(since, facts.config().hold_deadline))
}

fn nodes(facts: &Facts, pod: &Pod) -> Vec<Candidate> {
    let Some(scene) = facts.scene() else {
        return Vec::new();
    };
    let mut nodes: Vec<_> = scene
        .nodes
        .iter()
        .map(|node| Candidate {
            node: node.name_any(),
            reasons: refusals(pod, node, &scene).iter().map(reason).collect(),
        })
        .collect();
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    nodes
}

fn reason(refusal: &Refusal) -> Reason {
    Reason {
        code: refusal.code(),
        message: refusal.to_string(),
    }
}

fn task(pod: &Pod) -> Task {
    let name = label(&pod.metadata, TASK).map_or_else(|| pod.name_any(), str::to_owned);
    Task {
        name,
        pod: pod.name_any(),
        node: node(pod).map(str::to_owned),
        phase: phase(pod).to_owned(),
        opted_out: is_opted_out(pod),
    }
}

fn said(event: &Told) -> Said {
    Said {
        time: event.at,
        reason: event.reason.clone(),
        message: event.text.clone(),
    }
}
