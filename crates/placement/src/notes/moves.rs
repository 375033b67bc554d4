//! Event texts for a run that moves off its node or cannot move: the pod, the cause, the old and the new node.

use super::reason::{Note, Reason, note};
use crate::keys;
use crate::node::{self, NodeOffer, NodeState};
use crate::plan::{MoveCause, Observation};
use crate::quota_room::RejectedTask;
use crate::resources::Resources;
use crate::run::Run;
use jiff::{SignedDuration, Timestamp};

/// The run gave up its node.
pub(super) fn moves_off(observed: &Observation, cause: MoveCause, pod: Option<&str>) -> Note {
    let text = format!(
        "Moved off {}: {}. This run's next pod can go to any node that fits, or to one that an autoscaler adds; the \
         placeholder follows it.",
        here(observed),
        why(observed, cause, pod),
    );
    note(Reason::MovedOff, text)
}

/// A ResourceQuota has no room for a task's pod beside the placeholder.
pub(super) fn makes_room(tasks: &[RejectedTask]) -> Note {
    let names: Vec<_> = tasks.iter().map(|task| task.name.as_str()).collect();
    let message = tasks
        .first()
        .map(|task| task.message.as_str())
        .unwrap_or_default();
    let text = format!(
        "A ResourceQuota rejected the pod of {}. The controller scales the placeholder to 0 replicas and back later. Until \
         then, the running tasks of this run keep its node; between tasks, other runs can use the node. Each labelled run \
         needs one more pod: raise the quota by the number of runs at a time. {message}",
        names.join(", ")
    );
    note(Reason::MadeRoom, text)
}

/// A held run with a reserve gave up its node.
pub(super) fn starts_over(observed: &Observation, cause: MoveCause) -> Note {
    let text = format!(
        "Moved off {}: {}. The controller recreates the placeholder with this run's reserve, so that it gets another node.",
        here(observed),
        why(observed, cause, None),
    );
    note(Reason::MovedOff, text)
}

/// The placeholder is on another node than the run's annotation says, or on the run's first node.
pub(super) fn arrived(run: &Run, node: &str) -> Note {
    let text = |from: &str| {
        format!(
            "The placeholder is on node {node}{from}; this run's pods are there or will be scheduled there."
        )
    };
    match run.node.as_deref() {
        Some(old) => note(Reason::Moved, text(&format!(" (before: {old})"))),
        None => note(Reason::NodeAssigned, text("")),
    }
}

/// The run stays on its node until its tasks there have ended. The text does not count the tasks: a count would cause a new event
/// each time a task ends.
pub(super) fn awaits_tasks(observed: &Observation, cause: MoveCause, pod: Option<&str>) -> Option<Note> {
    match (cause, evicted_from(observed)) {
        (MoveCause::Node(cause), _) => Some(keeps_tasks(&here(observed), cause)),
        (_, Some((node, cause))) => Some(keeps_tasks(&format!("node {node}"), cause)),
        (MoveCause::TaskDoesNotFit | MoveCause::PlaceholderDoesNotFit, None) => {
            let text = format!(
                "Pod {} has no room beside the running tasks of this run, and waits until they end.",
                pod?
            );
            Some(note(Reason::WaitingForRoom, text))
        }
    }
}

/// The run's last node, if that node cannot run the waiting placeholder. Kubernetes evicts and removes the placeholder from an
/// unresponsive node, but keeps the tasks' pods. While they exist, affinity requires this node for the run's other pods.
fn evicted_from(observed: &Observation) -> Option<(&str, node::Cause)> {
    let pod = observed.pod.as_ref().filter(|pod| pod.node.is_none())?;
    let left = observed
        .statefulset
        .as_ref()
        .and_then(|set| set.spec.node_given_up());
    let name = observed.run.node.as_deref().filter(|name| left != Some(*name))?;
    let node = observed.cluster.nodes.iter().find(|node| node.name == name)?;
    match node::state(Some(node.as_ref()), &pod.tolerations) {
        NodeState::Unusable(cause) => Some((name, cause)),
        NodeState::Usable | NodeState::Unknown => None,
    }
}

fn keeps_tasks(node: &str, cause: node::Cause) -> Note {
    let text = format!(
        "This run's {node} {}. Tasks of this run still run there. The run moves when they have ended.{}",
        cause.text(),
        remedy(cause)
    );
    note(Reason::NodeUnfit, text)
}

/// The run stays on its node, because no other node can use one of its volumes.
pub(super) fn is_tied(observed: &Observation, cause: MoveCause, pod: Option<&str>, claim: &str) -> Note {
    let node = here(observed);
    let stays = format!("This run stays on {node}, because its PVC {claim} can be used on no other node:");
    match cause {
        MoveCause::Node(cause) => {
            let text = format!(
                "{stays} the node {}. Its next task starts when the node is usable again.{}",
                cause.text(),
                remedy(cause)
            );
            note(Reason::NodeUnfit, text)
        }
        MoveCause::TaskDoesNotFit | MoveCause::PlaceholderDoesNotFit => {
            let text = format!(
                "{stays} pod {} waits for room there. Reduce its requests, or use a volume that other nodes can also use.",
                pod.unwrap_or("of a task")
            );
            note(Reason::WaitingForRoom, text)
        }
    }
}

/// The run gave up its node, and no other node fits.
pub(super) fn no_node_fits(pod: &str, asks: &Resources, message: &str, nearest: Option<&NodeOffer>) -> Note {
    let nearest = match nearest {
        Some(offer) if offer.fits() => {
            format!("Among the existing nodes, {offer}, but the node is full or not allowed")
        }
        Some(offer) => format!("Among the existing nodes, the nearest is too small: {offer}"),
        None => "There is no node that allows this run's pods".to_owned(),
    };
    let asks = Some(asks.to_string()).filter(|asks| !asks.is_empty());
    let asks = asks.unwrap_or_else(|| "nothing in particular".to_owned());
    let text = format!(
        "No node fits pod {pod}, which asks for {asks}. {nearest}. The scheduler reports: {message} The run continues when \
         there is such a node."
    );
    note(Reason::NoNodeFits, text)
}

/// The sentence that follows a note about a pod that waits.
pub fn time_left(task_run: &str, deadline: Timestamp, now: Timestamp) -> String {
    let left = deadline.duration_since(now).max(SignedDuration::ZERO);
    let left = SignedDuration::from_secs(left.as_secs());
    format!(" Meanwhile, the timeout of TaskRun {task_run} continues: {left:#} left, until {deadline}.")
}

fn here(observed: &Observation) -> String {
    observed
        .node_name()
        .map_or_else(|| "its node".to_owned(), |node| format!("node {node}"))
}

fn why(observed: &Observation, cause: MoveCause, pod: Option<&str>) -> String {
    match cause {
        MoveCause::TaskDoesNotFit => task_does_not_fit(observed, pod.unwrap_or("of a task")),
        MoveCause::PlaceholderDoesNotFit => placeholder_does_not_fit(pod),
        MoveCause::Node(cause) => format!("it {}", cause.text()),
    }
}

fn task_does_not_fit(observed: &Observation, pod: &str) -> String {
    let waiting = observed.waiting.iter().find(|waiting| waiting.name == pod);
    let asks = waiting
        .map(|waiting| waiting.requests.to_string())
        .filter(|asks| !asks.is_empty())
        .map(|asks| format!(", which asks for {asks},"))
        .unwrap_or_default();
    format!(
        "pod {pod}{asks} does not fit there, and no task of this run is there (to avoid the detour, see the \
         annotation {})",
        keys::RESERVE
    )
}

fn placeholder_does_not_fit(pod: Option<&str>) -> String {
    let waiting = pod
        .map(|pod| format!(", and pod {pod} waits"))
        .unwrap_or_default();
    format!("the placeholder itself has no room{waiting}")
}

/// Kubernetes does not assume that the pods on an unresponsive node have ended. They may still use this run's volumes, so no pod
/// of the run may start on another node.
fn remedy(cause: node::Cause) -> &'static str {
    match cause {
        node::Cause::NotReady => {
            " If the node does not come back, delete it, or run `kubectl taint node NAME \
             node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`: only then does Kubernetes remove the pods on it."
        }
        node::Cause::Cordoned | node::Cause::Tainted | node::Cause::Gone => "",
    }
}

#[cfg(test)]
mod tests;
