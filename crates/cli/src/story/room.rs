//! What would help a run whose node is unfit, or has no room for a task. Pure.

use super::unfit;
use crate::facts::Facts;
use crate::fit::{Refusal, refusals};
use crate::home::Home;
use crate::state::State;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use placement::keys;
use placement::reserve;
use placement::resources::Resources;

const WAIT: &str =
    "Wait: the task starts when those that run now leave room, or moves with its run when they are done.";

pub(super) fn advice(facts: &Facts) -> Vec<String> {
    if facts.seat().has_made_room() {
        return vec![raise_quota()];
    }
    let home = Home::of(facts);
    let of_node = home.as_ref().map(unfit::advice).unwrap_or_default();
    let task = facts.waiting_member();
    let of_task = task.map(|pod| for_task(facts, home, pod)).unwrap_or_default();
    of_node.into_iter().chain(of_task).collect()
}

fn raise_quota() -> String {
    "Raise the quota by the number of labelled runs at a time: each of them needs one more pod.".to_owned()
}

fn for_task(facts: &Facts, home: Option<Home<'_>>, pod: &Pod) -> Vec<String> {
    match home {
        Some(Home { tie: Some(claim), .. }) => on_the_only_node(facts, home, claim, pod),
        Some(home) if home.trouble.is_some() && home.is_busy => awaiting_end(&home),
        Some(_) | None => elsewhere(facts, home, pod)
            .into_iter()
            .chain(reserved(facts, pod))
            .collect(),
    }
}

/// Its node can get room, or the task can become smaller. The run never moves.
fn on_the_only_node(facts: &Facts, home: Option<Home<'_>>, claim: &str, pod: &Pod) -> Vec<String> {
    let Some(home) = home else {
        return Vec::new();
    };
    let waits = home.trouble.is_none() && home.is_busy;
    let wait = waits.then(|| "Wait: the task starts when those that run now leave room.".to_owned());
    let smaller = is_short(facts, pod, |node| node.name_any() == home.name).then(|| {
        format!(
            "Request less for pod {}: it does not fit on {}, and PVC {claim} can be used on no other node.",
            pod.name_any(),
            home.name
        )
    });
    wait.into_iter().chain(smaller).collect()
}

fn awaiting_end(home: &Home<'_>) -> Vec<String> {
    let wait = || {
        format!(
            "Wait: the run moves to another node when its tasks on {} have ended.",
            home.name
        )
    };
    home.moves.then(wait).into_iter().collect()
}

fn elsewhere(facts: &Facts, home: Option<Home<'_>>, pod: &Pod) -> Option<String> {
    let moves = home.is_some_and(|home| home.moves);
    let is_busy = home.is_some_and(|home| home.is_busy);
    match facts.state() {
        _ if facts.scene().is_none() => None,
        _ if moves && is_busy => Some(WAIT.to_owned()),
        State::Moving => Some(on_other_nodes(facts, pod)),
        _ => moves.then(|| on_other_nodes(facts, pod)),
    }
}

fn on_other_nodes(facts: &Facts, pod: &Pod) -> String {
    let fits = facts.scene().is_some_and(|scene| {
        let is_away = |it: &Refusal| matches!(it, Refusal::Away(_));
        let mut nodes = scene.nodes.iter();
        nodes.any(|node| refusals(pod, node, &scene).iter().all(is_away))
    });
    if fits {
        "Wait: no task of the run is on a node now, so it moves to one that fits by itself.".to_owned()
    } else {
        "Add a node that is large enough, or let an autoscaler do it: the run moves there by itself."
            .to_owned()
    }
}

/// For the next run, if this one has to move for the task.
fn reserved(facts: &Facts, pod: &Pod) -> Option<String> {
    let asked = pod
        .spec
        .as_ref()
        .map(Resources::from_pod_spec)
        .unwrap_or_default();
    let amounts: Vec<_> = asked
        .iter()
        .filter(|(name, amount)| reserve::check(name, &amount.to_string()).is_ok())
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    (!amounts.is_empty() && is_short(facts, pod, |_| true)).then(|| {
        format!(
            "Have the node chosen for this task from the start: annotate the next run with {}: \"{}\".",
            keys::RESERVE,
            amounts.join(",")
        )
    })
}

/// One of these nodes has not enough for the pod.
fn is_short(facts: &Facts, pod: &Pod, is_one: impl Fn(&Node) -> bool) -> bool {
    facts.scene().is_some_and(|scene| {
        let nodes = scene.nodes.iter().filter(|node| is_one(node));
        let mut reasons = nodes.flat_map(|node| refusals(pod, node, &scene));
        reasons.any(|it| matches!(it, Refusal::Short { .. }))
    })
}
