//! `wait`: is a run where somebody waits for it to be, or can it never get there? Pure.

use crate::args::Goal;
use crate::state::State;
use crate::view::{RunView, Seat};
use placement::run::SpecStatus;

/// How far a run has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is there; in words.
    Reached(String),
    Coming,
    /// It will not get there; why.
    Never(String),
}

/// How far a run with this placeholder has come.
pub(crate) fn progress(goal: Goal, view: &RunView, seat: &Seat<'_>) -> Progress {
    match goal {
        Goal::Released => released(view),
        Goal::Node => node(view, seat),
        Goal::Done => done(view),
    }
}

fn done(view: &RunView) -> Progress {
    let outcome = match &view.verdict {
        Some((true, _)) => "succeeded",
        Some((false, _)) => "did not succeed",
        None => "ended",
    };
    if view.run.done {
        Progress::Reached(format!("done: {outcome}"))
    } else {
        Progress::Coming
    }
}

fn released(view: &RunView) -> Progress {
    let run = &view.run;
    match run.status {
        _ if run.done && view.started.is_none() => {
            Progress::Never("it is done, and was never started".to_owned())
        }
        SpecStatus::Pending if run.deleting => being_deleted(),
        SpecStatus::Pending => Progress::Coming,
        SpecStatus::Unset | SpecStatus::Other(_) => Progress::Reached("released".to_owned()),
    }
}

fn node(view: &RunView, seat: &Seat<'_>) -> Progress {
    let state = State::of(view, seat);
    let known = seat.node().or(view.run.node.as_deref());
    match (state, known) {
        // Its last node is not the one that it waits for.
        (State::Moving, _) => Progress::Coming,
        (_, Some(node)) => Progress::Reached(format!("on node {node}")),
        (State::Held | State::WaitingForNode | State::HeldElsewhere | State::Running, None) => {
            Progress::Coming
        }
        (State::Done | State::Reserved, None) => Progress::Never("it is done, and had no node".to_owned()),
        (State::Ending, None) => being_deleted(),
        (
            State::Declined
            | State::TooLate
            | State::Invalid
            | State::Nested
            | State::ManagedElsewhere
            | State::Unlabelled,
            None,
        ) => Progress::Never(format!("its state is {state}, so pod-affinity gives it no node")),
    }
}

fn being_deleted() -> Progress {
    Progress::Never("it is being deleted".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{UID, done, merged, placeholder, released, run};
    use placement::keys;
    use serde_json::{Value, json};

    fn told(changes: &Value, node: Option<&str>) -> [String; 3] {
        let view = RunView::of(&run(changes)).unwrap();
        let pod = placeholder("build", UID, node, &json!({}));
        let seat = Seat {
            set: None,
            pod: node.is_some().then_some(&pod),
        };
        [Goal::Released, Goal::Node, Goal::Done].map(|goal| match progress(goal, &view, &seat) {
            Progress::Reached(how) => how,
            Progress::Coming => "-".to_owned(),
            Progress::Never(why) => format!("never: {why}"),
        })
    }

    #[test]
    fn a_run_comes_to_its_node_is_released_and_done() {
        assert_eq!(told(&json!({}), None), ["-", "-", "-"]);
        assert_eq!(told(&json!({}), Some("node-7")), ["-", "on node node-7", "-"]);
        assert_eq!(told(&released(), None), ["released", "on node node-1", "-"]);
        assert_eq!(
            told(&done(), None),
            ["released", "on node node-1", "done: succeeded"]
        );
    }

    #[test]
    fn a_run_that_can_never_get_there_is_told_from_one_that_takes_its_time() {
        let deleted = json!({"metadata": {"deletionTimestamp": "2027-01-15T08:00:01Z"}});
        let never = "never: it is being deleted";
        assert_eq!(told(&deleted, None), [never, never, "-"]);
        let cancelled = json!({
            "metadata": {"annotations": {keys::NODE: null}},
            "spec": {"status": "Cancelled"},
            "status": {"startTime": null, "conditions": [{"type": "Succeeded", "status": "False", "reason": "Cancelled"}]},
        });
        assert_eq!(
            told(&merged(done(), &cancelled), None),
            [
                "never: it is done, and was never started",
                "never: it is done, and had no node",
                "done: did not succeed"
            ]
        );
        let declined = json!({
            "metadata": {"labels": {keys::OPT_IN: "false"}, "annotations": null}, "spec": {"status": null},
        });
        assert_eq!(
            told(&declined, None)[1],
            "never: its state is Declined, so pod-affinity gives it no node"
        );
    }
}
