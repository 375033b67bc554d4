//! The controller's one decision: what is observed of a run, and the time, in; the next step out.
//!
//! Level-triggered: what is remembered between two passes, when a run last let go of its node and when its pods were
//! last counted, only makes it patient. Each step leads to a change that brings the run back for the next one. The
//! stage of the run is settled first; each stage has a sub-decision of its own.

mod action;
mod ending;
mod hold;
mod observed;
mod running;
mod stuck;
mod view;
mod weight;

pub use self::action::{Action, Enrolment, LetGoCause, ReleaseCause, Why};
pub use self::observed::{
    Census, LetGos, Make, Observed, Placeholder, PlaceholderPod, Resize, Surroundings, Unschedulable,
    WaitingPod, is_pinned,
};
use self::view::{Look, Stage, enrolment};
use crate::placeholder::size::{self, Ignored};
use crate::run::Run;
use jiff::Timestamp;
use std::time::Duration;

/// The next step for a run, and when to look again if nothing else happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What to do now.
    pub action: Action,
    /// When to look again; `None` waits for the next change.
    pub again: Option<Duration>,
    /// What the user should be told once, whatever is done.
    pub note: Option<Ignored>,
}

impl Plan {
    fn no_later_than(self, after: Duration) -> Self {
        Self {
            again: Some(self.again.map_or(after, |again| again.min(after))),
            ..self
        }
    }
}

/// How soon a placeholder that lacks its pod, or is on its way out, is looked at again.
const SOON: Duration = Duration::from_secs(5);

/// Decides the next step.
pub fn plan(observed: &Observed<'_>, now: Timestamp) -> Plan {
    let look = Look::at(observed, now);
    match Stage::of(observed) {
        Stage::Deleting => at_once(ending::clean_up(&look)),
        Stage::Done => at_once(ending::wind_up(&look)),
        Stage::Foreign(why) => at_once(Action::Leave(why)),
        Stage::OptedOut => at_once(ending::withdraw(&look)),
        Stage::HeldByUs(asked) => noted(hold::hold(&look, enrolment(observed, asked)), observed.run),
        Stage::HeldElsewhere(asked) => at_once(queue(observed.run, enrolment(observed, asked))),
        Stage::Running(asked) => running::accompany(&look, enrolment(observed, asked)),
    }
}

/// Held by somebody else: the labels have to be there when they let go, a placeholder would only block a node.
fn queue(run: &Run, enrolment: Enrolment) -> Action {
    if run.is_enrolled() {
        Action::Leave(Why::HeldElsewhere)
    } else {
        Action::Enrol(enrolment)
    }
}

/// The reserve matters only while the run is held.
fn noted(plan: Plan, run: &Run) -> Plan {
    Plan {
        note: size::ignored(run),
        ..plan
    }
}

/// Nothing but a change brings the run back.
fn at_once(action: Action) -> Plan {
    Plan {
        action,
        again: None,
        note: None,
    }
}

fn again(action: Action, after: Duration) -> Plan {
    Plan {
        again: Some(after),
        ..at_once(action)
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
