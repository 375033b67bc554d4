//! Whether a quota of StatefulSets has room for a placeholder. Tekton creates a StatefulSet for each PVC of a run, the
//! affinity assistants, and fails the run if a quota rejects one. A placeholder must not take their place in the quota.

use crate::coschedule::Coschedule;
use crate::names::PlaceholderName;
use crate::quantity::Quantity;
use crate::quota_room::scopes;
use crate::run::{Run, SpecStatus};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::time::Duration;

/// The resource that such a quota counts.
const RESOURCE: &str = "count/statefulsets.apps";

/// A StatefulSet that a run owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedStatefulSet {
    /// UID of the run.
    pub run: String,
    /// Name of the StatefulSet.
    pub name: String,
    /// UID of the StatefulSet.
    pub uid: String,
    /// The StatefulSet has the name of that run's placeholder.
    pub is_placeholder: bool,
    /// The StatefulSet is being deleted.
    pub deleting: bool,
}

/// Whether the quotas of a namespace have room for the StatefulSets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The quota without room for a placeholder, with its figures.
    pub short_of: Option<String>,
    /// The quota without room for the StatefulSets that Tekton creates when the run starts.
    pub shortage: Option<Shortage>,
}

/// A quota that has no room for the StatefulSets that Tekton creates for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The quota, with its figures.
    pub quota: String,
    /// What takes the room, if pod-affinity can change that.
    pub blocker: Option<QuotaBlocker>,
}

/// What takes the room of the StatefulSets that Tekton creates for a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaBlocker {
    /// Placeholders.
    Placeholders(Vec<OwnedStatefulSet>),
    /// StatefulSets that are deleted and that the quota still counts.
    DeletedStatefulSets,
}

/// How long after the start of a run Tekton may create its StatefulSets: Tekton creates them at the start, or a minute
/// later if it fetches the Pipeline first.
const CREATED_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// The runs and StatefulSets that take places in the quotas of a namespace, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// The run whose placeholder needs a place.
    pub run: &'a Run,
    /// [`Observation::keeps_placeholder`](crate::plan::Observation::keeps_placeholder) of the run.
    pub keeps_placeholder: bool,
    /// The other runs of the namespace that have a part in the quotas ([`Run::has_part_in_quotas`]).
    pub others: &'a [Run],
    /// The StatefulSets that exist.
    pub there: &'a [OwnedStatefulSet],
    /// The time of the decision.
    pub now: Timestamp,
    /// The longest time that a run is held.
    pub hold_deadline: Duration,
    /// Tekton's flag, which decides how many StatefulSets Tekton creates.
    pub coschedule: Coschedule,
}

impl Places<'_> {
    /// Whether the quotas have room for the StatefulSets of this run. `listed` is the number of StatefulSets in the
    /// namespace.
    pub fn quota(&self, quotas: &[ResourceQuota], listed: usize) -> Quota {
        Quota {
            short_of: self.short_of(quotas, listed),
            shortage: self.shortage(quotas, listed),
        }
    }

    /// The quota that has no room for a placeholder of this run, with its figures; `None` if the placeholder exists
    /// already, which the caches may lack.
    fn short_of(&self, quotas: &[ResourceQuota], listed: usize) -> Option<String> {
        if self.has_placeholder(self.run) {
            None
        } else {
            short_of(quotas, listed, self.needed())
        }
    }

    /// The number of places that must be free before a placeholder for this run is created: the placeholder itself, the
    /// StatefulSets that Tekton will create soon, and the StatefulSets of runs that have waited longer.
    fn needed(&self) -> i64 {
        let waiting = self
            .with_assistants()
            .filter(|other| !self.is_released_soon(other));
        let first = waiting.filter(|other| comes_first(other, self.run));
        let theirs = first.map(|other| 1 + self.missing_assistants(other));
        let soon = |other: &Run| self.is_released_soon(other);
        1 + self.expected_statefulsets(soon) + theirs.sum::<i64>()
    }

    /// The quota that has no room for the StatefulSets that Tekton creates if this run is released now.
    fn shortage(&self, quotas: &[ResourceQuota], listed: usize) -> Option<Shortage> {
        if self.missing_assistants(self.run) == 0 {
            return None;
        }
        let expected = self.expected_statefulsets(|other| self.is_released_now(other));
        let (quota, full) = first_short_of(quotas, listed, expected)?;
        Some(Shortage {
            quota: full.in_words(quota, expected),
            blocker: self.blocker(&full, listed, expected),
        })
    }

    /// The placeholders without which the quota has room, as far as there are any. `None` if the quota has too little
    /// room for this run without all placeholders.
    fn blocker(&self, full: &Count, listed: usize, expected: i64) -> Option<QuotaBlocker> {
        let deleting = self.there.iter().filter(|set| set.deleting).count();
        let staying = number(listed.saturating_sub(deleting));
        let mut placeholders: Vec<_> = self
            .there
            .iter()
            .filter(|set| set.is_placeholder && !set.deleting)
            .collect();
        placeholders.sort_by_key(|set| self.last_to_give_way(set));
        let is_full =
            |expected: i64, without: usize| full.hard + number(without) < staying + Quantity::of(expected);
        if is_full(self.missing_assistants(self.run), placeholders.len()) {
            return None;
        }
        let without = placeholders.into_iter().enumerate();
        let blocking = without.take_while(|(number, _)| is_full(expected, *number));
        let blocking: Vec<_> = blocking.map(|(_, set)| set.clone()).collect();
        if !blocking.is_empty() {
            Some(QuotaBlocker::Placeholders(blocking))
        } else if full.used > staying {
            Some(QuotaBlocker::DeletedStatefulSets)
        } else {
            None
        }
    }

    /// Placeholders with lower values are deleted first. A running run loses its node, and a held run the node that the run would
    /// get. The run itself loses nothing if its placeholder has no node.
    fn last_to_give_way(&self, placeholder: &OwnedStatefulSet) -> u8 {
        let is_of = |other: &&Run| other.key.uid == placeholder.run;
        match self.others.iter().find(is_of) {
            _ if placeholder.run == self.run.key.uid => {
                if self.keeps_placeholder {
                    3
                } else {
                    1
                }
            }
            Some(other) if other.is_held_by_us() => 4,
            Some(_) => 2,
            None => 0,
        }
    }

    /// The other runs for which Tekton creates StatefulSets.
    fn with_assistants(&self) -> impl Iterator<Item = &Run> {
        self.others
            .iter()
            .filter(|other| other.assistants(self.coschedule) > 0)
    }

    fn started_long_ago(&self, run: &Run) -> bool {
        run.started
            .is_some_and(|time| self.now.duration_since(time) > CREATED_WITHIN)
    }

    /// True as well if the hold of the run is over.
    fn is_released_now(&self, run: &Run) -> bool {
        run.status != SpecStatus::Pending || run.is_held_by_us() && self.is_hold_over(run)
    }

    /// True as well if the run is already released.
    fn is_released_soon(&self, run: &Run) -> bool {
        self.has_placeholder(run) || !run.is_held_by_us() || self.is_hold_over(run)
    }

    fn is_hold_over(&self, run: &Run) -> bool {
        run.is_hold_over(self.now, self.hold_deadline)
    }

    fn has_placeholder(&self, run: &Run) -> bool {
        self.statefulsets_of(run).any(|set| set.is_placeholder)
    }

    /// The number of StatefulSets that Tekton will create soon: for this run, and for these other runs.
    fn expected_statefulsets(&self, counts: impl Fn(&Run) -> bool) -> i64 {
        let others = self
            .with_assistants()
            .filter(|other| !self.started_long_ago(other));
        let others = others.filter(|other| counts(other));
        self.missing_assistants(self.run) + others.map(|other| self.missing_assistants(other)).sum::<i64>()
    }

    /// The number of assistants of this run that do not exist yet.
    fn missing_assistants(&self, run: &Run) -> i64 {
        let assistants = run.assistants(self.coschedule);
        let missing_assistants = assistants.saturating_sub(self.existing_assistants(run));
        i64::try_from(missing_assistants).unwrap_or(i64::MAX)
    }

    /// The number of assistants of this run that exist.
    fn existing_assistants(&self, run: &Run) -> usize {
        self.statefulsets_of(run)
            .filter(|set| !set.is_placeholder)
            .count()
    }

    fn statefulsets_of(&self, run: &Run) -> impl Iterator<Item = &OwnedStatefulSet> {
        self.there.iter().filter(|set| set.run == run.key.uid)
    }
}

/// The first of these quotas with fewer free places than needed, as a text with its figures. `listed` is the number of
/// StatefulSets in the namespace.
fn short_of(quotas: &[ResourceQuota], listed: usize, needed: i64) -> Option<String> {
    let (quota, count) = first_short_of(quotas, listed, needed)?;
    Some(count.in_words(quota, needed))
}

fn first_short_of(quotas: &[ResourceQuota], listed: usize, needed: i64) -> Option<(&ResourceQuota, Count)> {
    let mut counts = quotas
        .iter()
        .filter_map(|quota| Some((quota, Count::from_quota(quota, listed)?)));
    counts.find(|(_, count)| count.has_fewer_free_than(needed))
}

impl OwnedStatefulSet {
    /// Reads the metadata of a StatefulSet; `None` if no run owns it.
    pub fn from_metadata(metadata: &ObjectMeta) -> Option<Self> {
        let mut owners = metadata.owner_references.iter().flatten();
        let run = owners.find(|owner| owner.kind == "PipelineRun")?;
        let name = metadata.name.clone()?;
        Some(Self {
            is_placeholder: PlaceholderName::of_uid(&run.uid).as_str() == name,
            run: run.uid.clone(),
            uid: metadata.uid.clone()?,
            deleting: metadata.deletion_timestamp.is_some(),
            name,
        })
    }
}

/// Usage and limit, if the quota counts StatefulSets.
pub fn count(quota: &ResourceQuota) -> Option<String> {
    Some(format!("{} of {}", used(quota), limit(quota)?))
}

/// Whether any of these quotas counts StatefulSets.
pub fn are_counted(quotas: &[ResourceQuota]) -> bool {
    quotas.iter().any(|quota| limit(quota).is_some())
}

/// The StatefulSets in a quota: the limit and the usage.
struct Count {
    hard: Quantity,
    used: Quantity,
}

impl Count {
    /// The status of a quota may be older than the `listed` StatefulSets. The API server compares with the status, and
    /// therefore accepts a StatefulSet for which the quota has no room.
    fn from_quota(quota: &ResourceQuota, listed: usize) -> Option<Self> {
        Some(Self {
            hard: limit(quota)?,
            used: used(quota).max(number(listed)),
        })
    }

    fn has_fewer_free_than(&self, needed: i64) -> bool {
        self.hard < self.used + Quantity::of(needed)
    }

    fn in_words(&self, quota: &ResourceQuota, needed: i64) -> String {
        let Self { hard, used } = self;
        let name = quota.metadata.name.as_deref().unwrap_or_default();
        format!("ResourceQuota {name} ({RESOURCE}: {used} of {hard} used, {needed} needed)")
    }
}

/// The lower limit of spec and status, because the status may be older. A quota with scopes counts no StatefulSets.
fn limit(quota: &ResourceQuota) -> Option<Quantity> {
    let spec = quota.spec.as_ref();
    if spec.is_some_and(|spec| scopes(spec).next().is_some()) {
        return None;
    }
    let spec = spec.and_then(|spec| spec.hard.as_ref());
    let status = quota.status.as_ref().and_then(|status| status.hard.as_ref());
    [spec, status].into_iter().flatten().filter_map(amount).min()
}

fn used(quota: &ResourceQuota) -> Quantity {
    let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
    used.and_then(amount).unwrap_or_default()
}

fn amount(amounts: &BTreeMap<String, Text>) -> Option<Quantity> {
    amounts.get(RESOURCE)?.0.parse().ok()
}

fn number(statefulsets: usize) -> Quantity {
    Quantity::of(i64::try_from(statefulsets).unwrap_or(i64::MAX))
}

/// A fixed order of the waiting runs, so that two runs never wait for each other.
fn comes_first(one: &Run, other: &Run) -> bool {
    (one.created, &one.key.uid) < (other.created, &other.key.uid)
}

#[cfg(test)]
mod tests;
