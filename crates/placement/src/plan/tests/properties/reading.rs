//! The conditions of the properties, written independently of the rules.

use super::super::*;
use crate::attempts::{Before, Turn};
use crate::requests::{Object, Request, Verb};
use crate::statefulset_quota::Shortage;
use json_patch::PatchOperation;
use serde_json::Value;

/// The name of the planned step, and the step.
pub(super) fn step(scene: &Scene) -> Option<(&'static str, Step)> {
    match scene.decision() {
        Decision::Act(step) => Some((step.name, step)),
        Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_) => None,
    }
}

/// The name of the step or of another decision.
pub(super) fn name(scene: &Scene) -> &'static str {
    step(scene).map_or_else(|| scene.decision().name(), |(name, _)| name)
}

/// The wanted placeholder.
pub(super) fn wanted(step: &Step) -> Option<&Spec> {
    step.actions.iter().find_map(|action| match action {
        Action::Placeholder(spec) => Some(spec),
        _ => None,
    })
}

/// The deleted objects.
pub(super) fn deletions(step: &Step) -> impl Iterator<Item = &Target> {
    step.actions.iter().filter_map(|action| match action {
        Action::Delete(target) => Some(target),
        _ => None,
    })
}

/// Whether the run gives up its node, so that its placeholder finds another, with or without a reserve.
pub(super) fn gives_up_its_node((_, step): &(&str, Step)) -> bool {
    let of_node = |cause: &MoveCause| matches!(cause, MoveCause::Node(_));
    match &step.event {
        Some(Event::MovedOff {
            cause, starts_over, ..
        }) => !starts_over || of_node(cause),
        _ => false,
    }
}

/// A cap has no room for the run, which has no placeholder.
pub(super) fn is_over_cap(scene: &Scene) -> bool {
    matches!(scene.turn, Turn::Later(Before::OverCap(_)))
        && is_opted_in(scene)
        && usable_placeholder(scene).is_none()
}

/// The cause of the release, and the node.
pub(super) fn release(scene: &Scene) -> Option<(ReleaseCause, Option<String>)> {
    match step(scene)?.1.event? {
        Event::Released { cause, node, .. } => Some((cause, node)),
        _ => None,
    }
}

/// The decision for each possible count of the tasks.
pub(super) fn counted(scene: &Scene) -> [Decision; 3] {
    let uncounted = scene.clone().unread(Read::Tasks);
    [
        uncounted.decision(),
        uncounted.clone().counted(0).decision(),
        uncounted.counted(1).decision(),
    ]
}

pub(super) fn is_opted_in(scene: &Scene) -> bool {
    let label = matches!(scene.run.opt_in.as_deref(), Some("true" | "isolateAlways"));
    label && scene.run.key.namespace == "ns"
}

/// The run belongs to Tekton and is neither done nor being deleted.
pub(super) fn goes_on(scene: &Scene) -> bool {
    let run = &scene.run;
    !run.child && !run.managed_elsewhere && !run.done && !run.deleting
}

/// The run is opted in, not nested, and neither done nor being deleted.
pub(super) fn is_alive(scene: &Scene) -> bool {
    let run = &scene.run;
    let ours = run.is_held_by_us() || run.status != SpecStatus::Pending && run.is_enrolled();
    ours && is_opted_in(scene) && goes_on(scene)
}

/// The run is opted out and may have given up a node, so its placeholder is scaled up before it is deleted.
pub(super) fn is_leaving(scene: &Scene) -> bool {
    let gave_up = usable_placeholder(scene).is_some_and(|set| set.spec.node_given_up().is_some());
    gave_up && !is_opted_in(scene) && goes_on(scene) && !scene.run.is_held_by_us()
}

pub(super) fn usable_placeholder(scene: &Scene) -> Option<&Placeholder> {
    scene
        .statefulset
        .as_ref()
        .filter(|set| set.owned && !set.deleting)
}

pub(super) fn lacks_its_group(pod: &WaitingPod) -> bool {
    let verdict = pod.unschedulable.as_ref();
    verdict.is_some_and(|verdict| verdict.message == ELSEWHERE)
}

/// A quota rejected the pod of a task of this run, and the task was read.
pub(super) fn is_refused(scene: &Scene) -> bool {
    let tasks = scene.inputs.rejected_tasks.as_ref();
    scene.messages.rejection.is_some() && tasks.is_some_and(|tasks| !tasks.is_empty())
}

/// The placeholder of a running run makes room in a quota, or made room a short time ago.
pub(super) fn keeps_away(scene: &Scene) -> bool {
    let pause = scene.repeated.yields.pause(Repeated::PAUSE);
    let is_over = |last| now().duration_since(last) >= pause.try_into().unwrap();
    let asks = scene.messages.rejection.is_some() && !scene.inputs.has(Read::RejectedTasks);
    !scene.run.is_held_by_us()
        && (asks || is_refused(scene) || !scene.repeated.yields.last.is_none_or(is_over))
}

/// The placeholder has zero replicas, its previous pod has ended or is ending, and no task waits.
pub(super) fn may_come_back(scene: &Scene) -> bool {
    let away = usable_placeholder(scene).is_some_and(|set| set.spec.replicas <= 0);
    away && is_alive(scene) && scene.waiting.is_empty() && scene.pod.as_ref().is_none_or(|pod| pod.ending)
}

/// Tekton creates StatefulSets for this run when it starts, and a quota has no room for them that the plan could free,
/// or was not read.
pub(super) fn needs_a_place(scene: &Scene) -> bool {
    let is_blocked = |shortage: &Shortage| shortage.blocker.is_some();
    let quota = scene.inputs.quota.as_ref();
    let can_be_freed = quota.is_none_or(|quota| quota.shortage.as_ref().is_some_and(is_blocked));
    scene.run.assistants(scene.cluster.coschedule) > 0 && can_be_freed
}

pub(super) fn frees_a_place(decision: &Decision) -> bool {
    match decision {
        Decision::Read(Read::Quota) | Decision::Wait(Wait::Places { .. }) => true,
        Decision::Act(step) => matches!(step.event, Some(Event::PlacesFreed { .. })),
        Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_) => false,
    }
}

/// The number of active tasks, if they were counted.
pub(super) fn live(scene: &Scene) -> Option<usize> {
    scene.inputs.tasks.as_ref().map(|tasks| tasks.task_count.live)
}

/// The group of inputs that a step of this name needs.
pub(super) fn rests_on(scene: &Scene, name: &str) -> Option<Read> {
    let run = &scene.run;
    let records_usage = run.succeeded && run.used.is_none() && size::is_automatic(run, &scene.config);
    match name {
        "create_placeholder" => Some(Read::Creation),
        "free_places" => Some(Read::Quota),
        "move_off" => Some(Read::Tasks),
        "make_room" | "retry_tasks" => Some(Read::RejectedTasks),
        "requeue_tasks" | "return_placeholder" => Some(Read::Assistants),
        "delete_placeholder" | "keep_pod" | "keep_node" if run.done && !run.deleting && records_usage => {
            Some(Read::Usage)
        }
        _ => None,
    }
}

/// Whether a request changes only the observed object, or an object that still belongs to this run.
pub(super) fn names_observed_object(scene: &Scene, request: &Request) -> bool {
    let uid = match &request.object {
        Object::Run => Some(scene.run.key.uid.as_str()),
        Object::StatefulSet => scene.statefulset.as_ref().map(|set| set.uid.as_str()),
        Object::Pod => scene.pod.as_ref().map(|pod| pod.uid.as_str()),
        Object::OtherStatefulSet(_) => Some("another-set-uid"),
        Object::OtherPod(_) | Object::TaskRun(_) => Some("assistant-uid"),
        Object::KeptNode(_) => None,
    };
    let is_it = |found: &Value| uid.is_some() && found.as_str() == uid;
    let tests = |operation: &PatchOperation| match operation {
        PatchOperation::Test(test) => match test.path.to_string().as_str() {
            "/metadata/uid" => is_it(&test.value),
            "/metadata/labels/pod-affinity.tekton.dev~1group" => test.value == scene.run.key.uid,
            _ => false,
        },
        _ => false,
    };
    match &request.verb {
        Verb::Apply(set) => {
            let owners = set.metadata.owner_references.iter().flatten();
            owners.map(|owner| &owner.uid).eq([&scene.run.key.uid])
        }
        Verb::Create { .. } => matches!(request.object, Object::KeptNode(_)),
        Verb::Json(patch) => patch.iter().any(tests),
        Verb::Merge(body) | Verb::Strategic(body) | Verb::Resize(body) => is_it(&body["metadata"]["uid"]),
        Verb::Delete { uid: found, .. } => uid == Some(found),
    }
}
