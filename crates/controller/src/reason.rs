//! Notes and their reasons, which are stable names that users and other programs filter events by.

use kube::runtime::events::EventType;
use std::time::Duration;

/// Why an event is emitted; its name is the reason of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
pub(crate) enum Reason {
    Held,
    Enrolled,
    EnrolRefused,
    PlaceholderRefused,
    PlaceholderReturned,
    WaitingForNode,
    NodeAssigned,
    Released,
    ReleaseRefused,
    HoldDeadlineExceeded,
    LabelledTooLate,
    CleanedUp,
    CleanUpRefused,
    MovedOff,
    Moved,
    MadeRoom,
    MoveRefused,
    NodeUnfit,
    WaitingForRoom,
    NoNodeFits,
    ReserveChosen,
    ReserveGivenUp,
    ReserveIgnored,
    AffinityRelaxed,
}

/// One thing to report on a run, in words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Note {
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

/// A note.
pub(crate) fn note(reason: Reason, text: String) -> Note {
    Note { reason, text }
}

/// How often the same note may be reported of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It reports a write, which happened as often.
    Always,
    /// It reports a state that lasts.
    Every(Duration),
    /// Once is enough.
    Never,
}

impl Repeat {
    /// When the same note is due again after it was reported, if the state that it reports lasts.
    pub(crate) fn pause(self) -> Option<Duration> {
        match self {
            Self::Every(pause) => Some(pause),
            Self::Always | Self::Never => None,
        }
    }
}

impl Reason {
    /// Normal, or something that a user may want to look at.
    pub(crate) fn kind(self) -> EventType {
        match self {
            Self::Held
            | Self::Enrolled
            | Self::PlaceholderReturned
            | Self::ReserveChosen
            | Self::WaitingForNode
            | Self::NodeAssigned
            | Self::Released
            | Self::CleanedUp
            | Self::MovedOff
            | Self::Moved
            | Self::MadeRoom
            | Self::WaitingForRoom => EventType::Normal,
            Self::EnrolRefused
            | Self::PlaceholderRefused
            | Self::ReleaseRefused
            | Self::HoldDeadlineExceeded
            | Self::LabelledTooLate
            | Self::CleanUpRefused
            | Self::MoveRefused
            | Self::NodeUnfit
            | Self::NoNodeFits
            | Self::ReserveGivenUp
            | Self::ReserveIgnored
            | Self::AffinityRelaxed => EventType::Warning,
        }
    }

    /// How often the same words may be reported.
    pub(crate) fn repeat(self) -> Repeat {
        match self {
            Self::Held | Self::LabelledTooLate | Self::ReserveIgnored | Self::AffinityRelaxed => {
                Repeat::Never
            }
            Self::EnrolRefused
            | Self::PlaceholderRefused
            | Self::ReleaseRefused
            | Self::CleanUpRefused
            | Self::MoveRefused
            | Self::NodeUnfit
            | Self::NoNodeFits
            | Self::WaitingForRoom
            | Self::WaitingForNode => Repeat::Every(Duration::from_mins(5)),
            Self::Enrolled
            | Self::PlaceholderReturned
            | Self::ReserveChosen
            | Self::ReserveGivenUp
            | Self::NodeAssigned
            | Self::Released
            | Self::HoldDeadlineExceeded
            | Self::MovedOff
            | Self::Moved
            | Self::MadeRoom
            | Self::CleanedUp => Repeat::Always,
        }
    }

    /// What was done, or tried, as the event has it.
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Held | Self::WaitingForNode | Self::HoldDeadlineExceeded => "Hold",
            Self::Enrolled | Self::EnrolRefused | Self::LabelledTooLate => "Enrol",
            Self::PlaceholderRefused
            | Self::PlaceholderReturned
            | Self::ReserveChosen
            | Self::ReserveGivenUp
            | Self::ReserveIgnored => "CreatePlaceholder",
            Self::NodeAssigned | Self::AffinityRelaxed => "AssignNode",
            Self::MovedOff
            | Self::Moved
            | Self::MadeRoom
            | Self::MoveRefused
            | Self::NodeUnfit
            | Self::WaitingForRoom
            | Self::NoNodeFits => "Move",
            Self::Released | Self::ReleaseRefused => "Release",
            Self::CleanedUp | Self::CleanUpRefused => "CleanUp",
        }
    }
}
