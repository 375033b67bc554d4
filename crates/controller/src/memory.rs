//! What the controller remembers of a run between two reconciliations. The safety of a decision does not depend on the memory.
//!
//! A new leader starts with an empty memory, which costs a repeated event or an early retry. Only unsettled runs have entries, so
//! that thousands of finished runs use no memory.

use crate::observe::{Recall, Remembered};
use crate::turns::Turns;
use jiff::Timestamp;
use placement::plan::{Placeholder, PlaceholderPod, Progress, Repeated, TaskCount};
use placement::run::Run;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) mod backoff;
pub(crate) mod deduplicator;
pub(crate) mod timers;

use backoff::{Backoff, later, until};
use deduplicator::EventDeduplicator;
use timers::Timers;

/// The StatefulSet controller creates the pod within this time, unless an error prevents that.
const GRACE: Duration = Duration::from_secs(2);
const FIRST_REQUEUE_PAUSE: Duration = Duration::from_secs(5);
const LAST_REQUEUE_PAUSE: Duration = Duration::from_secs(30);

/// The memory of all unsettled runs.
pub(crate) struct Memory {
    /// By UID.
    runs: Mutex<HashMap<String, RunMemory>>,
    pub(crate) turns: Turns,
}

/// The memory of one run.
#[derive(Debug, Default)]
pub(crate) struct RunMemory {
    pub(crate) backoff: Backoff,
    pub(crate) reported: EventDeduplicator,
    pub(crate) timers: Timers,
    pub(crate) requeues: Requeues,
    /// What the next observation recalls.
    pub(crate) recalled: Remembered,
    progress: Progress,
    /// The controller released the run, or the answer to the release is lost. The cache may still show the run as held.
    pub(crate) released: bool,
    /// The last rejection for which no rejected task was found.
    looked_for: Option<String>,
}

/// How often the controller requeued the placeholder's StatefulSet while the pod is missing, and when the next requeue is due.
#[derive(Debug, Default)]
pub(crate) struct Requeues {
    count: u32,
    next: Option<Timestamp>,
}

impl Memory {
    /// An empty memory.
    pub(crate) fn new(turns: Turns) -> Self {
        Self {
            runs: Mutex::default(),
            turns,
        }
    }

    /// Changes the memory of one run. Creates an empty entry if the run has none.
    pub(crate) fn with<R>(&self, uid: &str, work: impl FnOnce(&mut RunMemory) -> R) -> R {
        let mut runs = self.lock();
        if let Some(entry) = runs.get_mut(uid) {
            return work(entry);
        }
        work(runs.entry(uid.to_owned()).or_default())
    }

    /// Reads the memory of one run, if the run has an entry.
    pub(crate) fn peek<R>(&self, uid: &str, read: impl FnOnce(&RunMemory) -> Option<R>) -> Option<R> {
        self.lock().get(uid).and_then(read)
    }

    /// Removes the memory of a settled run.
    pub(crate) fn forget(&self, uid: &str) -> Option<RunMemory> {
        self.lock().remove(uid)
    }

    /// Removes the memory of deleted runs.
    pub(crate) fn take(&self, is_gone: impl Fn(&str) -> bool) -> Vec<RunMemory> {
        self.lock()
            .extract_if(|uid, _| is_gone(uid))
            .map(|(_, entry)| entry)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RunMemory>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recall for Memory {
    fn recall(
        &self,
        run: &Run,
        set: Option<&Placeholder>,
        pod: Option<&PlaceholderPod>,
        now: Timestamp,
    ) -> (Remembered, Duration) {
        let lacks_pod = lacks_pod(set, pod);
        let recall = |entry: &mut RunMemory| entry.recall(lacks_pod, now);
        if run.is_held_by_us() && lacks_pod {
            return self.with(&run.key.uid, recall);
        }
        let mut runs = self.lock();
        runs.get_mut(&run.key.uid).map(recall).unwrap_or_default()
    }
}

/// The StatefulSet controller has observed the StatefulSet, but the pod is missing or ending.
fn lacks_pod(set: Option<&Placeholder>, pod: Option<&PlaceholderPod>) -> bool {
    set.is_some_and(|set| set.observed) && pod.is_none_or(|pod| pod.ending)
}

impl RunMemory {
    fn recall(&mut self, lacks_pod: bool, now: Timestamp) -> (Remembered, Duration) {
        (self.recalled.clone(), self.requeues.pause(lacks_pod, now))
    }

    /// Records that no task of the run has the condition of this rejection. The second time, the rejection is settled.
    pub(crate) fn found_no_rejected_task(&mut self, rejection: Option<String>) {
        if self.looked_for == rejection {
            self.recalled.settled_rejection = rejection;
        } else {
            self.looked_for = rejection;
        }
    }

    /// Records a count of tasks. Returns the count with the time of the previous one.
    pub(crate) fn counted(&mut self, live: usize, ended: Option<Timestamp>, now: Timestamp) -> TaskCount {
        let moves = &mut self.recalled.repeated.moves;
        self.progress.counted(moves, live, ended, now)
    }

    /// Records a pod whose affinity the webhook relaxed. The pod leaves the cache as soon as it is bound.
    pub(crate) fn relaxed(&mut self) {
        self.recalled.relaxed = true;
    }

    /// Records that the placeholder made room.
    pub(crate) fn made_room(&mut self, now: Timestamp) {
        let repeated = &mut self.recalled.repeated;
        repeated.yields = repeated.yields.incremented(now);
        repeated.retries = Repeated::default();
    }

    /// Records that the controller requeued the run's TaskRuns after this rejection.
    pub(crate) fn retried(&mut self, rejection: String, now: Timestamp) {
        self.recalled.settled_rejection = Some(rejection);
        let repeated = &mut self.recalled.repeated;
        repeated.retries = repeated.retries.incremented(now);
    }

    /// Records that the run gave up its node.
    pub(crate) fn moved_off(&mut self, pod: Option<String>, now: Timestamp) {
        self.progress.moved_off(&mut self.recalled.repeated.moves, now);
        self.timers.moved_off(pod, now);
    }
}

impl Requeues {
    /// The pause before the next requeue. The count starts again at zero when the pod exists.
    pub(crate) fn pause(&mut self, lacks_pod: bool, now: Timestamp) -> Duration {
        if !lacks_pod {
            *self = Self::default();
            return Duration::ZERO;
        }
        let next = *self.next.get_or_insert_with(|| later(now, GRACE));
        until(next, now).unwrap_or_default()
    }

    /// Records a requeue. Returns the pause before the next requeue. `turn` can move the requeue to a later time.
    pub(crate) fn sent(&mut self, now: Timestamp, turn: impl FnOnce(Timestamp) -> Timestamp) -> Duration {
        let pause = FIRST_REQUEUE_PAUSE
            .saturating_mul(1 << self.count.min(8))
            .min(LAST_REQUEUE_PAUSE);
        self.count = self.count.saturating_add(1);
        let next = turn(later(now, pause));
        self.next = Some(next);
        until(next, now).unwrap_or_default()
    }

    /// Ends the pause, because the reason of the last rejection may have ended.
    pub(crate) fn end_pause(&mut self) {
        self.next = self.next.map(|_| Timestamp::MIN);
    }
}

#[cfg(test)]
mod tests;
