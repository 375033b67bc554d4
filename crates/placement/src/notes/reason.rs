//! Notes and their reasons. Reasons are stable names: users and other programs filter events by reason.

use std::time::Duration;

/// The reason of an event. The name of the variant is the event's `reason`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr, strum::VariantArray,
)]
pub enum Reason {
    /// The controller holds the run.
    Held,
    /// The run got the labels of its group.
    Enrolled,
    /// The API server rejected the labels.
    EnrolRefused,
    /// The placeholder or its pod cannot be created.
    PlaceholderRefused,
    /// A lost placeholder was recreated.
    PlaceholderReturned,
    /// The scheduler finds no node for the placeholder of a held run.
    WaitingForNode,
    /// A cap has no room for a held run.
    OverCap,
    /// The placeholder of a running run got its first node.
    NodeAssigned,
    /// The hold ended.
    Released,
    /// The API server rejected the release.
    ReleaseRefused,
    /// The hold ended at `hold-deadline`, without a node.
    HoldDeadlineExceeded,
    /// The run started before it could be held.
    LabelledTooLate,
    /// The placeholder was deleted.
    CleanedUp,
    /// The API server rejected the deletion of the placeholder.
    CleanUpRefused,
    /// The run gave up its node.
    MovedOff,
    /// The placeholder is on another node.
    Moved,
    /// A placeholder made room in a quota.
    MadeRoom,
    /// The API server rejected a change of the placeholder.
    MoveRefused,
    /// No pod can start on the node of the run, and the run stays there.
    NodeUnfit,
    /// A pod waits until the tasks of its own run leave room.
    WaitingForRoom,
    /// The run gave up its node, and no other node fits.
    NoNodeFits,
    /// The size of an automatic reserve.
    ReserveChosen,
    /// An automatic reserve was given up.
    ReserveGivenUp,
    /// The reserve annotation is malformed.
    ReserveIgnored,
    /// Admission made a required pod affinity of the run preferred.
    AffinityRelaxed,
    /// A field of the run is over a limit.
    FieldIgnored,
    /// The run is isolated only within its namespace.
    IsolationNarrowed,
    /// Tekton itself binds the pods of runs to nodes.
    TektonPlacesPods,
}

/// The reason and the text of an event on a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The reason.
    pub reason: Reason,
    /// The text.
    pub text: String,
}

/// A note.
pub fn note(reason: Reason, text: String) -> Note {
    Note { reason, text }
}

/// How notes of one reason become events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The type of the event: `Normal`, or `Warning` if the user may have to check something.
    pub kind: &'static str,
    /// The event's `action`: what the controller did or tried.
    pub action: &'static str,
    /// How often.
    pub repeat: Repeat,
}

/// How often the same note may be reported of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
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
    pub fn pause(self) -> Option<Duration> {
        match self {
            Self::Every(pause) => Some(pause),
            Self::Always | Self::Never => None,
        }
    }
}

impl Reason {
    /// How notes of this reason become events.
    pub fn manner(self) -> Manner {
        use Repeat::{Always, Never};
        match self {
            Self::Held => normal("Hold", Never),
            Self::WaitingForNode | Self::OverCap => normal("Hold", LASTS),
            Self::HoldDeadlineExceeded => warning("Hold", Always),
            Self::Enrolled => normal("Enrol", Always),
            Self::EnrolRefused => warning("Enrol", LASTS),
            Self::LabelledTooLate => warning("Enrol", Never),
            Self::PlaceholderReturned | Self::ReserveChosen => normal("CreatePlaceholder", Always),
            Self::PlaceholderRefused => warning("CreatePlaceholder", LASTS),
            Self::ReserveGivenUp => warning("CreatePlaceholder", Always),
            Self::ReserveIgnored | Self::FieldIgnored | Self::IsolationNarrowed => {
                warning("CreatePlaceholder", Never)
            }
            Self::NodeAssigned => normal("AssignNode", Always),
            Self::AffinityRelaxed | Self::TektonPlacesPods => warning("AssignNode", Never),
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

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray;

    #[test]
    fn the_reference_lists_each_reason_with_its_type() {
        let page = include_str!("../../../../docs/reference.md");
        let (_, section) = page.split_once("\n## Events\n").unwrap();
        let (section, _) = section.split_once("\nOn the ConfigMap").unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut listed: Vec<_> = rows
            .map(|row| row.split(" | ").take(2).collect::<Vec<_>>().join(": "))
            .collect();
        let all = Reason::VARIANTS.iter();
        let mut expected: Vec<_> = all
            .map(|reason| format!("{reason}`: {}", reason.manner().kind))
            .collect();
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }
}
