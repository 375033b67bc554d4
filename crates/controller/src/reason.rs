//! Notes and their reasons. Reasons are stable names: users and other programs filter events by reason.

use std::time::Duration;

/// The reason of an event. The name of the variant is the event's `reason`.
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

/// The reason and the text of an event on a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Note {
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

pub(crate) fn note(reason: Reason, text: String) -> Note {
    Note { reason, text }
}

/// How notes of one reason become events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The type of the event: `Normal`, or `Warning` if the user may have to check something.
    pub(crate) kind: &'static str,
    /// The event's `action`: what the controller did or tried.
    pub(crate) action: &'static str,
    pub(crate) repeat: Repeat,
}

/// How often the same note may be reported of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The note reports a write, and each write is reported.
    Always,
    /// The note reports a lasting state, and is repeated after this pause.
    Every(Duration),
    /// The note is reported once.
    Never,
}

const LASTS: Repeat = Repeat::Every(Duration::from_mins(5));

impl Repeat {
    /// The pause before the same note is due again, if the note reports a lasting state.
    pub(crate) fn pause(self) -> Option<Duration> {
        match self {
            Self::Every(pause) => Some(pause),
            Self::Always | Self::Never => None,
        }
    }
}

impl Reason {
    /// How notes of this reason become events.
    pub(crate) fn manner(self) -> Manner {
        use Repeat::{Always, Never};
        match self {
            Self::Held => normal("Hold", Never),
            Self::WaitingForNode => normal("Hold", LASTS),
            Self::HoldDeadlineExceeded => warning("Hold", Always),
            Self::Enrolled => normal("Enrol", Always),
            Self::EnrolRefused => warning("Enrol", LASTS),
            Self::LabelledTooLate => warning("Enrol", Never),
            Self::PlaceholderReturned | Self::ReserveChosen => normal("CreatePlaceholder", Always),
            Self::PlaceholderRefused => warning("CreatePlaceholder", LASTS),
            Self::ReserveGivenUp => warning("CreatePlaceholder", Always),
            Self::ReserveIgnored => warning("CreatePlaceholder", Never),
            Self::NodeAssigned => normal("AssignNode", Always),
            Self::AffinityRelaxed => warning("AssignNode", Never),
            Self::Released => normal("Release", Always),
            Self::ReleaseRefused => warning("Release", LASTS),
            Self::MovedOff | Self::Moved | Self::MadeRoom => normal("Move", Always),
            Self::WaitingForRoom => normal("Move", LASTS),
            Self::MoveRefused | Self::NodeUnfit | Self::NoNodeFits => warning("Move", LASTS),
            Self::CleanedUp => normal("CleanUp", Always),
            Self::CleanUpRefused => warning("CleanUp", LASTS),
        }
    }

    /// How often a note with the same text may be reported.
    pub(crate) fn repeat(self) -> Repeat {
        self.manner().repeat
    }
}

fn normal(action: &'static str, repeat: Repeat) -> Manner {
    Manner {
        kind: "Normal",
        action,
        repeat,
    }
}

fn warning(action: &'static str, repeat: Repeat) -> Manner {
    Manner {
        kind: "Warning",
        ..normal(action, repeat)
    }
}
