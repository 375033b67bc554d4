//! The controller's one decision: what is observed of a run, and the time, in; the next step out.
//!
//! Level-triggered: what is remembered between two passes, when a run last moved off its node and when its pods were
//! last counted, only makes it patient. Each step leads to a change that brings the run back for the next one. The
//! stage of the run is settled first; each stage has a sub-decision of its own.

mod decision;
mod ending;
mod hold;
mod observation;
mod questions;
mod room;
mod running;
mod shape;
mod stuck;
mod view;

pub use self::decision::{Decision, MoveCause, Question, ReleaseCause, Wait, Why, Write};
pub use self::observation::{
    AssistantPod, Census, Claims, Message, Observation, Placeholder, PlaceholderPod, Repeated, Resize, Shape,
    Unschedulable, WaitingPod, is_pinned,
};
use self::view::{Stage, enrolment};
use crate::placeholder::size::{self, Ignored};
use crate::run::Run;
use crate::strategy::Enrolment;
use std::time::Duration;

/// What to do with a run now, and when to reconcile it again if nothing else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to do now.
    pub decision: Decision,
    /// When to reconcile again; `None` waits for the next change.
    pub again: Option<Duration>,
    /// What the user should hear once, whatever is done.
    pub note: Option<Ignored>,
}

impl Plan {
    /// The same, to be reconciled again after this time at the latest.
    #[must_use]
    pub fn no_later_than(self, after: Duration) -> Self {
        Self {
            again: Some(self.again.map_or(after, |again| again.min(after))),
            ..self
        }
    }
}

/// How soon a placeholder that lacks its pod, or is on its way out, is looked at again.
const SOON: Duration = Duration::from_secs(5);

/// Decides what to do.
pub fn plan(seen: &Observation) -> Plan {
    match Stage::of(seen) {
        Stage::Deleting => at_once(ending::clean_up(seen)),
        Stage::Done => at_once(ending::wind_up(seen)),
        Stage::Foreign(why) => at_once(Decision::Leave(why)),
        Stage::OptedOut => ending::withdraw(seen),
        Stage::HeldByUs(asked) => noted(hold::hold(seen, enrolment(seen, asked)), &seen.run),
        Stage::HeldElsewhere(asked) => at_once(queue(seen, enrolment(seen, asked))),
        Stage::Running(asked) => running::accompany(seen, enrolment(seen, asked)),
    }
}

/// Held by another: the labels have to be there when it is released, a placeholder would only block a node. One is there
/// if the run was held by us until its user took the hold over.
fn queue(seen: &Observation, enrolment: Enrolment) -> Decision {
    if !seen.run.is_enrolled() {
        return Decision::Write(Write::Enrol(enrolment));
    }
    ending::delete_or_leave(seen.placeholder().uid(), None, Why::HeldElsewhere)
}

/// The reserve matters only while the run is held.
fn noted(plan: Plan, run: &Run) -> Plan {
    Plan {
        note: size::ignored(run),
        ..plan
    }
}

/// Nothing but a change brings the run back.
fn at_once(decision: Decision) -> Plan {
    Plan {
        decision,
        again: None,
        note: None,
    }
}

fn again(decision: Decision, after: Duration) -> Plan {
    Plan {
        again: Some(after),
        ..at_once(decision)
    }
}

pub mod fixtures;

pub mod scenes;
pub mod simulation;
