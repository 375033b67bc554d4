//! Why a hold ends, and why a run gives up its node.

use crate::node::Cause;
use strum::{IntoStaticStr, VariantArray};

/// Why a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReleaseCause {
    /// The placeholder has its node.
    NodeFound,
    /// `release-when` is `created`, and the placeholder exists.
    PlaceholderCreated,
    /// The placeholder's pod is rejected permanently: it refers to an object that does not exist, or no size of it is
    /// admitted.
    PlaceholderImpossible,
    /// The hold is older than `hold-deadline`.
    Deadline,
    /// The user opted the run out.
    OptedOut,
}

/// Why a run gives up its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveCause {
    /// A task's pod does not fit on the node.
    TaskDoesNotFit,
    /// The scheduler finds no node for the placeholder, and a task waits.
    PlaceholderDoesNotFit,
    /// The node is unusable: no pod can start there.
    Node(Cause),
}

impl ReleaseCause {
    /// All causes.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl MoveCause {
    /// All causes.
    pub const ALL: [Self; 6] = [
        Self::TaskDoesNotFit,
        Self::PlaceholderDoesNotFit,
        Self::Node(Cause::Cordoned),
        Self::Node(Cause::Tainted),
        Self::Node(Cause::NotReady),
        Self::Node(Cause::Gone),
    ];

    /// The cause as metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TaskDoesNotFit => "task_does_not_fit",
            Self::PlaceholderDoesNotFit => "placeholder_does_not_fit",
            Self::Node(cause) => cause.as_str(),
        }
    }
}
