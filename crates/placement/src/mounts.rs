//! Which PVCs of a run its placeholder mounts, so that their volumes determine the placeholder's node.
//!
//! The placeholder leaves a PVC to the tasks where a mount does harm:
//! - A PVC that is missing, lost or being deleted would make the placeholder unschedulable.
//! - A `ReadWriteOncePod` PVC would block the tasks. A volume that can be attached to one node only would block a task that opted
//!   out, and so may be on another node.
//! - An unbound PVC whose volume is created for the first pod that mounts the PVC would get a volume that the first task may be
//!   unable to use. Tekton's assistant, if the run has one, still creates the volume for the placeholder's node.
//! - Volumes that no node can use together would make the placeholder unschedulable. The PVCs that the run names first win. Only volumes
//!   that name existing nodes are compared with these nodes: an autoscaler may add a node that can use other volumes together.

use crate::keys;
use crate::node::NodeFacts;
use crate::node::selector::term_matches;
use crate::plan::VolumeConstraints;
use crate::run::{PodTemplate, Run};
use crate::volume::restrict;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaim,
};
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Annotations of a PVC whose volume is being created: its zone no longer depends on the first pod.
const IN_PROGRESS: [&str; 3] = [
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];
/// The most alternatives of nodes, and the most values of a requirement, that are compared. Further volumes count as usable together with
/// the others, and do not restrict the placeholder.
const MOST_TERMS: usize = 256;

/// A PVC that a run names. The volume is read only if [`needs_volume`] says that the rule needs it.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Name of the PVC.
    pub name: String,
    /// The PVC.
    pub claim: PersistentVolumeClaim,
    /// The required node affinity of the volume that the PVC is bound to.
    pub required: Option<NodeSelector>,
}

/// How a PVC determines the placeholder's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The placeholder mounts the PVC.
    Mounted,
    /// Only tasks mount the PVC. The placeholder requires a node that can use the volume, if there is a volume.
    OfTasks,
    /// The PVC has no effect on the placeholder.
    None,
}

/// Whether the volume of this PVC affects the placeholder in another way than by a mount.
pub fn needs_volume(run: &Run, claim: &PersistentVolumeClaim) -> bool {
    match part(run, claim) {
        Part::Mounted => run.claims.len() > 1 || of_template(&run.template).is_some(),
        Part::OfTasks => true,
        Part::None => false,
    }
}

/// What the run's PVCs, in the order in which the run names them, mean to the placeholder in a cluster of these nodes, by name.
pub fn constraints(
    run: &Run,
    claims: &[Claim],
    nodes: &BTreeMap<String, Arc<NodeFacts>>,
) -> VolumeConstraints {
    let mut mountable = Vec::new();
    let mut usable = of_template(&run.template);
    let own = required_by(&run.template);
    let mut required = own.clone();
    for Claim {
        name,
        claim,
        required: volume,
    } in claims
    {
        match part(run, claim) {
            Part::None => {}
            _ if !narrow(&mut usable, volume.as_ref(), nodes) => {}
            Part::Mounted => mountable.push(name.clone()),
            Part::OfTasks => {
                narrow(&mut required, volume.as_ref(), nodes);
            }
        }
    }
    VolumeConstraints {
        mountable,
        required: if required == own { None } else { required },
    }
}

fn part(run: &Run, claim: &PersistentVolumeClaim) -> Part {
    if claim.metadata.deletion_timestamp.is_some() || is_lost(claim) {
        Part::None
    } else if is_for_one_pod(claim)
        || (run.opted_out_tasks && is_for_one_node(claim))
        || waits_for_first_pod(claim)
    {
        Part::OfTasks
    } else {
        Part::Mounted
    }
}

fn is_lost(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Lost")
}

fn is_for_one_pod(claim: &PersistentVolumeClaim) -> bool {
    modes(claim).any(|mode| mode == "ReadWriteOncePod")
}

fn is_for_one_node(claim: &PersistentVolumeClaim) -> bool {
    !modes(claim).any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

fn modes(claim: &PersistentVolumeClaim) -> impl Iterator<Item = &str> {
    let modes = claim
        .spec
        .iter()
        .flat_map(|spec| spec.access_modes.iter().flatten());
    modes.map(String::as_str)
}

/// Kubernetes creates a volume for an unbound PVC at once, or, with `volumeBindingMode: WaitForFirstConsumer`, for the first pod.
/// In the second case, the PVC has none of the annotations. A PVC without a storage class gets an existing volume.
fn waits_for_first_pod(claim: &PersistentVolumeClaim) -> bool {
    let annotations = claim.metadata.annotations.iter().flatten();
    let is_in_progress = annotations
        .into_iter()
        .any(|(key, _)| IN_PROGRESS.contains(&key.as_str()));
    let is_unbound = claim.spec.as_ref().is_some_and(|spec| {
        spec.volume_name.as_deref().unwrap_or_default().is_empty()
            && spec.storage_class_name.as_deref() != Some("")
    });
    is_unbound && !is_in_progress
}

/// The required node affinity of the pod template.
fn required_by(template: &PodTemplate) -> Option<NodeSelector> {
    let affinity = template.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity
        .required_during_scheduling_ignored_during_execution
        .clone()
}

/// The nodes that the pod template of the run requires; `None` for all nodes.
fn of_template(template: &PodTemplate) -> Option<NodeSelector> {
    let mut affinity = NodeAffinity {
        required_during_scheduling_ignored_during_execution: required_by(template),
        ..NodeAffinity::default()
    };
    if !template.node_selector.is_empty() {
        let is = |(key, value): (&String, &String)| NodeSelectorRequirement {
            key: key.clone(),
            operator: "In".to_owned(),
            values: Some(vec![value.clone()]),
        };
        let term = NodeSelectorTerm {
            match_expressions: Some(template.node_selector.iter().map(is).collect()),
            match_fields: None,
        };
        let selected = NodeSelector {
            node_selector_terms: vec![term],
        };
        restrict(&mut affinity, &selected);
    }
    affinity.required_during_scheduling_ignored_during_execution
}

/// Restricts the usable nodes to nodes that can use this volume as well. Returns `false` without a change if there is no such node.
fn narrow(
    usable: &mut Option<NodeSelector>,
    volume: Option<&NodeSelector>,
    nodes: &BTreeMap<String, Arc<NodeFacts>>,
) -> bool {
    let Some(volume) = volume else {
        return true;
    };
    let terms = |it: &NodeSelector| it.node_selector_terms.len();
    if usable.as_ref().map_or(1, terms).saturating_mul(terms(volume)) > MOST_TERMS {
        return true;
    }
    let mut both = NodeAffinity {
        required_during_scheduling_ignored_during_execution: usable.clone(),
        ..NodeAffinity::default()
    };
    restrict(&mut both, volume);
    let both = both.required_during_scheduling_ignored_during_execution;
    let both = both.map(|mut both| {
        both.node_selector_terms
            .retain(|term| is_possible(term) && may_match(term, nodes));
        both
    });
    let is_usable = both
        .as_ref()
        .is_some_and(|both| !both.node_selector_terms.is_empty());
    if is_usable {
        *usable = both;
    }
    is_usable
}

/// Whether a node can meet all requirements of a term, as far as each names the values of a label or of a field.
fn is_possible(term: &NodeSelectorTerm) -> bool {
    let lists = [&term.match_expressions, &term.match_fields]
        .into_iter()
        .flatten();
    lists.into_iter().all(|requirements| {
        let mut values = BTreeMap::<&str, BTreeSet<&str>>::new();
        requirements.iter().filter(|it| it.operator == "In").all(|it| {
            let of_this = it.values.iter().flatten().map(String::as_str).collect();
            let common = match values.get(it.key.as_str()) {
                Some(before) => before & &of_this,
                None => of_this,
            };
            let is_met = !common.is_empty();
            values.insert(&it.key, common);
            is_met
        })
    })
}

/// Whether a term that names only existing nodes matches one of them. Another term may match a node that does not exist yet.
fn may_match(term: &NodeSelectorTerm, nodes: &BTreeMap<String, Arc<NodeFacts>>) -> bool {
    let hostnames = nodes.values().filter_map(|node| node.labels.get(keys::HOSTNAME));
    let hostnames = LazyCell::new(|| hostnames.collect::<BTreeSet<_>>());
    let names_nodes = |it: &NodeSelectorRequirement| {
        let is_node = |value: &String| match it.key.as_str() {
            keys::HOSTNAME => hostnames.contains(value),
            "metadata.name" => nodes.contains_key(value),
            // Storage drivers have labels of their own for the name of a node.
            key => nodes
                .get(value)
                .is_some_and(|node| node.labels.get(key) == Some(value)),
        };
        let values = it.values.as_deref().unwrap_or_default();
        it.operator == "In" && values.len() <= MOST_TERMS && values.iter().all(is_node)
    };
    let lists = [&term.match_expressions, &term.match_fields]
        .into_iter()
        .flatten();
    !lists.flatten().any(names_nodes)
        || nodes
            .values()
            .any(|node| term_matches(term, &node.name, &node.labels))
}

#[cfg(test)]
mod tests;
