//! The reasons of events: stable names that users and other programs filter by.

use kube::runtime::events::EventType;
use std::time::Duration;

/// Why something is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// The reason as it appears in the event.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Enrolled => "Enrolled",
            Self::EnrolRefused => "EnrolRefused",
            Self::PlaceholderCreated => "PlaceholderCreated",
            Self::PlaceholderRefused => "PlaceholderRefused",
            Self::PlaceholderReturned => "PlaceholderReturned",
            Self::WaitingForNode => "WaitingForNode",
            Self::NodeAssigned => "NodeAssigned",
            Self::Released => "Released",
            Self::ReleaseRefused => "ReleaseRefused",
            Self::HoldDeadlineExceeded => "HoldDeadlineExceeded",
            Self::LabelledTooLate => "LabelledTooLate",
            Self::CleanedUp => "CleanedUp",
            Self::CleanUpRefused => "CleanUpRefused",
            Self::LetGo => "LetGo",
            Self::Moved => "Moved",
            Self::MoveRefused => "MoveRefused",
            Self::NodeUnfit => "NodeUnfit",
            Self::WaitingForRoom => "WaitingForRoom",
            Self::NoNodeFits => "NoNodeFits",
            Self::ReserveIgnored => "ReserveIgnored",
        }
    }

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
