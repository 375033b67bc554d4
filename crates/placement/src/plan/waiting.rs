//! What the queue of runs knows of a run: whether it has a slot, its kind, and what its placeholder has found.

use super::observation::{Observation, Unschedulable};
use super::state::State;
use crate::config::ReleaseWhen;
use crate::messages;
use crate::names::digest;
use crate::placeholder::size::{self, is_automatic};
use crate::queue::{ANSWER_WITHIN, Answer, Kind, Member, Stage, Waiting};
use crate::run::PodTemplate;
use crate::strategy::Scope;
use k8s_openapi::api::core::v1::{Affinity, Toleration};
use serde::Serialize;
use std::collections::BTreeMap;

/// A podTemplate may have 64 KiB, and the queue keeps the kind of each waiting run.
const DIGEST_BYTES: usize = 16;

/// What decides which nodes are possible for a run: its podTemplate and its isolation.
#[derive(Serialize)]
struct Fields<'a> {
    node_selector: &'a BTreeMap<String, String>,
    tolerations: &'a [Toleration],
    affinity: Option<&'a Affinity>,
    scheduler: Option<&'a str>,
    priority: Option<&'a str>,
    runtime_class: Option<&'a str>,
    isolation: &'a str,
    namespace: Option<&'a str>,
}

impl Kind {
    /// The kind of a run; `None` if the run waits for no other run: it may share its node, its volumes decide the node, or it is
    /// released before it has a node.
    pub fn from_observation(observed: &Observation) -> Option<Self> {
        let run = &observed.run;
        let enrolment = observed.enrolment();
        let is_tied = !run.claims.is_empty();
        let waits = observed.config.release_when == ReleaseWhen::Scheduled || observed.has_reserve();
        if is_tied || !waits || !enrolment.strategy.isolates() {
            return None;
        }
        let namespace = (enrolment.isolation.scope == Scope::Namespace).then_some(run.key.namespace.as_str());
        let PodTemplate {
            node_selector,
            tolerations,
            affinity,
            scheduler_name,
            priority_class_name,
            runtime_class_name,
            service_account: _,
            image_pull_secrets: _,
        } = &run.template;
        let fields = Fields {
            node_selector,
            tolerations,
            affinity: affinity.as_ref(),
            scheduler: scheduler_name.as_deref(),
            priority: priority_class_name.as_deref(),
            runtime_class: runtime_class_name.as_deref(),
            isolation: enrolment.isolation.as_str(),
            namespace,
        };
        // Serialising strings, lists and maps of strings cannot fail.
        let text = serde_json::to_string(&fields).unwrap_or_default();
        Some(Self::new(digest(&[&text], DIGEST_BYTES)))
    }
}

impl Member {
    /// The run, unless it is done, not labelled, or held by another controller.
    pub fn from_observation(observed: &Observation) -> Option<Self> {
        let has_slot = match State::from_observation(observed) {
            State::HeldWithoutPlaceholder => false,
            State::HeldWithoutPod
            | State::HeldUnscheduled
            | State::HeldOnNode
            | State::HeldScaledDown
            | State::RunningWithoutPlaceholder
            | State::RunningWithoutPod
            | State::RunningUnscheduled
            | State::RunningOnNode
            | State::RunningScaledDown
            | State::Ending => true,
            State::Ignored | State::Queued | State::Unenrolled | State::OptedOut | State::NodeKept => {
                return None;
            }
        };
        let key = &observed.run.key;
        Some(Self {
            uid: key.uid.clone(),
            name: (key.namespace.clone(), key.name.clone()),
            created: observed.run.created,
            has_slot,
            node: observed.node_name().map(str::to_owned),
            waits: Kind::from_observation(observed).zip(waiting(observed)),
        })
    }
}

/// What a held run without a node has found. A run whose pod the API server rejects waits for no node, so no other run waits for
/// this run.
fn waiting(observed: &Observation) -> Option<Waiting> {
    let is_unschedulable = unschedulable(observed).is_some();
    let placeholder = match State::from_observation(observed) {
        State::HeldWithoutPlaceholder => Stage::Missing,
        State::HeldUnscheduled if is_unschedulable => Stage::Unschedulable,
        State::HeldWithoutPod if observed.messages.failed_create.is_none() => Stage::New,
        State::HeldUnscheduled => Stage::New,
        _ => return None,
    };
    let reserved = || size::reserved(&observed.run, &observed.config).requests();
    let found = observed.placeholder().usable();
    Some(Waiting {
        is_estimate: found.is_none() && is_automatic(&observed.run, &observed.config),
        size: found.map_or_else(reserved, |found| found.spec.size.clone()),
        placeholder,
        answer: answer(observed),
    })
}

/// What the scheduler found. It has not tried a pod with a scheduling gate.
fn unschedulable(observed: &Observation) -> Option<&Unschedulable> {
    let found = observed.live_pod()?.unschedulable.as_ref();
    found.filter(|found| !found.is_gated())
}

fn answer(observed: &Observation) -> Answer {
    let Some(found) = unschedulable(observed) else {
        return Answer::Pending;
    };
    match observed.messages.autoscaler.as_deref() {
        Some(answer) if messages::promises_node(answer) => Answer::Promise,
        Some(_) => Answer::Refusal,
        None if observed.remaining(found.since, ANSWER_WITHIN).is_zero() => Answer::Silence,
        None => Answer::Pending,
    }
}
