//! The view of a PipelineRun of `tekton.dev/v1`, and its conversion to the `Run` of the rules.
//!
//! Only v1 is read: the API server converts runs that were created as v1beta1. Decoding reduces each run to the facts that
//! `placement` needs, so that the pages of a long list are small from the start.

use crate::facts::{Outcome, Template, Volumes};
use crate::{facts, metadata, tolerant};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use placement::bounded::STRING;
use placement::keys;
use placement::names::RunKey;
use placement::reserve::AUTOMATIC;
use placement::run::{HeldFrom, Run, SpecStatus, is_controlled_by_run, is_managed_elsewhere};
use placement::strategy::Strategy;
use placement::text::shortened;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most bytes of PVC names and of the pod template that the cache keeps of a run. A run then has at most 10 KB in the cache.
const CACHED: usize = 3 << 10;
/// The most bytes of a value that the rules only compare with known values.
const COMPARED: usize = 64;

/// A read-only view of a PipelineRun, which must not be written back.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PipelineRun {
    /// Object metadata.
    #[serde(deserialize_with = "metadata::read")]
    pub metadata: ObjectMeta,
    /// What the user asks for.
    #[serde(deserialize_with = "tolerant::object")]
    pub spec: PipelineRunSpec,
    /// What Tekton reports.
    #[serde(deserialize_with = "tolerant::object")]
    pub status: PipelineRunStatus,
    /// Whether the run had the opt-in label before pruning, which may drop the label.
    #[serde(skip)]
    pub labelled: bool,
}

/// The part of a run's spec that the rules read; a malformed field counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PipelineRunSpec {
    /// `status`.
    #[serde(deserialize_with = "facts::lenient")]
    pub status: Option<String>,
    /// `managedBy`.
    #[serde(deserialize_with = "facts::lenient")]
    pub managed_by: Option<String>,
    /// The part of `taskRunTemplate` that decides where pods may run.
    #[serde(rename = "taskRunTemplate", deserialize_with = "facts::template")]
    pub template: Template,
    /// The PVCs in `workspaces`.
    #[serde(rename = "workspaces", deserialize_with = "facts::volumes")]
    pub volumes: Volumes,
    /// A hash of the Pipeline in `pipelineRef`, for comparisons; for a run with an embedded Pipeline, a hash of `generateName`.
    #[serde(rename = "pipelineRef", deserialize_with = "facts::pipeline")]
    pub pipeline: Option<u64>,
    /// Whether `taskRunSpecs` gives a task the opt-in label with the value `false`.
    #[serde(rename = "taskRunSpecs", deserialize_with = "facts::opted_out")]
    pub opted_out_tasks: bool,
}

/// The part of a run's status that the rules read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PipelineRunStatus {
    /// Condition Succeeded.
    #[serde(rename = "conditions", deserialize_with = "facts::outcome")]
    pub outcome: Outcome,
    /// `startTime`.
    #[serde(rename = "startTime", deserialize_with = "facts::lenient")]
    pub started: Option<Time>,
}

impl PipelineRunSpec {
    /// The name of a field that is ignored, because the field is over a limit.
    fn over_limit(&self) -> Option<&'static str> {
        self.template.over_limit.or(self.volumes.over_limit)
    }

    /// Shortens values, and drops PVCs and the template if a cached run would be too large with them.
    fn prune_to_limit(&mut self) {
        for compared in [&mut self.status, &mut self.managed_by].into_iter().flatten() {
            *compared = shortened(compared, COMPARED).into_owned();
        }
        let claims = self.volumes.claims.iter();
        let claims: usize = claims.map(|claim| size_of::<String>() + claim.len()).sum();
        let left = CACHED.checked_sub(claims);
        if left.is_none() {
            self.volumes.claims = Vec::new();
            self.volumes.over_limit = Some("workspaces");
        }
        self.volumes.claims.shrink_to_fit();
        let json = self.template.json.as_deref().unwrap_or_default();
        if json.len() > left.unwrap_or(CACHED) {
            self.template.json = None;
            self.template.over_limit = Some("podTemplate");
        }
    }
}

impl PipelineRun {
    /// The key of the run; `None` without namespace, name or UID. Objects from the API server have all three.
    pub fn key(&self) -> Option<RunKey> {
        metadata::key(&self.metadata)
    }

    /// Converts the view to the input of the rules; `None` without a key.
    pub fn run(&self) -> Option<Run> {
        Some(Run {
            key: self.key()?,
            created: self.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: self.metadata.deletion_timestamp.is_some(),
            started: self.status.started.as_ref().map(|time| time.0),
            done: self.status.outcome != Outcome::Open,
            succeeded: self.status.outcome == Outcome::Succeeded,
            status: SpecStatus::parse(self.spec.status.as_deref()),
            managed_elsewhere: is_managed_elsewhere(self.spec.managed_by.as_deref()),
            child: self.is_nested(),
            queued_by_kueue: self.label(keys::KUEUE_QUEUE_NAME).is_some(),
            opt_in: self.label(keys::OPT_IN),
            group: self.label(keys::GROUP),
            strategy: self.label(keys::STRATEGY),
            isolation: self.label(keys::ISOLATION),
            hold: self.annotation(keys::HOLD).is_some(),
            held_from: HeldFrom::parse(self.annotation(keys::HOLD).as_deref()),
            node: self.annotation(keys::NODE),
            reserve: self.annotation(keys::RESERVE),
            used: self.annotation(keys::USED),
            warm: self.annotation(keys::WARM),
            keep_node_for: self.annotation(keys::KEEP_NODE_FOR),
            pull_images: self.annotation(keys::PULL_IMAGES),
            pipeline: self.spec.pipeline,
            template: self.spec.template.typed(),
            over_limit: self.spec.over_limit(),
            claims: self.spec.volumes.claims.clone(),
            other_claims: self.spec.volumes.other_claims,
            templates: self.spec.volumes.templates,
            opted_out_tasks: self.spec.opted_out_tasks,
        })
    }

    /// Drops the fields that the rules never read, so that ten thousand runs need little memory.
    ///
    /// A run without labels and annotations of pod-affinity keeps only its name, by which the controller finds objects to clean up.
    /// A done run only needs cleanup: it keeps its name, its labels if it may keep its node, and its node and its record of
    /// usage, which say what the next run of the Pipeline prefers and needs.
    pub fn prune(&mut self) {
        self.labelled = self.label(keys::OPT_IN).is_some();
        self.spec.pipeline = self.spec.pipeline.or_else(|| self.generated());
        self.prune_metadata();
        self.spec.prune_to_limit();
        if !self.is_marked() {
            self.spec = PipelineRunSpec::default();
            self.metadata.labels = None;
            self.metadata.owner_references = None;
        } else if self.status.outcome != Outcome::Open {
            self.prune_to_need();
            if !self.may_keep_its_node() {
                self.metadata.labels = None;
            }
        }
    }

    /// Keeps the node, if the run succeeded, and the record of usage for later runs of the same Pipeline. If the controller has yet to
    /// write the record, keeps the annotation of the automatic reserve. Keeps how long and until when the node is kept after the run.
    fn prune_to_need(&mut self) {
        let mut annotations = self.metadata.annotations.take().unwrap_or_default();
        let succeeded = self.status.outcome == Outcome::Succeeded;
        let node = annotations.remove_entry(keys::NODE).filter(|_| succeeded);
        let used = annotations.remove_entry(keys::USED);
        let wish = annotations.remove_entry(keys::RESERVE);
        let wish = wish.filter(|(_, value)| value == AUTOMATIC);
        self.spec = PipelineRunSpec {
            pipeline: self.spec.pipeline.filter(|_| used.is_some() || node.is_some()),
            ..PipelineRunSpec::default()
        };
        let keep = annotations.remove_entry(keys::KEEP_NODE_FOR);
        let until = annotations.remove_entry(keys::KEPT_UNTIL);
        let needed = [node, used.or(wish), keep, until];
        let needed: BTreeMap<_, _> = needed.into_iter().flatten().collect();
        self.metadata.annotations = (!needed.is_empty()).then_some(needed);
    }

    /// A hash of the prefix that the generated names of such runs share.
    fn generated(&self) -> Option<u64> {
        self.metadata.generate_name.as_ref().map(facts::number)
    }

    /// Whether the run opted in or out, or has labels or annotations of pod-affinity.
    fn is_marked(&self) -> bool {
        let labels = self.metadata.labels.iter().flatten();
        let is_marked = labels
            .map(|(key, _)| key)
            .any(|key| key != keys::KUEUE_QUEUE_NAME);
        is_marked || self.metadata.annotations.is_some()
    }

    /// An enrolled run has its strategy as a label. Without a valid strategy, the run may keep its node.
    fn may_keep_its_node(&self) -> bool {
        let strategy: Option<Strategy> = self.label(keys::STRATEGY).and_then(|name| name.parse().ok());
        self.label(keys::GROUP) == self.metadata.uid
            && strategy.is_none_or(|strategy| strategy == Strategy::IsolateAlways)
    }

    fn prune_metadata(&mut self) {
        let meta = &mut self.metadata;
        retain(&mut meta.labels, &LABELS);
        retain(&mut meta.annotations, &ANNOTATIONS);
        meta.generate_name = None;
        for owner in meta.owner_references.iter_mut().flatten() {
            (owner.name, owner.uid) = (String::new(), String::new());
            owner.api_version = shortened(&owner.api_version, COMPARED).into_owned();
            owner.kind = shortened(&owner.kind, COMPARED).into_owned();
        }
    }

    fn is_nested(&self) -> bool {
        let group = self.label(keys::GROUP);
        let is_in_group_of_other = group.is_some() && group != self.metadata.uid;
        let is_controlled = |owner: &OwnerReference| {
            let (version, kind) = (&owner.api_version, &owner.kind);
            is_controlled_by_run(version, kind, owner.controller, is_in_group_of_other)
        };
        let owners = self.metadata.owner_references.iter().flatten();
        owners.into_iter().any(is_controlled)
    }

    fn label(&self, key: &str) -> Option<String> {
        self.metadata.labels.as_ref()?.get(key).cloned()
    }

    fn annotation(&self, key: &str) -> Option<String> {
        self.metadata.annotations.as_ref()?.get(key).cloned()
    }
}

/// The most bytes of the name of an object.
const NAME: usize = 253;

/// The labels that the rules read, each with the most bytes of a value.
const LABELS: [(&str, usize); 5] = [
    (keys::OPT_IN, COMPARED),
    (keys::KUEUE_QUEUE_NAME, COMPARED),
    (keys::GROUP, COMPARED),
    (keys::STRATEGY, COMPARED),
    (keys::ISOLATION, COMPARED),
];

/// The annotations that the rules read, each with the most bytes of a value.
const ANNOTATIONS: [(&str, usize); 9] = [
    (keys::HOLD, COMPARED),
    (keys::NODE, NAME),
    (keys::RESERVE, STRING),
    (keys::USED, STRING),
    (keys::WARM, COMPARED),
    (keys::KEEP_NODE_FOR, COMPARED),
    (keys::KEPT_UNTIL, COMPARED),
    (keys::PULL_IMAGES, COMPARED),
    (keys::OPTED_IN_BY, COMPARED),
];

/// Keeps the entries with these keys. An empty map becomes `None`, and a rebuilt map has no spare capacity.
fn retain(map: &mut Option<BTreeMap<String, String>>, keys: &[(&str, usize)]) {
    let entries = map.take().into_iter().flatten();
    let limit = |name: &str| keys.iter().find(|(key, _)| *key == name).map(|(_, limit)| *limit);
    let kept: BTreeMap<_, _> = entries
        .filter_map(|(key, value)| Some((limit(&key)?, key, value)))
        .map(|(limit, key, value)| (key, shortened(&value, limit).into_owned()))
        .collect();
    *map = (!kept.is_empty()).then_some(kept);
}

crate::read_only!(PipelineRun, "pipelineruns");

#[cfg(test)]
mod tests;
