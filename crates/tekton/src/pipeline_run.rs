//! The view of a PipelineRun of `tekton.dev/v1`, and what the rules make of it.
//!
//! Only v1 is read: the API server converts what was created as v1beta1. Only what placement needs is kept, and
//! it is reduced to facts while it is decoded, so that the pages of a long list are small at once.

use crate::facts::{Outcome, Volumes};
use crate::{facts, metadata, tolerant};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use placement::keys;
use placement::names::RunKey;
use placement::reserve::AUTOMATIC;
use placement::run::{HeldFrom, PodTemplate, Run, SpecStatus, is_controlled_by_run, is_managed_elsewhere};
use placement::strategy::Strategy;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A PipelineRun as it is watched: a read view, never written back.
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
    /// It bore the opt-in label when it was pruned, which may have dropped that.
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
    /// `taskRunTemplate.podTemplate`; boxed because few runs have one.
    #[serde(rename = "taskRunTemplate", deserialize_with = "facts::pod_template")]
    pub pod_template: Option<Box<PodTemplate>>,
    /// What `workspaces` say of claims.
    #[serde(rename = "workspaces", deserialize_with = "facts::volumes")]
    pub volumes: Volumes,
    /// Which Pipeline `pipelineRef` names, as a number to be compared; of a run with a Pipeline of its own, `generateName`.
    #[serde(rename = "pipelineRef", deserialize_with = "facts::pipeline")]
    pub pipeline: Option<u64>,
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

impl PipelineRun {
    /// Which run this is; `None` without namespace, name or UID, which no object read from an API server lacks.
    pub fn key(&self) -> Option<RunKey> {
        metadata::key(&self.metadata)
    }

    /// The run as the rules see it.
    pub fn run(&self) -> Option<Run> {
        Some(Run {
            key: self.key()?,
            created: self.metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleting: self.metadata.deletion_timestamp.is_some(),
            started: self.status.started.as_ref().map(|time| time.0),
            done: self.status.outcome != Outcome::Open,
            succeeded: self.status.outcome == Outcome::Succeeded,
            status: SpecStatus::of(self.spec.status.as_deref()),
            managed_elsewhere: is_managed_elsewhere(self.spec.managed_by.as_deref()),
            child: self.owners().iter().any(is_controller_run),
            queued_by_kueue: self.label(keys::KUEUE_QUEUE_NAME).is_some(),
            opt_in: self.label(keys::OPT_IN),
            group: self.label(keys::GROUP),
            strategy: self.label(keys::STRATEGY),
            isolation: self.label(keys::ISOLATION),
            hold: self.annotation(keys::HOLD).is_some(),
            held_from: HeldFrom::of(self.annotation(keys::HOLD).as_deref()),
            node: self.annotation(keys::NODE),
            reserve: self.annotation(keys::RESERVE),
            used: self.annotation(keys::USED),
            pipeline: self.spec.pipeline,
            template: self.spec.pod_template.as_deref().cloned().unwrap_or_default(),
            claims: self.spec.volumes.claims.clone(),
            templates: self.spec.volumes.templates,
        })
    }

    /// Drops what the rules never read, so that ten thousand runs fit in little memory.
    ///
    /// Of a run without any mark of ours nothing but its name is kept, by which what is left of us is found. A done run
    /// is only ever cleaned up, which takes its name and, where it may keep its node, its labels; and it may tell what the next one
    /// of its Pipeline needs.
    pub fn prune(&mut self) {
        self.labelled = self.label(keys::OPT_IN).is_some();
        self.spec.pipeline = self.spec.pipeline.or_else(|| self.generated());
        self.prune_metadata();
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

    /// Keeps what a later run of the same Pipeline will need, or that it is yet to be written down.
    fn prune_to_need(&mut self) {
        let mut annotations = self.metadata.annotations.take().unwrap_or_default();
        let used = annotations.remove_entry(keys::USED);
        let wish = annotations.remove_entry(keys::RESERVE);
        let wish = wish.filter(|(_, value)| value == AUTOMATIC);
        self.spec = PipelineRunSpec {
            pipeline: self.spec.pipeline.filter(|_| used.is_some()),
            ..PipelineRunSpec::default()
        };
        self.metadata.annotations = used.or(wish).map(|entry| BTreeMap::from([entry]));
    }

    /// What the names of such runs have in common.
    fn generated(&self) -> Option<u64> {
        self.metadata.generate_name.as_ref().map(facts::number)
    }

    /// It is opted in, or out, or we did something to it.
    fn is_marked(&self) -> bool {
        let labels = self.metadata.labels.iter().flatten();
        let is_marked = labels
            .map(|(key, _)| key)
            .any(|key| key != keys::KUEUE_QUEUE_NAME);
        is_marked || self.metadata.annotations.is_some()
    }

    /// An enrolled run has its strategy on it; in doubt it may.
    fn may_keep_its_node(&self) -> bool {
        let strategy: Option<Strategy> = self.label(keys::STRATEGY).and_then(|name| name.parse().ok());
        self.label(keys::GROUP) == self.metadata.uid
            && strategy.is_none_or(|strategy| strategy == Strategy::IsolateAlways)
    }

    fn prune_metadata(&mut self) {
        let meta = &mut self.metadata;
        retain(&mut meta.labels, is_read_label);
        retain(&mut meta.annotations, is_own);
        meta.generate_name = None;
        meta.owner_references = meta.owner_references.take().and_then(controller_only);
    }

    fn owners(&self) -> &[OwnerReference] {
        self.metadata.owner_references.as_deref().unwrap_or_default()
    }

    fn label(&self, key: &str) -> Option<String> {
        self.metadata.labels.as_ref()?.get(key).cloned()
    }

    fn annotation(&self, key: &str) -> Option<String> {
        self.metadata.annotations.as_ref()?.get(key).cloned()
    }
}

fn is_controller_run(owner: &OwnerReference) -> bool {
    is_controlled_by_run(&owner.api_version, &owner.kind, owner.controller)
}

fn is_read_label(key: &str) -> bool {
    is_own(key) || key == keys::OPT_IN || key == keys::KUEUE_QUEUE_NAME
}

fn is_own(key: &str) -> bool {
    key.starts_with(keys::OWN_PREFIX)
}

/// Keeps the entries with such a key; an empty map is dropped, and rebuilt ones hold no spare room.
fn retain(map: &mut Option<BTreeMap<String, String>>, keep: fn(&str) -> bool) {
    let kept: BTreeMap<_, _> = map
        .take()
        .into_iter()
        .flatten()
        .filter(|(key, _)| keep(key))
        .collect();
    *map = (!kept.is_empty()).then_some(kept);
}

fn controller_only(mut owners: Vec<OwnerReference>) -> Option<Vec<OwnerReference>> {
    owners.retain(|owner| owner.controller == Some(true));
    owners.shrink_to_fit();
    (!owners.is_empty()).then_some(owners)
}

crate::read_only!(PipelineRun, "pipelineruns");

#[cfg(test)]
mod tests;
