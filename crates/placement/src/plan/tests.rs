//! The decisions of the plan, with a test for each. `properties` has what holds for any observation.

use super::fixtures::{
    ELSEWHERE, GENERATION, NO_NODE, NODE, POD, SET, Scene, UID, ago, amounts, cleaned_up, creation,
    default_enrolment, deletion, done, enrolled, enrolled_state, fresh, held, node, now, rejected_task,
    requeued_for, settled, spec, volume_elsewhere,
};
use super::*;
use crate::config::ReleaseWhen;
use crate::node::{Cause, NodeState};
use crate::placeholder::size;
use crate::requests::Object;
use crate::run::{HeldFrom, SpecStatus};
use crate::strategy::{IsolateFrom, Isolation, Scope, Strategy};

mod automatic;
mod ending;
mod held;
mod moving;
mod notes;
mod properties;
mod requests;
mod reserve;
mod running;
mod scaled_down;
mod simulation;
mod table;
mod volumes;
mod waiting;

/// Whether the run or its placeholder gets these labels now.
fn enrols_as(decision: &Decision, enrolment: Enrolment) -> bool {
    let Decision::Act(Step { event, actions, .. }) = decision else {
        return false;
    };
    let is_reported = match event {
        Some(Event::Released { enrolment: told, .. }) => *told == Some(enrolment),
        _ => true,
    };
    let enrols = |action: &Action| match action {
        Action::Create(New::Placeholder(created, _)) => *created == enrolment,
        Action::Run(run) => run.group == Some(enrolment.into()),
        _ => false,
    };
    is_reported && actions.iter().any(enrols)
}

fn released(cause: ReleaseCause, node: Option<&str>) -> Decision {
    let node = node.map(str::to_owned);
    let run = RunState {
        node: node.clone(),
        ..enrolled_state()
    };
    let event = Event::Released {
        cause,
        enrolment: Some(default_enrolment()),
        node,
        message: None,
    };
    Decision::act("release", event, [Action::Run(run)])
}

/// A held run gets its labels and stays held.
fn enrolled_while_held() -> Decision {
    let run = RunState {
        hold: Some(HeldFrom::Creation),
        ..enrolled_state()
    };
    Decision::act("enrol", None, [Action::Run(run)])
}

fn labelled(hold: Option<HeldFrom>) -> Decision {
    let run = RunState {
        hold,
        ..enrolled_state()
    };
    Decision::act("enrol", Event::Enrolled, [Action::Run(run)])
}

fn await_node() -> Decision {
    Decision::Wait(Wait::Node {
        unschedulable: None,
        autoscaler: None,
        largest: None,
    })
}

fn in_seconds(action: Decision, seconds: u64) -> Plan {
    with_timer(action, Duration::from_secs(seconds))
}

const CAUSES: [Cause; 4] = [Cause::Cordoned, Cause::Tainted, Cause::NotReady, Cause::Gone];

fn moving_off(cause: MoveCause, pod: Option<&str>) -> Decision {
    leaving(Some(NODE), cause, pod)
}

fn leaving(node: Option<&str>, cause: MoveCause, pod: Option<&str>) -> Decision {
    let away = Spec {
        replicas: 0,
        previous_node: node.map(str::to_owned),
        ..spec()
    };
    let event = Event::MovedOff {
        cause,
        pod: pod.map(str::to_owned),
        starts_over: false,
    };
    Decision::act("move_off", event, [Action::Placeholder(away)])
}

fn follow() -> Decision {
    Decision::act("return_placeholder", None, [Action::Placeholder(spec())])
}

/// The placeholder's StatefulSet is changed to this, and its pod is deleted.
fn recreated_as(spec: Spec) -> Decision {
    let delete = Action::Delete(Target::Pod(POD.to_owned()));
    Decision::act("recreate_small", None, [Action::Placeholder(spec), delete])
}

/// For an enrolled run without another annotation.
fn node_recorded(node: &str) -> Decision {
    let node = node.to_owned();
    let run = RunState {
        node: Some(node.clone()),
        ..enrolled_state()
    };
    Decision::act("record_node", Event::NodeRecorded { node }, [Action::Run(run)])
}

fn pod_missing(message: Option<&str>) -> Decision {
    let message = message.map(str::to_owned);
    Decision::act(
        "requeue_statefulset",
        Event::PodMissing { message },
        [Action::Requeue(Requeue::Placeholder)],
    )
}

fn awaiting_tasks(cause: MoveCause, pod: Option<&str>, live: usize) -> Decision {
    Decision::Wait(Wait::Tasks {
        cause,
        pod: pod.map(str::to_owned),
        live,
    })
}

fn settled_for_good() -> Plan {
    without_timer(Decision::Wait(Wait::Settled))
}

/// The scheduler has this number of seconds left.
fn given_time(seconds: u64) -> Plan {
    in_seconds(Decision::Wait(Wait::Scheduler), seconds)
}

fn pausing(seconds: u64) -> Plan {
    in_seconds(Decision::Wait(Wait::Pause), seconds)
}

fn pod_end() -> Plan {
    without_timer(Decision::Wait(Wait::PodEnd))
}

const MISFIT: MoveCause = MoveCause::TaskDoesNotFit;
const DOES_NOT_FIT: MoveCause = MoveCause::PlaceholderDoesNotFit;
