//! Whether a quota of StatefulSets has room for a placeholder. Tekton makes one for each PVC of a run, its affinity assistants, and
//! fails the run if one is refused: a placeholder must not take the place of any.

use crate::names::RunKey;
use crate::quantity::Quantity;
use crate::resources::Resources;
use crate::run::Run;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceQuota;

/// What such a quota counts.
const COUNTED: &str = "count/statefulsets.apps";

/// A StatefulSet that a run owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// UID of the run.
    pub run: String,
    /// Its own name.
    pub name: String,
}

/// Tekton makes its StatefulSets when it starts a run, or a minute later if it has to fetch the Pipeline first. Where it has not by
/// then, it makes none (`coschedule: disabled`).
const MADE_BY: SignedDuration = SignedDuration::from_mins(2);

/// How many places have to be free for a placeholder of this run: its own, and those that Tekton has yet to take for this run and
/// for others of the namespace that are released soon.
pub fn needed(run: &Run, others: &[Run], there: &[Owned], now: Timestamp) -> i64 {
    let started_long_ago = |other: &&Run| {
        other
            .started
            .is_some_and(|time| now.duration_since(time) > MADE_BY)
    };
    let (old, new): (Vec<_>, Vec<_>) = others.iter().partition(started_long_ago);
    if old.iter().any(|other| assistants(other, there) == 0) {
        return 1;
    }
    let others = new.into_iter().map(|other| match other {
        _ if has_placeholder(&other.key, there) || !other.is_held_by_us() => lacking(other, there),
        _ if comes_first(other, run) => 1 + lacking(other, there),
        _ => 0,
    });
    1 + lacking(run, there) + others.sum::<i64>()
}

/// The first of these quotas that has fewer free, in words.
pub fn short_of(quotas: &[ResourceQuota], needed: i64) -> Option<String> {
    let counts = quotas.iter().filter_map(|quota| Some((quota, Count::of(quota)?)));
    let mut short = counts.filter(|(_, count)| count.hard < count.used + Quantity::of(needed));
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
}

/// Among runs that wait for each other's places, one must be first.
fn comes_first(one: &Run, other: &Run) -> bool {
    (one.created, &one.key.uid) < (other.created, &other.key.uid)
}

fn has_placeholder(run: &RunKey, there: &[Owned]) -> bool {
    let name = run.placeholder();
    of(run, there).any(|set| set.name == name.as_str())
}

/// Tekton's own for this run that are not there yet.
fn lacking(run: &Run, there: &[Owned]) -> i64 {
    let lacking = run.assistants().saturating_sub(assistants(run, there));
    i64::try_from(lacking).unwrap_or(i64::MAX)
}

/// Those that are.
fn assistants(run: &Run, there: &[Owned]) -> usize {
    let name = run.key.placeholder();
    of(&run.key, there)
        .filter(|set| set.name != name.as_str())
        .count()
}

fn of<'a>(run: &'a RunKey, there: &'a [Owned]) -> impl Iterator<Item = &'a Owned> {
    there.iter().filter(|set| set.run == run.uid)
}

#[cfg(test)]
mod tests;
