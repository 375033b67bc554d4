//! A running run: it gets its labels first, so that no more pods start without terms, then its placeholder.
//!
//! If a quota of pods rejects a task's pod, the placeholder makes room and is scaled up later (`scaled_down.rs`). A task
//! without a pod cannot wait for a node, and Tekton retries only after a minute. So the controller requeues the TaskRun
//! at Tekton as soon as the placeholder is gone. The running tasks keep their node by their terms; between tasks, other
//! runs can take the node.

use super::action::{Action, Event, Requeue};
use super::decision::{Decision, IgnoreReason, Wait};
use super::inputs::{Inputs, Read};
use super::observation::{Observation, Placeholder};
use super::reshape::{Reshape, reshape};
use super::state::PlaceholderState::{Missing, Unusable, Usable};
use super::{
    Plan, change_placeholder, change_run, creation, ending, enrol, moving, pod_missing, scaled_down,
    with_timer, without_timer,
};
use crate::quota_room::RejectedTask;
use crate::run::SpecStatus;
use crate::strategy::Enrolment;
use std::time::Duration;

/// The first pause between retries. A quota may count the placeholder for a moment after its end, or the placeholder of
/// another run may take the room.
const FIRST_RETRY: Duration = Duration::from_secs(2);

/// Tekton writes the condition of a TaskRun within this time after the event.
const SECOND_LOOK: Duration = Duration::from_secs(2);

pub(super) fn on_running(
    observed: &Observation,
    inputs: &Inputs,
    enrolment: Enrolment,
) -> Result<Plan, Read> {
    match observed.placeholder() {
        _ if !observed.run.is_enrolled() => Ok(without_timer(enrol_if_labels_lost(observed, enrolment))),
        Missing => creation::create(observed, inputs, enrolment),
        Unusable => Ok(without_timer(Decision::Wait(Wait::OldStatefulSet))),
        Usable(placeholder) => match make_room(observed, inputs, placeholder)? {
            Some(plan) => Ok(plan),
            None => on_placeholder(observed, inputs, placeholder).map(|plan| look_again(observed, plan)),
        },
    }
}

fn on_placeholder(observed: &Observation, inputs: &Inputs, placeholder: &Placeholder) -> Result<Plan, Read> {
    if observed.is_scaled_down() {
        scaled_down::on_scaled_down(observed, inputs, placeholder)
    } else {
        keep_or_move(observed, inputs, placeholder)
    }
}

/// Reads the rejected tasks a second time: Tekton emits the event of a rejection before it writes the condition of the TaskRun.
fn look_again(observed: &Observation, plan: Plan) -> Plan {
    match observed.messages.rejection {
        Some(_) => plan.no_later_than(SECOND_LOOK),
        None => plan,
    }
}

/// Enrols a run only while Tekton cannot start it. Tekton creates the first tasks in the moment in which the run
/// starts. Their pods would have no terms and could be on several nodes, and the later pods would follow any of them,
/// away from a volume that they share. A placeholder proves that the run was enrolled and lost its labels. It proves
/// nothing while the hold annotation is there: the controller removes the annotation when it releases a run, so another
/// client ended a hold before the run was enrolled.
fn enrol_if_labels_lost(observed: &Observation, enrolment: Enrolment) -> Decision {
    match (observed.placeholder(), observed.run.hold) {
        (Usable(_), false) => enrol(observed, enrolment, Event::Enrolled),
        (Usable(placeholder), true) => {
            ending::delete(observed, Some(placeholder), None, IgnoreReason::NotOptedIn)
        }
        (Missing, _) if observed.run.status == SpecStatus::Unset => Decision::Wait(Wait::LabelledTooLate),
        (Missing | Unusable, _) => Decision::Wait(Wait::Settled),
    }
}

/// The pod of the placeholder comes first, then its size: a task may not fit only because of the placeholder's requests.
fn keep_or_move(observed: &Observation, inputs: &Inputs, placeholder: &Placeholder) -> Result<Plan, Read> {
    let adapted = pod_missing::adapted(observed, placeholder)
        .or_else(|| pod_missing::without_reserve(observed, placeholder));
    if let Some(decision) = adapted {
        return Ok(without_timer(decision));
    }
    let plan = match reshape(observed, placeholder) {
        Reshape::No => with_node_recorded(
            observed,
            moving::move_off_if_stuck(observed, inputs, placeholder)?,
        ),
        Reshape::Wait(remaining) => {
            moving::move_off_if_stuck(observed, inputs, placeholder)?.no_later_than(remaining)
        }
        Reshape::Now(decision) => without_timer(decision),
    };
    Ok(pod_missing::after_pause(observed, plan))
}

/// Records the node on the run if the plan has nothing else to do.
fn with_node_recorded(observed: &Observation, plan: Plan) -> Plan {
    let node = observed
        .live_node()
        .filter(|node| observed.run.node.as_deref() != Some(*node));
    let is_idle = matches!(
        plan.decision,
        Decision::Wait(
            Wait::Settled | Wait::Scheduler | Wait::Pause | Wait::Tasks { .. } | Wait::Volume { .. }
        )
    );
    match node.filter(|_| is_idle) {
        Some(node) => Plan {
            decision: record_node(observed, node.to_owned()),
            ..plan
        },
        None => plan,
    }
}

fn record_node(observed: &Observation, node: String) -> Decision {
    let run = change_run(observed, |run| run.node = Some(node.clone()));
    Decision::act("record_node", Event::NodeRecorded { node }, [run])
}

/// Handles a rejection in the namespace; `None` if the rejection concerns another run.
fn make_room(
    observed: &Observation,
    inputs: &Inputs,
    placeholder: &Placeholder,
) -> Result<Option<Plan>, Read> {
    let Some(rejection) = &observed.messages.rejection else {
        return Ok(None);
    };
    let tasks = inputs.rejected_tasks.as_ref().ok_or(Read::RejectedTasks)?;
    Ok(if tasks.is_empty() {
        None
    } else if placeholder.spec.replicas > 0 {
        Some(without_timer(scale_down_for_tasks(placeholder, tasks)))
    } else if observed.pod.is_some() {
        Some(without_timer(Decision::Wait(Wait::PodEnd)))
    } else {
        Some(requeue_task_runs(observed, tasks, rejection))
    })
}

/// Scales the placeholder down. The annotation `left` is empty, because the run does not move: its active pods stay on
/// the node.
fn scale_down_for_tasks(placeholder: &Placeholder, tasks: &[RejectedTask]) -> Decision {
    let away = change_placeholder(placeholder, |spec| {
        spec.replicas = 0;
        spec.previous_node = Some(String::new());
    });
    let tasks = tasks.to_vec();
    Decision::act("make_room", Event::MadeRoom { tasks }, [away])
}

/// Requeues the TaskRuns at Tekton, and repeats this because another run may have taken the room. Tekton itself retries
/// each minute.
fn requeue_task_runs(observed: &Observation, tasks: &[RejectedTask], rejection: &str) -> Plan {
    let remaining = observed.pause_after(observed.repeated.retries, FIRST_RETRY);
    if !remaining.is_zero() {
        return with_timer(Decision::Wait(Wait::Pause), remaining);
    }
    let requeue = Requeue::TaskRuns {
        names: tasks.iter().map(|task| task.name.clone()).collect(),
        rejection: rejection.to_owned(),
    };
    without_timer(Decision::act("retry_tasks", None, [Action::Requeue(requeue)]))
}
