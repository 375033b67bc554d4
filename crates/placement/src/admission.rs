//! Admission: the rules for PipelineRuns and pods, and their verdicts. A rule returns a verdict, and the webhook writes the
//! verdict as its reply.

pub mod pipeline_run;
pub mod pod;

use json_patch::Patch;
use std::borrow::Cow;
use strum::{IntoStaticStr, VariantNames};

/// What the API server does with an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Admits the object with a patch.
    Allow {
        /// Minimal patch of the object, possibly empty.
        patch: Patch,
        /// The reason.
        outcome: Outcome,
    },
    /// Admits the object as it is, and warns the client.
    Warn {
        /// The text: what is wrong, and what to do.
        warning: Cow<'static, str>,
        /// The reason.
        outcome: Outcome,
    },
    /// Rejects the object.
    Deny {
        /// The text: what is wrong, and what to do.
        message: String,
        /// The reason.
        outcome: Outcome,
    },
}

impl Verdict {
    /// Admits the object as it is.
    pub fn unpatched(outcome: Outcome) -> Self {
        Self::Allow {
            patch: Patch::default(),
            outcome,
        }
    }

    /// The outcome of any verdict.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Allow { outcome, .. } | Self::Warn { outcome, .. } | Self::Deny { outcome, .. } => *outcome,
        }
    }
}

/// The reason for the verdict: the value of `verdict` in logs, traces and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Outcome {
    /// pod-affinity holds the run until the run has its node.
    Held,
    /// The run has a `spec.status`, or Kueue queues the run: the user or another controller starts the run.
    LeftHeldByOther,
    /// The opt-in label of the run, or of the pod's task, is `false`.
    Declined,
    /// The run has no opt-in label.
    NotOptedIn,
    /// The run has no opt-in label, and the label of its Namespace has an unknown value.
    UnknownByNamespace,
    /// The run is nested: it is placed with the run that contains it.
    Nested,
    /// The run's `spec.managedBy` names another controller.
    ManagedElsewhere,
    /// A change that does not release a hold of the user or of another controller.
    NotReleased,
    /// A field that a patch would need has the wrong type. The validation of Tekton or of the API server rejects the object.
    WrongType,
    /// Terms were added to the pod, or Tekton's term was removed.
    Injected,
    /// As `Injected`, and a required podAffinity to other pods became preferred.
    Relaxed,
    /// The pod had all terms, and not Tekton's.
    AlreadyThere,
    /// The pod is in no group.
    NotEnrolled,
    /// The request is for another kind of object or another operation.
    NotConcerned,
    /// The object is rejected: the user has to correct the run.
    Denied,
    /// The request has no object, or no object that can be read.
    Malformed,
    /// A bug of pod-affinity.
    Failed,
}

impl Outcome {
    /// The outcome as metric label.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_lists_the_label_of_each_outcome() {
        let page = include_str!("../../../docs/reference.md");
        let labels = format!("`verdict`: {} |", Outcome::VARIANTS.join(", "));
        assert!(page.contains(&labels), "{labels}");
    }
}
