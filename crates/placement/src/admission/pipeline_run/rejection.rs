//! Why the creation of a run is rejected, and what its author has to change.

use crate::admission::pod::REQUIRED;
use crate::bounded::Fields;
use crate::keys;
use crate::opt_in::{OptIn, UnknownValue};
use crate::reserve::BadReserve;
use serde_json::{Map, Value};
use thiserror::Error;

const POD_AFFINITY: &str = "podTemplate.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution";

/// The fields of `taskRunTemplate`, and of an entry of `taskRunSpecs`, that these rules read.
pub(super) const TASKS: Fields = Fields::Object(&[
    (
        "podTemplate",
        Fields::Object(&[(
            "affinity",
            Fields::Object(&[(
                "podAffinity",
                Fields::Object(&[(REQUIRED, Fields::List(&Fields::Scalar))]),
            )]),
        )]),
    ),
    (
        "metadata",
        Fields::Object(&[("labels", Fields::Object(&[(keys::OPT_IN, Fields::Scalar)]))]),
    ),
]);

/// Why a run is rejected, as a message for the user who creates it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Rejection {
    /// The opt-in label has an unknown value.
    #[error("PipelineRun {run}: {cause}; correct the label and create the run again")]
    OptIn {
        /// Namespace and name of the run, as far as they are known.
        run: String,
        /// The mistake in the label.
        cause: UnknownValue,
    },
    /// The reserve annotation has a bad value.
    #[error(
        "PipelineRun {run}: annotation {} has the bad value {value:?}: {cause}; correct the annotation and create \
         the run again",
        keys::RESERVE
    )]
    Reserve {
        /// Namespace and name of the run, as far as they are known.
        run: String,
        /// The value of the reserve annotation.
        value: String,
        /// The mistake in the value.
        cause: Box<BadReserve>,
    },
    /// The run's pod template has a required podAffinity. For the required terms of a pod, the scheduler counts only
    /// pods that match all of them, and no pod can match both the user's term and the group's.
    #[error(
        "PipelineRun {run}: {field} requires other pods on the node, and a labelled run's pods are required to be with \
         each other: no node can satisfy both. Make it preferredDuringSchedulingIgnoredDuringExecution, or a nodeSelector; \
         or opt the task out by the label {}: \"false\" in the metadata of its taskRunSpecs entry, or the whole run by \
         this label in its own metadata, also if its Namespace opts it in; and create the run again",
        keys::OPT_IN
    )]
    PodAffinity {
        /// Namespace and name of the run, as far as they are known.
        run: String,
        /// The path of the required podAffinity.
        field: String,
    },
}

/// The path of a required podAffinity in the pod template of the run, or of a task that is not opted out.
pub(super) fn required_pod_affinity(spec: &Map<String, Value>) -> Option<String> {
    let of_run = spec
        .get("taskRunTemplate")
        .filter(|tasks| requires_pods(tasks))
        .map(|_| format!("spec.taskRunTemplate.{POD_AFFINITY}"));
    let tasks = spec.get("taskRunSpecs").and_then(Value::as_array);
    let mut tasks = tasks.into_iter().flatten().enumerate();
    of_run.or_else(|| {
        let (index, _) = tasks.find(|(_, task)| requires_pods(task) && !opts_out(task))?;
        Some(format!("spec.taskRunSpecs[{index}].{POD_AFFINITY}"))
    })
}

fn requires_pods(tasks: &Value) -> bool {
    let required = &tasks["podTemplate"]["affinity"]["podAffinity"][REQUIRED];
    required.as_array().is_some_and(|terms| !terms.is_empty())
}

fn opts_out(task: &Value) -> bool {
    OptIn::parse(task["metadata"]["labels"][keys::OPT_IN].as_str()) == Ok(OptIn::Declined)
}
