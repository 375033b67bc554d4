use super::*;
use crate::fixture::{Caches, at, clock, run, step_of};
use crate::memory::backoff::WATCH_DELAY;
use crate::memory::deduplicator::Due;
use placement::notes::{Note, Reason};
use placement::plan::{Decision, Event, Read, Resize, Wait};

fn create() -> Decision {
    step_of(Event::Created(None))
}

fn nothing_yet() -> Decision {
    Decision::Wait(Wait::Node {
        unschedulable: None,
        autoscaler: None,
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
    let mut entry = RunMemory::default();
    assert_eq!(entry.backoff.pause(&create(), at(0)), None);
    entry.backoff.on_success(&create(), at(0));
    assert_eq!(entry.backoff.pause(&create(), at(0)), Some(WATCH_DELAY));
    assert_eq!(entry.backoff.pause(&Decision::Wait(Wait::Settled), at(0)), None);
    assert_eq!(entry.backoff.pause(&create(), at(1)), None);
}

#[test]
fn a_placeholder_without_a_pod_is_given_a_moment_and_then_nudged_ever_more_rarely() {
    let mut requeues = Requeues::default();
    assert_eq!(requeues.pause(true, at(0)), GRACE);
    assert_eq!(requeues.pause(true, at(2)), Duration::ZERO);
    let mut now = 2;
    let mut pauses = Vec::new();
    for _ in 0..5 {
        requeues.sent(at(now), |next| next);
        let pause = requeues.pause(true, at(now)).as_secs();
        now += i64::try_from(pause).unwrap();
        pauses.push(pause);
    }
    assert_eq!(pauses, [5, 10, 20, 30, 30]);
}

#[test]
fn a_pod_that_came_ends_the_nudging() {
    let mut requeues = Requeues::default();
    requeues.sent(at(0), |next| next);
    requeues.pause(false, at(1));
    assert_eq!(requeues.pause(true, at(1)), GRACE);
}

#[test]
fn only_a_step_that_failed_is_a_failed_write() {
    let mut entry = RunMemory::default();
    entry.backoff.count_failure("u1");
    entry.backoff.failed("u1", &Decision::Read(Read::Creation), at(0));
    assert!(!entry.backoff.write_failed());
    entry.backoff.failed("u1", &create(), at(0));
    assert!(entry.backoff.write_failed());
    entry.backoff.on_success(&create(), at(1));
    assert!(!entry.backoff.write_failed());
}

#[test]
fn the_backoff_of_failures_grows_until_a_step_succeeds() {
    let mut entry = RunMemory::default();
    let waits: Vec<_> = (0..5)
        .map(|_| entry.backoff.failed("u1", &create(), at(0)))
        .collect();
    assert!(waits[4] > waits[0], "{waits:?}");
    entry.backoff.on_success(&create(), at(0));
    assert_eq!(entry.backoff.failed("u1", &create(), at(0)), waits[0]);
    assert_eq!(entry.backoff.retry_after(), waits[0]);
}

#[test]
fn a_failed_step_waits_for_its_backoff_and_another_step_does_not() {
    let mut entry = RunMemory::default();
    let wait = entry.backoff.failed("u1", &create(), at(0));
    assert_eq!(entry.backoff.pause(&create(), at(0)), Some(wait));
    assert_eq!(entry.backoff.pause(&nothing_yet(), at(0)), None);
    assert_eq!(entry.backoff.pause(&create(), at(1)), None);
}

#[test]
fn an_event_is_repeated_as_its_reason_allows() {
    let mut entry = RunMemory::default();
    let waiting = note(Reason::WaitingForNode, "0/3");
    assert_eq!(entry.reported.due(&waiting, at(0)), Due::Now(1));
    let soon = entry.reported.due(&waiting, at(60));
    assert_eq!(soon, Due::Later(Duration::from_mins(4)));
    assert_eq!(entry.reported.due(&waiting, at(400)), Due::Now(2));
    let late = note(Reason::LabelledTooLate, "late");
    assert_eq!(
        (
            entry.reported.due(&late, at(0)),
            entry.reported.due(&late, at(9999))
        ),
        (Due::Now(1), Due::Not)
    );
    let back = note(Reason::PlaceholderReturned, "back");
    assert_eq!(
        (entry.reported.due(&back, at(0)), entry.reported.due(&back, at(1))),
        (Due::Now(1), Due::Now(2))
    );
}

#[test]
fn words_that_keep_changing_are_told_now_and_then() {
    let mut entry = RunMemory::default();
    let waiting = |nodes: i64| note(Reason::WaitingForNode, &format!("0/{nodes}"));
    let told = (0..60).filter(|second| entry.reported.due(&waiting(*second), at(*second)) == Due::Now(1));
    assert_eq!(told.collect::<Vec<_>>(), [0, 20, 40]);
    assert_eq!(
        entry.reported.due(&waiting(99), at(50)),
        Due::Later(Duration::from_secs(10))
    );
    let other = note(Reason::WaitingForRoom, "other");
    assert_eq!(entry.reported.due(&other, at(50)), Due::Now(1));
}

#[test]
fn tasks_are_counted_once_a_second_and_the_pause_after_a_write_stays() {
    let mut entry = RunMemory::default();
    entry.backoff.on_success(&create(), at(0));
    assert_eq!(entry.backoff.pause(&Decision::Read(Read::Tasks), at(0)), None);
    let counted = |entry: &mut RunMemory, live, second| {
        entry.backoff.read(Read::Tasks, at(second));
        entry.counted(live, None, at(second))
    };
    let task_count = counted(&mut entry, 1, 0);
    assert_eq!((task_count.live, task_count.quiet_since), (1, None));
    assert_eq!(
        entry.backoff.pause(&Decision::Read(Read::Tasks), at(0)),
        Some(WATCH_DELAY)
    );
    assert_eq!(entry.backoff.pause(&create(), at(0)), Some(WATCH_DELAY));
    assert_eq!(entry.backoff.pause(&Decision::Read(Read::Tasks), at(1)), None);
    assert_eq!(counted(&mut entry, 0, 1).quiet_since, Some(at(1)));
}

#[tokio::test]
async fn the_answer_to_a_resize_concerns_one_pod_only() {
    let cases = [
        ("p1", Resize::Refused, Resize::Refused),
        ("p1", Resize::Accepted, Resize::Accepted),
        ("p2", Resize::Refused, Resize::Possible),
    ];
    for (uid, answer, expected) in cases {
        let (mut caches, memory) = (Caches::ready(), Memory::default());
        caches.add_pod(&run(), uid, Some("n1"));
        memory.with("u1", |entry| entry.recalled.resize = Some(("p1".into(), answer)));
        let clock = clock();
        let observed = caches.stores.observe(run(), &caches.config, &clock, &memory);
        let observed = observed.await.unwrap();
        assert_eq!(observed.pod.unwrap().shape.resize, expected, "{uid}");
    }
}

#[tokio::test]
async fn a_placeholder_that_the_controller_deleted_does_not_count_until_its_deletion_is_observed() {
    for (uid, deleting) in [("s1", true), ("s2", false)] {
        let (mut caches, memory) = (Caches::ready(), Memory::default());
        caches.add_set(&run(), "s1");
        memory.with("u1", |entry| entry.recalled.deleted = Some(uid.into()));
        let clock = clock();
        let observed = caches.stores.observe(run(), &caches.config, &clock, &memory);
        let observed = observed.await.unwrap();
        assert_eq!(observed.statefulset.unwrap().deleting, deleting, "{uid}");
    }
}

#[test]
fn a_task_that_ran_since_the_last_move_ends_the_pause_between_moves() {
    let mut entry = RunMemory::default();
    entry.counted(0, Some(at(5)), at(6));
    entry.moved_off(None, at(6));
    entry.moved_off(None, at(20));
    entry.counted(0, Some(at(5)), at(40));
    assert_eq!(entry.recalled.repeated.moves.count, 2, "no task ran");
    entry.counted(0, Some(at(41)), at(42));
    assert_eq!(
        (
            entry.recalled.repeated.moves.count,
            entry.recalled.repeated.moves.last
        ),
        (0, Some(at(20)))
    );
    entry.moved_off(None, at(43));
    entry.counted(0, Some(at(41)), at(44));
    assert_eq!(
        entry.recalled.repeated.moves.count, 1,
        "that task ran before this move"
    );
}

#[test]
fn each_move_counts_and_the_time_without_a_node_starts_with_the_first() {
    let mut entry = RunMemory::default();
    entry.moved_off(Some("p1".into()), at(0));
    entry.moved_off(None, at(20));
    assert_eq!(
        (
            entry.recalled.repeated.moves.count,
            entry.recalled.repeated.moves.last
        ),
        (2, Some(at(20)))
    );
    assert_eq!(entry.timers.nodeless(), Some((at(0), Some("p1".into()))));
}

#[test]
fn a_settled_run_leaves_nothing_behind() {
    let memory = Memory::default();
    memory.with("u1", |entry| entry.moved_off(None, at(0)));
    assert!(memory.forget("u1").unwrap().recalled.repeated.moves.count == 1);
    assert!(memory.forget("u1").is_none());
    assert!(memory.lock().is_empty());
}

/// What is remembered of a run without a placeholder.
fn recalled(memory: &Memory) -> Remembered {
    memory.recall(&run(), None, None, at(0)).0
}

#[test]
fn the_pauses_between_retries_begin_anew_when_the_placeholder_makes_room() {
    let memory = Memory::default();
    memory.with("u1", |entry| entry.retried("7".into(), at(0)));
    assert_eq!(recalled(&memory).repeated.retries.count, 1);
    memory.with("u1", |entry| entry.made_room(at(60)));
    assert_eq!(recalled(&memory).repeated.retries.count, 0);
}

#[test]
fn that_a_pods_affinity_was_relaxed_is_remembered_when_the_pod_is_bound() {
    let memory = Memory::default();
    assert!(!recalled(&memory).relaxed);
    memory.with("u1", RunMemory::relaxed);
    assert!(recalled(&memory).relaxed);
}
