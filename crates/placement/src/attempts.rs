//! Which runs of a namespace may try to get their placeholder's pod now.
//!
//! After a `ResourceQuota` rejected a placeholder, further attempts in the namespace fail as well until room comes. Each attempt
//! costs requests of the StatefulSet controller, whose client has few requests per second for the whole cluster. So only the two
//! oldest runs of the namespace try then; the other runs wait.

use crate::caps::OverCap;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The most runs of a namespace whose placeholders lack a pod at the same time. The StatefulSet controller with its default client
/// limits creates four pods per second, so more placeholders would only queue there.
const AT_ONCE: usize = 32;
/// The most runs of a namespace that try while a quota rejects placeholders.
const AFTER_REJECTION: usize = 2;

/// The order of runs: by creation time, then by UID.
pub type Position = (Option<Timestamp>, String);

/// The runs of one namespace whose placeholder lacks a pod, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Attempts(BTreeMap<Position, Waiting>);

/// Whether a run may have a placeholder now, or try to get its placeholder's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The run may try.
    Now,
    /// Older runs come first.
    Later(Before),
}

/// Why older runs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Their placeholders get their pods first, because many runs of the namespace start at the same time.
    Starting,
    /// They try first, because a quota rejected the placeholder of one of them.
    Rejected,
    /// They wait for a node of the same kind, and no autoscaler adds one.
    Waiting {
        /// The number of older runs of the kind.
        ahead: usize,
    },
    /// Other runs use up a cap.
    OverCap(OverCap),
}

#[derive(Clone, Debug)]
struct Waiting {
    name: String,
    is_rejected: bool,
}

impl Attempts {
    /// Adds a run. `is_rejected` says that a quota rejected the placeholder, which counts until the run has a pod.
    pub fn record(&mut self, run: Position, name: &str, is_rejected: bool) {
        let waiting = self.0.entry(run).or_insert_with(|| Waiting {
            name: name.to_owned(),
            is_rejected,
        });
        waiting.is_rejected |= is_rejected;
    }

    /// Whether it is the run's turn.
    pub fn turn(&self, run: &Position) -> Turn {
        if self.may_try(run) {
            Turn::Now
        } else {
            Turn::Later(if self.is_rejected() {
                Before::Rejected
            } else {
                Before::Starting
            })
        }
    }

    fn may_try(&self, run: &Position) -> bool {
        self.0.keys().take(self.limit()).any(|position| position == run)
    }

    /// Removes a run that has a pod or needs no pod. Returns the names of the runs that may try since then.
    pub fn remove(&mut self, run: &Position) -> Vec<String> {
        let before = if self.may_try(run) {
            self.limit() - 1
        } else {
            self.limit()
        };
        if self.0.remove(run).is_none() {
            return Vec::new();
        }
        let others = self.next().skip(before);
        others.map(|(_, name)| name.to_owned()).collect()
    }

    /// UID and name of the runs that may try now.
    pub fn next(&self) -> impl Iterator<Item = (&str, &str)> {
        let allowed = self.0.iter().take(self.limit());
        allowed.map(|((_, uid), waiting)| (uid.as_str(), waiting.name.as_str()))
    }

    /// Removes runs that were deleted. Returns the names of the runs that may try since then.
    pub fn forget(&mut self, is_gone: impl Fn(&str) -> bool) -> Vec<String> {
        let before: Vec<_> = self.next().map(|(uid, _)| uid.to_owned()).collect();
        self.0.retain(|(_, uid), _| !is_gone(uid));
        let since = self.next().filter(|(uid, _)| !before.iter().any(|it| it == uid));
        since.map(|(_, name)| name.to_owned()).collect()
    }

    /// Whether a quota rejected the placeholder of one of the runs.
    pub fn is_rejected(&self) -> bool {
        self.0.values().any(|waiting| waiting.is_rejected)
    }

    /// Whether each run has its pod.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn limit(&self) -> usize {
        if self.is_rejected() {
            AFTER_REJECTION
        } else {
            AT_ONCE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: usize) -> Position {
        (None, format!("{number:03}"))
    }

    fn record(attempts: &mut Attempts, number: usize, is_rejected: bool) {
        attempts.record(position(number), &format!("run-{number}"), is_rejected);
    }

    fn waiting(count: usize) -> Attempts {
        let mut attempts = Attempts::default();
        (0..count).for_each(|run| record(&mut attempts, run, false));
        attempts
    }

    fn trying(attempts: &Attempts) -> usize {
        (0..100).filter(|run| attempts.may_try(&position(*run))).count()
    }

    fn names(attempts: &Attempts) -> Vec<&str> {
        attempts.next().map(|(_, name)| name).collect()
    }

    #[test]
    fn runs_try_in_parallel_until_a_quota_rejects_one_of_them() {
        let mut attempts = waiting(100);
        assert_eq!((trying(&attempts), attempts.is_rejected()), (AT_ONCE, false));
        record(&mut attempts, 70, true);
        record(&mut attempts, 70, false);
        assert_eq!(
            (trying(&attempts), attempts.is_rejected()),
            (AFTER_REJECTION, true)
        );
        assert_eq!(names(&attempts), ["run-0", "run-1"]);
        assert_eq!(attempts.turn(&position(1)), Turn::Now);
        assert_eq!(attempts.turn(&position(2)), Turn::Later(Before::Rejected));
    }

    #[test]
    fn the_next_run_may_try_when_an_older_run_has_its_pod() {
        let mut attempts = waiting(40);
        assert_eq!(attempts.remove(&position(3)), ["run-32"]);
        assert!(
            attempts.remove(&position(3)).is_empty(),
            "the run was removed before"
        );
        assert!(attempts.remove(&position(39)).is_empty(), "the run did not try");
        record(&mut attempts, 1, true);
        assert_eq!(attempts.remove(&position(0)), ["run-2"]);
        assert!(attempts.remove(&position(30)).is_empty());
        let others = attempts.remove(&position(1));
        assert_eq!((others.len(), others[0].as_str()), (AT_ONCE - 1, "run-4"));
    }

    #[test]
    fn a_deleted_run_blocks_no_other_run() {
        let mut attempts = waiting(3);
        record(&mut attempts, 0, true);
        assert_eq!(attempts.forget(|uid| uid == "000"), ["run-2"]);
        assert!(attempts.may_try(&position(2)) && !attempts.is_empty());
        attempts.forget(|_| true);
        assert!(attempts.is_empty());
    }

    #[test]
    fn an_older_run_comes_before_a_run_with_a_smaller_uid() {
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        let mut attempts = Attempts::default();
        for (second, uid) in [(4, "a"), (3, "b"), (2, "c")] {
            attempts.record((at(second), uid.to_owned()), uid, true);
        }
        assert_eq!(names(&attempts), ["c", "b"]);
    }
}
