//! What the controller remembers of a run from one reconciliation to the next: nothing that a decision's safety
//! rests on.
//!
//! Losing it, as a new leader has, costs a repeated event or an early retry. There are entries for unsettled runs
//! only, so that thousands of done ones weigh nothing.

use crate::news::News;
use crate::pace::{Pace, later, until};
use crate::timers::Timers;
use jiff::Timestamp;
use placement::plan::{Census, Message, Observation, Question, Repeated, Resize};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A StatefulSet's controller makes the pod within this time unless something stops it.
const GRACE: Duration = Duration::from_secs(2);
const FIRST_NUDGE_PAUSE: Duration = Duration::from_secs(5);
const LAST_NUDGE_PAUSE: Duration = Duration::from_secs(30);
/// An autoscaler has answered by then.
const FIRST_QUESTION: Duration = Duration::from_secs(20);
/// The pause between two questions for an autoscaler's answer: each is a list of events.
const QUESTIONS: Duration = Duration::from_mins(5);

/// What is known of all unsettled runs, by UID.
#[derive(Default)]
pub(crate) struct Memory(Mutex<HashMap<String, Known>>);

/// What is known of one run, by concern.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) pace: Pace,
    pub(crate) news: News,
    pub(crate) timers: Timers,
    pub(crate) nudges: Nudges,
    pub(crate) autoscaler: Autoscaler,
    pub(crate) moves: Repeated,
    yields: Repeated,
    retries: Repeated,
    /// The last refusal by a quota that was looked into, and was dealt with or none of this run's.
    settled_refusal: Option<String>,
    census: Option<Census>,
    /// A pod of its group came that is marked as relaxed.
    relaxed: bool,
    /// UID of the placeholder's pod that the server does not resize.
    pub(crate) unshrinkable: Option<String>,
}

/// How often the placeholder's StatefulSet was nudged since it has been without a pod.
#[derive(Debug, Default)]
pub(crate) struct Nudges {
    count: u32,
    next: Option<Timestamp>,
}

/// What an autoscaler answered the placeholder's pod, and when to ask again.
#[derive(Debug, Default)]
pub(crate) struct Autoscaler {
    answer: Message,
    next: Option<Timestamp>,
}

impl Memory {
    /// Works on what is known of one run.
    pub(crate) fn with<R>(&self, uid: &str, work: impl FnOnce(&mut Known) -> R) -> R {
        let mut runs = self.lock();
        if let Some(known) = runs.get_mut(uid) {
            return work(known);
        }
        work(runs.entry(uid.to_owned()).or_default())
    }

    /// Reads what is known of one run, if anything is.
    pub(crate) fn peek<R>(&self, uid: &str, read: impl FnOnce(&Known) -> Option<R>) -> Option<R> {
        self.lock().get(uid).and_then(read)
    }

    /// Drops what is known of a run that is settled.
    pub(crate) fn forget(&self, uid: &str) -> Option<Known> {
        self.lock().remove(uid)
    }

    /// Drops what is known of runs that are gone.
    pub(crate) fn take(&self, is_gone: impl Fn(&str) -> bool) -> Vec<Known> {
        self.lock()
            .extract_if(|uid, _| is_gone(uid))
            .map(|(_, known)| known)
            .collect()
    }

    /// Adds to an observation what is remembered.
    pub(crate) fn recall(&self, seen: &mut Observation) {
        let uid = seen.run.key.uid.clone();
        if seen.run.is_held_by_us() && (lacks_pod(seen) || waits(seen)) {
            self.with(&uid, |known| known.recall(seen));
        } else if let Some(known) = self.lock().get_mut(&uid) {
            known.recall(seen);
        }
    }

    /// Keeps what the next decisions need of an answer.
    pub(crate) fn answered(&self, question: Question, seen: &mut Observation) {
        let uid = seen.run.key.uid.clone();
        self.with(&uid, |known| known.answered(question, seen));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A StatefulSet whose controller has tried, and has no pod.
fn lacks_pod(seen: &Observation) -> bool {
    let taken_up = seen.set.as_ref().is_some_and(|set| set.taken_up);
    taken_up && seen.pod.as_ref().is_none_or(|pod| pod.ending)
}

fn waits(seen: &Observation) -> bool {
    seen.pod.as_ref().is_some_and(|pod| pod.unschedulable.is_some())
}

impl Known {
    fn recall(&mut self, seen: &mut Observation) {
        seen.moves = self.moves;
        seen.yields = self.yields;
        seen.retries = self.retries;
        seen.relaxed = self.relaxed;
        if seen.refusal == self.settled_refusal {
            seen.refusal = None;
        }
        seen.nudge_in = self.nudges.pause(lacks_pod(seen), seen.now);
        if waits(seen) {
            seen.autoscaler = self.autoscaler.known(seen.now);
        }
        let unshrinkable = self.unshrinkable.as_deref();
        if let Some(pod) = seen.pod.as_mut().filter(|pod| unshrinkable == Some(&pod.uid)) {
            pod.shape.resize = Resize::Refused;
        }
    }

    fn answered(&mut self, question: Question, seen: &mut Observation) {
        self.pace.asked(question, seen.now);
        match question {
            Question::Tasks => seen.census = seen.census.map(|census| self.counted(census, seen.now)),
            Question::Refused => {
                if seen.refused.as_ref().is_some_and(Vec::is_empty) {
                    self.settled_refusal = seen.refusal.take();
                }
            }
            Question::Autoscaler => self.autoscaler.answered(seen.autoscaler.clone(), seen.now),
            Question::Claims
            | Question::Labels
            | Question::Need
            | Question::Places
            | Question::Stints
            | Question::Assistants
            | Question::Complaint => {}
        }
    }

    /// What follows from a count and the one before it.
    pub(crate) fn counted(&mut self, count: Census, now: Timestamp) -> Census {
        let census = Census::after(self.census, count.live, count.quiet_since, now);
        self.census = Some(census);
        census
    }

    /// A pod came whose affinity the webhook relaxed; it is bound, and no longer watched, a moment later.
    pub(crate) fn relaxed(&mut self) {
        self.relaxed = true;
    }

    /// The placeholder made room.
    pub(crate) fn made_room(&mut self, now: Timestamp) {
        self.yields = self.yields.and_one(now);
        self.retries = Repeated::default();
    }

    /// Tekton was told to try again after this refusal.
    pub(crate) fn retried(&mut self, refusal: Option<String>, now: Timestamp) {
        self.settled_refusal = refusal;
        self.retries = self.retries.and_one(now);
    }

    /// The run gave up its node.
    pub(crate) fn moved_off(&mut self, pod: Option<String>, now: Timestamp) {
        self.moves = self.moves.and_one(now);
        self.timers.moved_off(pod, now);
    }
}

impl Nudges {
    /// How long to wait before the next one; what came before counts only while the pod is lacking.
    pub(crate) fn pause(&mut self, lacks_pod: bool, now: Timestamp) -> Duration {
        if !lacks_pod {
            *self = Self::default();
            return Duration::ZERO;
        }
        let next = *self.next.get_or_insert_with(|| later(now, GRACE));
        until(next, now).unwrap_or_default()
    }

    /// One was sent; returns how long to wait before the next.
    pub(crate) fn sent(&mut self, now: Timestamp) -> Duration {
        let pause = FIRST_NUDGE_PAUSE
            .saturating_mul(1 << self.count.min(8))
            .min(LAST_NUDGE_PAUSE);
        self.count = self.count.saturating_add(1);
        self.next = Some(later(now, pause));
        pause
    }
}

impl Autoscaler {
    /// The last answer, unless it is time to ask. At first sight of a pod it cannot have answered.
    pub(crate) fn known(&mut self, now: Timestamp) -> Option<Message> {
        let next = *self.next.get_or_insert_with(|| later(now, FIRST_QUESTION));
        until(next, now).map(|_| self.answer.clone())
    }

    /// This was the answer.
    pub(crate) fn answered(&mut self, answer: Option<Message>, now: Timestamp) {
        self.answer = answer.unwrap_or_default();
        self.next = Some(later(now, QUESTIONS));
    }

    /// When to ask again.
    pub(crate) fn next_question(&self, now: Timestamp) -> Option<Duration> {
        until(self.next?, now)
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
