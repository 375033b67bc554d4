//! Anything that may be observed of a run: a usual scene, and then some facts that need not go together.

use super::fixtures::*;
use super::*;
use crate::config::ReleaseWhen;
use crate::node::{Cause, NodeState};
use crate::placeholder::wake::Wake;
use crate::reserve::Wish;
use crate::run::HeldFrom;
use crate::run::SpecStatus;
use crate::sets::InTheWay;
use crate::strategy::{IsolateFrom, Isolation, Scope, Strategy};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use proptest::collection::vec;
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};

/// Another fact of a scene.
type Change = fn(&mut Scene);
/// Another answer, or another state of the memory; see `fixtures::answered` for the usual ones.
type Answer = fn(&mut Observation);
type Usual = fn() -> Scene;

const OF_THE_RUN: &[Change] = &[
    |scene| scene.run.deleting = true,
    |scene| scene.run.done = true,
    |scene| (scene.run.done, scene.run.succeeded) = (true, true),
    |scene| scene.run.status = SpecStatus::Pending,
    |scene| scene.run.status = SpecStatus::Unset,
    |scene| scene.run.status = SpecStatus::Other("StoppedRunFinally".to_owned()),
    |scene| scene.run.hold = true,
    |scene| scene.run.held_from = HeldFrom::UndatedRelease,
    |scene| scene.run.held_from = HeldFrom::Release(ago(3)),
    |scene| scene.run.held_from = HeldFrom::Release(ago(9999)),
    |scene| scene.run.managed_elsewhere = true,
    |scene| scene.run.child = true,
    |scene| scene.run.queued_by_kueue = true,
    |scene| scene.run.opt_in = None,
    |scene| scene.run.opt_in = Some("false".to_owned()),
    |scene| scene.run.opt_in = Some("perhaps".to_owned()),
    |scene| scene.run.opt_in = Some("isolateAlways".to_owned()),
    |scene| "kube-system".clone_into(&mut scene.run.key.namespace),
    |scene| scene.run.group = Some(UID.to_owned()),
    |scene| scene.run.group = Some("old-uid".to_owned()),
    |scene| scene.run.strategy = Some("isolateAlways".to_owned()),
    |scene| scene.run.isolation = Some("namespace-enrolled".to_owned()),
    |scene| scene.run.node = Some(NODE.to_owned()),
    |scene| scene.run.created = None,
    |scene| scene.run.created = Some(ago(9999)),
    |scene| scene.run.claims = vec!["source".to_owned()],
    |scene| scene.run.reserve = Some("auto".to_owned()),
    |scene| scene.run.used = Some("cpu=4".to_owned()),
    |scene| *scene = scene.clone().reserving("cpu=4"),
    |scene| *scene = scene.clone().reserving("nvidia.com/gpu=1"),
];

const OF_THE_CONFIGURATION: &[Change] = &[
    |scene| scene.config.default_strategy = Strategy::IsolateAlways,
    |scene| scene.config.isolation.scope = Scope::Namespace,
    |scene| scene.config.default_reserve = Wish::Automatic,
    |scene| scene.config.placeholder_copied_labels = ["team".to_owned()].into(),
    |scene| scene.config.release_when = ReleaseWhen::Created,
    |scene| scene.config.hold_deadline = Duration::MAX,
    |scene| scene.config.move_after = None,
    |scene| scene.config.move_after = Some(Duration::MAX),
];

const OF_THE_PLACEHOLDER: &[Change] = &[
    |scene| *scene = scene.clone().with_set(),
    |scene| *scene = scene.clone().without_set(),
    |scene| *scene = scene.clone().set_deleting(),
    |scene| *scene = scene.clone().foreign_set(),
    |scene| *scene = scene.clone().resolved(Strategy::IsolateAlways),
    |scene| *scene = scene.clone().moved_off(),
    |scene| of_set(scene, |set| set.replicas = -1),
    |scene| of_set(scene, |set| set.taken_up = false),
    |scene| of_set(scene, |set| (set.strategy, set.isolation) = (None, None)),
    |scene| of_set(scene, |set| set.pinned = true),
    |scene| of_set(scene, |set| set.left = Some(NODE.to_owned())),
    |scene| of_set(scene, |set| set.left = Some(String::new())),
    |scene| scene.pod = None,
    |scene| *scene = scene.clone().with_pod(),
    |scene| *scene = scene.clone().on(NODE),
    |scene| *scene = scene.clone().on("node-2"),
    |scene| *scene = scene.clone().on(NODE).adopted(),
    |scene| *scene = scene.clone().on(NODE).pod_ending(),
    |scene| *scene = scene.clone().stranded(60),
    |scene| *scene = scene.clone().shape(|shape| shape.resize = Resize::Refused),
    |scene| *scene = scene.clone().shape(|shape| shape.pinned = true),
    |scene| *scene = scene.clone().shape(|shape| shape.mounts = true),
    |scene| {
        let pod = scene.pod.iter_mut();
        pod.for_each(|pod| pod.tolerations = vec![Toleration::default()]);
    },
];

const AROUND_IT: &[Change] = &[
    |scene| scene.node = NodeState::Fit,
    |scene| scene.node = NodeState::Unfit(Cause::Cordoned),
    |scene| scene.node = NodeState::Unfit(Cause::Gone),
    |scene| scene.nodes = vec![node("small", "cpu=2"), node("large", "cpu=16")],
    |scene| scene.nodes = vec![node("small", "cpu=2")],
    |scene| *scene = scene.clone().counted(0),
    |scene| *scene = scene.clone().quiet_for(3),
    |scene| *scene = scene.clone().quiet_for(-9999),
    |scene| *scene = scene.clone().counted(2),
    |scene| scene.tied = Some("disk".to_owned()),
    |scene| *scene = scene.clone().task_starts("new"),
    |scene| *scene = scene.clone().task_waits("big", 60),
    |scene| *scene = scene.clone().task_waits("late", 3),
    |scene| scene.waiting.iter_mut().for_each(wait_for_ever),
    |scene| scene.waiting.iter_mut().for_each(miss_the_group),
    |scene| scene.waiting.iter_mut().for_each(|pod| pod.woken = None),
    |scene| scene.waiting.iter_mut().for_each(|pod| pod.relaxed = true),
    |scene| *scene = scene.clone().moved_before(2, 5),
    |scene| *scene = scene.clone().moved_before(u32::MAX, -9999),
    |scene| scene.moves.last = Some(Timestamp::MIN),
    |scene| scene.refusal = Some("7".to_owned()),
    |scene| (scene.refusal, scene.refused) = (Some("7".to_owned()), Some(Vec::new())),
    a_quota_refuses_a_task,
    |scene| scene.yields = repeated(1, 4),
    |scene| scene.yields = repeated(3, 9999),
    |scene| scene.yields = repeated(u32::MAX, -9999),
    |scene| scene.retries = repeated(1, 4),
    |scene| scene.retries = repeated(2, 9999),
    |scene| scene.assistants = None,
    |scene| scene.assistants = Some(vec![assistant(Some(NODE))]),
    |scene| scene.assistants = Some(vec![assistant(Some(NODE)), assistant(None)]),
];

const ANSWERS: &[Answer] = &[
    |seen| seen.claims = None,
    |seen| seen.copied_labels = None,
    |seen| seen.need = None,
    |seen| seen.short_of = None,
    |seen| seen.short_of = Some(told("ResourceQuota few")),
    |seen| places(seen, InTheWay::Gone),
    |seen| places(seen, another_placeholder()),
    |seen| seen.stints = None,
    |seen| seen.complaint = None,
    |seen| seen.complaint = Some(told("exceeded quota: tight")),
    |seen| seen.complaint = Some(told("no PriorityClass with name urgent was found")),
    |seen| seen.complaint = Some(told(TOO_SMALL)),
    |seen| seen.autoscaler = None,
    |seen| seen.autoscaler = Some(told("pod triggered scale-up: pool")),
    |seen| seen.autoscaler = Some(told("max node group size reached")),
    |seen| seen.nudge_in = Duration::from_secs(3),
    |seen| seen.relaxed = true,
];

/// A quota has none.
fn places(seen: &mut Observation, in_the_way: InTheWay) {
    (seen.short_of, seen.in_the_way) = (Some(told("ResourceQuota few")), Some(in_the_way));
}

fn another_placeholder() -> InTheWay {
    InTheWay::Placeholder {
        name: "another-set".to_owned(),
        uid: "another-set-uid".to_owned(),
    }
}

/// From each of these it is a step or two to another decision.
const USUAL: &[Usual] = &[
    held,
    with_questions,
    || held().with_set(),
    || held().stranded(60),
    || held().on(NODE),
    || held().on(NODE).reserving("cpu=4"),
    || held().on(NODE).reserving("cpu=4").shrunk(),
    || held().on(NODE).reserving("nvidia.com/gpu=1"),
    || on_unfit_node(held()),
    || on_unfit_node(held()).reserving("cpu=4"),
    || on_unfit_node(held()).created_ago(9999),
    || held().moved_off(),
    || automatic(held()),
    too_large_for_all_nodes,
    fresh,
    settled,
    || enrolled().on("node-2"),
    || settled().change(|scene| of_set(scene, |set| set.pinned = true)),
    || on_unfit_node(settled()),
    || settled().task_waits("big", 60).counted(0),
    || settled().task_waits("big", 60).counted(2),
    || on_the_node_of_its_volume(settled().task_waits("big", 60)),
    || settled().change(a_quota_refuses_a_task),
    || {
        enrolled()
            .opt_in(None)
            .change(|scene| scene.run.status = SpecStatus::Pending)
    },
    || opted_out_after_a_move(None),
    || opted_out_after_a_move(Some(NODE)),
    || opted_out_after_a_move(None).moved_off(),
    || enrolled().moved_off(),
    || enrolled().moved_off().task_waits("big", 60),
    || not_woken(enrolled().moved_off().task_waits("big", 60)),
    || left_asleep(enrolled().moved_off().task_waits("big", 60)),
    || enrolled().moved_off().change(a_quota_refuses_a_task),
    || {
        enrolled()
            .moved_off()
            .change(|scene| scene.yields = repeated(1, 4))
    },
    || done(Strategy::IsolateAlways),
    || done(Strategy::IsolateAlways).adopted(),
    || {
        done(Strategy::IsolateAlways)
            .adopted()
            .without_set()
            .change(|scene| scene.run.deleting = true)
    },
    || done(Strategy::ColocateCompleted).change(|scene| scene.run.succeeded = true),
];

/// Likewise, with this answer.
const ANSWERED: &[(Usual, Answer)] = &[
    (
        || held().with_set(),
        |seen| seen.complaint = Some(told(TOO_SMALL)),
    ),
    (at_its_deadline, |seen| seen.short_of = None),
    (at_its_deadline, |seen| places(seen, InTheWay::Gone)),
    (at_its_deadline, |seen| places(seen, another_placeholder())),
    (|| automatic(held()), |seen| seen.need = None),
    (
        || automatic(done(Strategy::ColocateCompleted)),
        |seen| (seen.run.succeeded, seen.stints) = (true, None),
    ),
];

/// Says a `LimitRange`.
const TOO_SMALL: &str = "minimum cpu usage per Container is 100m, but request is 50m";

/// Any observation.
pub fn anything() -> BoxedStrategy<Observation> {
    let changes = [OF_THE_RUN, OF_THE_CONFIGURATION, OF_THE_PLACEHOLDER, AROUND_IT].concat();
    let changes = prop_oneof![vec(select(changes.clone()), 0..3), vec(select(changes), 0..14)];
    let as_usual: Answer = |_| {};
    let usual: Vec<_> = USUAL.iter().map(|scene| (*scene, as_usual)).collect();
    let scenes = [usual.as_slice(), ANSWERED].concat();
    (select(scenes), changes, vec(select(ANSWERS), 0..4))
        .prop_map(|((scene, answer), changes, answers)| {
            let mut seen = changes.into_iter().fold(scene(), Scene::change).seen();
            for answer in [answer].into_iter().chain(answers) {
                answer(&mut seen);
            }
            seen
        })
        .boxed()
}

fn with_questions() -> Scene {
    held().change(|scene| {
        scene.run.claims = vec!["source".to_owned()];
        scene.config.placeholder_copied_labels = ["team".to_owned()].into();
    })
}

/// One of Tekton's assistants that it dismissed is back on this node, or on none yet.
fn opted_out_after_a_move(node: Option<&str>) -> Scene {
    let gave_up = |set: &mut Placeholder| set.left = Some("node-0".to_owned());
    settled().opt_in(None).change(|scene| {
        of_set(scene, gave_up);
        scene.assistants = Some(vec![assistant(node)]);
    })
}

/// Tekton creates a StatefulSet for it.
fn at_its_deadline() -> Scene {
    held()
        .in_group(UID)
        .created_ago(605)
        .change(|scene| scene.run.templates = 1)
}

fn automatic(scene: Scene) -> Scene {
    scene.change(|scene| scene.run.reserve = Some("auto".to_owned()))
}

fn on_unfit_node(scene: Scene) -> Scene {
    let cordoned = NodeState::Unfit(Cause::Cordoned);
    scene.on(NODE).node_is(cordoned).counted(0)
}

fn on_the_node_of_its_volume(scene: Scene) -> Scene {
    scene
        .counted(0)
        .change(|scene| scene.tied = Some("disk".to_owned()))
}

fn not_woken(scene: Scene) -> Scene {
    scene.change(|scene| scene.waiting.iter_mut().for_each(|pod| pod.woken = None))
}

/// The scheduler does not look again at the pod that waits.
fn left_asleep(scene: Scene) -> Scene {
    scene
        .counted(0)
        .change(|scene| scene.waiting.iter_mut().for_each(miss_the_group))
}

/// An automatic reserve.
fn too_large_for_all_nodes() -> Scene {
    let small = |scene: &mut Scene| scene.nodes = vec![node("small", "cpu=2")];
    let big = |shape: &mut Shape| (shape.reserves, shape.requests) = (true, amounts("cpu=4"));
    automatic(held().stranded(60)).change(small).shape(big)
}

fn of_set(scene: &mut Scene, change: fn(&mut Placeholder)) {
    scene.set.iter_mut().for_each(change);
}

fn a_quota_refuses_a_task(scene: &mut Scene) {
    (scene.refusal, scene.refused) = (Some("7".to_owned()), Some(vec!["build-test".to_owned()]));
}

fn told(message: &str) -> Message {
    Message(Some(message.to_owned()))
}

fn repeated(count: u32, seconds: i64) -> Repeated {
    Repeated {
        count,
        last: Some(ago(seconds)),
    }
}

fn assistant(node: Option<&str>) -> AssistantPod {
    AssistantPod {
        name: "affinity-assistant-0".to_owned(),
        uid: "assistant-uid".to_owned(),
        node: node.map(str::to_owned),
    }
}

fn wait_for_ever(pod: &mut WaitingPod) {
    let since = |unschedulable: &mut Unschedulable| unschedulable.since = Timestamp::MIN;
    pod.unschedulable.iter_mut().for_each(since);
}

fn miss_the_group(pod: &mut WaitingPod) {
    if let Some(verdict) = &mut pod.unschedulable {
        ELSEWHERE.clone_into(&mut verdict.message);
    }
}
