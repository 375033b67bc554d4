//! Notes and their reasons, which are stable names that users and other programs filter events by.

use std::time::Duration;

/// Why an event is emitted; its name is the reason of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
pub enum Reason {
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
pub struct Note {
    pub reason: Reason,
    pub text: String,
}

/// A note.
pub fn note(reason: Reason, text: String) -> Note {
    Note { reason, text }
}

/// How the notes of a reason are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The type of the event: `Normal`, or `Warning` where a user may want to look at something.
    pub kind: &'static str,
    /// What was done, or tried, as the event has it.
    pub action: &'static str,
    pub repeat: Repeat,
}

/// How often the same note may be reported of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// It reports a write, which happened as often.
    Always,
    /// It reports a state that lasts.
    Every(Duration),
    /// Once is enough.
    Never,
}

const LASTS: Repeat = Repeat::Every(Duration::from_mins(5));

impl Repeat {
    /// When the same note is due again after it was reported, if the state that it reports lasts.
    pub fn pause(self) -> Option<Duration> {
        match self {
            Self::Every(pause) => Some(pause),
            Self::Always | Self::Never => None,
        }
    }
}

impl Reason {
    /// How its notes are reported.
    pub fn manner(self) -> Manner {
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

    /// How often the same words may be reported.
    pub fn repeat(self) -> Repeat {
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
