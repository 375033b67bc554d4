//! Whether a placeholder has the right shape: one that found its run's node with a reserve must be small before tasks come, and
//! one that outlives its run must not keep the run's PVCs from others.

use super::decision::{Decision, MoveCause, Write};
use super::observation::{Observation, Placeholder, PlaceholderPod, Resize, Shape};
use crate::placeholder::size::{can_resize, usual};
use std::time::Duration;

pub(super) enum Reshape {
    /// Its shape is right.
    No,
    /// It is made small again, and its node may have been taken meanwhile: it is given this long to come back.
    Wait(Duration),
    /// This brings it nearer to the right shape.
    Now(Decision),
}

pub(super) fn reshape(seen: &Observation, set: &Placeholder) -> Reshape {
    match seen.live_pod().map(|pod| (pod, pod.node.as_deref())) {
        None => Reshape::No,
        Some((pod, Some(node))) => on_node(seen, set, pod, node),
        Some((pod, None)) => without_node(seen, set, pod),
    }
}

fn on_node(seen: &Observation, set: &Placeholder, pod: &PlaceholderPod, node: &str) -> Reshape {
    match how_to_shrink(seen, pod) {
        _ if keeps_claims(set, pod) => Reshape::Now(recreate(set, pod, Some(node))),
        Some(Resize::Possible) => Reshape::Now(Decision::Write(Write::Shrink {
            set: set.uid.clone(),
            pod: pod.uid.clone(),
        })),
        Some(Resize::Refused) => Reshape::Now(recreate(set, pod, Some(node))),
        None if set.pinned => Reshape::Now(Decision::Write(Write::Unpin { set: set.uid.clone() })),
        None => Reshape::No,
    }
}

/// Its node is found, so that it needs them no more, and it stays when the run is done.
fn keeps_claims(set: &Placeholder, pod: &PlaceholderPod) -> bool {
    pod.shape.mounts && set.outlives_its_run()
}

/// A refusal counts whatever size the pod has by its spec: a kubelet may find infeasible what the server took.
fn how_to_shrink(seen: &Observation, pod: &PlaceholderPod) -> Option<Resize> {
    let Shape {
        requests,
        reserves,
        resize,
        pinned: _,
        mounts: _,
    } = &pod.shape;
    let refused = *resize == Resize::Refused;
    let how = if refused || !can_resize(requests, &usual(&seen.config).requests()) {
        Resize::Refused
    } else {
        Resize::Possible
    };
    (is_big(seen, pod) || *reserves && refused).then_some(how)
}

/// Only where it was made with a reserve: a smaller usual size, newly configured, is no reason to touch the
/// placeholders that are there.
pub(super) fn is_big(seen: &Observation, pod: &PlaceholderPod) -> bool {
    let usual = usual(&seen.config).requests();
    pod.shape.reserves && pod.shape.requests.beyond(&usual).next().is_some()
}

/// While the run is held, a big placeholder waits for its node, and a pinned one for its own; afterwards neither
/// may keep it from joining its group wherever that is.
fn without_node(seen: &Observation, set: &Placeholder, pod: &PlaceholderPod) -> Reshape {
    let held = seen.run.is_held_by_us();
    match time_to_come_back(seen, pod) {
        None if !held && is_big(seen, pod) => Reshape::Now(recreate(set, pod, None)),
        None => Reshape::No,
        Some(left) if !left.is_zero() => Reshape::Wait(left),
        Some(_) if held => Reshape::Now(Decision::Write(Write::StartOver {
            set: set.uid.clone(),
            cause: MoveCause::PlaceholderDoesNotFit,
        })),
        Some(_) => Reshape::Now(recreate(set, pod, None)),
    }
}

fn time_to_come_back(seen: &Observation, pod: &PlaceholderPod) -> Option<Duration> {
    let unschedulable = pod.unschedulable.as_ref().filter(|_| pod.shape.pinned)?;
    Some(seen.left(unschedulable.since, seen.patience()))
}

fn recreate(set: &Placeholder, pod: &PlaceholderPod, node: Option<&str>) -> Decision {
    Decision::Write(Write::RecreateSmall {
        set: set.uid.clone(),
        pod: pod.uid.clone(),
        node: node.map(str::to_owned),
    })
}
