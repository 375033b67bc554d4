use super::*;
use crate::fixture::{at, enrolment};
use crate::reason::Reason;

fn create() -> Action {
    Action::CreatePlaceholder(enrolment())
}

fn nothing_yet() -> Action {
    Action::AwaitNode {
        unschedulable: None,
        largest: None,
    }
}

fn note(reason: Reason, text: &str) -> Note {
    Note {
        reason,
        text: text.to_owned(),
    }
}

#[test]
fn a_step_just_taken_is_not_taken_again_before_its_echo() {
    let mut known = Known::default();
    assert_eq!(known.pause(&create(), at(0)), None);
    known.took(&create(), at(0));
    assert_eq!(known.pause(&create(), at(0)), Some(ECHO));
    assert_eq!(known.pause(&Action::Steady, at(0)), None);
    assert_eq!(known.pause(&create(), at(1)), None);
}

#[test]
fn a_placeholder_without_a_pod_is_given_a_moment_and_then_nudged_ever_more_rarely() {
    let (mut known, nudge) = (Known::default(), Action::NudgePlaceholder);
    assert_eq!(known.pause(&nudge, at(0)), Some(GRACE));
    assert_eq!(known.pause(&nudge, at(2)), None);
    let mut now = 2;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        known.took(&nudge, at(now));
        let pause = known.pause(&nudge, at(now)).unwrap().as_secs();
        now += i64::try_from(pause).unwrap();
        pauses.push(pause);
    }
    assert_eq!(pauses, [5, 10, 20, 30, 30]);
}

#[test]
fn a_pod_that_came_ends_the_nudging() {
    let (mut known, nudge) = (Known::default(), Action::NudgePlaceholder);
    known.took(&nudge, at(0));
    known.pause(&nothing_yet(), at(1));
    assert_eq!(known.pause(&nudge, at(1)), Some(GRACE));
}

#[test]
fn failures_in_a_row_wait_longer_until_a_step_is_taken() {
    let mut known = Known::default();
    let waits: Vec<_> = (0..5).map(|_| known.failed("u1", &create(), at(0))).collect();
    assert!(waits[4] > waits[0], "{waits:?}");
    known.took(&create(), at(0));
    assert_eq!(known.failed("u1", &create(), at(0)), waits[0]);
    assert_eq!(known.retry_after(), waits[0]);
}

#[test]
fn a_failed_step_waits_whatever_wakes_its_run_and_another_step_does_not() {
    let mut known = Known::default();
    let wait = known.failed("u1", &create(), at(0));
    assert_eq!(known.pause(&create(), at(0)), Some(wait));
    assert_eq!(known.pause(&nothing_yet(), at(0)), None);
    assert_eq!(known.pause(&create(), at(1)), None);
}

#[test]
fn a_note_is_told_again_as_its_reason_allows() {
    let mut known = Known::default();
    let waiting = note(Reason::WaitingForNode, "0/3");
    assert_eq!(known.tell(&waiting, at(0)), Telling::Now(1));
    assert_eq!(known.tell(&waiting, at(60)), Telling::Not);
    assert_eq!(known.tell(&waiting, at(400)), Telling::Now(2));
    let late = note(Reason::LabelledTooLate, "late");
    assert_eq!(
        (known.tell(&late, at(0)), known.tell(&late, at(9999))),
        (Telling::Now(1), Telling::Not)
    );
    let back = note(Reason::PlaceholderReturned, "back");
    assert_eq!(
        (known.tell(&back, at(0)), known.tell(&back, at(1))),
        (Telling::Now(1), Telling::Now(2))
    );
}

#[test]
fn words_that_keep_changing_are_told_now_and_then() {
    let mut known = Known::default();
    let waiting = |nodes: i64| note(Reason::WaitingForNode, &format!("0/{nodes}"));
    let told = (0..60).filter(|second| known.tell(&waiting(*second), at(*second)) == Telling::Now(1));
    assert_eq!(told.collect::<Vec<_>>(), [0, 20, 40]);
    assert_eq!(
        known.tell(&waiting(99), at(50)),
        Telling::Later(Duration::from_secs(10))
    );
    let other = note(Reason::WaitingForRoom, "other");
    assert_eq!(known.tell(&other, at(50)), Telling::Now(1));
}

#[test]
fn of_many_different_notes_only_the_newest_are_remembered() {
    let mut known = Known::default();
    for number in 0..100 {
        known.tell(&note(Reason::PlaceholderReturned, &number.to_string()), at(0));
    }
    assert_eq!(known.told.len(), REMEMBERED);
}

#[test]
fn an_autoscaler_is_asked_when_it_can_have_answered_and_rarely_after_that() {
    let mut known = Known::default();
    let asked = (0..900).filter(|second| known.is_time_to_ask(at(*second)));
    assert_eq!(asked.collect::<Vec<_>>(), [20, 320, 620]);
    assert_eq!(known.next_question(at(900)), Some(Duration::from_secs(20)));
}

#[test]
fn tasks_are_counted_once_a_second_and_no_write_loses_its_echo_by_it() {
    let mut known = Known::default();
    known.took(&create(), at(0));
    assert_eq!(known.pause(&Action::CountPods, at(0)), None);
    let census = known.counted(1, None, at(0));
    assert_eq!((census.live, census.quiet_since), (1, None));
    assert_eq!(known.pause(&Action::CountPods, at(0)), Some(ECHO));
    assert_eq!(known.pause(&create(), at(0)), Some(ECHO));
    assert_eq!(known.pause(&Action::CountPods, at(1)), None);
    assert_eq!(known.counted(0, None, at(1)).quiet_since, Some(at(1)));
}

#[test]
fn what_is_known_of_a_pods_size_is_for_that_pod() {
    let mut known = Known::default();
    known.refused_resize("p1".into());
    assert!(known.is_resize_refused("p1") && !known.is_resize_refused("p2"));
}

#[test]
fn each_let_go_counts_and_the_time_without_a_node_starts_with_the_first() {
    let mut known = Known::default();
    known.let_go(Some("p1".into()), at(0));
    known.let_go(None, at(20));
    assert_eq!((known.let_gos.count, known.let_gos.last), (2, Some(at(20))));
    assert_eq!(known.nodeless, Some((at(0), Some("p1".into()))));
}

#[test]
fn a_settled_run_leaves_nothing_behind() {
    let memory = Memory::default();
    memory.with("u1", |known| known.held = Some(at(0)));
    assert!(memory.forget("u1").unwrap().held.is_some());
    assert!(memory.forget("u1").is_none());
    assert!(memory.lock().is_empty());
}
