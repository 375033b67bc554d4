//! The table in `plan.rs`: each step that the plan takes in a state, and the next states.

use super::properties::scenes::anything;
use super::*;
use crate::placeholder::spec::Spec;
use crate::requests::RunState;
use proptest::strategy::{Strategy as _, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::{BTreeMap, BTreeSet};

/// The next states, by state and step.
type Rows = BTreeMap<(String, String), BTreeSet<String>>;

/// Scenes that are enough for most rows. The test continues until it has met every row, at most for a million scenes.
const AT_LEAST: usize = 50_000;
const AT_MOST: usize = 1_000_000;

fn rows(text: &str) -> Rows {
    let lines = text.lines().map(|line| line.trim_start_matches("//! "));
    let lines = lines.skip_while(|line| !line.starts_with("| state |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    lines
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let next = cells[3].split(", ").map(str::to_owned).collect();
            ((cells[1].to_owned(), cells[2].to_owned()), next)
        })
        .collect()
}

fn of_plan() -> Rows {
    rows(include_str!("../../plan.rs"))
}

/// The observation after the step, if nothing else changes.
fn after(observed: &Observation, step: &Step) -> Observation {
    let mut next = observed.clone();
    for action in &step.actions {
        match action {
            Action::Run(wanted) => carry(&mut next.run, wanted),
            Action::Create(New::Placeholder(..)) => next.statefulset = Some(new_placeholder()),
            Action::Placeholder(wanted) => next.statefulset.as_mut().unwrap().spec = wanted.clone(),
            Action::Pod(PodChange::Adopt(_)) => next.pod.as_mut().unwrap().adopted = true,
            Action::Delete(Target::Placeholder(_)) => {
                next.statefulset = None;
                next.pod.take_if(|pod| !pod.adopted);
            }
            Action::Delete(Target::Pod(_)) => next.pod = None,
            Action::Create(New::KeptNode(_))
            | Action::Pod(PodChange::Resize(_))
            | Action::Delete(_)
            | Action::Requeue(_) => {}
        }
    }
    next
}

fn carry(run: &mut crate::run::Run, wanted: &RunState) {
    if run.hold && wanted.hold.is_none() {
        run.status = SpecStatus::Unset;
    }
    run.hold = wanted.hold.is_some();
    run.held_from = wanted.hold.unwrap_or_default();
    run.group = wanted.group.as_ref().map(|_| run.key.uid.clone());
}

fn new_placeholder() -> Placeholder {
    let spec = Spec {
        replicas: 1,
        ..Spec::default()
    };
    Placeholder {
        spec,
        ..held().with_statefulset().statefulset.unwrap()
    }
}

/// The rows that a number of scenes meets. `at_least` scenes are enough if all expected rows were met.
fn met(at_least: usize, expected: &Rows) -> Rows {
    let (mut runner, scenes) = (TestRunner::deterministic(), anything());
    let mut met = Rows::new();
    for count in 0..AT_MOST {
        if count >= at_least && met == *expected {
            break;
        }
        let scene = scenes.new_tree(&mut runner).unwrap().current();
        let observed = scene.observation();
        let Decision::Act(step) = plan(&observed, &scene.inputs).decision else {
            continue;
        };
        let name = |observed: &Observation| <&str>::from(State::from_observation(observed)).to_owned();
        let step_name = step.name.replace('_', " ");
        let next = met.entry((name(&observed), step_name)).or_default();
        next.insert(name(&after(&observed, &step)));
    }
    met
}

fn written(rows: &Rows) -> String {
    let row = |((state, step), next): (&(String, String), &BTreeSet<String>)| {
        let next: Vec<_> = next.iter().map(String::as_str).collect();
        format!("| {state} | {step} | {} |\n", next.join(", "))
    };
    rows.iter().map(row).collect()
}

#[test]
fn the_table_has_exactly_the_steps_that_the_plan_takes() {
    let expected = of_plan();
    assert_eq!(written(&met(AT_LEAST, &expected)), written(&expected));
}

#[test]
#[ignore = "takes half a minute; cargo test-nightly runs it"]
fn a_million_observations_cause_no_step_outside_the_table() {
    let expected = of_plan();
    assert_eq!(written(&met(AT_MOST, &expected)), written(&expected));
}
