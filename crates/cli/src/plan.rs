//! What the controller does next with a run: its own plan, on the objects that were read. Pure.
//!
//! The plan is made with an empty memory, so the controller may pause before it repeats a step.

use crate::facts::Facts;
use crate::observe::waiting_pods;
use crate::requests::RequestResult;
use crate::view::{ended_at, is_assistant, is_live, is_member, label, node as bound_to};
use k8s_openapi::api::core::v1::Pod;
use placement::attempts::{Before, Turn};
use placement::keys;
use placement::node::{self, NodeFacts, NodeState};
use placement::plan::{
    AssistantPod, ClusterFacts, Creation, Decision, Inputs, Messages, Observation, PlaceholderPod, Plan,
    Read, TaskCount, Tasks, Wait, plan,
};
use placement::run::HeldFrom;
use std::sync::Arc;

/// The controller's plan, and the observation that the plan uses.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) seen: Observation,
    pub(crate) plan: Plan,
}

impl Planned {
    /// The plan for this run; `None` if its placeholder, or nodes that the plan compares, could not be read. A plan that ends with
    /// [`Decision::Read`] depends on objects that were not read.
    pub(crate) fn new(facts: &Facts) -> Option<Self> {
        let seen = observed(facts)?;
        if waits_for_cap(facts) {
            let plan = Plan {
                decision: Decision::Wait(Wait::OlderRuns(Before::Starting)),
                again: None,
            };
            return Some(Self { seen, plan });
        }
        let mut inputs = Inputs::default();
        loop {
            let plan = plan(&seen, &inputs);
            match plan.decision {
                Decision::Read(read) if answer(facts, &seen, read, &mut inputs).is_some() => {}
                _ => return Some(Self { seen, plan }),
            }
        }
    }
}

fn observed(facts: &Facts) -> Option<Observation> {
    let (Ok(_), Ok(pods)) = (&facts.set, &facts.pods) else {
        return None;
    };
    let run = &facts.view.run;
    let seen = facts.observation();
    let nodes = facts.nodes().into_iter().flatten();
    let seen = Observation {
        node: state_of_node(facts, &seen),
        waiting: waiting_pods(pods, &run.key, placeholder_node(facts, &seen).as_ref()),
        messages: messages(facts),
        cluster: ClusterFacts {
            nodes: nodes.filter_map(NodeFacts::from_node).map(Arc::new).collect(),
            ..ClusterFacts::default()
        },
        turn: turn(facts),
        ..seen
    };
    let relaxed = seen.waiting.iter().any(|pod| pod.relaxed);
    let seen = Observation { relaxed, ..seen };
    let compares_nodes = seen
        .pod
        .as_ref()
        .is_some_and(PlaceholderPod::lacks_node_for_reserve);
    (facts.nodes().is_some() || !compares_nodes).then_some(seen)
}

fn messages(facts: &Facts) -> Messages {
    let pod = facts.placeholder().pod;
    let autoscaler = pod.and_then(|pod| facts.autoscaler_about(pod));
    Messages {
        failed_create: known(facts.failed_create.as_ref()).cloned().flatten(),
        autoscaler: autoscaler.map(|event| event.text.clone()),
        // Only the controller gets this message, as the answer to its own request.
        invalid_template: None,
        rejection: facts.refusal.clone(),
    }
}

/// A cap has no room for the run. Only the controller knows the other runs.
fn waits_for_cap(facts: &Facts) -> bool {
    facts.view.run.held_from == HeldFrom::OverCap && facts.view.run.is_held_by_us()
}

/// Whether older runs come first, by an event of the controller.
fn turn(facts: &Facts) -> Turn {
    facts
        .waits_in_line()
        .map_or(Turn::Now, |_| Turn::Later(Before::Starting))
}

/// The state of the placeholder's node. A node that could not be read is taken as usable.
fn state_of_node(facts: &Facts, seen: &Observation) -> NodeState {
    let pod = seen.pod.as_ref().filter(|pod| pod.node.is_some());
    match (pod, &facts.node) {
        (Some(pod), Some(Ok(_))) => node::state(placeholder_node(facts, seen).as_ref(), &pod.tolerations),
        _ => NodeState::Unknown,
    }
}

/// The placeholder's node, if the node exists and was read.
fn placeholder_node(facts: &Facts, seen: &Observation) -> Option<NodeFacts> {
    seen.node_name()?;
    facts
        .node
        .as_ref()?
        .as_ref()
        .ok()?
        .as_ref()
        .and_then(NodeFacts::from_node)
}

/// Adds a group of inputs; `None` if the objects were not read. What would only change the text of an event is left out.
fn answer(facts: &Facts, seen: &Observation, read: Read, inputs: &mut Inputs) -> Option<()> {
    match read {
        Read::Creation => {
            let quota = known(facts.quota.as_ref())?.clone();
            inputs.creation = Creation {
                quota,
                ..Creation::default()
            }
            .into();
        }
        Read::Quota => inputs.quota = known(facts.quota.as_ref())?.clone().into(),
        Read::Tasks => inputs.tasks = tasks(facts, seen)?.into(),
        Read::Assistants => inputs.assistants = assistants(facts.all_pods()).into(),
        Read::RejectedTasks => inputs.rejected_tasks = known(facts.rejected_tasks.as_ref())?.clone().into(),
        Read::Usage => inputs.usage = Vec::new().into(),
    }
    Some(())
}

fn known<T>(read: Option<&RequestResult<T>>) -> Option<&T> {
    read?.as_ref().ok()
}

/// The run's tasks on the node of its placeholder. Volumes count only when no task is there.
fn tasks(facts: &Facts, seen: &Observation) -> Option<Tasks> {
    let there = seen.node_name();
    let key = &facts.view.run.key;
    let (live, ended): (Vec<_>, Vec<_>) = facts
        .all_pods()
        .iter()
        .filter(|pod| is_member(pod, key))
        .partition(|pod| is_live(pod));
    let is_there = |pod: &&&Pod| bound_to(pod).is_some_and(|node| there.is_none_or(|there| there == node));
    let live = live.iter().filter(is_there).count();
    let ended = ended.into_iter().filter_map(ended_at).max();
    let node = there.filter(|_| live == 0);
    if node.is_some() {
        facts.volumes()?;
    }
    Some(Tasks {
        task_count: TaskCount::after(None, live, ended, seen.now),
        pinned_by_volume: node.and_then(|node| facts.only_volume_of(node)),
    })
}

fn assistants(pods: &[Pod]) -> Vec<AssistantPod> {
    let assistants = pods.iter().filter(|pod| is_assistant(pod));
    let assistants = assistants.filter(|pod| label(&pod.metadata, keys::GROUP).is_some());
    let assistant = |pod: &Pod| {
        Some(AssistantPod {
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone()?,
            node: bound_to(pod).map(str::to_owned),
        })
    };
    assistants.filter_map(assistant).collect()
}

#[cfg(test)]
mod tests;
