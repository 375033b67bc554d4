//! The placeholder is created, unless a quota has no room for its StatefulSet beside the StatefulSets of Tekton.

use super::action::{Action, Event, New, Target};
use super::decision::{Decision, Wait};
use super::inputs::{Inputs, Read};
use super::observation::Observation;
use super::{Plan, with_timer, without_timer};
use crate::attempts::Turn;
use crate::statefulset_quota::{OwnedStatefulSet, QuotaBlocker, Shortage};
use crate::strategy::Enrolment;
use std::time::Duration;

/// How soon a run without room for its placeholder is reconciled again, if neither a quota nor an older run changes before.
pub(super) const RETRY_ROOM: Duration = Duration::from_secs(30);
/// How soon a quota stops counting a deleted StatefulSet.
const RECOUNTED_IN: Duration = Duration::from_secs(1);

/// A placeholder that the API server rejects because of the run's podTemplate is not created again.
///
/// The placeholder mounts the run's PVCs, except where a mount does harm, because a PVC that is bound to a zone decides
/// the zone of the run. The run's labels are read as well, because the cache does not keep all of them.
pub(super) fn create(observed: &Observation, inputs: &Inputs, enrolment: Enrolment) -> Result<Plan, Read> {
    if observed.messages.invalid_template.is_some() {
        return Ok(without_timer(Decision::Wait(Wait::Settled)));
    }
    if let Turn::Later(before) = observed.turn {
        return Ok(with_timer(Decision::Wait(Wait::OlderRuns(before)), RETRY_ROOM));
    }
    let creation = inputs.creation.as_ref().ok_or(Read::Creation)?;
    if let Some(quota) = creation.quota.short_of.clone() {
        return Ok(with_timer(Decision::Wait(Wait::Places { quota }), RETRY_ROOM));
    }
    let event = Event::Created(creation.need.clone());
    let create = Action::Create(New::Placeholder(enrolment, creation.clone()));
    Ok(without_timer(Decision::act(
        "create_placeholder",
        event,
        [create],
    )))
}

/// Deletes placeholders that take the room of the StatefulSets that Tekton creates for this run.
pub(super) fn free_places(observed: &Observation, shortage: &Shortage) -> Option<Plan> {
    let quota = shortage.quota.clone();
    let decision = match shortage.blocker.as_ref()? {
        QuotaBlocker::DeletedStatefulSets => Decision::Wait(Wait::Places { quota }),
        QuotaBlocker::Placeholders(placeholders) => {
            let names = placeholders.iter().map(|set| set.name.clone()).collect();
            let targets = placeholders.iter().map(|set| target(observed, set));
            let deletions: Vec<_> = targets.map(Action::Delete).collect();
            Decision::act("free_places", Event::PlacesFreed { names, quota }, deletions)
        }
    };
    Some(with_timer(decision, RECOUNTED_IN))
}

fn target(observed: &Observation, placeholder: &OwnedStatefulSet) -> Target {
    let (name, uid) = (placeholder.name.clone(), placeholder.uid.clone());
    if placeholder.run == observed.run.key.uid {
        Target::Placeholder(uid)
    } else {
        Target::OtherPlaceholder { name, uid }
    }
}
