//! The end of a run, or of our part in it: what is cleaned up and what is kept.
//!
//! A placeholder that let go of its node has none to keep: an isolateAlways run that ends in that moment leaves no
//! reservation behind, since the node it would be for is no longer its own.

use super::action::{Action, ReleaseCause, Why};
use super::observed::PlaceholderPod;
use super::view::{Look, Set, asked, enrolment};
use crate::run::SpecStatus;
use crate::strategy::Strategy;

/// Being deleted: nothing is kept, a node that was reserved included. Finalizers of others may keep the run for
/// long, so garbage collection is not waited for.
pub(super) fn clean_up(look: &Look<'_>) -> Action {
    let pod = look.pod.filter(|pod| pod.adopted).map(|pod| pod.uid.clone());
    delete_or_leave(look.set.uid(), pod, Why::Done)
}

/// Done: the node is free again, unless the strategy keeps it.
pub(super) fn wind_up(look: &Look<'_>) -> Action {
    match look.pod {
        Some(pod) if pod.node.is_some() && !look.has_let_go() && keeps_its_node(look) => {
            keep_node(pod, look.set)
        }
        Some(_) | None => delete_or_leave(look.set.uid(), None, Why::Done),
    }
}

/// The default never applies: an enrolled run has its strategy on it.
fn keeps_its_node(look: &Look<'_>) -> bool {
    let asked = asked(look.observed).unwrap_or(look.config().default_strategy);
    look.run().is_enrolled() && enrolment(look.observed, asked).strategy == Strategy::IsolateAlways
}

/// The pod changes hands before the set is deleted, or it would go with it.
fn keep_node(pod: &PlaceholderPod, set: Set<'_>) -> Action {
    match set.uid() {
        _ if !pod.adopted => Action::AdoptPod { pod: pod.uid.clone() },
        Some(set) => Action::LeavePod { set },
        None => Action::Leave(Why::Done),
    }
}

/// A run that is not opted in any more must not wait for us, nor be followed. Once it was started it keeps its group,
/// since half of its pods have the terms already.
pub(super) fn withdraw(look: &Look<'_>) -> Action {
    let run = look.run();
    if run.is_held_by_us() {
        return Action::Release {
            cause: ReleaseCause::OptedOut,
            enrolment: None,
            node: None,
        };
    }
    if run.status == SpecStatus::Pending && run.is_enrolled() {
        return Action::Withdraw;
    }
    delete_or_leave(look.set.uid(), None, Why::NotOptedIn)
}

fn delete_or_leave(set: Option<String>, pod: Option<String>, why: Why) -> Action {
    match (set, pod) {
        (None, None) => Action::Leave(why),
        (set, pod) => Action::DeletePlaceholder { set, pod },
    }
}
