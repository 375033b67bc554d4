//! Where a run is in its life, in one word. Pure.

use crate::view::{RunView, Seat, created, is_reservation, unschedulable};
use jiff::Timestamp;
use placement::opt_in::OptIn;
use placement::run::SpecStatus;
use serde::{Serialize, Serializer};
use std::fmt;

/// The state of a run as far as placement goes.
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
    /// The state of this run with this placeholder.
    pub(crate) fn of(view: &RunView, seat: &Seat<'_>) -> Self {
        let run = &view.run;
        let opt_in = OptIn::parse(run.opt_in.as_deref());
        match opt_in {
            _ if run.deleting => Self::Ending,
            _ if run.done && seat.pod.is_some_and(is_reservation) => Self::Reserved,
            _ if run.done => Self::Done,
            _ if run.child => Self::Nested,
            _ if run.managed_elsewhere => Self::ManagedElsewhere,
            Err(_) => Self::Invalid,
            Ok(OptIn::Absent) => Self::Unlabelled,
            Ok(OptIn::Declined) => Self::Declined,
            Ok(OptIn::Default | OptIn::Chosen(_)) => opted_in(view, seat),
        }
    }

    /// Since when it is like that, as far as the objects tell.
    pub(crate) fn since(self, view: &RunView, seat: &Seat<'_>) -> Option<Timestamp> {
        let begun = view.run.held_since();
        match self {
            Self::Held
            | Self::HeldElsewhere
            | Self::Invalid
            | Self::Unlabelled
            | Self::Declined
            | Self::Nested
            | Self::ManagedElsewhere
            | Self::TooLate
            | Self::Ending => begun,
            Self::WaitingForNode => seat.pod.and_then(|pod| created(&pod.metadata)).or(begun),
            Self::Running | Self::Moving => view.started.or(begun),
            Self::Done | Self::Reserved => view.ended.or(begun),
        }
    }
}

fn opted_in(view: &RunView, seat: &Seat<'_>) -> State {
    let run = &view.run;
    match run.status {
        _ if run.is_held_by_us() => held(seat),
        SpecStatus::Pending => State::HeldElsewhere,
        SpecStatus::Unset | SpecStatus::Other(_) if seat.is_vacant() => State::Moving,
        SpecStatus::Unset | SpecStatus::Other(_) if is_too_late(view, seat) => State::TooLate,
        SpecStatus::Unset | SpecStatus::Other(_) => State::Running,
    }
}

fn held(seat: &Seat<'_>) -> State {
    match seat.pod {
        Some(pod) if seat.node().is_none() && unschedulable(pod).is_some() => State::WaitingForNode,
        Some(_) | None => State::Held,
    }
}

fn is_too_late(view: &RunView, seat: &Seat<'_>) -> bool {
    view.run.status == SpecStatus::Unset && !view.run.is_enrolled() && seat.set.is_none()
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
