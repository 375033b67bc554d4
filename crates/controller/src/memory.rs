//! What the controller remembers of a run between two looks at it: nothing that a decision's safety rests on.
//!
//! Losing it, as a new leader has, costs a repeated event or an early retry. Entries exist for unsettled runs only,
//! so that thousands of done ones weigh nothing.

use crate::backoff;
use crate::notes::Note;
use crate::reason::{Reason, Repeat};
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
/// The pause between two notes of one reason about a state that lasts, however often its words change. An autoscaler has
/// had time to answer by then.
const NEWS: Duration = Duration::from_secs(20);
/// The pause between two looks for an autoscaler's answer: each is a list of events.
const QUESTIONS: Duration = Duration::from_mins(5);
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
    next_question: Option<Timestamp>,
    /// What an autoscaler said to the placeholder when it was asked last.
    pub(crate) autoscaler: Option<String>,
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
    reason: Reason,
    note: u64,
    at: Timestamp,
    count: i32,
}

/// Whether a note is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// It is, for the how manieth time.
    Now(i32),
    /// It is news, but too soon after the last news of its reason.
    Later(Duration),
    /// It is known.
    Not,
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

    /// Whether to tell this now.
    pub(crate) fn tell(&mut self, note: &Note, now: Timestamp) -> Telling {
        let (id, repeat) = (id(note), note.reason.repeat());
        let Some(told) = self.told.iter_mut().find(|told| told.note == id) else {
            return self.tell_news(note.reason, id, now);
        };
        let is_due = match repeat {
            Repeat::Always => true,
            Repeat::Never => false,
            Repeat::Every(pause) => until(later(told.at, pause), now).is_none(),
        };
        if !is_due {
            return Telling::Not;
        }
        (told.at, told.count) = (now, told.count.saturating_add(1));
        Telling::Now(told.count)
    }

    fn tell_news(&mut self, reason: Reason, note: u64, now: Timestamp) -> Telling {
        if let Some(left) = self.quiet(reason, now) {
            return Telling::Later(left);
        }
        let (at, count) = (now, 1);
        self.told.truncate(REMEMBERED - 1);
        self.told.insert(
            0,
            Told {
                reason,
                note,
                at,
                count,
            },
        );
        Telling::Now(count)
    }

    /// A scheduler's message changes with every node that comes or goes; the latest words are told when it is time.
    fn quiet(&self, reason: Reason, now: Timestamp) -> Option<Duration> {
        let Repeat::Every(_) = reason.repeat() else {
            return None;
        };
        let told = self.told.iter().filter(|told| told.reason == reason);
        until(later(told.map(|told| told.at).max()?, NEWS), now)
    }

    /// Whether it is time to ask an autoscaler, which cannot have answered at first sight of a pod.
    pub(crate) fn is_time_to_ask(&mut self, now: Timestamp) -> bool {
        let next = *self.next_question.get_or_insert_with(|| later(now, NEWS));
        let is_time = until(next, now).is_none();
        if is_time {
            self.next_question = Some(later(now, QUESTIONS));
        }
        is_time
    }

    /// When to ask again.
    pub(crate) fn next_question(&self, now: Timestamp) -> Option<Duration> {
        until(self.next_question?, now)
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
#[path = "memory_tests.rs"]
mod tests;
