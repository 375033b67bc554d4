use super::*;
use crate::tally::tally;
use proptest::collection::vec;
use proptest::prelude::any;
use proptest::{prop_assert, prop_assert_eq, proptest};

const NAMESPACES: [&str; 3] = ["team-a", "team-b", "others"];

fn caps(cluster: usize) -> Caps {
    Caps {
        cluster: Some(cluster),
        each_namespace: Some(2),
        namespaces: [("team-a".to_owned(), 3), ("team-b".to_owned(), 0)].into(),
    }
}

fn position(number: u64) -> Position {
    (None, number)
}

fn slots(caps: &Caps, namespaces: &[&str]) -> Slots {
    let mut slots = Slots::default();
    slots.set_caps(caps);
    for (number, namespace) in (0..).zip(namespaces) {
        let name = ((*namespace).to_owned(), format!("run-{number}"));
        slots.record(position(number), &name, false);
    }
    slots
}

fn take(slots: &mut Slots, runs: u64) -> Vec<Option<OverCap>> {
    (0..runs).map(|number| slots.take(position(number))).collect()
}

fn over(cap: Cap, ahead: usize) -> OverCap {
    OverCap { cap, ahead }
}

fn names(runs: Vec<Name>) -> Vec<String> {
    runs.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn without_caps_each_run_has_a_slot() {
    let mut slots = slots(&Caps::default(), &["others"; 50]);
    assert_eq!(take(&mut slots, 50), vec![None; 50]);
    assert!(slots.next().is_empty());
}

#[test]
fn a_namespace_without_a_slot_does_not_delay_other_namespaces() {
    let mut slots = slots(
        &caps(9),
        &["others", "others", "others", "team-b", "others", "team-a"],
    );
    let (each, none) = (Cap::EachNamespace(2), Cap::Namespace(0));
    let expected = [
        None,
        None,
        Some(over(each, 0)),
        Some(over(none, 0)),
        Some(over(each, 1)),
        None,
    ];
    assert_eq!(take(&mut slots, 6), expected);
    assert_eq!(take(&mut slots, 6), expected, "a run keeps its slot");
}

#[test]
fn the_cap_of_the_cluster_counts_all_namespaces() {
    let mut slots = slots(&caps(2), &["others", "team-a", "team-b", "others", "team-a"]);
    let cluster = Cap::Cluster(2);
    let expected = [
        None,
        None,
        Some(over(Cap::Namespace(0), 0)),
        Some(over(cluster, 0)),
        Some(over(cluster, 1)),
    ];
    assert_eq!(take(&mut slots, 5), expected);
}

#[test]
fn an_older_run_takes_the_next_slot_even_if_a_younger_run_asks_first() {
    let mut slots = slots(&caps(1), &["others", "others", "others"]);
    assert_eq!(
        slots.take(position(2)),
        Some(over(Cap::Cluster(1), 1)),
        "two older runs come first"
    );
    assert_eq!(slots.take(position(0)), None);
    assert_eq!(names(slots.remove(position(0))), ["run-1"]);
    assert!(slots.remove(position(2)).is_empty(), "the run had no slot");
    assert_eq!(slots.take(position(1)), None);
}

#[test]
fn a_run_with_a_placeholder_has_a_slot_whatever_the_caps_are() {
    let mut slots = slots(&caps(1), &["others", "others"]);
    for number in 0..2 {
        slots.record(
            position(number),
            &("others".to_owned(), format!("run-{number}")),
            true,
        );
    }
    assert_eq!(take(&mut slots, 2), [None, None]);
    assert!(
        slots.remove(position(0)).is_empty(),
        "another run has the only slot"
    );
}

#[test]
fn a_higher_cap_has_room_at_once() {
    let mut slots = slots(&caps(1), &["others", "others"]);
    assert_eq!(take(&mut slots, 2), [None, Some(over(Cap::Cluster(1), 0))]);
    slots.set_caps(&caps(2));
    assert_eq!(names(slots.next()), ["run-0", "run-1"]);
    assert_eq!(take(&mut slots, 2), [None, None]);
}

#[test]
fn a_cap_that_is_set_or_lowered_counts_for_runs_that_wait_without_a_placeholder() {
    let mut slots = slots(&Caps::default(), &["others"; 3]);
    assert_eq!(take(&mut slots, 3), [None, None, None]);
    slots.record(position(1), &("others".to_owned(), "run-1".to_owned()), true);
    slots.set_caps(&caps(2));
    let full = Some(over(Cap::EachNamespace(2), 0));
    assert_eq!(take(&mut slots, 3), [None, None, full]);
    slots.set_caps(&caps(1));
    let full = |ahead| Some(over(Cap::Cluster(1), ahead));
    assert_eq!(take(&mut slots, 3), [full(0), None, full(1)]);
}

proptest! {
    #[test]
    fn no_cap_is_exceeded_no_slot_is_left_and_runs_of_a_namespace_take_slots_in_order(
        runs in vec(0..3_usize, 0..20),
        order in any::<u64>(),
        cluster in 0..8_usize,
        met in tally(&[("over cap", 80), ("slot", 8)]),
    ) {
        let namespaces: Vec<_> = runs.iter().map(|namespace| NAMESPACES[*namespace]).collect();
        let count = u64::try_from(runs.len()).unwrap();
        let caps = caps(cluster);
        let mut slots = slots(&caps, &namespaces);
        for turn in 0..2 * count {
            slots.take(position((order.wrapping_mul(turn + 1)) % count));
        }
        let taken = take(&mut slots, count);
        let has_slot = |namespace: &str| {
            let of = namespaces.iter().zip(&taken).filter(move |(of, _)| **of == namespace);
            of.map(|(_, over)| over.is_none()).collect::<Vec<_>>()
        };
        let mut total = 0;
        for namespace in NAMESPACES {
            let has_slot = has_slot(namespace);
            let used = has_slot.iter().filter(|has| **has).count();
            prop_assert!(used <= caps.in_namespace(namespace).unwrap().limit());
            prop_assert!(has_slot.is_sorted_by(|older, younger| older >= younger), "{has_slot:?}");
            total += used;
        }
        prop_assert!(total <= cluster && slots.next().is_empty());
        prop_assert_eq!(total, taken.iter().filter(|over| over.is_none()).count());
        met.count(if total < runs.len() { "over cap" } else { "slot" });
    }
}
