use super::*;
use crate::tally::tally;
use proptest::collection::vec;
use proptest::prelude::{Just, any, prop_oneof};
use proptest::strategy::Strategy as Arbitrary;
use proptest::{prop_assert, prop_assert_eq, proptest};

mod namespaces;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn size(cpu: &str) -> Resources {
    Resources::from_texts([(&"cpu".to_owned(), &cpu.to_owned())])
}

fn kind() -> Kind {
    Kind::new("usual".to_owned())
}

fn run(number: usize, placeholder: Stage) -> Member {
    let waiting = Waiting {
        size: size("1"),
        is_estimate: false,
        placeholder,
        answer: Answer::Pending,
    };
    Member {
        uid: format!("uid-{number}"),
        name: ("ns".to_owned(), format!("run-{number}")),
        created: Some(at(i64::try_from(number).unwrap())),
        has_slot: placeholder != Stage::Missing,
        node: None,
        waits: Some((kind(), waiting)),
    }
}

fn of_kind(kind: &Kind, mut run: Member) -> Member {
    run.waits.as_mut().unwrap().0 = kind.clone();
    run
}

fn answered(answer: Answer, mut run: Member) -> Member {
    run.waits.as_mut().unwrap().1.answer = answer;
    run
}

fn refused(number: usize) -> Member {
    answered(Answer::Refusal, run(number, Stage::Unschedulable))
}

/// A run that found no node in a cluster without an autoscaler.
fn unanswered(number: usize) -> Member {
    answered(Answer::Silence, run(number, Stage::Unschedulable))
}

fn of_size(cpu: &str, mut run: Member) -> Member {
    run.waits.as_mut().unwrap().1.size = size(cpu);
    run
}

fn node(name: usize, cpu: &str) -> Arc<NodeFacts> {
    Arc::new(NodeFacts {
        name: format!("node-{name}"),
        allocatable: size(cpu),
        ready: true,
        ..NodeFacts::default()
    })
}

fn nodes(count: usize) -> Vec<Arc<NodeFacts>> {
    (0..count).map(|name| node(name, "4")).collect()
}

fn queue(runs: impl IntoIterator<Item = Member>) -> Queue {
    let mut queue = Queue::default();
    for run in runs {
        queue.record(run);
    }
    queue
}

fn ahead(queue: &mut Queue, number: usize, free: &[Arc<NodeFacts>]) -> Option<usize> {
    number_ahead(queue.before(&format!("uid-{number}"), at(100), || free.to_vec()))
}

fn number_ahead(before: Option<Before>) -> Option<usize> {
    before.map(|before| match before {
        Before::Waiting { ahead } => ahead,
        Before::Starting | Before::Rejected | Before::OverCap(_) => panic!("{before:?}"),
    })
}

fn names(runs: Vec<Name>) -> Vec<String> {
    runs.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn while_an_autoscaler_may_answer_each_run_has_a_placeholder() {
    for answer in [Answer::Pending, Answer::Promise] {
        let oldest = answered(answer, run(0, Stage::Unschedulable));
        let mut queue = queue([oldest, run(1, Stage::Missing), run(2, Stage::Unschedulable)]);
        assert_eq!([1, 2].map(|number| ahead(&mut queue, number, &[])), [None, None]);
    }
}

#[test]
fn after_a_refusal_only_the_oldest_run_gets_a_placeholder() {
    for answer in [Answer::Refusal, Answer::Silence] {
        let oldest = answered(answer, run(0, Stage::Unschedulable));
        let younger = (1..4).map(|number| run(number, Stage::Missing));
        let mut queue = queue([oldest].into_iter().chain(younger));
        let ahead: Vec<_> = (0..4)
            .map(|number| ahead(&mut queue, number, &nodes(2)))
            .collect();
        assert_eq!(ahead, [None, Some(1), Some(2), Some(3)]);
    }
}

#[test]
fn a_promise_to_any_run_of_the_kind_gives_all_runs_their_placeholders_again() {
    let mut queue = queue([refused(0), run(1, Stage::Missing), run(2, Stage::Missing)]);
    let promised = answered(Answer::Promise, run(0, Stage::Unschedulable));
    assert_eq!(names(queue.record(promised)), ["run-0", "run-1", "run-2"]);
    assert_eq!(ahead(&mut queue, 2, &[]), None);
    queue.record(refused(1));
    assert_eq!(
        ahead(&mut queue, 2, &[]),
        None,
        "the promise to the oldest run lasts"
    );
    queue.remove("uid-0");
    queue.record(refused(1));
    assert_eq!(ahead(&mut queue, 2, &[]), Some(1));
}

#[test]
fn the_next_runs_are_triggered_when_a_run_has_a_node() {
    let mut queue = queue((1..9).map(|number| run(number, Stage::Missing)));
    assert!(names(queue.remove("uid-1")).is_empty(), "no line");
    queue.record(refused(0));
    assert!(
        names(queue.next()).is_empty(),
        "the oldest run shows that no node is free"
    );
    assert_eq!(names(queue.remove("uid-0"))[..2], ["run-2", "run-3"]);
    assert_eq!(names(queue.forget(|uid| uid == "uid-2"))[..2], ["run-3", "run-4"]);
}

#[test]
fn without_a_run_that_found_no_node_as_many_runs_go_as_nodes_are_free() {
    let mut queue = queue(
        [refused(0)]
            .into_iter()
            .chain((1..19).map(|number| run(number, Stage::Missing))),
    );
    queue.remove("uid-0");
    let turns = |queue: &mut Queue, free: usize| {
        let is_turn = |number: &usize| ahead(queue, *number, &nodes(free)).is_none();
        (1..19).filter(is_turn).count()
    };
    assert_eq!(
        [0, 1, 2, 3, 19].map(|free| turns(&mut queue, free)),
        [1, 1, 2, 3, NEW_AT_ONCE]
    );
    queue.record(run(1, Stage::New));
    assert_eq!(
        ahead(&mut queue, 2, &nodes(1)),
        Some(1),
        "the placeholder of run 1 takes the node"
    );
    assert_eq!(ahead(&mut queue, 2, &nodes(2)), None);
}

#[test]
fn a_placeholder_that_found_no_node_goes_if_enough_older_ones_wait() {
    let mut queue = queue((0..9).map(refused));
    let kept = (0..9)
        .filter(|number| ahead(&mut queue, *number, &[]).is_none())
        .count();
    assert_eq!(kept, TRIED_AT_ONCE);
    queue.record(run(8, Stage::New));
    assert_eq!(ahead(&mut queue, 8, &[]), None, "the scheduler has not tried it");
}

#[test]
fn a_smaller_run_may_use_a_node_that_is_too_small_for_the_older_run() {
    let large = || of_size("8", unanswered(0));
    let others = [
        of_size("8", run(1, Stage::Missing)),
        of_size("2", run(2, Stage::Missing)),
    ];
    let mut queue = queue([large()].into_iter().chain(others));
    assert_eq!(ahead(&mut queue, 2, &[node(0, "4")]), None);
    assert_eq!(
        ahead(&mut queue, 2, &[node(0, "16")]),
        Some(2),
        "the node is for the older run"
    );
    assert_eq!(ahead(&mut queue, 1, &[node(0, "16")]), Some(1));
    assert_eq!(names(queue.next()), ["run-2"]);
    queue.record(of_size("2", run(2, Stage::Unschedulable)));
    assert_eq!(
        ahead(&mut queue, 2, &[]),
        None,
        "no run shows that no small node is free"
    );
}

#[test]
fn a_node_that_the_oldest_run_cannot_use_does_not_wait_for_it_for_ever() {
    let mut queue = queue([of_size("8", unanswered(0)), of_size("2", run(1, Stage::Missing))]);
    let mut ahead =
        |second, free: &[Arc<NodeFacts>]| number_ahead(queue.before("uid-1", at(second), || free.to_vec()));
    let free = [node(0, "16")];
    assert_eq!(
        [0, 14, 15].map(|second| ahead(second, &free)),
        [Some(1), Some(1), None]
    );
    assert_eq!(ahead(16, &[]), Some(1), "another run has the node");
    assert_eq!(ahead(17, &free), None, "the older run left such a node");
}

#[test]
fn all_lines_together_observe_a_limited_number_of_nodes() {
    let other = Kind::new("other".to_owned());
    let line = |first: usize| {
        [
            of_size("8", unanswered(first)),
            of_size("2", run(first + 1, Stage::Missing)),
        ]
    };
    let of_other = line(2).map(|run| of_kind(&other, run));
    let mut queue = queue(line(0).into_iter().chain(of_other));
    let small = MOST_OBSERVED * 3 / 5;
    let mut free: Vec<_> = (0..small).map(|name| node(name, "1")).collect();
    free.push(node(small, "16"));
    let mut ahead = |uid, second| number_ahead(queue.before(uid, at(second), || free.clone()));
    assert_eq!(["uid-1", "uid-3"].map(|uid| ahead(uid, 0)), [Some(1), Some(1)]);
    assert_eq!(
        ["uid-1", "uid-3"].map(|uid| ahead(uid, 15)),
        [None, Some(1)],
        "the second line does not observe the large node"
    );
}

#[test]
fn runs_whose_placeholders_get_no_pod_do_not_keep_a_free_node_from_other_runs_for_ever() {
    let stuck = (1..6).map(|number| run(number, Stage::New));
    let mut queue = queue(
        [refused(0)]
            .into_iter()
            .chain(stuck)
            .chain([run(6, Stage::Missing)]),
    );
    queue.remove("uid-0");
    let mut ahead = |second, node| number_ahead(queue.before("uid-6", at(second), || vec![node]));
    let [first, second] = [0, 1].map(|name| node(name, "4"));
    assert_eq!(
        [0, 14, 15].map(|at| ahead(at, first.clone())),
        [Some(5), Some(5), None]
    );
    assert_eq!(ahead(16, second), None, "the others left such a node");
}

#[test]
fn kinds_do_not_wait_for_each_other() {
    let mut queue = queue([refused(0), run(1, Stage::Missing)]);
    let other = Kind::new("other".to_owned());
    queue.record(of_kind(&other, run(2, Stage::Missing)));
    assert_eq!(ahead(&mut queue, 2, &[]), None);
    assert!(queue.record(of_kind(&other, run(1, Stage::Missing))).is_empty());
    queue.record(of_kind(
        &other,
        answered(Answer::Refusal, run(1, Stage::Unschedulable)),
    ));
    assert_eq!(
        ahead(&mut queue, 2, &[]),
        Some(1),
        "run 1 is of the other kind now"
    );
}

#[test]
fn in_a_cluster_without_an_answer_a_new_kind_is_in_line_at_once() {
    let silent = answered(Answer::Silence, run(0, Stage::Unschedulable));
    let mut queue = queue([silent]);
    let others = ["other", "third"].map(|text| Kind::new(text.to_owned()));
    queue.record(of_kind(&others[0], run(1, Stage::Unschedulable)));
    queue.record(of_kind(&others[0], run(2, Stage::Missing)));
    assert_eq!(ahead(&mut queue, 2, &[]), Some(1));
    queue.record(refused(0));
    queue.record(of_kind(&others[1], run(3, Stage::Unschedulable)));
    queue.record(of_kind(&others[1], run(4, Stage::Missing)));
    assert_eq!(
        ahead(&mut queue, 4, &[]),
        None,
        "an autoscaler has answered since"
    );
}

#[test]
fn a_new_leader_continues_a_line_but_begins_none() {
    let inherited = |runs: [Member; 2], second| {
        let mut queue = queue(runs);
        queue.inherit(at(second));
        ahead(&mut queue, 1, &[])
    };
    let oldest = || run(0, Stage::Unschedulable);
    assert_eq!(inherited([oldest(), run(1, Stage::Missing)], 11), Some(1));
    assert_eq!(
        inherited([oldest(), run(1, Stage::Missing)], 10),
        None,
        "the run is new"
    );
    assert_eq!(inherited([run(0, Stage::New), run(1, Stage::Missing)], 11), None);
    let promised = answered(Answer::Promise, oldest());
    assert_eq!(inherited([promised, run(1, Stage::Missing)], 11), None);
    let refused = of_size("8", refused(0));
    assert_eq!(
        inherited([refused, run(1, Stage::Missing)], 11),
        None,
        "an autoscaler may add a node for a smaller run"
    );
}

fn any_run() -> impl Arbitrary<Value = (Member, usize)> {
    let stage = prop_oneof![Just(Stage::Missing), Just(Stage::New), Just(Stage::Unschedulable)];
    let cpu = prop_oneof![3 => Just("1"), 1 => Just("3"), 1 => Just("9")];
    (stage, cpu, any::<bool>(), 0..3_usize).prop_map(|(stage, cpu, is_refused, second)| {
        let answer = if is_refused {
            Answer::Refusal
        } else {
            Answer::Pending
        };
        let run = answered(answer, run(second, stage));
        (of_size(cpu, run), second)
    })
}

proptest! {
    #[test]
    fn the_oldest_run_always_has_its_turn_and_no_run_overtakes_an_older_one_that_asks_for_no_more(
        runs in vec(any_run(), 1..12),
        free in 0..6_usize,
        met in tally(&[("held back", 60), ("let in", 15)]),
    ) {
        let runs: Vec<_> = runs.into_iter().enumerate().map(|(number, (run, second))| Member {
            uid: format!("uid-{number}"),
            created: Some(at(i64::try_from(second).unwrap())),
            ..run
        }).collect();
        let mut queue = queue(runs.clone());
        let mut order: Vec<_> = runs.iter().enumerate().collect();
        order.sort_by_key(|(number, run)| (run.created, *number));
        let line: Vec<_> = order.iter().map(|(_, run)| *run).collect();
        let turns = line.iter().map(|run| number_ahead(queue.before(&run.uid, at(9), || nodes(free))));
        let turns: Vec<_> = turns.collect();
        let line: Vec<_> = line.into_iter().map(|run| run.waits.clone().unwrap().1).collect();
        let is_refused = |run: &Waiting| line.iter().any(|it| it.answer == Answer::Refusal && it.size.beyond(&run.size).next().is_none());
        prop_assert_eq!(turns[0], None);
        for (place, (run, turn)) in line.iter().zip(&turns).enumerate() {
            let proves = |older: &Waiting| older.placeholder == Stage::Unschedulable && older.size.beyond(&run.size).next().is_none();
            match (run.placeholder, turn) {
                (_, Some(ahead)) => {
                    prop_assert!(*ahead == place && is_refused(run) && run.placeholder != Stage::New);
                    met.count("held back");
                }
                (Stage::Missing, None) if is_refused(run) && place > 0 => {
                    prop_assert!(!line[..place].iter().any(proves) && free > 0);
                    met.count("let in");
                }
                (Stage::Missing | Stage::New | Stage::Unschedulable, None) => {}
            }
        }
        let begun = line.iter().zip(&turns).skip(1).filter(|(run, turn)| {
            run.placeholder == Stage::Missing && turn.is_none() && is_refused(run)
        });
        prop_assert!(begun.count() <= free.min(NEW_AT_ONCE));
    }
}
