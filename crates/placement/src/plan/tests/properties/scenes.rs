//! Observations of a run: a usual scene with a few independent changes.

use super::super::*;
use crate::attempts::{Before, Turn};
use crate::automatic_reserve::PodUsage;
use crate::caps::{Cap, OverCap};
use crate::cross_namespace_quota::TermsRejected;
use crate::reserve::ReserveSetting;
use crate::statefulset_quota::{OwnedStatefulSet, Quota, QuotaBlocker, Shortage};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use proptest::collection::vec;
use proptest::prop_oneof;
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy as Arbitrary};

/// A change of a scene.
type Change = fn(&mut Scene);
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
    |scene| scene.run.held_from = HeldFrom::OverCap,
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
    |scene| *scene = scene.clone().with_reserve("cpu=4"),
    |scene| *scene = scene.clone().with_reserve("nvidia.com/gpu=1"),
];

const OF_THE_CONFIGURATION: &[Change] = &[
    |scene| scene.config.default_strategy = Strategy::IsolateAlways,
    |scene| scene.config.isolation.scope = Scope::Namespace,
    |scene| scene.config.default_reserve = ReserveSetting::Automatic,
    |scene| scene.config.keep_node_for = Duration::from_mins(5),
    |scene| scene.config.placeholder_copied_labels = ["team".to_owned()].into(),
    |scene| scene.config.release_when = ReleaseWhen::Created,
    |scene| scene.config.hold_deadline = Duration::MAX,
    |scene| scene.config.move_after = None,
    |scene| scene.config.move_after = Some(Duration::MAX),
];

const OF_THE_PLACEHOLDER: &[Change] = &[
    |scene| *scene = scene.clone().with_statefulset(),
    |scene| *scene = scene.clone().without_statefulset(),
    |scene| *scene = scene.clone().statefulset_deleting(),
    |scene| *scene = scene.clone().foreign_statefulset(),
    |scene| *scene = scene.clone().resolved(Strategy::IsolateAlways),
    |scene| *scene = scene.clone().moved_off(),
    |scene| change_set(scene, |set| set.spec.replicas = -1),
    |scene| change_set(scene, |set| set.observed = false),
    |scene| change_set(scene, |set| (set.strategy, set.isolation) = (None, None)),
    |scene| change_set(scene, |set| set.spec.node = Some(NODE.to_owned())),
    |scene| change_set(scene, |set| set.spec.previous_node = Some(NODE.to_owned())),
    |scene| change_set(scene, |set| set.spec.previous_node = Some(String::new())),
    |scene| change_set(scene, |set| set.spec.size = amounts("cpu=4")),
    |scene| change_set(scene, |set| set.spec.within_limits = true),
    |scene| change_set(scene, |set| set.spec.claims = vec!["source".to_owned()]),
    |scene| {
        change_set(scene, |set| {
            set.spec.images = ["golang".to_owned()].into_iter().collect();
        });
    },
    |scene| change_set(scene, |set| set.spec.tolerations = vec![Toleration::default()]),
    |scene| scene.pod = None,
    |scene| *scene = scene.clone().with_pod(),
    |scene| *scene = scene.clone().on(NODE),
    |scene| *scene = scene.clone().on("node-2"),
    |scene| *scene = scene.clone().on(NODE).adopted(),
    |scene| *scene = scene.clone().on(NODE).pod_ending(),
    |scene| *scene = scene.clone().placeholder_unschedulable(60),
    |scene| *scene = scene.clone().shape(|shape| shape.resize = Resize::Refused),
    |scene| *scene = scene.clone().shape(|shape| shape.pinned = true),
    |scene| *scene = scene.clone().shape(|shape| shape.mounts = true),
    |scene| volumes_keep_placeholder_from(scene, "2 node(s) didn't match pod affinity rules"),
    |scene| volumes_keep_placeholder_from(scene, "preemption: 0/3 nodes are available"),
    |scene| {
        let pod = scene.pod.iter_mut();
        pod.for_each(|pod| pod.tolerations = vec![Toleration::default()]);
    },
];

const AROUND_IT: &[Change] = &[
    |scene| scene.node = NodeState::Usable,
    |scene| scene.node = NodeState::Unusable(Cause::Cordoned),
    |scene| scene.node = NodeState::Unusable(Cause::Gone),
    |scene| scene.cluster.nodes = vec![node("small", "cpu=2"), node("large", "cpu=16")],
    |scene| scene.cluster.nodes = vec![node("small", "cpu=2")],
    |scene| *scene = scene.clone().counted(0),
    |scene| *scene = scene.clone().quiet_for(3),
    |scene| *scene = scene.clone().quiet_for(-9999),
    |scene| *scene = scene.clone().counted(2),
    |scene| *scene = scene.clone().pinned_by_volume("disk"),
    |scene| *scene = scene.clone().task_is_new("new"),
    |scene| *scene = scene.clone().task_waits("big", 60),
    |scene| *scene = scene.clone().task_waits("late", 3),
    |scene| scene.waiting.iter_mut().for_each(wait_for_ever),
    |scene| scene.waiting.iter_mut().for_each(miss_the_group),
    |scene| scene.waiting.iter_mut().for_each(|pod| pod.woken = None),
    |scene| scene.waiting.iter_mut().for_each(|pod| pod.relaxed = true),
    |scene| *scene = scene.clone().moved_before(2, 5),
    |scene| *scene = scene.clone().moved_before(u32::MAX, -9999),
    |scene| scene.repeated.moves.last = Some(Timestamp::MIN),
    |scene| scene.messages.rejection = Some("7".to_owned()),
    |scene| {
        scene.messages.rejection = Some("7".to_owned());
        scene.inputs.rejected_tasks = Vec::new().into();
    },
    a_quota_refuses_a_task,
    |scene| scene.repeated.yields = repeated(1, 4),
    |scene| scene.repeated.yields = repeated(3, 9999),
    |scene| scene.repeated.yields = repeated(u32::MAX, -9999),
    |scene| scene.repeated.retries = repeated(1, 4),
    |scene| scene.repeated.retries = repeated(2, 9999),
    |scene| unread(scene, Read::Assistants),
    |scene| scene.inputs.assistants = vec![assistant(Some(NODE))].into(),
    |scene| scene.inputs.assistants = vec![assistant(Some(NODE)), assistant(None)].into(),
];

/// A change of an input or of the memory; `fixtures::inputs_read` has the usual inputs.
const ANSWERS: &[Change] = &[
    |scene| unread(scene, Read::Creation),
    |scene| unread(scene, Read::Quota),
    |scene| no_room(scene, None),
    |scene| no_room(scene, Some(QuotaBlocker::DeletedStatefulSets)),
    |scene| no_room(scene, Some(placeholder_of("another", "another-set-uid"))),
    |scene| {
        if scene.statefulset.is_some() {
            no_room(scene, Some(placeholder_of(UID, SET)));
        }
    },
    |scene| unread(scene, Read::Usage),
    |scene| *scene = scene.clone().failed_create("exceeded quota: tight"),
    |scene| {
        *scene = scene
            .clone()
            .failed_create("no PriorityClass with name urgent was found");
    },
    |scene| *scene = scene.clone().failed_create(TOO_SMALL),
    a_policy_rejects_image_volumes,
    |scene| scene.cluster.terms_rejected = Some(TermsRejected::BecauseOf("tight".to_owned())),
    |scene| scene.messages.autoscaler = Some("pod triggered scale-up: pool".to_owned()),
    |scene| scene.messages.autoscaler = Some("max node group size reached".to_owned()),
    |scene| scene.turn = Turn::Later(Before::Rejected),
    |scene| scene.turn = Turn::Later(Before::Waiting { ahead: 3 }),
    |scene| scene.turn = over_cap(),
    |scene| scene.requeue_in = Duration::from_secs(3),
    |scene| scene.relaxed = true,
];

fn a_policy_rejects_image_volumes(scene: &mut Scene) {
    scene.pod = None;
    *scene = scene.clone().failed_create("denied the request");
    change_set(scene, |set| {
        set.spec.images = ["golang".to_owned()].into_iter().collect();
    });
}

/// The scheduler finds no node for a placeholder that mounts two PVCs.
fn volumes_keep_placeholder_from(scene: &mut Scene, others: &str) {
    let others = others.to_owned();
    *scene = scene
        .clone()
        .placeholder_unschedulable(60)
        .spec(|spec| spec.claims = vec!["source".to_owned(), "cache".to_owned()])
        .shape(|shape| shape.mounts = true)
        .change(|scene| {
            let unschedulable = scene.pod.as_mut().and_then(|pod| pod.unschedulable.as_mut());
            unschedulable.unwrap().message = volume_elsewhere(&others);
        });
}

fn unread(scene: &mut Scene, read: Read) {
    *scene = scene.clone().unread(read);
}

fn no_room(scene: &mut Scene, blocker: Option<QuotaBlocker>) {
    let quota = "ResourceQuota few".to_owned();
    *scene = scene.clone().short_of(Quota {
        short_of: Some(quota.clone()),
        shortage: Some(Shortage { quota, blocker }),
    });
}

fn placeholder_of(run: &str, uid: &str) -> QuotaBlocker {
    QuotaBlocker::Placeholders(vec![OwnedStatefulSet {
        run: run.to_owned(),
        name: format!("placeholder of {run}"),
        uid: uid.to_owned(),
        is_placeholder: true,
        deleting: false,
    }])
}

pub(super) fn over_cap() -> Turn {
    Turn::Later(Before::OverCap(OverCap {
        cap: Cap::Cluster(5),
        ahead: 1,
    }))
}

/// The placeholder of an enrolled run found no node, and older runs come first.
fn in_line() -> Scene {
    let unschedulable = held().in_group(UID).placeholder_unschedulable(60);
    unschedulable.change(|scene| scene.turn = Turn::Later(Before::Waiting { ahead: 3 }))
}

/// Usual scenes, from which one or two changes lead to another decision.
const USUAL: &[Usual] = &[
    held,
    with_questions,
    || held().with_statefulset(),
    || held().placeholder_unschedulable(60),
    in_line,
    || held().on(NODE),
    || held().on(NODE).with_reserve("cpu=4"),
    || held().on(NODE).with_reserve("cpu=4").shrunk(),
    || held().on(NODE).with_reserve("nvidia.com/gpu=1"),
    || on_unfit_node(held()),
    || on_unfit_node(held()).with_reserve("cpu=4"),
    || on_unfit_node(held()).created_ago(9999),
    || held().moved_off(),
    || automatic(held()),
    too_large_for_all_nodes,
    too_large_for_a_quota,
    fresh,
    settled,
    || enrolled().on("node-2"),
    || settled().change(|scene| change_set(scene, |set| set.spec.node = Some(NODE.to_owned()))),
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
    || {
        done(Strategy::ColocateCompleted)
            .node_is(NodeState::Usable)
            .change(|scene| scene.config.keep_node_for = Duration::from_mins(5))
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
            .change(|scene| scene.repeated.yields = repeated(1, 4))
    },
    || done(Strategy::IsolateAlways),
    || done(Strategy::IsolateAlways).adopted(),
    || {
        done(Strategy::IsolateAlways)
            .adopted()
            .without_statefulset()
            .change(|scene| scene.run.deleting = true)
    },
    || done(Strategy::ColocateCompleted).change(|scene| scene.run.succeeded = true),
    || held().with_statefulset().failed_create(TOO_SMALL),
    || {
        let rejected = held().with_statefulset().failed_create("exceeded quota: tight");
        rejected
            .change(|scene| scene.cluster.terms_rejected = Some(TermsRejected::BecauseOf("tight".to_owned())))
    },
    || at_its_deadline().unread(Read::Quota),
    || at_its_deadline().change(|scene| no_room(scene, Some(QuotaBlocker::DeletedStatefulSets))),
    || at_its_deadline().change(|scene| no_room(scene, Some(placeholder_of("another", "another-set-uid")))),
    || {
        let opted_out = at_its_deadline().opt_in(None);
        opted_out.change(|scene| no_room(scene, Some(placeholder_of("another", "another-set-uid"))))
    },
    || {
        let waits = held()
            .on(NODE)
            .created_ago(70)
            .change(|scene| scene.run.templates = 1);
        waits.change(|scene| no_room(scene, None))
    },
    || automatic(held()).unread(Read::Creation),
    || {
        automatic(done(Strategy::ColocateCompleted))
            .change(|scene| scene.run.succeeded = true)
            .unread(Read::Usage)
    },
    || automatic(done(Strategy::ColocateCompleted)).change(ended_well),
];

/// The rejection by a `LimitRange`.
const TOO_SMALL: &str = "minimum cpu usage per Container is 100m, but request is 50m";

/// Any observation with any inputs.
pub(in super::super) fn anything() -> BoxedStrategy<Scene> {
    let changes = [OF_THE_RUN, OF_THE_CONFIGURATION, OF_THE_PLACEHOLDER, AROUND_IT].concat();
    let changes = prop_oneof![vec(select(changes.clone()), 0..3), vec(select(changes), 0..14)];
    (select(USUAL), changes, vec(select(ANSWERS), 0..4))
        .prop_map(|(scene, changes, answers)| changes.into_iter().chain(answers).fold(scene(), Scene::change))
        .boxed()
}

fn with_questions() -> Scene {
    held().change(|scene| {
        scene.run.claims = vec!["source".to_owned()];
        scene.config.placeholder_copied_labels = ["team".to_owned()].into();
    })
}

/// An affinity assistant that was recreated, on this node or without a node.
fn opted_out_after_a_move(node: Option<&str>) -> Scene {
    settled()
        .opt_in(None)
        .spec(|spec| spec.previous_node = Some("node-0".to_owned()))
        .change(|scene| scene.inputs.assistants = vec![assistant(node)].into())
}

/// A run for which Tekton creates a StatefulSet.
fn at_its_deadline() -> Scene {
    held()
        .in_group(UID)
        .created_ago(605)
        .change(|scene| scene.run.templates = 1)
}

fn too_large_for_a_quota() -> Scene {
    let figures = "requested: requests.cpu=4100m, used: requests.cpu=0, limited: requests.cpu=4";
    automatic(held().with_statefulset().with_reserve("cpu=4"))
        .failed_create(&format!("exceeded quota: tight, {figures}"))
}

fn automatic(scene: Scene) -> Scene {
    scene.change(|scene| scene.run.reserve = Some("auto".to_owned()))
}

fn on_unfit_node(scene: Scene) -> Scene {
    let cordoned = NodeState::Unusable(Cause::Cordoned);
    scene.on(NODE).node_is(cordoned).counted(0)
}

fn on_the_node_of_its_volume(scene: Scene) -> Scene {
    scene.counted(0).pinned_by_volume("disk")
}

fn not_woken(scene: Scene) -> Scene {
    scene.change(|scene| scene.waiting.iter_mut().for_each(|pod| pod.woken = None))
}

/// The scheduler does not retry the waiting pod.
fn left_asleep(scene: Scene) -> Scene {
    scene
        .counted(0)
        .change(|scene| scene.waiting.iter_mut().for_each(miss_the_group))
}

/// A run with an automatic reserve.
fn too_large_for_all_nodes() -> Scene {
    let small = |scene: &mut Scene| scene.cluster.nodes = vec![node("small", "cpu=2")];
    let big = |shape: &mut Shape| (shape.reserves, shape.requests) = (true, amounts("cpu=4"));
    automatic(held().placeholder_unschedulable(60))
        .change(small)
        .shape(big)
}

fn change_set(scene: &mut Scene, change: fn(&mut Placeholder)) {
    scene.statefulset.iter_mut().for_each(change);
}

fn a_quota_refuses_a_task(scene: &mut Scene) {
    scene.messages.rejection = Some("7".to_owned());
    scene.inputs.rejected_tasks = vec![rejected_task("build-test")].into();
}

/// The usage of a task.
fn ended_well(scene: &mut Scene) {
    scene.run.succeeded = true;
    let stint = PodUsage {
        node: NODE.to_owned(),
        from: ago(60),
        to: ago(30),
        requests: amounts("cpu=3"),
    };
    scene.inputs.usage = vec![stint].into();
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
