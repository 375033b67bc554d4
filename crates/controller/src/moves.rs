//! What a user is told of a run that leaves its node, or cannot: which pod, why, from where and to where. Pure.

use crate::reason::{Note, Reason, note};
use crate::refusal::{Cause, Refused};
use placement::keys;
use placement::node::{self, NodeOffer};
use placement::plan::{MoveCause, Observation};
use placement::resources::Resources;
use placement::run::Run;

/// The node was given up.
pub(crate) fn moves_off(seen: &Observation, cause: MoveCause, pod: Option<&str>) -> Note {
    let text = format!(
        "Let go of {}: {}. This run's next pod may take any node that fits, or have an autoscaler add one; the \
         placeholder follows it there.",
        here(seen),
        why(seen, cause, pod),
    );
    note(Reason::LetGo, text)
}

/// The node of a held run with a reserve was given up.
pub(crate) fn starts_over(seen: &Observation, cause: MoveCause) -> Note {
    let text = format!(
        "Let go of {}: {}. The placeholder is made anew, with this run's reserve, to find another node.",
        here(seen),
        why(seen, cause, None),
    );
    note(Reason::LetGo, text)
}

/// The placeholder is on a node that is not the one written down.
pub(crate) fn arrived(run: &Run, node: &str) -> Note {
    let text =
        |from: &str| format!("The placeholder is on node {node}{from}; this run's pods are, or go, there.");
    match run.node.as_deref() {
        Some(old) => note(Reason::Moved, text(&format!(" (before: {old})"))),
        None => note(Reason::NodeAssigned, text("")),
    }
}

/// Tasks of the run are in the way of leaving, so that nothing is done. They are not counted here: the same note
/// would be told anew for each that ends.
pub(crate) fn awaits_tasks(seen: &Observation, cause: MoveCause, pod: Option<&str>) -> Option<Note> {
    let node = here(seen);
    match cause {
        MoveCause::Node(cause) => {
            let text = format!(
                "This run's {node} {}. Tasks of this run are still there, so that it stays until they \
                 have ended; then it moves on.",
                trouble(cause)
            );
            Some(note(Reason::NodeUnfit, text))
        }
        MoveCause::TaskDoesNotFit | MoveCause::PlaceholderDoesNotFit => {
            let text = format!(
                "Pod {} finds no room beside the tasks of this run that are there already, and waits for them to end.",
                pod?
            );
            Some(note(Reason::WaitingForRoom, text))
        }
    }
}

/// The node was given up, and there is no other.
pub(crate) fn no_node_fits(pod: &str, asks: &Resources, message: &str, nearest: Option<&NodeOffer>) -> Note {
    let nearest = match nearest {
        Some(offer) if offer.fits() => {
            format!("Of the nodes there are, {offer}, so that it is full or not allowed")
        }
        Some(offer) => format!("Of the nodes there are, the nearest is too small: {offer}"),
        None => "There is no node where this run's pods may start".to_owned(),
    };
    let asks = Some(asks.to_string()).filter(|asks| !asks.is_empty());
    let asks = asks.unwrap_or_else(|| "nothing in particular".to_owned());
    let text = format!(
        "No node fits pod {pod}, which asks for {asks}. {nearest}. The scheduler says: {message} The run goes on as \
         soon as there is such a node."
    );
    note(Reason::NoNodeFits, text)
}

/// The way out was barred.
pub(crate) fn refused(refused: &Refused) -> Note {
    let advice = match refused.cause() {
        Cause::Forbidden => {
            " The controller's ClusterRole seems incomplete; apply the release's manifests again."
        }
        Cause::Denied => {
            " An admission policy of this cluster does not let the placeholder be changed; exempt it or adapt it."
        }
        _ => "",
    };
    let text = format!(
        "The placeholder could not be moved or made smaller yet, and it is tried again: {}.{advice}",
        refused.fault
    );
    note(Reason::MoveRefused, text)
}

fn here(seen: &Observation) -> String {
    seen.node_name()
        .map_or_else(|| "its place".to_owned(), |node| format!("node {node}"))
}

fn why(seen: &Observation, cause: MoveCause, pod: Option<&str>) -> String {
    match cause {
        MoveCause::TaskDoesNotFit => task_does_not_fit(seen, pod.unwrap_or("of a task")),
        MoveCause::PlaceholderDoesNotFit => placeholder_does_not_fit(pod),
        MoveCause::Node(cause) => format!("it {}", trouble(cause)),
    }
}

fn task_does_not_fit(seen: &Observation, pod: &str) -> String {
    let waiting = seen.waiting.iter().find(|waiting| waiting.name == pod);
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
    format!("the placeholder itself finds no room{waiting}")
}

fn trouble(cause: node::Cause) -> &'static str {
    match cause {
        node::Cause::Cordoned => "is cordoned",
        node::Cause::Tainted => "has a taint that this run does not tolerate",
        node::Cause::NotReady => "is not ready",
        node::Cause::Gone => "is gone",
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
