//! Event texts about the automatic reserve of a run. Pure.

use crate::reason::{Note, Reason, note};
use placement::automatic_reserve::{ExpectedRequests, Source};
use placement::keys;
use placement::node::NodeOffer;
use placement::plan::Observation;
use placement::reserve::AUTOMATIC;

/// The size of the automatic reserve, and the source of the size.
pub(crate) fn chosen(seen: &Observation, need: &ExpectedRequests) -> Note {
    let reserve = need.reserve(&seen.config.auto_reserve_maximum);
    let text = match &need.source {
        Source::Nothing => format!(
            "The reserve of this run is {AUTOMATIC}, and no earlier run of its Pipeline is known that succeeded with an \
             automatic reserve, and no task says what it asks for: nothing is reserved."
        ),
        Source::Definitions => format!(
            "The reserve of this run is {AUTOMATIC}: its node is chosen with room for {reserve}. So much, the largest task of its \
             Pipeline asks for; no earlier run is known that succeeded with an automatic reserve."
        ),
        Source::Record(name) if reserve.is_empty() => format!(
            "The reserve of this run is {AUTOMATIC}: nothing is reserved, since the tasks of PipelineRun {name} asked for \
             nothing."
        ),
        Source::Record(name) => format!(
            "The reserve of this run is {AUTOMATIC}: its node is chosen with room for {reserve}. So much, the tasks of \
             PipelineRun {name} asked for at the same time."
        ),
    };
    note(Reason::ReserveChosen, text)
}

/// No node has room for the automatic reserve, so the run gives up the reserve.
pub(crate) fn given_up(seen: &Observation, nearest: Option<&NodeOffer>) -> Note {
    let asked = seen.pod.as_ref().map(|pod| pod.shape.requests.to_string());
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
