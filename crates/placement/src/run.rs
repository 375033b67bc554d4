//! What the rules know of a PipelineRun: the few facts they read, already told apart.

use crate::keys;
use crate::names::RunKey;
use crate::volume;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Affinity, LocalObjectReference, NodeSelector, Toleration};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What `spec.status` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecStatus {
    /// Nothing: the run may start.
    Unset,
    /// Pending: somebody holds the run.
    Pending,
    /// Cancelled, stopped or anything else that is not ours to touch.
    Other(String),
}

impl SpecStatus {
    /// Reads the value of `spec.status`; absent and empty are the same to Tekton.
    pub fn of(value: Option<&str>) -> Self {
        match value {
            None | Some("") => Self::Unset,
            Some(keys::PENDING) => Self::Pending,
            Some(other) => Self::Other(other.to_owned()),
        }
    }
}

/// Whether `spec.managedBy` hands the run to another than Tekton.
pub fn is_managed_elsewhere(managed_by: Option<&str>) -> bool {
    managed_by.is_some_and(|manager| manager != keys::TEKTON_MANAGER)
}

/// Whether an owner reference makes a PipelineRun the controller: the mark of a nested run.
pub fn is_controlled_by_run(api_version: &str, kind: &str, controller: Option<bool>) -> bool {
    controller == Some(true) && kind == "PipelineRun" && api_version.starts_with("tekton.dev/")
}

/// A PipelineRun as far as the rules care.
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that vary one by one; the stages they make up are the plan's to tell"
)]
#[derive(Clone, Debug)]
pub struct Run {
    /// Which run.
    pub key: RunKey,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// When Tekton started it.
    pub started: Option<Timestamp>,
    /// It is being deleted.
    pub deleting: bool,
    /// Condition Succeeded is True or False.
    pub done: bool,
    /// It is True.
    pub succeeded: bool,
    /// `spec.status`.
    pub status: SpecStatus,
    /// `spec.managedBy` names another than Tekton.
    pub managed_elsewhere: bool,
    /// The controller owner is a PipelineRun.
    pub child: bool,
    /// The queue-name label of Kueue is there.
    pub queued_by_kueue: bool,
    /// Raw value of the opt-in label.
    pub opt_in: Option<String>,
    /// Raw value of the group label.
    pub group: Option<String>,
    /// Raw value of the strategy label.
    pub strategy: Option<String>,
    /// Raw value of the isolation label.
    pub isolation: Option<String>,
    /// Our hold annotation is there.
    pub hold: bool,
    /// When our hold began.
    pub held_from: HeldFrom,
    /// Raw value of the node annotation.
    pub node: Option<String>,
    /// Raw value of the reserve annotation.
    pub reserve: Option<String>,
    /// Raw value of the annotation of what its tasks asked for.
    pub used: Option<String>,
    /// Which Pipeline it runs, to be compared.
    pub pipeline: Option<u64>,
    /// The PR-level pod template.
    pub template: PodTemplate,
    /// Names of the claims that the run's workspaces name, in order, without duplicates.
    pub claims: Vec<String>,
    /// How many of its workspaces Tekton makes a claim for.
    pub templates: usize,
}

impl Run {
    /// It waits by our hold. A run that Kueue queues is Kueue's to release, also where our webhook came first and
    /// left its mark.
    pub fn is_held_by_us(&self) -> bool {
        self.status == SpecStatus::Pending && self.hold && !self.queued_by_kueue
    }

    /// Since when it waits by our hold, if it does and that is known.
    pub fn held_since(&self) -> Option<Timestamp> {
        match self.held_from {
            HeldFrom::Creation => self.created,
            HeldFrom::Release(time) => Some(time),
            HeldFrom::UndatedRelease => None,
        }
    }

    /// How much of a hold of this length is left. A run of which nobody knows since when counts as new: it has not been stored, or
    /// its clock cannot be trusted.
    pub(crate) fn left_of_hold(&self, now: Timestamp, span: Duration) -> Duration {
        self.held_since().map_or(span, |since| left(span, since, now))
    }

    /// How many affinity assistants Tekton makes for it: one for each PVC, by default.
    pub fn assistants(&self) -> usize {
        self.claims.len() + self.templates
    }

    /// Its labels make it a group of its own.
    pub fn is_enrolled(&self) -> bool {
        self.group.as_deref() == Some(self.key.uid.as_str())
    }
}

/// Value of the hold annotation as an admission policy writes it for a hold that begins after the creation, until the
/// controller has dated it.
pub(crate) const RELEASED: &str = "released";

/// What is left now of a time span that began then.
pub(crate) fn left(span: Duration, since: Timestamp, now: Timestamp) -> Duration {
    let passed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    span.saturating_sub(passed)
}

/// When our hold of a run began, as its annotation says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldFrom {
    /// With the run.
    #[default]
    Creation,
    /// When its first holder released it.
    Release(Timestamp),
    /// Likewise, by an admission policy: it has no clock, and the controller has yet to write the time down.
    UndatedRelease,
}

/// The value of the hold annotation.
impl fmt::Display for HeldFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Creation => f.write_str("true"),
            Self::Release(time) => write!(f, "{}", time.strftime("%Y-%m-%dT%H:%M:%SZ")),
            Self::UndatedRelease => f.write_str(RELEASED),
        }
    }
}

impl HeldFrom {
    /// By the value of the annotation.
    pub fn of(mark: Option<&str>) -> Self {
        match mark {
            Some(RELEASED) => Self::UndatedRelease,
            Some(mark) => mark.parse().map_or(Self::Creation, Self::Release),
            None => Self::Creation,
        }
    }
}

/// The part of a run's PR-level pod template that decides where its pods may run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodTemplate {
    /// Node selector.
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Affinity, without what is required of other pods on the node.
    pub affinity: Option<Affinity>,
    /// Scheduler.
    pub scheduler_name: Option<String>,
    /// Priority class.
    pub priority_class_name: Option<String>,
    /// Runtime class.
    pub runtime_class_name: Option<String>,
    /// ServiceAccount of the tasks. What is granted to it, as on OpenShift, is what the placeholder needs to be on the same
    /// nodes; it gets no token.
    pub service_account: Option<String>,
    /// Pull secrets.
    pub image_pull_secrets: Vec<LocalObjectReference>,
}

impl PodTemplate {
    /// To nodes that can use this volume.
    pub(crate) fn restrict_to(&mut self, volume: &NodeSelector) {
        let affinity = self.affinity.get_or_insert_default();
        volume::restrict(affinity.node_affinity.get_or_insert_default(), volume);
    }
}
