//! The fields of a PipelineRun that the rules read.

use crate::coschedule::Coschedule;
use crate::keys;
use crate::names::RunKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, NodeSelector, Toleration};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The value of `spec.status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecStatus {
    /// Absent or empty: the run may start.
    Unset,
    /// Pending: Tekton does not start the run.
    Pending,
    /// Cancelled, stopped or another value, which pod-affinity never changes.
    Other(String),
}

impl SpecStatus {
    /// Parses `spec.status`. Tekton treats an absent and an empty value alike.
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            None | Some("") => Self::Unset,
            Some(keys::PENDING) => Self::Pending,
            Some(other) => Self::Other(other.to_owned()),
        }
    }
}

/// Whether `spec.managedBy` names a controller other than Tekton.
pub fn is_managed_elsewhere(managed_by: Option<&str>) -> bool {
    managed_by.is_some_and(|manager| manager != keys::TEKTON_MANAGER)
}

/// Whether an owner reference marks a nested run. The controller of a nested run is a PipelineRun, or a custom task of a run whose
/// group the nested run is in: controllers of custom tasks copy the labels of the custom task, which has those of its run.
pub fn is_controlled_by_run(
    api_version: &str,
    kind: &str,
    controller: Option<bool>,
    is_in_group_of_other: bool,
) -> bool {
    let is_run = match kind {
        "PipelineRun" => true,
        "CustomRun" | "Run" => is_in_group_of_other,
        _ => false,
    };
    is_run && controller == Some(true) && api_version.starts_with("tekton.dev/")
}

/// The fields of a PipelineRun that the rules read.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts; the plan derives the stage of the run from them"
)]
#[derive(Clone, Debug)]
pub struct Run {
    /// Namespace, name and UID.
    pub key: RunKey,
    /// When the run was created.
    pub created: Option<Timestamp>,
    /// When Tekton started the run.
    pub started: Option<Timestamp>,
    /// The run is being deleted.
    pub deleting: bool,
    /// The condition Succeeded is True or False.
    pub done: bool,
    /// The condition Succeeded is True.
    pub succeeded: bool,
    /// `spec.status`.
    pub status: SpecStatus,
    /// `spec.managedBy` names a controller other than Tekton.
    pub managed_elsewhere: bool,
    /// The controller owner is a PipelineRun.
    pub child: bool,
    /// The run has the queue-name label of Kueue.
    pub queued_by_kueue: bool,
    /// Raw value of the opt-in label.
    pub opt_in: Option<String>,
    /// Raw value of the group label.
    pub group: Option<String>,
    /// Raw value of the strategy label.
    pub strategy: Option<String>,
    /// Raw value of the isolation label.
    pub isolation: Option<String>,
    /// The run has the hold annotation of pod-affinity.
    pub hold: bool,
    /// When the hold of pod-affinity began.
    pub held_from: HeldFrom,
    /// Raw value of the node annotation.
    pub node: Option<String>,
    /// Raw value of the reserve annotation.
    pub reserve: Option<String>,
    /// Raw value of the annotation `used`.
    pub used: Option<String>,
    /// Raw value of the annotation `warm`.
    pub warm: Option<String>,
    /// Raw value of the annotation `keep-node-for`.
    pub keep_node_for: Option<String>,
    /// Raw value of the annotation `pull-images`.
    pub pull_images: Option<String>,
    /// A hash that identifies the Pipeline of the run.
    pub pipeline: Option<u64>,
    /// The pod template of the run.
    pub template: PodTemplate,
    /// The name of a field that is ignored, because the field is over a limit.
    pub over_limit: Option<&'static str>,
    /// The PVCs that the run's workspaces name, in order, without duplicates.
    pub claims: Vec<String>,
    /// The number of further names of PVCs, which contain parameters.
    pub other_claims: usize,
    /// The number of workspaces for which Tekton creates a PVC.
    pub templates: usize,
    /// `taskRunSpecs` gives a task the opt-in label with the value `false`.
    pub opted_out_tasks: bool,
}

impl Run {
    /// pod-affinity holds the run. A run that Kueue queues is released by Kueue, even if the webhook of pod-affinity
    /// added the hold annotation first.
    pub fn is_held_by_us(&self) -> bool {
        self.status == SpecStatus::Pending && self.hold && !self.queued_by_kueue
    }

    /// When the hold of pod-affinity began, if that is known. The time in which a cap had no room for the run does not count.
    ///
    /// A user may have written the time: see `hold_remaining`.
    pub fn held_since(&self) -> Option<Timestamp> {
        match self.held_from {
            HeldFrom::Creation => self.created,
            HeldFrom::Release(time) => Some(time),
            HeldFrom::UndatedRelease | HeldFrom::OverCap => None,
        }
    }

    /// The remaining time of a hold of this length. A hold without a known beginning counts as new: the run is not
    /// stored yet, or the hold has no date yet. A hold that begins in the future counts from the creation of the run.
    pub(crate) fn hold_remaining(&self, now: Timestamp, span: Duration) -> Duration {
        let since = self.held_since();
        let is_possible = |since: &Timestamp| since.duration_since(now) <= CLOCK_DIFFERENCE;
        let since = since.filter(is_possible).or(since.and(self.created));
        since.map_or(span, |since| remaining(span, since, now))
    }

    /// The number of affinity assistants that Tekton creates for the run.
    pub fn assistants(&self, coschedule: Coschedule) -> usize {
        match coschedule {
            Coschedule::Workspaces => self.claims.len() + self.other_claims + self.templates,
            Coschedule::PipelineRuns | Coschedule::IsolatePipelineRun => 1,
            Coschedule::Disabled => 0,
        }
    }

    /// The run has a part in the quotas of its namespace: Tekton creates StatefulSets for the run, or will as soon as pod-affinity or
    /// Kueue releases the run. A run that its user holds, or for which a cap has no room, is held again before it starts.
    pub fn has_part_in_quotas(&self) -> bool {
        let is_held = self.is_held_by_us() && self.held_from != HeldFrom::OverCap;
        let starts_without_us = self.status != SpecStatus::Pending || self.queued_by_kueue;
        !self.done && !self.deleting && (is_held || self.is_enrolled() && starts_without_us)
    }

    /// The hold has lasted as long as the configuration allows.
    pub fn is_hold_over(&self, now: Timestamp, hold_deadline: Duration) -> bool {
        self.hold_remaining(now, hold_deadline).is_zero()
    }

    /// The labels of the run make the run a group.
    pub fn is_enrolled(&self) -> bool {
        self.group.as_deref() == Some(self.key.uid.as_str())
    }
}

/// The most that the clocks of two API servers differ.
const CLOCK_DIFFERENCE: SignedDuration = SignedDuration::from_mins(1);

/// Value of the hold annotation that an admission policy writes for a hold that begins after the creation. The
/// controller replaces the value by the time.
pub(crate) const RELEASED: &str = "released";

/// Value of the hold annotation while a cap has no room for the run.
const OVER_CAP: &str = "over-cap";

/// The remaining time of a span that began at `since`.
pub(crate) fn remaining(span: Duration, since: Timestamp, now: Timestamp) -> Duration {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span.saturating_sub(passed)
}

/// When the hold of pod-affinity began, by the hold annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldFrom {
    /// At the creation of the run.
    #[default]
    Creation,
    /// At this time, when the user or another controller released the run.
    Release(Timestamp),
    /// After the creation, at an unknown time: an admission policy added the hold and has no clock. The controller
    /// writes the time next.
    UndatedRelease,
    /// The hold has not begun: a cap has no room for the run.
    OverCap,
}

/// Formats the value of the hold annotation.
impl fmt::Display for HeldFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creation => f.write_str("true"),
            Self::Release(time) => write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Self::UndatedRelease => f.write_str(RELEASED),
            Self::OverCap => f.write_str(OVER_CAP),
        }
    }
}

impl HeldFrom {
    /// Parses the value of the hold annotation.
    pub fn parse(mark: Option<&str>) -> Self {
        match mark {
            Some(RELEASED) => Self::UndatedRelease,
            Some(OVER_CAP) => Self::OverCap,
            Some(mark) => mark.parse().map_or(Self::Creation, Self::Release),
            None => Self::Creation,
        }
    }
}

/// The part of a run's pod template that decides where the run's pods may be scheduled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodTemplate {
    /// Node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Affinity, without the required podAffinity.
    pub affinity: Option<Affinity>,
    /// Scheduler.
    pub scheduler_name: Option<String>,
    /// Priority class.
    pub priority_class_name: Option<String>,
    /// Runtime class.
    pub runtime_class_name: Option<String>,
    /// ServiceAccount of the tasks. The placeholder needs the rights of this account to be admitted on the same nodes,
    /// for example on OpenShift. The placeholder gets no token of the account.
    pub service_account: Option<String>,
    /// Pull secrets.
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

impl PodTemplate {
    /// Sets the nodes that the pods require.
    pub(crate) fn require(&mut self, nodes: NodeSelector) {
        let affinity = self.affinity.get_or_insert_default();
        let affinity = affinity.node_affinity.get_or_insert_default();
        affinity.required_during_scheduling_ignored_during_execution = Some(nodes);
    }
}
