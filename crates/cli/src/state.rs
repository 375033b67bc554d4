//! The state of a run in one word, as `list` and `explain` print it. Pure.

use crate::observe::observation;
use crate::view::{PlaceholderObjects, RunView, created, is_reservation, unschedulable};
use jiff::Timestamp;
use placement::config::Config;
use placement::opt_in::OptIn;
use placement::plan::{self, Decision, Inputs, Observation, Wait};
use serde::{Serialize, Serializer};
use std::fmt;

/// The state of a run. The names are stable, because scripts read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Held,
    WaitingForNode,
    HeldElsewhere,
    Running,
    Moving,
    Done,
    Reserved,
    Ending,
    Declined,
    TooLate,
    Invalid,
    Nested,
    ManagedElsewhere,
    Unlabelled,
}

impl State {
    /// The state of a run with this placeholder, from the state that the controller derives.
    pub(crate) fn of(view: &RunView, placeholder: &PlaceholderObjects<'_>) -> Self {
        use plan::State as Controller;
        let run = &view.run;
        // The state depends neither on the configuration nor on the time.
        let seen = observation(run, placeholder, Config::default(), Timestamp::UNIX_EPOCH);
        match Controller::from_observation(&seen) {
            _ if run.deleting => Self::Ending,
            _ if run.done && placeholder.pod.is_some_and(is_reservation) => Self::Reserved,
            _ if run.done => Self::Done,
            Controller::HeldWithoutPlaceholder
            | Controller::HeldWithoutPod
            | Controller::HeldUnscheduled
            | Controller::HeldOnNode
            | Controller::HeldScaledDown => held(placeholder),
            Controller::Queued => Self::HeldElsewhere,
            Controller::Unenrolled if is_too_late(&seen) => Self::TooLate,
            Controller::RunningScaledDown => Self::Moving,
            Controller::Unenrolled
            | Controller::RunningWithoutPlaceholder
            | Controller::RunningWithoutPod
            | Controller::RunningUnscheduled
            | Controller::RunningOnNode => Self::Running,
            Controller::Ignored | Controller::OptedOut | Controller::Ending | Controller::NodeKept => {
                ignored(view)
            }
        }
    }

    /// Whether the run is not done, and pod-affinity places its pods.
    pub(crate) fn is_active(self) -> bool {
        matches!(
            self,
            Self::Held | Self::WaitingForNode | Self::HeldElsewhere | Self::Running | Self::Moving
        )
    }

    /// Whether a hold of the run, if there was one, is over.
    pub(crate) fn was_released(self) -> bool {
        matches!(
            self,
            Self::Running | Self::Moving | Self::Done | Self::Reserved | Self::Ending
        )
    }

    /// Since when the run has this state, as far as its objects show.
    pub(crate) fn since(self, view: &RunView, placeholder: &PlaceholderObjects<'_>) -> Option<Timestamp> {
        let begun = view.run.held_since();
        match self {
            Self::WaitingForNode => placeholder.pod.and_then(|pod| created(&pod.metadata)).or(begun),
            Self::Running | Self::Moving => view.started.or(begun),
            Self::Done | Self::Reserved => view.ended.or(begun),
            _ => begun,
        }
    }
}

fn held(placeholder: &PlaceholderObjects<'_>) -> State {
    match placeholder.pod {
        Some(pod) if placeholder.node().is_none() && unschedulable(pod).is_some() => State::WaitingForNode,
        Some(_) | None => State::Held,
    }
}

fn is_too_late(seen: &Observation) -> bool {
    plan::plan(seen, &Inputs::default()).decision == Decision::Wait(Wait::LabelledTooLate)
}

/// A label that opts in has no effect in a namespace that pod-affinity excludes.
fn ignored(view: &RunView) -> State {
    let run = &view.run;
    match OptIn::parse(run.opt_in.as_deref()) {
        _ if run.child => State::Nested,
        _ if run.managed_elsewhere => State::ManagedElsewhere,
        Err(_) => State::Invalid,
        Ok(OptIn::Absent) => State::Unlabelled,
        Ok(OptIn::Declined | OptIn::Default | OptIn::Chosen(_)) => State::Declined,
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Held => "Held",
            Self::WaitingForNode => "WaitingForNode",
            Self::HeldElsewhere => "HeldElsewhere",
            Self::Running => "Running",
            Self::Moving => "Moving",
            Self::Done => "Done",
            Self::Reserved => "Reserved",
            Self::Ending => "BeingDeleted",
            Self::Declined => "Declined",
            Self::TooLate => "TooLate",
            Self::Invalid => "Invalid",
            Self::Nested => "Nested",
            Self::ManagedElsewhere => "ManagedElsewhere",
            Self::Unlabelled => "NotLabelled",
        })
    }
}
