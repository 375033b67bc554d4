//! The controller's table, one test a row or a decision; what must hold whatever is observed is in `properties`.

use super::fixtures::{NODE, POD, SET, Scene, UID, default_enrolment, deletion, done, enrolled, fresh, held};
use super::*;
use crate::run::SpecStatus;
use crate::strategy::{IsolateFrom, Scope};

mod ending;
mod held;
mod properties;
mod running;

fn enrolment_of(action: &Action) -> Option<Enrolment> {
    match action {
        Action::Enrol(enrolment) | Action::CreatePlaceholder(enrolment) => Some(*enrolment),
        Action::Release { enrolment, .. } => *enrolment,
        _ => None,
    }
}

fn released(cause: ReleaseCause, node: Option<&str>) -> Action {
    Action::Release {
        cause,
        enrolment: Some(default_enrolment()),
        node: node.map(str::to_owned),
    }
}
