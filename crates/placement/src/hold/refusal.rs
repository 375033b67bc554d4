//! Why a run is refused: what its author has to change.

use crate::inject::REQUIRED;
use crate::keys;
use crate::opt_in::{OptIn, UnknownValue};
use crate::reserve::BadReserve;
use serde_json::{Map, Value};
use thiserror::Error;

const POD_AFFINITY: &str = "podTemplate.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution";

/// Why a run is refused, in a sentence for whoever created it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Refusal {
    /// The opt-in label has a value that means nothing.
    #[error("PipelineRun {run}: {cause}; correct the label and create the run again")]
    OptIn {
        /// The run, as far as it has a name.
        run: String,
        /// What is wrong.
        cause: UnknownValue,
    },
    /// The reserve annotation cannot be honoured.
    #[error(
        "PipelineRun {run}: annotation {} has the bad value {value:?}: {cause}; correct the annotation and create \
         the run again",
        keys::RESERVE
    )]
    Reserve {
        /// The run, as far as it has a name.
        run: String,
        /// The value of the annotation.
        value: String,
        /// What is wrong with it.
        cause: Box<BadReserve>,
    },
    /// The run's own template ties its pods to others. The scheduler counts only pods that match all required terms of a
    /// pod, and none is in the run's group and is what the user means.
    #[error(
        "PipelineRun {run}: {field} requires other pods on the node, and a labelled run's pods are required to be with \
         each other: no node can satisfy both. Make it preferredDuringSchedulingIgnoredDuringExecution, or a nodeSelector; \
         or opt the task out by the label {}: \"false\" in the metadata of its taskRunSpecs entry, or the whole run by \
         this label in its own metadata, also if its Namespace opts it in; and create the run again",
        keys::OPT_IN
    )]
    PodAffinity {
        /// The run, as far as it has a name.
        run: String,
        /// The path of what requires them.
        field: String,
    },
}

/// Where the pods of all tasks, or of one that goes with the run, are tied to others.
pub(super) fn required_pod_affinity(spec: &Map<String, Value>) -> Option<String> {
    let of_all = spec
        .get("taskRunTemplate")
        .filter(|tasks| requires_pods(tasks))
        .map(|_| format!("spec.taskRunTemplate.{POD_AFFINITY}"));
    let tasks = spec.get("taskRunSpecs").and_then(Value::as_array);
    let mut tasks = tasks.into_iter().flatten().enumerate();
    of_all.or_else(|| {
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
