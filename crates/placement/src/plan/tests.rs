//! The controller's table, one test a row or a decision; what must hold whatever is observed is in `properties`.

use super::fixtures::{
    ELSEWHERE, GENERATION, NO_NODE, NODE, POD, SET, Scene, UID, ago, amounts, default_enrolment, deletion,
    done, enrolled, fresh, held, node, now, settled, woken_for,
};
use super::*;
use crate::config::ReleaseWhen;
use crate::node::{Cause, NodeState};
use crate::placeholder::wake::Wake;
use crate::run::SpecStatus;
use crate::strategy::{IsolateFrom, Isolation, Scope, Strategy};

mod automatic;
mod ending;
mod held;
mod properties;
mod relocation;
mod requests;
mod reserve;
mod room;
mod running;
mod simulation;
mod stuck;

fn enrolment_of(action: &Decision) -> Option<Enrolment> {
    match action {
        Decision::Write(Write::Enrol(enrolment) | Write::CreatePlaceholder(enrolment)) => Some(*enrolment),
        Decision::Write(Write::Release { enrolment, .. }) => *enrolment,
        _ => None,
    }
}

fn released(cause: ReleaseCause, node: Option<&str>) -> Decision {
    Decision::Write(Write::Release {
        cause,
        enrolment: Some(default_enrolment()),
        node: node.map(str::to_owned),
    })
}

fn await_node() -> Decision {
    Decision::Wait(Wait::Node {
        unschedulable: None,
        largest: None,
    })
}

fn in_seconds(action: Decision, seconds: u64) -> Plan {
    again(action, Duration::from_secs(seconds))
}

const CAUSES: [Cause; 4] = [Cause::Cordoned, Cause::Tainted, Cause::NotReady, Cause::Gone];

fn moving_off(cause: MoveCause, pod: Option<&str>) -> Decision {
    Decision::Write(Write::MoveOff {
        set: SET.to_owned(),
        cause,
        pod: pod.map(str::to_owned),
    })
}

fn follow() -> Decision {
    Decision::Write(Write::Follow { set: SET.to_owned() })
}
