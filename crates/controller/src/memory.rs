//! What the controller remembers of a run between two looks at it: nothing that a decision's safety rests on.
//!
//! Losing it, as a new leader has, costs a repeated event or an early retry. Entries exist for unsettled runs only,
//! so that thousands of done ones weigh nothing.

use crate::backoff;
use crate::notes::Note;
use crate::reason::Repeat;
use jiff::Timestamp;
use placement::plan::{Action, Census, LetGos};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After a write, the watch needs a moment to bring it back; until then the plan may ask for it again.
const ECHO: Duration = Duration::from_secs(1);
/// A StatefulSet's controller makes the pod within this time unless something stops it.
const GRACE: Duration = Duration::from_secs(2);
const FIRST_NUDGE_PAUSE: Duration = Duration::from_secs(5);
const LAST_NUDGE_PAUSE: Duration = Duration::from_secs(30);
/// Different notes remembered of one run: a scheduler's message changes with every node that comes or goes.
const REMEMBERED: usize = 16;

/// Notes of all unsettled runs, by UID.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Known>>);

/// Notes of one run.
#[derive(Debug, Default)]
pub(crate) struct Known {
    failures: u32,
    retry_after: Duration,
    blocked: Option<(Action, Timestamp)>,
    last: Option<(Action, Timestamp)>,
    nudges: u32,
    next_nudge: Option<Timestamp>,
    told: Vec<Told>,
    /// When its placeholder was asked for, until it has a node.
    pub(crate) asked: Option<Timestamp>,
    /// Since when it is held by us, as far as was seen.
    pub(crate) held: Option<Timestamp>,
    /// How often it gave up its node.
    pub(crate) let_gos: LetGos,
    /// Since when it has been without a node, and the UID of the pod that gave it up.
    pub(crate) nodeless: Option<(Timestamp, Option<String>)>,
    census: Option<Census>,
    counted: Option<Timestamp>,
    unshrinkable: Option<String>,
}

#[derive(Debug)]
struct Told {
    note: u64,
    at: Timestamp,
    count: i32,
}

impl Memory {
    /// Works on the notes of one run.
    pub(crate) fn with<R>(&self, uid: &str, work: impl FnOnce(&mut Known) -> R) -> R {
        let mut runs = self.lock();
        if let Some(known) = runs.get_mut(uid) {
            return work(known);
        }
        work(runs.entry(uid.to_owned()).or_default())
    }

    /// Looks at the notes of one run, if there are any.
    pub(crate) fn peek(&self, uid: &str, look: impl FnOnce(&Known)) {
        if let Some(known) = self.lock().get(uid) {
            look(known);
        }
    }

    /// Drops the notes of a run that is settled.
    pub(crate) fn forget(&self, uid: &str) -> Option<Known> {
        self.lock().remove(uid)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// How long this step should wait, if it should not be taken right now.
    pub(crate) fn pause(&mut self, action: &Action, now: Timestamp) -> Option<Duration> {
        let pace = self.pace(action, now);
        pace.max(self.block(action, now))
    }

    fn pace(&mut self, action: &Action, now: Timestamp) -> Option<Duration> {
        if *action != Action::NudgePlaceholder {
            (self.nudges, self.next_nudge) = (0, None);
            return self.echo(action, now);
        }
        let next = *self.next_nudge.get_or_insert_with(|| later(now, GRACE));
        until(next, now)
    }

    /// A step that failed waits, whatever else wakes its run meanwhile; another step does not.
    fn block(&self, action: &Action, now: Timestamp) -> Option<Duration> {
        let (_, end) = self.blocked.as_ref().filter(|(blocked, _)| blocked == action)?;
        until(*end, now)
    }

    /// A count is no write and leaves the echo of the last one alone; whatever wakes a run, once a second is enough.
    fn echo(&self, action: &Action, now: Timestamp) -> Option<Duration> {
        if *action == Action::CountPods {
            return until(later(self.counted?, ECHO), now);
        }
        let (_, at) = self.last.as_ref().filter(|(last, _)| last == action)?;
        until(later(*at, ECHO), now)
    }

    /// Notes that a step was taken.
    pub(crate) fn took(&mut self, action: &Action, now: Timestamp) {
        (self.failures, self.blocked) = (0, None);
        if *action == Action::NudgePlaceholder {
            let pause = FIRST_NUDGE_PAUSE
                .saturating_mul(1 << self.nudges.min(8))
                .min(LAST_NUDGE_PAUSE);
            self.nudges = self.nudges.saturating_add(1);
            self.next_nudge = Some(later(now, pause));
        }
        self.last = Some((action.clone(), now));
    }

    /// Notes that the run gave up its node, and which pod was there.
    pub(crate) fn let_go(&mut self, pod: Option<String>, now: Timestamp) {
        self.let_gos = self.let_gos.and_one(now);
        self.nodeless.get_or_insert((now, pod));
    }

    /// Notes what was counted, and tells what follows from it and the count before.
    pub(crate) fn counted(&mut self, live: usize, ended: Option<Timestamp>, now: Timestamp) -> Census {
        let census = Census::after(self.census, live, ended, now);
        (self.census, self.counted) = (Some(census), Some(now));
        census
    }

    /// Notes that the pod of this UID cannot be made smaller in place.
    pub(crate) fn refused_resize(&mut self, pod: String) {
        self.unshrinkable = Some(pod);
    }

    /// Whether that was found of this very pod.
    pub(crate) fn is_resize_refused(&self, pod: &str) -> bool {
        self.unshrinkable.as_deref() == Some(pod)
    }

    /// Notes that a look failed before it came to a step.
    pub(crate) fn stumbled(&mut self, uid: &str) {
        self.failures = self.failures.saturating_add(1);
        self.retry_after = backoff::delay(uid, self.failures);
    }

    /// Notes that a step failed, or was overtaken, and says when to try again.
    pub(crate) fn failed(&mut self, uid: &str, action: &Action, now: Timestamp) -> Duration {
        self.stumbled(uid);
        self.blocked = Some((action.clone(), later(now, self.retry_after)));
        self.retry_after
    }

    /// When to try again after the last failure.
    pub(crate) fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Whether to tell this now, and the how manieth time it is.
    pub(crate) fn tell(&mut self, note: &Note, now: Timestamp) -> Option<i32> {
        let id = id(note);
        let told = self.told.iter_mut().find(|told| told.note == id);
        let Some(told) = told else {
            self.told.truncate(REMEMBERED - 1);
            self.told.insert(
                0,
                Told {
                    note: id,
                    at: now,
                    count: 1,
                },
            );
            return Some(1);
        };
        let due = match note.reason.repeat() {
            Repeat::Always => true,
            Repeat::Never => false,
            Repeat::Every(pause) => until(later(told.at, pause), now).is_none(),
        };
        due.then(|| {
            (told.at, told.count) = (now, told.count.saturating_add(1));
            told.count
        })
    }
}

fn id(note: &Note) -> u64 {
    let mut hasher = DefaultHasher::new();
    note.hash(&mut hasher);
    hasher.finish()
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The time from now until then; `None` if it has passed.
fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(then.duration_since(now))
        .ok()
        .filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(known.tell(&waiting, at(0)), Some(1));
        assert_eq!(known.tell(&waiting, at(60)), None);
        assert_eq!(known.tell(&note(Reason::WaitingForNode, "0/4"), at(61)), Some(1));
        assert_eq!(known.tell(&waiting, at(400)), Some(2));
        let late = note(Reason::LabelledTooLate, "late");
        assert_eq!(
            (known.tell(&late, at(0)), known.tell(&late, at(9999))),
            (Some(1), None)
        );
        let back = note(Reason::PlaceholderReturned, "back");
        assert_eq!(
            (known.tell(&back, at(0)), known.tell(&back, at(1))),
            (Some(1), Some(2))
        );
    }

    #[test]
    fn of_many_different_notes_only_the_newest_are_remembered() {
        let mut known = Known::default();
        for nodes in 0..100 {
            known.tell(&note(Reason::WaitingForNode, &nodes.to_string()), at(0));
        }
        assert_eq!(known.told.len(), REMEMBERED);
        assert_eq!(known.tell(&note(Reason::WaitingForNode, "99"), at(1)), None);
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
}
