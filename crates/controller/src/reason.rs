//! The reasons of events: stable names that users and other programs filter by.

use kube::runtime::events::EventType;
use std::time::Duration;

/// Why an event is emitted; its name is the reason of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
pub(crate) enum Reason {
    Held,
    Enrolled,
    EnrolRefused,
    PlaceholderCreated,
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
    LetGo,
    Moved,
    MoveRefused,
    NodeUnfit,
    WaitingForRoom,
    NoNodeFits,
    ReserveIgnored,
}

/// How often the same note may be told of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It tells of a write, which happened as often as it is told.
    Always,
    /// It tells of a state that lasts.
    Every(Duration),
    /// Once is enough.
    Never,
}

impl Reason {
    /// Normal, or something that a user may want to look at.
    pub(crate) fn kind(self) -> EventType {
        match self {
            Self::Held
            | Self::Enrolled
            | Self::PlaceholderCreated
            | Self::PlaceholderReturned
            | Self::WaitingForNode
            | Self::NodeAssigned
            | Self::Released
            | Self::CleanedUp
            | Self::LetGo
            | Self::Moved
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
            | Self::ReserveIgnored => EventType::Warning,
        }
    }

    /// How often the same words may be told.
    pub(crate) fn repeat(self) -> Repeat {
        match self {
            Self::Held | Self::LabelledTooLate | Self::NodeUnfit | Self::ReserveIgnored => Repeat::Never,
            Self::EnrolRefused
            | Self::PlaceholderRefused
            | Self::ReleaseRefused
            | Self::CleanUpRefused
            | Self::MoveRefused
            | Self::NoNodeFits
            | Self::WaitingForRoom
            | Self::WaitingForNode => Repeat::Every(Duration::from_mins(5)),
            Self::Enrolled
            | Self::PlaceholderCreated
            | Self::PlaceholderReturned
            | Self::NodeAssigned
            | Self::Released
            | Self::HoldDeadlineExceeded
            | Self::LetGo
            | Self::Moved
            | Self::CleanedUp => Repeat::Always,
        }
    }
}
