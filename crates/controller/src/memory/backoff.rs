//! The backoff of each run: the pause after a failure, and the pause until the watch has delivered the result of a write.
//!
//! kube's controller does not pass the number of attempts to an error policy, so this module counts the attempts for each run.
//! The counts may be lost: a new leader retries a little earlier.

use jiff::Timestamp;
use placement::plan::{Decision, Read};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// After a write, the watch needs a moment to deliver the changed object; until then the plan may want the same write again. The
/// same pause separates two reads of one group of inputs.
pub(crate) const WATCH_DELAY: Duration = Duration::from_secs(1);
const FIRST: Duration = Duration::from_millis(400);
const LAST: Duration = Duration::from_secs(30);

/// The attempts to reconcile one run.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
    retry_after: Duration,
    blocked: Option<(Decision, Timestamp)>,
    last: Option<(Decision, Timestamp)>,
    read: HashMap<Read, Timestamp>,
}

impl Backoff {
    /// The pause before the decision may be carried out. A failed decision waits even if a trigger reconciles the run meanwhile; a
    /// different decision does not wait.
    pub(crate) fn pause(&self, decision: &Decision, now: Timestamp) -> Option<Duration> {
        let blocked = self.blocked.as_ref().filter(|(blocked, _)| blocked == decision);
        let block = blocked.and_then(|(_, end)| until(*end, now));
        self.watch_delay(decision, now).max(block)
    }

    /// Assistants and quotas are read before every attempt: a move back may follow at once, and other runs use the room in a quota.
    fn watch_delay(&self, decision: &Decision, now: Timestamp) -> Option<Duration> {
        let last = self.last.as_ref().filter(|(last, _)| last == decision);
        let at = match decision {
            Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(Read::Assistants | Read::Quota) => None,
            Decision::Read(read) => self.read.get(read),
            Decision::Act(_) => last.map(|(_, at)| at),
        };
        until(later(*at?, WATCH_DELAY), now)
    }

    /// Records that a decision was carried out.
    pub(crate) fn on_success(&mut self, decision: &Decision, now: Timestamp) {
        (self.failures, self.blocked) = (0, None);
        self.last = Some((decision.clone(), now));
    }

    /// Records a read of a group of inputs. The pause after the last write stays, because a read changes no object.
    pub(crate) fn read(&mut self, read: Read, now: Timestamp) {
        self.read.insert(read, now);
    }

    /// Records a failure before the decision.
    pub(crate) fn count_failure(&mut self, uid: &str) {
        self.failures = self.failures.saturating_add(1);
        self.retry_after = delay(uid, self.failures);
    }

    /// Records that a decision failed or was overtaken. Returns the pause before the retry.
    pub(crate) fn failed(&mut self, uid: &str, decision: &Decision, now: Timestamp) -> Duration {
        self.count_failure(uid);
        self.read.clear();
        self.blocked = Some((decision.clone(), later(now, self.retry_after)));
        self.retry_after
    }

    /// Whether the last write failed.
    pub(crate) fn write_failed(&self) -> bool {
        matches!(self.blocked, Some((Decision::Act(_), _)))
    }

    /// The pause before the retry after the last failure.
    pub(crate) fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

pub(crate) fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The time from `now` until `then`; `None` if `then` has passed.
pub(crate) fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    let left = Duration::try_from(then.duration_since(now)).ok();
    left.filter(|left| !left.is_zero())
}

/// The pause after this number of consecutive failures: between half of a ceiling and the ceiling, which doubles from 0.4 s to
/// 30 s. The UID determines the jitter, so that runs that failed together do not retry together.
pub(crate) fn delay(uid: &str, failures: u32) -> Duration {
    with_jitter(ceiling(failures), spread(uid, failures))
}

fn ceiling(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LAST)
}

fn with_jitter(ceiling: Duration, spread: u16) -> Duration {
    let half = ceiling / 2;
    half + half * u32::from(spread) / u32::from(u16::MAX)
}

fn spread(uid: &str, failures: u32) -> u16 {
    let mut hasher = DefaultHasher::new();
    (uid, failures).hash(&mut hasher);
    let [low, high, ..] = hasher.finish().to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_comes_after_200_to_400_milliseconds() {
        for uid in ["a", "b", "c", ""] {
            let delay = delay(uid, 1);
            assert!((200..=400).contains(&delay.as_millis()), "{delay:?}");
        }
    }

    #[test]
    fn waits_grow_and_never_leave_their_bounds() {
        for failures in [0, 1, 2, 8, 40, u32::MAX] {
            let delay = delay("a", failures);
            assert!(delay >= FIRST / 2 && delay <= LAST, "{failures}: {delay:?}");
        }
        assert!(delay("a", 4) > delay("a", 1));
        assert!(delay("a", 99) >= LAST / 2);
    }

    #[test]
    fn the_ceiling_doubles() {
        let millis: Vec<_> = (1..=8).map(|failures| ceiling(failures).as_millis()).collect();
        assert_eq!(millis, [400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
    }

    #[test]
    fn runs_that_failed_together_are_spread() {
        let delays: std::collections::HashSet<_> =
            (0..100).map(|run| delay(&format!("uid-{run}"), 7)).collect();
        assert!(delays.len() > 90, "{}", delays.len());
    }

    #[test]
    fn the_spread_reaches_both_ends() {
        assert_eq!(with_jitter(LAST, 0), LAST / 2);
        assert_eq!(with_jitter(LAST, u16::MAX), LAST);
    }
}
