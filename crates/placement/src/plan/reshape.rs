//! Brings a placeholder to the right size and volumes: a placeholder that found its node with a reserve must be small
//! before tasks start, and a placeholder that outlives its run must not keep the run's PVCs from other pods. A placeholder
//! mounts no PVCs if its volumes cannot be used together, or not on the node of its group.

use super::action::{Action, Event, MoveCause, PodChange};
use super::change_placeholder;
use super::decision::Decision;
use super::observation::{Observation, Placeholder, PlaceholderPod, Resize, Shape, Unschedulable};
use crate::messages;
use crate::placeholder::size::{can_resize, usual};
use crate::placeholder::tolerations_with;
use crate::queue::ANSWER_WITHIN;
use std::time::Duration;

pub(super) enum Reshape {
    /// Size and volumes are right.
    No,
    /// The placeholder was recreated small, and another pod may have taken its room: the placeholder has this time left
    /// to be bound to its node.
    Wait(Duration),
    /// The next step to the right size.
    Now(Decision),
}

pub(super) fn reshape(observed: &Observation, placeholder: &Placeholder) -> Reshape {
    match observed.live_pod().map(|pod| (pod, pod.node.as_deref())) {
        None => Reshape::No,
        Some((pod, Some(node))) => on_node(observed, placeholder, pod, node),
        Some((pod, None)) => without_node(observed, placeholder, pod),
    }
}

fn on_node(observed: &Observation, placeholder: &Placeholder, pod: &PlaceholderPod, node: &str) -> Reshape {
    match how_to_shrink(observed, pod) {
        _ if must_unmount(placeholder, pod) => {
            Reshape::Now(recreate_small(observed, placeholder, pod, Some(node)))
        }
        Some(Resize::Possible) => Reshape::Now(shrink(observed, placeholder, pod)),
        Some(Resize::Refused) => Reshape::Now(recreate_small(observed, placeholder, pod, Some(node))),
        Some(Resize::Accepted) | None if placeholder.spec.node.is_some() => Reshape::Now(Decision::act(
            "unpin",
            None,
            [change_placeholder(placeholder, |spec| spec.node = None)],
        )),
        Some(Resize::Accepted) | None => Reshape::No,
    }
}

/// The placeholder mounts PVCs and stays when the run is done. It has its node, so it no longer needs the PVCs.
fn must_unmount(placeholder: &Placeholder, pod: &PlaceholderPod) -> bool {
    pod.shape.mounts && placeholder.outlives_its_run()
}

/// A refused resize counts, whatever size `spec` has: the kubelet may report a resize as infeasible after the API
/// server accepted it. After an accepted resize, a larger size is the decision of an admission policy.
fn how_to_shrink(observed: &Observation, pod: &PlaceholderPod) -> Option<Resize> {
    let Shape {
        requests,
        reserves,
        resize,
        pinned: _,
        mounts: _,
    } = &pod.shape;
    let refused = *resize == Resize::Refused;
    let how = if refused || !can_resize(requests, &usual(&observed.config).requests()) {
        Resize::Refused
    } else {
        *resize
    };
    (is_larger_than_usual(observed, pod) || *reserves && refused).then_some(how)
}

/// Whether the pod has a reserve. A smaller usual size in a new configuration is no reason to change existing
/// placeholders.
pub(super) fn is_larger_than_usual(observed: &Observation, pod: &PlaceholderPod) -> bool {
    let usual = usual(&observed.config).requests();
    pod.shape.reserves && pod.shape.requests.beyond(&usual).next().is_some()
}

/// While the run is held, a placeholder with a reserve waits for a node, and a pinned placeholder waits for its own
/// node. Once the run is released, a reserve or a pin must not keep the placeholder from its group.
fn without_node(observed: &Observation, placeholder: &Placeholder, pod: &PlaceholderPod) -> Reshape {
    match unmount_in(observed, placeholder, pod) {
        Some(Duration::ZERO) => return Reshape::Now(unmount(placeholder, pod)),
        Some(remaining) => return Reshape::Wait(remaining),
        None => {}
    }
    let held = observed.run.is_held_by_us();
    match pin_remaining(observed, pod) {
        None if !held && is_larger_than_usual(observed, pod) => {
            Reshape::Now(recreate_small(observed, placeholder, pod, None))
        }
        None => Reshape::No,
        Some(remaining) if !remaining.is_zero() => Reshape::Wait(remaining),
        Some(_) if held => Reshape::Now(start_over(placeholder, MoveCause::PlaceholderDoesNotFit)),
        Some(_) => Reshape::Now(recreate_small(observed, placeholder, pod, None)),
    }
}

/// When the placeholder gives up its PVCs, because they keep it from every node. An autoscaler may add a node that can use
/// all volumes, unless the tasks of the run are on another node.
fn unmount_in(observed: &Observation, placeholder: &Placeholder, pod: &PlaceholderPod) -> Option<Duration> {
    let Unschedulable { message, since } = pod.unschedulable.as_ref().filter(|_| pod.shape.mounts)?;
    if messages::lacks_its_volume(message) && messages::lacks_its_group(message) {
        return Some(Duration::ZERO);
    }
    // Without PVCs, the template was changed before, and only the earlier pod must be deleted.
    let may_conflict = placeholder.spec.claims.len() != 1 && messages::is_about_volumes_alone(message);
    let is_promised = observed
        .messages
        .autoscaler
        .as_deref()
        .is_some_and(messages::promises_node);
    (may_conflict && !is_promised).then(|| observed.remaining(*since, ANSWER_WITHIN))
}

fn unmount(placeholder: &Placeholder, pod: &PlaceholderPod) -> Decision {
    let without_pvcs = change_placeholder(placeholder, |spec| spec.claims.clear());
    Decision::act("unmount", None, [without_pvcs, pod.delete()])
}

fn pin_remaining(observed: &Observation, pod: &PlaceholderPod) -> Option<Duration> {
    let unschedulable = pod.unschedulable.as_ref().filter(|_| pod.shape.pinned)?;
    Some(observed.remaining(unschedulable.since, observed.patience()))
}

/// The template is changed first: if the pod is recreated meanwhile, the new pod must be small.
fn shrink(observed: &Observation, placeholder: &Placeholder, pod: &PlaceholderPod) -> Decision {
    let small = change_placeholder(placeholder, |spec| spec.shrink(&observed.config));
    Decision::act(
        "shrink",
        None,
        [small, Action::Pod(PodChange::Resize(pod.uid.clone()))],
    )
}

/// Replaces a pod that cannot be resized by a small pod, pinned to the node if the pod has one. A size that a
/// `LimitRange` decided is small already. Admission adds tolerations for the resources that a pod requests, such as a
/// GPU: without them, the small pod would not be admitted to the same node.
fn recreate_small(
    observed: &Observation,
    placeholder: &Placeholder,
    pod: &PlaceholderPod,
    node: Option<&str>,
) -> Decision {
    let small = change_placeholder(placeholder, |spec| {
        if !spec.within_limits {
            spec.shrink(&observed.config);
        }
        spec.node = node.map(str::to_owned);
        if placeholder.outlives_its_run() {
            spec.claims.clear();
        }
        if node.is_some() {
            spec.tolerations = tolerations_with(&observed.run, &pod.tolerations);
        }
    });
    Decision::act("recreate_small", None, [small, pod.delete()])
}

/// Deletes the StatefulSet of a held run. The controller then creates it again with the reserve, so that the
/// placeholder finds another node. A template that is small already would find a node without room for the reserve.
pub(super) fn start_over(placeholder: &Placeholder, cause: MoveCause) -> Decision {
    let event = Event::MovedOff {
        cause,
        pod: None,
        starts_over: true,
    };
    Decision::act("start_over", event, [placeholder.delete()])
}
