//! The placeholder is created, unless a quota has no room for its StatefulSet beside those of Tekton.

use super::action::{Action, Event, Target};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Quota, Read};
use super::observation::Observation;
use super::{Plan, SOON, again, at_once};
use crate::sets::InTheWay;
use crate::strategy::Enrolment;
use std::time::Duration;

/// How soon a run that runs without a placeholder gets another chance to have one.
const ROOM: Duration = Duration::from_secs(30);
/// How soon a quota no longer counts a StatefulSet that is gone.
const A_MOMENT: Duration = Duration::from_secs(1);

/// A PVC that is bound to a zone decides the zone of the run, so the placeholder mounts the run's PVCs where that does no harm. The
/// cache does not keep all labels of a run.
pub(super) fn create(seen: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    let creation = inputs.creation.get()?;
    if let Some(quota) = creation.quota.short_of.clone() {
        let pause = if seen.run.is_held_by_us() { SOON } else { ROOM };
        return Ok(again(Decision::Wait(Wait::Places { quota }), pause));
    }
    let event = Event::Created(creation.need.clone());
    let create = Action::Create(enrolment, creation.clone());
    Ok(at_once(Decision::act("create_placeholder", event, [create])))
}

/// A quota may have no room for the StatefulSets that Tekton creates for this run, but for the placeholder of another run.
pub(super) fn free_place(inputs: &Inputs) -> Result<Option<Plan>, Read> {
    let Quota {
        short_of: Some(quota),
        in_the_way: Some(in_the_way),
    } = inputs.quota.get()?.clone()
    else {
        return Ok(None);
    };
    let decision = match in_the_way {
        InTheWay::Gone => Decision::Wait(Wait::Places { quota }),
        InTheWay::Placeholder { name, uid } => {
            let event = Event::PlaceFreed {
                name: name.clone(),
                quota,
            };
            Decision::act(
                "free_place",
                event,
                [Action::Delete(Target::OtherPlaceholder { name, uid })],
            )
        }
    };
    Ok(Some(again(decision, A_MOMENT)))
}
