//! Event texts about the automatic reserve of a run.

use super::reason::{Note, Reason, note};
use crate::automatic_reserve::{ExpectedRequests, Source};
use crate::keys;
use crate::node::NodeOffer;
use crate::plan::Observation;
use crate::reserve::AUTOMATIC;
use crate::text::quoted;

/// The size of the automatic reserve, and the source of the size.
pub(super) fn chosen(observed: &Observation, need: &ExpectedRequests) -> Note {
    let reserve = need.reserve(&observed.config.auto_reserve_maximum);
    let text = match &need.source {
        Source::Nothing => format!(
            "The reserve of this run is {AUTOMATIC}, and no earlier run of its Pipeline is known that succeeded with an \
             automatic reserve, and no task states its requests: nothing is reserved."
        ),
        Source::Definitions => format!(
            "The reserve of this run is {AUTOMATIC}: its node is chosen with room for {reserve}, the requests of the largest task \
             of its Pipeline; no earlier run is known that succeeded with an automatic reserve."
        ),
        Source::Record(name) if reserve.is_empty() => format!(
            "The reserve of this run is {AUTOMATIC}: nothing is reserved, since the tasks of PipelineRun {name} requested \
             nothing."
        ),
        Source::Record(name) => format!(
            "The reserve of this run is {AUTOMATIC}: its node is chosen with room for {reserve}, which the tasks of \
             PipelineRun {name} requested at the same time."
        ),
    };
    note(Reason::ReserveChosen, text)
}

/// No node has room for the automatic reserve, so the run gives up the reserve.
pub(super) fn given_up(observed: &Observation, nearest: Option<&NodeOffer>) -> Note {
    let asked = observed.pod.as_ref().map(|pod| pod.shape.requests.to_string());
    let nearest = nearest
        .map(|offer| format!("; the nearest, {offer}"))
        .unwrap_or_default();
    let text = format!(
        "No node has room for {}{nearest}, and no autoscaler adds one: the automatic reserve is given up, and this run takes a node \
         without it. It moves if a task does not fit there. To reserve less, set the annotation {} or auto-reserve-maximum.",
        asked.unwrap_or_default(),
        keys::RESERVE
    );
    note(Reason::ReserveGivenUp, text)
}

/// A quota never allows the automatic reserve, so the run gives up the reserve.
pub(super) fn over_quota(message: &str) -> Note {
    let text = format!(
        "A quota of the namespace allows less than the automatic reserve: {}. The reserve is given up, and this run takes a node \
         without it. To reserve less, set the annotation {} or auto-reserve-maximum.",
        quoted(message),
        keys::RESERVE
    );
    note(Reason::ReserveGivenUp, text)
}
