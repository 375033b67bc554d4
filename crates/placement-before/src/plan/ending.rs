//! The end of a run, or of our part in it: what is cleaned up and what is kept.
//!
//! A placeholder that gave up its node has none to keep: an isolateAlways run that ends in that moment leaves no
//! reservation behind, since the node it would be for is no longer its own.

use super::decision::{Decision, Question, ReleaseCause, Wait, Why, Write};
use super::observation::{Observation, Placeholder, PlaceholderPod};
use super::view::{Set, asked, enrolment};
use super::{Plan, SOON, again, at_once, stuck};
use crate::placeholder::size::is_automatic;
use crate::run::SpecStatus;
use crate::strategy::Strategy;

/// Being deleted: nothing is kept, a node that was reserved included. Finalizers of others may keep the run for
/// long, so garbage collection is not waited for.
pub(super) fn clean_up(seen: &Observation) -> Decision {
    let pod = seen
        .live_pod()
        .filter(|pod| pod.adopted)
        .map(|pod| pod.uid.clone());
    delete_or_leave(seen.placeholder().uid(), pod, Why::Done)
}

/// Done: the node is free again, unless the strategy keeps it.
pub(super) fn wind_up(seen: &Observation) -> Decision {
    match wound_up(seen) {
        Decision::Write(Write::DeletePlaceholder { set: Some(_), .. } | Write::LeavePod { .. })
            if is_worth_a_record(seen) && seen.stints.is_none() =>
        {
            Decision::Count(Question::Stints)
        }
        decision => decision,
    }
}

/// What a later run of the same Pipeline will need is written down on one that went well.
fn is_worth_a_record(seen: &Observation) -> bool {
    let run = &seen.run;
    run.succeeded && run.used.is_none() && is_automatic(run, &seen.config)
}

fn wound_up(seen: &Observation) -> Decision {
    match seen.live_pod() {
        Some(pod)
            if pod.node.is_some() && !pod.shape.mounts && !seen.has_moved_off() && keeps_its_node(seen) =>
        {
            keep_node(pod, seen.placeholder())
        }
        Some(_) | None => delete_or_leave(seen.placeholder().uid(), None, Why::Done),
    }
}

/// The default never applies: an enrolled run has its strategy on it.
fn keeps_its_node(seen: &Observation) -> bool {
    let asked = asked(seen).unwrap_or(seen.config.default_strategy);
    seen.run.is_enrolled() && enrolment(seen, asked).strategy == Strategy::IsolateAlways
}

/// The pod changes hands before the set is deleted, or it would go with it.
fn keep_node(pod: &PlaceholderPod, set: Set<'_>) -> Decision {
    match set.uid() {
        _ if !pod.adopted => Decision::Write(Write::AdoptPod { pod: pod.uid.clone() }),
        Some(set) => Decision::Write(Write::LeavePod { set }),
        None => Decision::Leave(Why::Done),
    }
}

/// A run that is not opted in any more must not wait for us, nor be followed. Once it was started it keeps its group,
/// since half of its pods have the terms already.
pub(super) fn withdraw(seen: &Observation) -> Plan {
    let run = &seen.run;
    if run.is_held_by_us() {
        return at_once(Decision::Write(Write::Release {
            cause: ReleaseCause::OptedOut,
            enrolment: None,
            node: None,
        }));
    }
    if run.status == SpecStatus::Pending && run.is_enrolled() {
        return at_once(Decision::Write(Write::Withdraw));
    }
    match seen.placeholder().usable() {
        Some(set) if set.left.is_some() => dismiss(seen, set),
        Some(_) | None => at_once(delete_or_leave(seen.placeholder().uid(), None, Why::NotOptedIn)),
    }
}

/// Tekton's assistants may wait for the placeholder to be somewhere, and tasks that are none of ours now may hang on them.
fn dismiss(seen: &Observation, set: &Placeholder) -> Plan {
    match &seen.assistants {
        _ if seen.has_moved_off() => stuck::follow(seen, set),
        None => at_once(Decision::Count(Question::Assistants)),
        Some(assistants) if assistants.iter().any(|assistant| assistant.node.is_none()) => {
            again(Decision::Wait(Wait::Steady), SOON)
        }
        Some(_) => at_once(delete_or_leave(Some(set.uid.clone()), None, Why::NotOptedIn)),
    }
}

pub(super) fn delete_or_leave(set: Option<String>, pod: Option<String>, why: Why) -> Decision {
    match (set, pod) {
        (None, None) => Decision::Leave(why),
        (set, pod) => Decision::Write(Write::DeletePlaceholder { set, pod }),
    }
}
