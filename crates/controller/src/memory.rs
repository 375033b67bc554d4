//! What the controller remembers of a run from one reconciliation to the next: nothing that a decision's safety
//! rests on.
//!
//! Losing it, as a new leader has, costs a repeated event or an early retry. There are entries for unsettled runs
//! only, so that thousands of done ones weigh nothing.

use crate::news::News;
use crate::observe::{Recall, Remembered};
use crate::pace::{Pace, later, until};
use crate::timers::Timers;
use jiff::Timestamp;
use placement::plan::{Census, Inputs, Placeholder, PlaceholderPod, Repeated};
use placement::run::Run;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A StatefulSet's controller makes the pod within this time unless something stops it.
const GRACE: Duration = Duration::from_secs(2);
const FIRST_NUDGE_PAUSE: Duration = Duration::from_secs(5);
const LAST_NUDGE_PAUSE: Duration = Duration::from_secs(30);
/// By then, an autoscaler has emitted an event about an unschedulable pod.
const FIRST_READ: Duration = Duration::from_secs(20);
/// The pause between two reads of an autoscaler's events: each lists events.
const NEXT_READ: Duration = Duration::from_mins(5);

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

/// The latest event of an autoscaler about the placeholder's pod, and when to read the events again.
#[derive(Debug, Default)]
pub(crate) struct Autoscaler {
    answer: Option<String>,
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

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recall for Memory {
    fn recall(
        &self,
        run: &Run,
        set: Option<&Placeholder>,
        pod: Option<&PlaceholderPod>,
        now: Timestamp,
    ) -> Remembered {
        let waits = pod.is_some_and(|pod| pod.unschedulable.is_some());
        let lacks_pod = lacks_pod(set, pod);
        let recall = |known: &mut Known| known.recall(lacks_pod, waits, now);
        if run.is_held_by_us() && (lacks_pod || waits) {
            return self.with(&run.key.uid, recall);
        }
        let mut runs = self.lock();
        runs.get_mut(&run.key.uid).map(recall).unwrap_or_default()
    }
}

/// The StatefulSet controller has tried to create the pod, and there is none.
fn lacks_pod(set: Option<&Placeholder>, pod: Option<&PlaceholderPod>) -> bool {
    set.is_some_and(|set| set.observed) && pod.is_none_or(|pod| pod.ending)
}

impl Known {
    fn recall(&mut self, lacks_pod: bool, waits: bool, now: Timestamp) -> Remembered {
        Remembered {
            moves: self.moves,
            yields: self.yields,
            retries: self.retries,
            relaxed: self.relaxed,
            settled_refusal: self.settled_refusal.clone(),
            nudge_in: self.nudges.pause(lacks_pod, now),
            inputs: if waits {
                self.autoscaler.inputs(now)
            } else {
                Inputs::default()
            },
            unshrinkable: self.unshrinkable.clone(),
        }
    }

    /// The rejection concerned another run.
    pub(crate) fn settled(&mut self, refusal: Option<String>) {
        self.settled_refusal = refusal;
    }

    /// What follows from a count and the one before it.
    pub(crate) fn counted(&mut self, live: usize, ended: Option<Timestamp>, now: Timestamp) -> Census {
        let census = Census::after(self.census, live, ended, now);
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
    pub(crate) fn retried(&mut self, refusal: String, now: Timestamp) {
        self.settled_refusal = Some(refusal);
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
    /// The latest answer, unless it is time to read the next. No autoscaler has answered a pod that was just created.
    fn inputs(&mut self, now: Timestamp) -> Inputs {
        let next = *self.next.get_or_insert_with(|| later(now, FIRST_READ));
        let mut inputs = Inputs::default();
        if until(next, now).is_some() {
            inputs.autoscaler = self.answer.clone().into();
        }
        inputs
    }

    /// The controller read this answer.
    pub(crate) fn answered(&mut self, answer: Option<String>, now: Timestamp) {
        self.answer = answer;
        self.next = Some(later(now, NEXT_READ));
    }

    /// When to read the next answer.
    pub(crate) fn next_read(&self, now: Timestamp) -> Option<Duration> {
        until(self.next?, now)
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
