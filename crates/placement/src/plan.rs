//! The decision of the controller: from the observation of a run, with the time, to the next step.
//!
//! The plan is level-triggered. The controller's memory, such as when a run last moved off its node, only delays steps.
//! Each step changes an object, and this change triggers the next decision.
//!
//! The plan first decides from the observation alone. If the decision needs a group of inputs that the caches do not hold, the plan
//! returns [`Decision::Read`]; the controller reads that group and calls the plan again with it.
//!
//! The states of a run (`state.rs`), the steps that the plan takes in each, and the states that can follow if nothing else changes:
//!
//! | state | step | next state | when |
//! | --- | --- | --- | --- |
//! | Ignored | adopt pod | NodeKept | done, `isolateAlways`: the pod has lost its StatefulSet |
//! | Queued | enrol | Queued | the labels are there before another controller releases the run |
//! | Queued | delete placeholder | Queued | another controller took the hold over |
//! | HeldWithoutPlaceholder | date hold | HeldWithoutPlaceholder | the hold began without a date, or a cap has room again |
//! | HeldWithoutPlaceholder | suspend hold | HeldWithoutPlaceholder | a cap has no room: the deadline does not count |
//! | HeldWithoutPlaceholder | enrol | HeldWithoutPlaceholder | held for a minute |
//! | HeldWithoutPlaceholder | create placeholder | HeldOnNode, HeldUnscheduled, HeldWithoutPod | a quota has room for the StatefulSet |
//! | HeldWithoutPlaceholder | free places | HeldWithoutPlaceholder | at the deadline: Tekton needs the room of placeholders in a quota |
//! | HeldWithoutPlaceholder | release | RunningWithoutPlaceholder | at the deadline |
//! | HeldWithoutPod | date hold | HeldWithoutPod | the hold began without a date |
//! | HeldWithoutPod | enrol | HeldWithoutPod | held for a minute |
//! | HeldWithoutPod | requeue statefulset | HeldWithoutPod | the StatefulSet controller backs off: requeue the StatefulSet |
//! | HeldWithoutPod | narrow isolation | HeldWithoutPlaceholder | a quota rejects affinity terms across namespaces |
//! | HeldWithoutPod | leave out images | HeldWithoutPod | a policy may have rejected the image volumes |
//! | HeldWithoutPod | size within limits | HeldWithoutPod | a LimitRange rejected the pod |
//! | HeldWithoutPod | give up reserve | HeldWithoutPod | a quota allows less than an automatic reserve |
//! | HeldWithoutPod | free places | HeldWithoutPod, HeldWithoutPlaceholder | at the deadline: as above |
//! | HeldWithoutPod | release | RunningWithoutPod | at the deadline, or the pod is impossible |
//! | HeldUnscheduled | date hold | HeldUnscheduled | the hold began without a date |
//! | HeldUnscheduled | enrol | HeldUnscheduled | the run waits for a node |
//! | HeldUnscheduled | give up reserve | HeldWithoutPod | no node is as large as an automatic reserve |
//! | HeldUnscheduled | unmount | HeldWithoutPod | the PVCs of the pod cannot be used together |
//! | HeldUnscheduled | start over | HeldWithoutPlaceholder | the pod is pinned to a node that has no room any more |
//! | HeldUnscheduled | step back | HeldWithoutPlaceholder | older runs of the kind wait for a node, and no autoscaler adds one |
//! | HeldUnscheduled | free places | HeldUnscheduled, HeldWithoutPlaceholder | at the deadline: as above |
//! | HeldUnscheduled | release | RunningUnscheduled | at the deadline, or `release-when: created` |
//! | HeldOnNode | date hold | HeldOnNode | the hold began without a date |
//! | HeldOnNode | enrol | HeldOnNode | held for a minute: a quota has no room for the assistants |
//! | HeldOnNode | shrink | HeldOnNode | the pod has a reserve: resize it in place |
//! | HeldOnNode | recreate small | HeldWithoutPod | the pod cannot be resized: a small pod, pinned to the node |
//! | HeldOnNode | unpin | HeldOnNode | the small pod is on its node |
//! | HeldOnNode | move off | HeldScaledDown | the node is unusable |
//! | HeldOnNode | start over | HeldWithoutPlaceholder | the node is unusable, and the run has a reserve |
//! | HeldOnNode | free places | HeldOnNode, HeldWithoutPlaceholder | at the deadline: as above |
//! | HeldOnNode | release | RunningOnNode | the node is found and a quota has room for the assistants, or at the deadline |
//! | HeldScaledDown | date hold | HeldScaledDown | the hold began without a date |
//! | HeldScaledDown | return placeholder | HeldWithoutPod | the previous pod has ended: scale up |
//! | HeldScaledDown | free places | HeldScaledDown, HeldWithoutPlaceholder | at the deadline: as above |
//! | HeldScaledDown | release | RunningScaledDown | at the deadline |
//! | Unenrolled | enrol | RunningOnNode, RunningScaledDown, RunningUnscheduled, RunningWithoutPod | the run has lost its labels |
//! | Unenrolled | delete placeholder | Unenrolled | another client ended the hold before the run had its labels |
//! | RunningWithoutPlaceholder | create placeholder | RunningOnNode, RunningUnscheduled, RunningWithoutPod | the placeholder is lost, and a quota has room |
//! | RunningWithoutPod | leave out images | RunningWithoutPod | a policy may have rejected the image volumes |
//! | RunningWithoutPod | shrink | RunningWithoutPod | the pod is rejected, and has a reserve for the search of a node |
//! | RunningWithoutPod | size within limits | RunningWithoutPod | a LimitRange rejected the pod |
//! | RunningWithoutPod | make room | RunningScaledDown | a quota rejected a task's pod |
//! | RunningWithoutPod | move off | RunningScaledDown | a task's pod does not fit |
//! | RunningUnscheduled | recreate small | RunningWithoutPod | a reserve, or a pin to a node without room, is given up |
//! | RunningUnscheduled | unmount | RunningWithoutPod | the PVCs of the pod cannot be used together, or on the node of the group |
//! | RunningUnscheduled | make room | RunningScaledDown | a quota rejected a task's pod |
//! | RunningUnscheduled | move off | RunningScaledDown | the placeholder or a task's pod does not fit |
//! | RunningOnNode | shrink | RunningOnNode | the pod has a reserve: resize it in place |
//! | RunningOnNode | recreate small | RunningWithoutPod | the pod cannot be resized, or mounts PVCs that it must not keep |
//! | RunningOnNode | unpin | RunningOnNode | the small pod is on its node |
//! | RunningOnNode | record node | RunningOnNode | the node is not the recorded node |
//! | RunningOnNode | make room | RunningScaledDown | a quota rejected a task's pod |
//! | RunningOnNode | move off | RunningScaledDown | the node is unusable, or a task's pod does not fit |
//! | RunningScaledDown | requeue tasks | RunningScaledDown | tasks wait: requeue them at the scheduler |
//! | RunningScaledDown | retry tasks | RunningScaledDown | a quota rejected pods of tasks: requeue the TaskRuns at Tekton |
//! | RunningScaledDown | return placeholder | RunningWithoutPod | no task waits, or a task is bound: scale up |
//! | OptedOut | free places | OptedOut | held: Tekton needs the room of placeholders in a quota |
//! | OptedOut | release | Ignored, OptedOut | held: the run starts without a group |
//! | OptedOut | unenrol | Ignored, OptedOut | held by another controller: remove the labels |
//! | OptedOut | return placeholder | OptedOut | Tekton's assistants wait for the placeholder: scale up |
//! | OptedOut | requeue tasks | OptedOut | tasks wait: requeue them at the scheduler |
//! | OptedOut | delete placeholder | Ignored | nothing waits for the placeholder |
//! | Ending | delete placeholder | Ignored, NodeKept | the node is free |
//! | Ending | keep node | Ignored | the run is done: a pod keeps the node for the next run |
//! | Ending | adopt pod | Ending | `isolateAlways`: the run owns the pod |
//! | Ending | keep pod | NodeKept | `isolateAlways`: delete the StatefulSet alone |
//! | NodeKept | delete placeholder | Ignored | the run is being deleted |

mod action;
mod creation;
mod decision;
mod ending;
mod held;
mod inputs;
mod moving;
mod observation;
mod pod_missing;
mod requeue_mark;
mod reshape;
mod running;
mod scaled_down;
mod state;
mod waiting;

pub use self::action::{Action, Event, MoveCause, New, PodChange, ReleaseCause, Requeue, Target};
pub use self::decision::{Decision, IgnoreReason, Step, Wait};
pub use self::inputs::{AssistantPod, Creation, Inputs, Progress, Read, TaskCount, Tasks, VolumeConstraints};
pub use self::observation::{
    ClusterFacts, Messages, Observation, Placeholder, PlaceholderPod, Repeated, RepeatedSteps, Resize, Shape,
    Unschedulable, WaitingPod,
};
pub use self::requeue_mark::RequeueMark;
pub use self::state::State;
use self::state::{Stage, enrolment};
use crate::placeholder::spec::Spec;
use crate::requests::RunState;
use crate::strategy::Enrolment;
use std::time::Duration;

/// What to do with a run now, and when to reconcile it again if nothing else happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do now.
    pub decision: Decision,
    /// When to reconcile again; `None` waits for the next change.
    pub again: Option<Duration>,
}

impl Plan {
    /// The same plan, and the run is reconciled again after this time at the latest.
    #[must_use]
    pub fn no_later_than(self, after: Duration) -> Self {
        Self {
            again: Some(self.again.map_or(after, |again| again.min(after))),
            ..self
        }
    }
}

/// How soon a placeholder without a pod, or a placeholder that is being deleted, is checked again.
const SOON: Duration = Duration::from_secs(5);

/// Decides what to do, with the inputs that have been read.
pub fn plan(observed: &Observation, inputs: &Inputs) -> Plan {
    let plan = match Stage::from_observation(observed) {
        Stage::Deleting => Ok(without_timer(ending::on_deletion(observed))),
        Stage::Done => ending::on_done(observed, inputs).map(without_timer),
        Stage::Foreign(why) => Ok(without_timer(Decision::Ignore(why))),
        Stage::OptedOut => ending::on_opt_out(observed, inputs),
        Stage::HeldByUs(chosen) => held::on_held(observed, inputs, enrolment(observed, chosen)),
        Stage::HeldElsewhere(chosen) => {
            let decision = on_held_elsewhere(observed, enrolment(observed, chosen));
            Ok(without_timer(decision))
        }
        Stage::Running(chosen) => running::on_running(observed, inputs, enrolment(observed, chosen)),
    };
    plan.unwrap_or_else(|read| without_timer(Decision::Read(read)))
}

/// Another controller holds the run. The run needs its labels before that controller releases it, whereas a placeholder
/// would only block a node. A placeholder exists if pod-affinity held the run before.
fn on_held_elsewhere(observed: &Observation, enrolment: Enrolment) -> Decision {
    if observed.run.is_enrolled() {
        ending::delete(
            observed,
            observed.placeholder().usable(),
            None,
            IgnoreReason::HeldElsewhere,
        )
    } else {
        enrol(observed, enrolment, Event::Enrolled)
    }
}

/// Enrols a run. An event reports this for a run that pod-affinity does not hold.
fn enrol(observed: &Observation, enrolment: Enrolment, event: impl Into<Option<Event>>) -> Decision {
    let run = change_run(observed, |run| run.group = Some(enrolment.into()));
    Decision::act("enrol", event, [run])
}

/// The run with some of its fields changed.
fn change_run(observed: &Observation, change: impl FnOnce(&mut RunState)) -> Action {
    let mut wanted = RunState::from_run(&observed.run);
    change(&mut wanted);
    Action::Run(wanted)
}

/// The placeholder's StatefulSet with some fields changed.
fn change_placeholder(placeholder: &Placeholder, change: impl FnOnce(&mut Spec)) -> Action {
    let mut wanted = placeholder.spec.clone();
    change(&mut wanted);
    Action::Placeholder(wanted)
}

/// A plan without a timer: only a change triggers the next decision.
fn without_timer(decision: Decision) -> Plan {
    Plan {
        decision,
        again: None,
    }
}

fn with_timer(decision: Decision, after: Duration) -> Plan {
    Plan {
        again: Some(after),
        ..without_timer(decision)
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
