//! Whether a quota of StatefulSets has room for a placeholder. Tekton makes one for each PVC of a run, its affinity assistants, and
//! fails the run if one is refused: a placeholder must not take the place of any.

use crate::quantity::Quantity;
use crate::resources::Resources;
use crate::run::Run;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceQuota;
use std::time::Duration;

/// What such a quota counts.
const COUNTED: &str = "count/statefulsets.apps";

/// A StatefulSet that a run owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// UID of the run.
    pub run: String,
    /// Its own name.
    pub name: String,
    /// Its own UID.
    pub uid: String,
    /// It has the name of that run's placeholder.
    pub is_placeholder: bool,
}

/// What keeps Tekton from making its StatefulSets for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InTheWay {
    /// The placeholder of another run.
    Placeholder {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// A StatefulSet that is gone, and that the quota still counts.
    Gone,
}

/// Tekton makes its StatefulSets when it starts a run, or a minute later if it has to fetch the Pipeline first. Where it has not by
/// then, it makes none (`coschedule: disabled`).
const MADE_BY: SignedDuration = SignedDuration::from_mins(2);

/// Who takes places in a namespace, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The run that needs some.
    pub run: &'a Run,
    /// The others for which Tekton makes StatefulSets.
    pub others: &'a [Run],
    /// Those that are there.
    pub there: &'a [Owned],
    /// The time.
    pub now: Timestamp,
    /// How long a run is held.
    pub hold_deadline: Duration,
}

impl Places<'_> {
    /// How many have to be free for a placeholder of this run: its own, those that Tekton has yet to take, and those of runs that
    /// wait for longer.
    pub fn needed(&self) -> i64 {
        if self.are_never_made() {
            return 1;
        }
        let waiting = self.others.iter().filter(|other| !self.is_released_soon(other));
        let first = waiting.filter(|other| comes_first(other, self.run));
        let theirs = first.map(|other| 1 + self.lacking(other));
        1 + self.expected() + theirs.sum::<i64>()
    }

    /// What we can do something about if a quota has no room for what Tekton has yet to make for this run, of so many StatefulSets
    /// in the namespace. A run that is held looks for a node, and for room for its own.
    pub fn in_the_way(&self, quotas: &[ResourceQuota], listed: usize) -> Option<InTheWay> {
        if self.lacking(self.run) == 0 || self.are_never_made() {
            return None;
        }
        let mut counts = quotas.iter().filter_map(Count::of);
        let full = counts.find(|count| count.has_less_than(self.expected()))?;
        if full.used > Quantity::of(i64::try_from(listed).unwrap_or(i64::MAX)) {
            return Some(InTheWay::Gone);
        }
        let mut placeholders = self.there.iter().filter(|set| set.is_placeholder);
        let placeholder = placeholders.find(|set| !self.is_of_held(set))?;
        Some(InTheWay::Placeholder {
            name: placeholder.name.clone(),
            uid: placeholder.uid.clone(),
        })
    }

    /// It made none for another that it started long ago.
    fn are_never_made(&self) -> bool {
        let mut old = self.others.iter().filter(|other| self.started_long_ago(other));
        old.any(|other| self.assistants(other) == 0)
    }

    fn started_long_ago(&self, run: &Run) -> bool {
        run.started
            .is_some_and(|time| self.now.duration_since(time) > MADE_BY)
    }

    /// Or was it already.
    fn is_released_soon(&self, run: &Run) -> bool {
        self.has_placeholder(run) || !run.is_held_by_us() || self.is_hold_over(run)
    }

    fn is_hold_over(&self, run: &Run) -> bool {
        run.left_of_hold(self.now, self.hold_deadline).is_zero()
    }

    fn is_of_held(&self, set: &Owned) -> bool {
        let mut others = self.others.iter();
        others.any(|other| other.key.uid == set.run && other.is_held_by_us())
    }

    fn has_placeholder(&self, run: &Run) -> bool {
        self.of(run).any(|set| set.is_placeholder)
    }

    /// Those that Tekton has yet to make: for this run, and for others that are released soon.
    fn expected(&self) -> i64 {
        let others = self.others.iter().filter(|other| !self.started_long_ago(other));
        let others = others.filter(|other| self.is_released_soon(other));
        self.lacking(self.run) + others.map(|other| self.lacking(other)).sum::<i64>()
    }

    /// Tekton's own for this run that are not there yet.
    fn lacking(&self, run: &Run) -> i64 {
        let lacking = run.assistants().saturating_sub(self.assistants(run));
        i64::try_from(lacking).unwrap_or(i64::MAX)
    }

    /// Those that are.
    fn assistants(&self, run: &Run) -> usize {
        self.of(run).filter(|set| !set.is_placeholder).count()
    }

    fn of(&self, run: &Run) -> impl Iterator<Item = &Owned> {
        self.there.iter().filter(|set| set.run == run.key.uid)
    }
}

/// The first of these quotas that has fewer free, in words.
pub fn short_of(quotas: &[ResourceQuota], needed: i64) -> Option<String> {
    let counts = quotas.iter().filter_map(|quota| Some((quota, Count::of(quota)?)));
    let mut short = counts.filter(|(_, count)| count.has_less_than(needed));
    short.next().map(|(quota, Count { hard, used })| {
        let name = quota.metadata.name.as_deref().unwrap_or_default();
        format!("ResourceQuota {name} ({COUNTED}: {used} of {hard} used, {needed} needed)")
    })
}

/// Whether any of these quotas counts StatefulSets.
pub fn are_counted(quotas: &[ResourceQuota]) -> bool {
    quotas.iter().any(|quota| Count::of(quota).is_some())
}

/// StatefulSets, as a quota counts them.
struct Count {
    hard: Quantity,
    used: Quantity,
}

impl Count {
    fn of(quota: &ResourceQuota) -> Option<Self> {
        let (hard, used) = Resources::of_quota(quota);
        let (_, hard) = hard.iter().find(|(name, _)| *name == COUNTED)?;
        let used = used.get(COUNTED);
        Some(Self { hard, used })
    }

    fn has_less_than(&self, needed: i64) -> bool {
        self.hard < self.used + Quantity::of(needed)
    }
}

/// Among runs that wait for each other's places, one must be first.
fn comes_first(one: &Run, other: &Run) -> bool {
    (one.created, &one.key.uid) < (other.created, &other.key.uid)
}

#[cfg(test)]
mod tests;
