//! Runs of several namespaces, and of several sizes, in one line.

use super::*;

fn in_namespace(namespace: &str, mut run: Member) -> Member {
    namespace.clone_into(&mut run.name.0);
    run
}

#[test]
fn a_refusal_holds_back_only_runs_of_the_namespace_that_ask_for_as_much() {
    let others = [
        of_size("9", run(1, Stage::Missing)),
        of_size("4", run(2, Stage::Missing)),
    ];
    let other_namespace = in_namespace("b", of_size("9", run(3, Stage::Missing)));
    let mut queue = queue(
        [of_size("8", refused(0))]
            .into_iter()
            .chain(others)
            .chain([other_namespace]),
    );
    assert_eq!(
        [1, 2, 3].map(|number| ahead(&mut queue, number, &[])),
        [Some(1), None, None]
    );
    queue.record(in_namespace("b", of_size("9", refused(3))));
    queue.record(in_namespace("b", of_size("9", run(4, Stage::Missing))));
    assert_eq!(
        ahead(&mut queue, 4, &[]),
        Some(4),
        "an autoscaler refused its namespace as well"
    );
}

/// A policy may give each namespace nodes of its own.
#[test]
fn a_namespace_whose_nodes_are_full_does_not_keep_another_namespace_from_free_nodes() {
    let younger = [
        in_namespace("b", run(1, Stage::Missing)),
        run(2, Stage::Missing),
        in_namespace("b", run(3, Stage::Missing)),
    ];
    let mut queue = queue([unanswered(0)].into_iter().chain(younger));
    let mut before =
        |number: usize, second| number_ahead(queue.before(&format!("uid-{number}"), at(second), || nodes(1)));
    assert_eq!(
        [0, 14, 15].map(|second| before(1, second)),
        [Some(1), Some(1), None]
    );
    assert_eq!(
        before(2, 15),
        Some(2),
        "a run of its namespace did not take the node"
    );
    queue.record(in_namespace("b", run(1, Stage::Unschedulable)));
    assert_eq!(ahead(&mut queue, 3, &nodes(1)), Some(3), "neither did run 1");
}

/// Pods without a run may use such a node. One run of each namespace tries it.
#[test]
fn a_node_that_a_run_left_is_not_tried_by_the_next_run_of_its_namespace() {
    let there = |number, stage| in_namespace("b", run(number, stage));
    let younger = [
        there(1, Stage::Missing),
        there(2, Stage::Missing),
        there(3, Stage::Missing),
    ];
    let mut queue = queue([unanswered(0)].into_iter().chain(younger));
    let before = |queue: &mut Queue, number: usize, second| {
        number_ahead(queue.before(&format!("uid-{number}"), at(second), || nodes(1)))
    };
    assert_eq!(
        [0, 15].map(|second| before(&mut queue, 1, second)),
        [Some(1), None]
    );
    queue.record(there(1, Stage::Unschedulable));
    assert_eq!(before(&mut queue, 2, 30), Some(2));
    let placed = Member {
        node: Some("another".to_owned()),
        waits: None,
        ..there(1, Stage::New)
    };
    queue.record(placed);
    assert_eq!(before(&mut queue, 2, 31), Some(1), "run 1 left the node");
    let taken = Member {
        node: Some("node-0".to_owned()),
        waits: None,
        ..there(2, Stage::New)
    };
    queue.record(taken);
    assert_eq!(
        [32, 46, 47].map(|second| before(&mut queue, 3, second)),
        [Some(1), Some(1), None],
        "free again"
    );
}

#[test]
fn the_oldest_run_of_each_namespace_keeps_its_placeholder() {
    let here = (0..4).map(refused);
    let there = (4..6).map(|number| in_namespace("b", refused(number)));
    let mut queue = queue(here.chain(there));
    let kept = (0..6).filter(|number| ahead(&mut queue, *number, &[]).is_none());
    assert_eq!(kept.collect::<Vec<_>>(), [0, 1, 2, 4]);
}

#[test]
fn a_run_with_an_automatic_reserve_keeps_the_size_of_its_deleted_placeholder() {
    let mut queue = queue((0..4).map(|number| of_size("16", refused(number))));
    let mut deleted = run(3, Stage::Missing);
    deleted.waits.as_mut().unwrap().1.is_estimate = true;
    queue.record(deleted.clone());
    for second in [0, 15] {
        let before = queue.before("uid-3", at(second), || vec![node(0, "4"), node(1, "16")]);
        assert_eq!(number_ahead(before), Some(3), "after {second} s");
    }
    deleted.waits.as_mut().unwrap().1.is_estimate = false;
    queue.record(deleted);
    assert_eq!(ahead(&mut queue, 3, &[]), None, "its user removed the reserve");
}
