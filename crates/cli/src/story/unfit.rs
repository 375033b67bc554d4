//! A run's node where no new pod can start: what follows for the run, and what would help. Pure.

use crate::facts::Facts;
use crate::home::Home;
use placement::node::Cause;

/// What is wrong with the node, and what the run does.
pub(super) fn sentence(facts: &Facts) -> Option<String> {
    let home = Home::of(facts)?;
    let cause = home.trouble?;
    let trouble = trouble(cause);
    let follows = consequence(&home, cause);
    Some(format!(
        "No new pod can start there: the node {trouble}. {follows}"
    ))
}

fn trouble(cause: Cause) -> &'static str {
    match cause {
        Cause::Cordoned => "is cordoned",
        Cause::Tainted => "has a taint that the run does not tolerate",
        Cause::NotReady => "is not ready",
        Cause::Gone => "is gone",
    }
}

fn consequence(home: &Home<'_>, cause: Cause) -> String {
    let follows = match (home.tie, cause) {
        (Some(claim), _) => {
            return format!("The run stays there, because its PVC {claim} can be used on no other node.");
        }
        (None, _) if !home.moves => "The run stays there, because move-after is never.",
        (None, Cause::NotReady) if home.is_busy => {
            "Kubernetes cannot know whether the run's tasks there have ended, so nothing of the run starts on another node."
        }
        (None, Cause::Gone) if home.is_busy => {
            "Kubernetes removes the pods that were there after about a minute. Then the run moves."
        }
        (None, _) if home.is_busy => "The run moves when its tasks there have ended.",
        (None, _) => "The run moves to another node.",
    };
    follows.to_owned()
}

/// What would help the node, or the run without it. Nothing has to be done for a run that moves by itself.
pub(super) fn advice(home: &Home<'_>) -> Vec<String> {
    let Some(cause) = home.trouble else {
        return Vec::new();
    };
    match (cause, home.tie) {
        (Cause::NotReady, None) if home.moves && home.is_busy => vec![see_why(home.name), give_up(home.name)],
        (Cause::NotReady, Some(claim)) => vec![see_why(home.name), another_volume(claim)],
        (Cause::Gone, Some(claim)) => vec![another_volume(claim)],
        (_, None) if home.moves => Vec::new(),
        (_, _) => mend(home.name, cause).into_iter().collect(),
    }
}

pub(super) fn uncordon(node: &str) -> String {
    format!("Let pods onto {node} again: `kubectl uncordon {node}`.")
}

pub(super) fn see_why(node: &str) -> String {
    format!("See why {node} is not ready: `kubectl describe node {node}`.")
}

/// As the event `NodeUnfit` says.
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

fn mend(node: &str, cause: Cause) -> Option<String> {
    match cause {
        Cause::Cordoned => Some(uncordon(node)),
        Cause::Tainted => Some(format!(
            "Remove the taint that the run does not tolerate: `kubectl describe node {node}`."
        )),
        Cause::NotReady => Some(see_why(node)),
        Cause::Gone => None,
    }
}
