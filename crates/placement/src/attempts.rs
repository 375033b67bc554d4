//! Which runs of a namespace may try to get their placeholder's pod now.
//!
//! After a `ResourceQuota` rejected a placeholder, further attempts in the namespace fail as well until room comes. Each attempt
//! costs requests of the StatefulSet controller, whose client has few requests per second for the whole cluster. So only the two
//! oldest runs of the namespace try then; the other runs wait. Runs whose placeholder would be rejected even after another placeholder
//! ends come last.

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

/// How the API server rejected a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// Other objects use up the quota.
    Full,
    /// The placeholder requests more than the quota allows.
    TooLarge,
    /// Other objects use up a resource of the quota that only some placeholders request.
    OwnResource,
    /// No quota rejected the placeholder, but for example a policy.
    Other,
}

impl Rejection {
    fn is_by_quota(self) -> bool {
        match self {
            Self::Full | Self::TooLarge | Self::OwnResource => true,
            Self::Other => false,
        }
    }

    fn stays_with_room(self) -> bool {
        match self {
            Self::Full => false,
            Self::TooLarge | Self::OwnResource | Self::Other => true,
        }
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    name: String,
    rejection: Option<Rejection>,
}

impl Attempts {
    /// Adds a run. A rejection counts until the run has a pod.
    pub fn record(&mut self, run: Position, name: &str, rejection: Option<Rejection>) {
        let waiting = self.0.entry(run).or_insert_with(|| Waiting {
            name: name.to_owned(),
            rejection,
        });
        waiting.rejection = rejection.or(waiting.rejection);
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

    fn may_try(&self, (_, uid): &Position) -> bool {
        self.next().any(|(next, _)| next == uid)
    }

    /// Removes a run that has a pod or needs no pod. Returns the names of the runs that may try since then.
    pub fn remove(&mut self, run: &Position) -> Vec<String> {
        if self.0.contains_key(run) {
            self.forget(|uid| uid == run.1)
        } else {
            Vec::new()
        }
    }

    /// UID and name of the runs that may try now.
    pub fn next(&self) -> impl Iterator<Item = (&str, &str)> {
        let in_order = |is_last| {
            let runs = self.0.iter();
            runs.filter(move |(_, it)| it.rejection.is_some_and(Rejection::stays_with_room) == is_last)
        };
        let allowed = in_order(false).chain(in_order(true)).take(self.limit());
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
        self.rejections().any(Rejection::is_by_quota)
    }

    /// Whether other objects use up a quota that all placeholders need.
    pub fn is_full(&self) -> bool {
        self.rejections().any(|rejection| rejection == Rejection::Full)
    }

    fn rejections(&self) -> impl Iterator<Item = Rejection> {
        self.0.values().filter_map(|waiting| waiting.rejection)
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

    fn record(attempts: &mut Attempts, number: usize, rejection: Option<Rejection>) {
        attempts.record(position(number), &format!("run-{number}"), rejection);
    }

    fn waiting(count: usize) -> Attempts {
        let mut attempts = Attempts::default();
        (0..count).for_each(|run| record(&mut attempts, run, None));
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
        record(&mut attempts, 71, Some(Rejection::TooLarge));
        assert!(!attempts.is_full(), "other placeholders have room");
        record(&mut attempts, 70, Some(Rejection::Full));
        assert!(attempts.is_full());
        record(&mut attempts, 70, None);
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
        record(&mut attempts, 1, Some(Rejection::Full));
        assert_eq!(attempts.remove(&position(0)), ["run-2"]);
        assert!(attempts.remove(&position(30)).is_empty());
        let others = attempts.remove(&position(1));
        assert_eq!((others.len(), others[0].as_str()), (AT_ONCE - 1, "run-4"));
    }

    #[test]
    fn runs_that_more_room_does_not_help_block_no_other_run() {
        let mut attempts = waiting(4);
        record(&mut attempts, 0, Some(Rejection::Other));
        assert!(!attempts.is_rejected(), "no quota rejected a run");
        for rejection in [Rejection::TooLarge, Rejection::OwnResource] {
            record(&mut attempts, 1, Some(rejection));
            assert_eq!(names(&attempts), ["run-2", "run-3"]);
        }
        attempts.remove(&position(2));
        assert_eq!(names(&attempts), ["run-3", "run-0"]);
        record(&mut attempts, 0, Some(Rejection::Full));
        assert_eq!(names(&attempts), ["run-0", "run-3"], "the quota was raised");
    }

    #[test]
    fn a_deleted_run_blocks_no_other_run() {
        let mut attempts = waiting(3);
        record(&mut attempts, 0, Some(Rejection::Full));
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
            attempts.record((at(second), uid.to_owned()), uid, Some(Rejection::Full));
        }
        assert_eq!(names(&attempts), ["c", "b"]);
    }
}
