//! The objects of a run as the rules observe them. Pure.
//!
//! The controller decodes the same fields from its watches; a test in [`crate::plan`] reads the objects that the controller's tests
//! read, and expects the same plan.

use crate::view::{PlaceholderObjects, is_live, is_member, label, node as bound_to};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::api::ObjectMeta;
use placement::config::Config;
use placement::keys;
use placement::names::{PlaceholderName, RunKey};
use placement::node::NodeFacts;
use placement::node::selector::NodeRequirements;
use placement::placeholder::spec::Spec;
use placement::plan::RequeueMark;
use placement::plan::{Observation, Placeholder, PlaceholderPod, Resize, Shape, Unschedulable, WaitingPod};
use placement::resources::Resources;
use placement::run::Run;
use std::sync::Arc;

/// The reason that a kubelet reports for a resize that it will never perform.
const INFEASIBLE: &str = "Infeasible";

/// A run and its placeholder, without anything that only more requests could tell.
pub(crate) fn observation(
    run: &Run,
    placeholder: &PlaceholderObjects<'_>,
    config: Config,
    now: Timestamp,
) -> Observation {
    Observation {
        statefulset: placeholder.set.map(|set| observed_statefulset(set, &run.key)),
        pod: placeholder.pod.map(|pod| placeholder_pod(pod, &run.key)),
        ..Observation::new(run.clone(), Arc::new(config), now)
    }
}

/// The task pods of the run's group that have no node. `node` is the node of the placeholder.
pub(crate) fn waiting_pods(pods: &[Pod], key: &RunKey, node: Option<&NodeFacts>) -> Vec<WaitingPod> {
    let waits = |pod: &&Pod| {
        is_member(pod, key) && bound_to(pod).is_none() && pod.metadata.deletion_timestamp.is_none()
    };
    let waiting = pods.iter().filter(waits).map(waiting_pod);
    waiting.map(|pod| pod.beside(node)).collect()
}

fn observed_statefulset(set: &StatefulSet, key: &RunKey) -> Placeholder {
    let meta = &set.metadata;
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    Placeholder {
        uid: meta.uid.clone().unwrap_or_default(),
        owned: is_owned(meta, &key.placeholder()),
        deleting: meta.deletion_timestamp.is_some(),
        generation: meta.generation.unwrap_or_default(),
        observed: observed.is_some_and(|generation| generation > 0),
        strategy: label(meta, keys::STRATEGY).and_then(|name| name.parse().ok()),
        isolation: label(meta, keys::ISOLATION).and_then(|name| name.parse().ok()),
        // Only the event about the release says whether a start is warm.
        warm_nodes: None,
        spec: set.spec.as_ref().map(Spec::from_statefulset).unwrap_or_default(),
    }
}

fn placeholder_pod(pod: &Pod, key: &RunKey) -> PlaceholderPod {
    PlaceholderPod {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        node: bound_to(pod).map(str::to_owned),
        ending: pod.metadata.deletion_timestamp.is_some() || !is_live(pod),
        unschedulable: unschedulable(pod),
        tolerations: pod
            .spec
            .as_ref()
            .and_then(|spec| spec.tolerations.clone())
            .unwrap_or_default(),
        adopted: is_owned(&pod.metadata, &key.placeholder()),
        shape: shape(pod),
    }
}

fn waiting_pod(pod: &Pod) -> WaitingPod {
    let spec = pod.spec.as_ref();
    WaitingPod {
        name: pod.metadata.name.clone().unwrap_or_default(),
        task_run: label(&pod.metadata, keys::TEKTON_TASK_RUN).map(str::to_owned),
        requests: spec.map(Resources::from_pod_spec).unwrap_or_default(),
        unschedulable: unschedulable(pod),
        tolerations: spec.and_then(|spec| spec.tolerations.clone()).unwrap_or_default(),
        requires: spec.map(requirements).unwrap_or_default(),
        excludes_node: false,
        woken: label(&pod.metadata, keys::WOKEN).and_then(RequeueMark::parse),
        relaxed: pod
            .metadata
            .annotations
            .iter()
            .flatten()
            .any(|(key, _)| key == keys::RELAXED),
    }
}

fn requirements(spec: &PodSpec) -> NodeRequirements {
    let labels = spec.node_selector.clone().unwrap_or_default();
    let affinity = spec.affinity.as_ref();
    NodeRequirements::new(labels, affinity.and_then(|it| it.node_affinity.clone()))
}

fn shape(pod: &Pod) -> Shape {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice());
    let requests = Resources::of_container(containers.unwrap_or_default(), keys::PLACEHOLDER);
    let resize = if is_resize_infeasible(pod) {
        Resize::Refused
    } else {
        Resize::Possible
    };
    Shape {
        mounts: crate::view::claims(pod).next().is_some(),
        ..Shape::from_annotations(
            &pod.metadata.annotations.clone().unwrap_or_default(),
            requests,
            resize,
        )
    }
}

fn is_resize_infeasible(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    let pending = conditions.find(|condition| condition.type_ == "PodResizePending");
    pending.and_then(|condition| condition.reason.as_deref()) == Some(INFEASIBLE)
}

fn unschedulable(pod: &Pod) -> Option<Unschedulable> {
    let condition = crate::view::unscheduled(pod)?;
    let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
    let since = condition.last_transition_time.as_ref().map(|time| time.0);
    Some(Unschedulable::from_condition(reason, message, since))
}

/// Whether an owner is the run of this placeholder. The name is derived from the run's UID.
fn is_owned(meta: &ObjectMeta, placeholder: &PlaceholderName) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| PlaceholderName::of_uid(&owner.uid) == *placeholder)
}
