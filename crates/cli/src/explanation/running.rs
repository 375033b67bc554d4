//! What would help a run that was released: its node is unusable, or a task does not fit there.

use crate::facts::Facts;
use crate::fit::Obstacle;
use crate::view::node as bound_to;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use placement::automatic_reserve::format_record;
use placement::keys;
use placement::node::Cause;
use placement::resources::Resources;

pub(super) fn advice(facts: &Facts) -> Vec<String> {
    if facts.has_made_room() {
        let text =
            "Raise the quota by the number of labelled runs at a time: each of them needs one more pod.";
        return vec![text.to_owned()];
    }
    let of_node = facts.node_name().map(|node| for_node(facts, node));
    let of_task = facts.waiting_member().map(|pod| for_task(facts, pod));
    of_node.into_iter().chain(of_task).flatten().collect()
}

/// Tasks of the run are on its node.
fn is_busy(facts: &Facts) -> bool {
    let node = facts.node_name();
    node.is_some() && facts.members().any(|pod| bound_to(pod) == node)
}

/// What would help the node, or the run without the node. A run that moves to another node needs no help.
fn for_node(facts: &Facts, node: &str) -> Vec<String> {
    let Some(cause) = facts.node_unusable() else {
        return Vec::new();
    };
    let claim = facts.only_volume_of(node);
    let moves = claim.is_none() && facts.config().move_after.is_some();
    match (cause, claim) {
        (Cause::NotReady, _) if moves && is_busy(facts) => vec![see_why(node), give_up(node)],
        _ if moves => Vec::new(),
        (Cause::NotReady, Some(claim)) => vec![see_why(node), another_volume(&claim)],
        (Cause::Gone, Some(claim)) => vec![another_volume(&claim)],
        (Cause::NotReady, None) => vec![see_why(node)],
        (Cause::Gone, None) => Vec::new(),
        (Cause::Cordoned, _) => vec![uncordon(node)],
        (Cause::Tainted, _) => vec![format!(
            "Remove the taint that the run does not tolerate: `kubectl describe node {node}`."
        )],
    }
}

pub(super) fn uncordon(node: &str) -> String {
    format!("Let pods onto {node} again: `kubectl uncordon {node}`.")
}

pub(super) fn see_why(node: &str) -> String {
    format!("See why {node} is not ready: `kubectl describe node {node}`.")
}

/// The remedy of the event `NodeUnfit`, with the name of the node.
fn give_up(node: &str) -> String {
    format!(
        "If {node} does not come back, delete it: `kubectl delete node {node}`. Or keep it out of service: `kubectl taint node \
         {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`. Only then does Kubernetes remove the pods on it."
    )
}

fn another_volume(claim: &str) -> String {
    format!(
        "If the node does not come back, create the run again with another volume: PVC {claim} can be used on no other node."
    )
}

fn for_task(facts: &Facts, pod: &Pod) -> Vec<String> {
    let node = facts.node_name().unwrap_or_default();
    let is_busy = is_busy(facts);
    match (facts.only_volume_of(node), facts.node_unusable()) {
        (Some(claim), unusable) => {
            let wait = "Wait: the task starts when those that run now leave room.";
            let wait = (is_busy && unusable.is_none()).then(|| wait.to_owned());
            wait.into_iter()
                .chain(smaller(facts, pod, node, &claim))
                .collect()
        }
        (None, Some(_)) if is_busy => {
            vec![format!(
                "Wait: the run moves to another node when its tasks on {node} have ended."
            )]
        }
        (None, _) => elsewhere(facts, pod, is_busy)
            .into_iter()
            .chain(reserved(facts, pod))
            .collect(),
    }
}

fn smaller(facts: &Facts, pod: &Pod, node: &str, claim: &str) -> Option<String> {
    let is_short = is_short(facts, pod, |it| it.name_any() == node);
    is_short.then(|| {
        let pod = pod.name_any();
        format!("Request less for pod {pod}: it does not fit on {node}, and PVC {claim} can be used on no other node.")
    })
}

fn elsewhere(facts: &Facts, pod: &Pod, is_busy: bool) -> Option<String> {
    let fit = facts.fit(pod)?;
    facts.config().move_after?;
    let is_away = |it: &Obstacle| matches!(it, Obstacle::Away(_));
    let fits = |node: &Node| fit.obstacles(node).iter().all(is_away);
    let text = if is_busy {
        "Wait: the task starts when those that run now leave room, or moves with its run when they are done."
    } else if fit.nodes().iter().any(fits) {
        "Wait: no task of the run is on a node now, so it moves to one that fits by itself."
    } else {
        "Add a node that is large enough, or let an autoscaler do it: the run moves there by itself."
    };
    Some(text.to_owned())
}

/// A reserve for the next run, if this run has to move for the task.
fn reserved(facts: &Facts, pod: &Pod) -> Option<String> {
    let amounts = format_record(&Resources::from_pod(pod));
    (!amounts.is_empty() && is_short(facts, pod, |_| true)).then(|| {
        format!(
            "Have the node chosen for this task from the start: annotate the next run with {}: \"{amounts}\".",
            keys::RESERVE,
        )
    })
}

/// One of these nodes has not enough of a resource for the pod.
fn is_short(facts: &Facts, pod: &Pod, is_one: impl Fn(&Node) -> bool) -> bool {
    facts.fit(pod).is_some_and(|fit| {
        let nodes = fit.nodes().iter().filter(|node| is_one(node));
        let mut found = nodes.flat_map(|node| fit.obstacles(node));
        found.any(|it| matches!(it, Obstacle::Short { .. }))
    })
}
