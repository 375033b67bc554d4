use super::*;
use crate::fixture::{at, enrolment, nothing};
use crate::news::Due;
use crate::pace::ECHO;
use crate::reason::{Note, Reason};
use placement::plan::{Decision, PlaceholderPod, Shape, Wait, Write};

fn create() -> Decision {
    Decision::Write(Write::CreatePlaceholder(enrolment()))
}

fn nothing_yet() -> Decision {
    Decision::Wait(Wait::Node {
        unschedulable: None,
        largest: None,
    })
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
    assert_eq!(known.pace.pause(&create(), at(0)), None);
    known.pace.took(&create(), at(0));
    assert_eq!(known.pace.pause(&create(), at(0)), Some(ECHO));
    assert_eq!(known.pace.pause(&Decision::Wait(Wait::Steady), at(0)), None);
    assert_eq!(known.pace.pause(&create(), at(1)), None);
}

#[test]
fn a_placeholder_without_a_pod_is_given_a_moment_and_then_nudged_ever_more_rarely() {
    let mut nudges = Nudges::default();
    assert_eq!(nudges.pause(true, at(0)), GRACE);
    assert_eq!(nudges.pause(true, at(2)), Duration::ZERO);
    let mut now = 2;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        nudges.sent(at(now));
        let pause = nudges.pause(true, at(now)).as_secs();
        now += i64::try_from(pause).unwrap();
        pauses.push(pause);
    }
    assert_eq!(pauses, [5, 10, 20, 30, 30]);
}

#[test]
fn a_pod_that_came_ends_the_nudging() {
    let mut nudges = Nudges::default();
    nudges.sent(at(0));
    nudges.pause(false, at(1));
    assert_eq!(nudges.pause(true, at(1)), GRACE);
}

#[test]
fn failures_in_a_row_wait_longer_until_a_step_is_taken() {
    let mut known = Known::default();
    let waits: Vec<_> = (0..5)
        .map(|_| known.pace.failed("u1", &create(), at(0)))
        .collect();
    assert!(waits[4] > waits[0], "{waits:?}");
    known.pace.took(&create(), at(0));
    assert_eq!(known.pace.failed("u1", &create(), at(0)), waits[0]);
    assert_eq!(known.pace.retry_after(), waits[0]);
}

#[test]
fn a_failed_step_waits_whatever_wakes_its_run_and_another_step_does_not() {
    let mut known = Known::default();
    let wait = known.pace.failed("u1", &create(), at(0));
    assert_eq!(known.pace.pause(&create(), at(0)), Some(wait));
    assert_eq!(known.pace.pause(&nothing_yet(), at(0)), None);
    assert_eq!(known.pace.pause(&create(), at(1)), None);
}

#[test]
fn a_note_is_told_again_as_its_reason_allows() {
    let mut known = Known::default();
    let waiting = note(Reason::WaitingForNode, "0/3");
    assert_eq!(known.news.due(&waiting, at(0)), Due::Now(1));
    let soon = known.news.due(&waiting, at(60));
    assert_eq!(soon, Due::Later(Duration::from_mins(4)));
    assert_eq!(known.news.due(&waiting, at(400)), Due::Now(2));
    let late = note(Reason::LabelledTooLate, "late");
    assert_eq!(
        (known.news.due(&late, at(0)), known.news.due(&late, at(9999))),
        (Due::Now(1), Due::Not)
    );
    let back = note(Reason::PlaceholderReturned, "back");
    assert_eq!(
        (known.news.due(&back, at(0)), known.news.due(&back, at(1))),
        (Due::Now(1), Due::Now(2))
    );
}

#[test]
fn words_that_keep_changing_are_told_now_and_then() {
    let mut known = Known::default();
    let waiting = |nodes: i64| note(Reason::WaitingForNode, &format!("0/{nodes}"));
    let told = (0..60).filter(|second| known.news.due(&waiting(*second), at(*second)) == Due::Now(1));
    assert_eq!(told.collect::<Vec<_>>(), [0, 20, 40]);
    assert_eq!(
        known.news.due(&waiting(99), at(50)),
        Due::Later(Duration::from_secs(10))
    );
    let other = note(Reason::WaitingForRoom, "other");
    assert_eq!(known.news.due(&other, at(50)), Due::Now(1));
}

#[test]
fn an_autoscaler_is_asked_when_it_can_have_answered_and_rarely_after_that() {
    let mut autoscaler = Autoscaler::default();
    let mut asked = Vec::new();
    for second in 0..900 {
        if autoscaler.known(at(second)).is_none() {
            autoscaler.answered(None, at(second));
            asked.push(second);
        }
    }
    assert_eq!(asked, [20, 320, 620]);
    assert_eq!(autoscaler.next_question(at(900)), Some(Duration::from_secs(20)));
}

#[test]
fn tasks_are_counted_once_a_second_and_no_write_loses_its_echo_by_it() {
    let mut known = Known::default();
    known.pace.took(&create(), at(0));
    assert_eq!(known.pace.pause(&Decision::Count(Question::Tasks), at(0)), None);
    let counted = |known: &mut Known, live, second| {
        known.pace.asked(Question::Tasks, at(second));
        let quiet_since = None;
        known.counted(Census { live, quiet_since }, at(second))
    };
    let census = counted(&mut known, 1, 0);
    assert_eq!((census.live, census.quiet_since), (1, None));
    assert_eq!(
        known.pace.pause(&Decision::Count(Question::Tasks), at(0)),
        Some(ECHO)
    );
    assert_eq!(known.pace.pause(&create(), at(0)), Some(ECHO));
    assert_eq!(known.pace.pause(&Decision::Count(Question::Tasks), at(1)), None);
    assert_eq!(counted(&mut known, 0, 1).quiet_since, Some(at(1)));
}

#[test]
fn what_is_known_of_a_pods_size_is_for_that_pod() {
    let mut known = Known {
        unshrinkable: Some("p1".into()),
        ..Known::default()
    };
    let mut resize = |uid: &str| {
        let mut seen = nothing();
        seen.pod = Some(PlaceholderPod {
            uid: uid.into(),
            node: None,
            ending: false,
            unschedulable: None,
            tolerations: Vec::new(),
            adopted: false,
            shape: Shape::default(),
        });
        known.recall(&mut seen);
        seen.pod.unwrap().shape.resize
    };
    assert_eq!((resize("p1"), resize("p2")), (Resize::Refused, Resize::Possible));
}

#[test]
fn each_move_counts_and_the_time_without_a_node_starts_with_the_first() {
    let mut known = Known::default();
    known.moved_off(Some("p1".into()), at(0));
    known.moved_off(None, at(20));
    assert_eq!((known.moves.count, known.moves.last), (2, Some(at(20))));
    assert_eq!(known.timers.nodeless(), Some((at(0), Some("p1".into()))));
}

#[test]
fn a_settled_run_leaves_nothing_behind() {
    let memory = Memory::default();
    memory.with("u1", |known| known.moved_off(None, at(0)));
    assert!(memory.forget("u1").unwrap().moves.count == 1);
    assert!(memory.forget("u1").is_none());
    assert!(memory.lock().is_empty());
}

#[test]
fn a_refusal_is_looked_into_until_it_is_none_of_the_runs_or_was_dealt_with() {
    let memory = Memory::default();
    let refused = |refusal: &str| Observation {
        refusal: Some(refusal.into()),
        ..nothing()
    };
    let recalled = |refusal: &str| {
        let mut seen = refused(refusal);
        memory.recall(&mut seen);
        seen.refusal
    };
    let mut seen = refused("7");
    seen.refused = Some(vec!["build-test".into()]);
    memory.answered(Question::Refused, &mut seen);
    assert_eq!(recalled("7").as_deref(), Some("7"), "Tekton was not told yet");
    memory.with("u1", |known| known.retried(Some("7".into()), at(0)));
    assert_eq!(recalled("7"), None);
    let mut another = refused("8");
    another.refused = Some(Vec::new());
    memory.answered(Question::Refused, &mut another);
    assert_eq!(another.refusal, None, "the next decision is made without it");
    assert_eq!(recalled("8"), None);
    assert_eq!(recalled("9").as_deref(), Some("9"));
}

#[test]
fn the_pauses_between_retries_begin_anew_when_the_placeholder_makes_room() {
    let memory = Memory::default();
    let retries = || {
        let mut seen = nothing();
        memory.recall(&mut seen);
        seen.retries.count
    };
    memory.with("u1", |known| known.retried(Some("7".into()), at(0)));
    assert_eq!(retries(), 1);
    memory.with("u1", |known| known.made_room(at(60)));
    assert_eq!(retries(), 0);
}

#[test]
fn that_a_pods_affinity_was_relaxed_is_remembered_when_the_pod_is_bound() {
    let (memory, mut seen) = (Memory::default(), nothing());
    memory.recall(&mut seen);
    assert!(!seen.relaxed);
    memory.with(&seen.run.key.uid, Known::relaxed);
    memory.recall(&mut seen);
    assert!(seen.relaxed);
}
