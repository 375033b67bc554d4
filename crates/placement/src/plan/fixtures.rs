//! Scenes for the tests of `plan`: a run and its placeholder, which methods change.

use super::{
    Action, ClusterFacts, Creation, Decision, Enrolment, Event, Inputs, Messages, New, Observation,
    Placeholder, PlaceholderPod, Plan, Read, Repeated, RepeatedSteps, RequeueMark, RunState, Shape, Spec,
    Step, Target, TaskCount, Tasks, Unschedulable, WaitingPod, plan,
};
use crate::attempts::Turn;
use crate::config::Config;
use crate::node::{NodeFacts, NodeState};
use crate::placeholder::size;
use crate::quota_room::RejectedTask;
use crate::requests::Request;
use crate::resources::Resources;
use crate::run::{Run, SpecStatus};
use crate::statefulset_quota::Quota;
use crate::strategy::{Isolation, Strategy};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;

pub(super) const UID: &str = "run-uid";
pub(super) const SET: &str = "set-uid";
pub(super) const POD: &str = "pod-uid";
pub(super) const NODE: &str = "node-1";
/// The generation of the StatefulSet, which the label of waiting tasks has.
pub(super) const GENERATION: i64 = 3;
/// The scheduler's message about a pod that fits on no node.
pub(super) const NO_NODE: &str = "0/3 nodes are available";
pub(super) const ELSEWHERE: &str = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules";

/// The scheduler's message about a pod whose volume cannot be used on one node, and whose other nodes are excluded by these reasons.
pub(super) fn volume_elsewhere(others: &str) -> String {
    format!("0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, {others}.")
}

/// An observation of a run, and the inputs that were read for it.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub(super) run: Run,
    pub(super) statefulset: Option<Placeholder>,
    pub(super) pod: Option<PlaceholderPod>,
    pub(super) config: Config,
    pub(super) node: NodeState,
    pub(super) waiting: Vec<WaitingPod>,
    pub(super) relaxed: bool,
    pub(super) messages: Messages,
    pub(super) cluster: ClusterFacts,
    pub(super) makes_room_since: Option<Timestamp>,
    pub(super) repeated: RepeatedSteps,
    pub(super) requeue_in: Duration,
    pub(super) turn: Turn,
    pub(super) inputs: Inputs,
}

/// An opted-in run, created now, without a hold or a placeholder.
pub(super) fn fresh() -> Scene {
    Scene {
        run: run(),
        statefulset: None,
        pod: None,
        config: Config::default(),
        node: NodeState::Unknown,
        waiting: Vec::new(),
        relaxed: false,
        messages: Messages::default(),
        cluster: ClusterFacts::default(),
        makes_room_since: None,
        repeated: RepeatedSteps::default(),
        requeue_in: Duration::ZERO,
        turn: Turn::Now,
        inputs: inputs_read(),
    }
}

/// A run that pod-affinity holds.
pub(super) fn held() -> Scene {
    fresh().change(|scene| {
        scene.run.status = SpecStatus::Pending;
        scene.run.hold = true;
    })
}

/// A running, enrolled run.
pub(super) fn enrolled() -> Scene {
    fresh().in_group(UID)
}

/// A run that is done, was enrolled with this strategy, and has its placeholder on the node.
pub(super) fn done(strategy: Strategy) -> Scene {
    enrolled()
        .resolved(strategy)
        .on(NODE)
        .change(|scene| scene.run.done = true)
}

/// A running run on this node, which the run's annotation names.
pub(super) fn settled() -> Scene {
    enrolled()
        .on(NODE)
        .change(|scene| scene.run.node = Some(NODE.to_owned()))
}

pub(super) fn default_enrolment() -> Enrolment {
    Enrolment {
        strategy: Strategy::default(),
        isolation: Isolation::default(),
    }
}

/// The state of a run after it was enrolled.
pub(super) fn enrolled_state() -> RunState {
    RunState {
        hold: None,
        group: Some(default_enrolment().into()),
        node: None,
        used: None,
    }
}

/// The deletion of the placeholder of a run that is done or being deleted.
pub(super) fn deletion(set: Option<&str>, pod: Option<&str>) -> Decision {
    let set = set.map(|uid| Target::Placeholder(uid.to_owned()));
    let pod = pod.map(|uid| Target::Pod(uid.to_owned()));
    let targets = set.into_iter().chain(pod).map(Action::Delete);
    Decision::act("delete_placeholder", None, targets.collect::<Vec<_>>())
}

/// The deletion of the placeholder of a run that continues.
pub(super) fn cleaned_up() -> Decision {
    let delete = Action::Delete(Target::Placeholder(SET.to_owned()));
    Decision::act("delete_placeholder", Event::CleanedUp, [delete])
}

pub(super) fn creation() -> Decision {
    let create = Action::Create(New::Placeholder(default_enrolment(), Creation::default()));
    Decision::act("create_placeholder", Event::Created(None), [create])
}

impl Scene {
    pub(super) fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(super) fn opt_in(self, value: Option<&str>) -> Self {
        self.change(|scene| scene.run.opt_in = value.map(str::to_owned))
    }

    pub(super) fn in_group(self, group: &str) -> Self {
        self.change(|scene| {
            scene.run.group = Some(group.to_owned());
            scene.run.strategy = Some(Strategy::default().to_string());
            scene.run.isolation = Some(Isolation::default().to_string());
        })
    }

    /// Run and placeholder have this strategy as label.
    pub(super) fn resolved(self, strategy: Strategy) -> Self {
        self.change(|scene| scene.run.strategy = Some(strategy.to_string()))
            .with_statefulset()
            .change(|scene| {
                scene.statefulset.as_mut().unwrap().strategy = Some(strategy);
            })
    }

    pub(super) fn created_ago(self, seconds: i64) -> Self {
        self.change(|scene| scene.run.created = Some(ago(seconds)))
    }

    pub(super) fn with_statefulset(self) -> Self {
        self.change(|scene| scene.statefulset = Some(set()))
    }

    pub(super) fn with_pod(self) -> Self {
        self.change(|scene| {
            scene.statefulset.get_or_insert_with(set);
            scene.pod = Some(pod());
        })
    }

    /// The placeholder's pod is bound to this node.
    pub(super) fn on(self, node: &str) -> Self {
        self.with_pod()
            .change(|scene| scene.pod.as_mut().unwrap().node = Some(node.to_owned()))
    }

    pub(super) fn adopted(self) -> Self {
        self.change(|scene| scene.pod.as_mut().unwrap().adopted = true)
    }

    pub(super) fn pod_ending(self) -> Self {
        self.change(|scene| scene.pod.as_mut().unwrap().ending = true)
    }

    pub(super) fn statefulset_deleting(self) -> Self {
        self.with_statefulset()
            .change(|scene| scene.statefulset.as_mut().unwrap().deleting = true)
    }

    pub(super) fn foreign_statefulset(self) -> Self {
        self.with_statefulset()
            .change(|scene| scene.statefulset.as_mut().unwrap().owned = false)
    }

    /// The scheduler has found no node for the placeholder's pod for this number of seconds.
    pub(super) fn placeholder_unschedulable(self, seconds: i64) -> Self {
        self.with_pod()
            .change(|scene| scene.pod.as_mut().unwrap().unschedulable = Some(unschedulable(seconds)))
    }

    /// The StatefulSet has zero replicas and no pod.
    pub(super) fn moved_off(self) -> Self {
        self.change(|scene| {
            scene.statefulset.get_or_insert_with(set).spec.replicas = 0;
            scene.pod = None;
        })
    }

    /// A task's pod is new and not bound.
    pub(super) fn task_is_new(self, name: &str) -> Self {
        self.change(|scene| scene.waiting.push(waiting_pod(name, None)))
    }

    /// The scheduler has found no node for a task's pod for this number of seconds.
    pub(super) fn task_waits(self, name: &str, seconds: i64) -> Self {
        let pod = waiting_pod(name, Some(unschedulable(seconds)));
        self.change(|scene| scene.waiting.push(pod))
    }

    /// This number of tasks is active. If it is zero, the time of the last end is unknown.
    pub(super) fn counted(self, live: usize) -> Self {
        self.task_count(live, None)
    }

    /// The last task ended this number of seconds ago.
    pub(super) fn quiet_for(self, seconds: i64) -> Self {
        self.task_count(0, Some(ago(seconds)))
    }

    pub(super) fn task_count(self, live: usize, quiet_since: Option<Timestamp>) -> Self {
        self.tasks(|tasks| tasks.task_count = TaskCount { live, quiet_since })
    }

    /// This PVC can be used only on the placeholder's node. The run has no active task, unless a count says otherwise.
    pub(super) fn pinned_by_volume(self, claim: &str) -> Self {
        self.tasks(|tasks| tasks.pinned_by_volume = Some(claim.to_owned()))
    }

    fn tasks(self, change: impl FnOnce(&mut Tasks)) -> Self {
        self.change(|scene| {
            let mut tasks = scene.inputs.tasks.clone().unwrap_or_default();
            change(&mut tasks);
            scene.inputs.tasks = tasks.into();
        })
    }

    /// This quota has no room for the placeholder's StatefulSet.
    pub(super) fn short_of(self, quota: Quota) -> Self {
        self.change(|scene| {
            let mut creation = scene.inputs.creation.clone().unwrap_or_default();
            creation.quota = quota.clone();
            scene.inputs.creation = creation.into();
            scene.inputs.quota = quota.into();
        })
    }

    /// This group of inputs has not been read.
    pub(super) fn unread(self, read: Read) -> Self {
        self.change(|scene| {
            let (inputs, nothing) = (&mut scene.inputs, Inputs::default());
            match read {
                Read::Creation => inputs.creation = nothing.creation,
                Read::Quota => inputs.quota = nothing.quota,
                Read::Tasks => inputs.tasks = nothing.tasks,
                Read::Assistants => inputs.assistants = nothing.assistants,
                Read::RejectedTasks => inputs.rejected_tasks = nothing.rejected_tasks,
                Read::Usage => inputs.usage = nothing.usage,
            }
        })
    }

    /// The message of the latest `FailedCreate` event of the placeholder.
    pub(super) fn failed_create(self, message: &str) -> Self {
        self.change(|scene| scene.messages.failed_create = Some(message.to_owned()))
    }

    pub(super) fn node_is(self, state: NodeState) -> Self {
        self.change(|scene| scene.node = state)
    }

    pub(super) fn moved_before(self, count: u32, seconds: i64) -> Self {
        self.change(|scene| {
            scene.repeated.moves = Repeated {
                count,
                last: Some(ago(seconds)),
            };
        })
    }

    /// The run has this reserve, and so has its placeholder, if it exists.
    pub(super) fn with_reserve(self, reserve: &str) -> Self {
        self.change(|scene| {
            scene.run.reserve = Some(reserve.to_owned());
            let requests = size::reserved(&scene.run, &scene.config).requests();
            scene.sized(&requests);
            scene.shaped(|shape| shape.reserves = true);
        })
        .spec(|spec| spec.reserve = Some(reserve.to_owned()))
    }

    /// The placeholder has the usual size.
    pub(super) fn shrunk(self) -> Self {
        self.change(|scene| scene.sized(&size::usual(&scene.config).requests()))
            .spec(|spec| spec.reserve = None)
    }

    fn sized(&mut self, size: &Resources) {
        self.shaped(|shape| shape.requests = size.clone());
        if let Some(set) = &mut self.statefulset {
            set.spec.size = size.clone();
        }
    }

    /// Changes the placeholder's StatefulSet, if it exists.
    pub(super) fn spec(self, change: impl FnOnce(&mut Spec)) -> Self {
        self.change(|scene| {
            if let Some(set) = &mut scene.statefulset {
                change(&mut set.spec);
            }
        })
    }

    pub(super) fn shape(self, change: impl FnOnce(&mut Shape)) -> Self {
        self.change(|scene| scene.shaped(change))
    }

    fn shaped(&mut self, change: impl FnOnce(&mut Shape)) {
        if let Some(pod) = &mut self.pod {
            change(&mut pod.shape);
        }
    }

    pub(super) fn without_statefulset(self) -> Self {
        self.change(|scene| scene.statefulset = None)
    }

    pub(super) fn observation(&self) -> Observation {
        Observation {
            now: now(),
            config: Arc::new(self.config.clone()),
            run: self.run.clone(),
            statefulset: self.statefulset.clone(),
            pod: self.pod.clone(),
            node: self.node,
            waiting: self.waiting.clone(),
            relaxed: self.relaxed,
            messages: self.messages.clone(),
            cluster: self.cluster.clone(),
            makes_room_since: self.makes_room_since,
            repeated: self.repeated,
            requeue_in: self.requeue_in,
            turn: self.turn,
        }
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.observation(), &self.inputs)
    }

    /// The requests of the planned step.
    pub(super) fn requests(&self) -> Vec<Request> {
        let Decision::Act(Step { actions, .. }) = self.decision() else {
            panic!("{self:?}")
        };
        let observed = self.observation();
        let requests = actions
            .iter()
            .flat_map(|action| action.requests(&observed, "image"));
        requests.collect()
    }

    pub(super) fn decision(&self) -> Decision {
        self.plan().decision
    }
}

/// All groups of inputs except the tasks and the rejected tasks have been read, and none prevents a step.
pub(super) fn inputs_read() -> Inputs {
    Inputs {
        creation: Creation::default().into(),
        quota: Quota::default().into(),
        assistants: Vec::new().into(),
        usage: Vec::new().into(),
        ..Inputs::default()
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000)
}

pub(super) fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub(super) fn amounts(text: &str) -> Resources {
    Resources::from_texts(&crate::reserve::parse(text).unwrap())
}

pub(super) fn node(name: &str, allocatable: &str) -> Arc<NodeFacts> {
    Arc::new(NodeFacts {
        name: name.to_owned(),
        ready: true,
        allocatable: amounts(allocatable),
        ..NodeFacts::default()
    })
}

fn unschedulable(seconds: i64) -> Unschedulable {
    Unschedulable {
        message: NO_NODE.to_owned(),
        since: ago(seconds),
    }
}

/// The label of a pod that was requeued when the run moved off.
pub(super) fn requeued_for(generation: i64) -> RequeueMark {
    RequeueMark {
        generation,
        since: None,
    }
}

/// A TaskRun whose pod a quota rejected.
pub(super) fn rejected_task(name: &str) -> RejectedTask {
    RejectedTask {
        name: name.to_owned(),
        message: "exceeded quota".to_owned(),
    }
}

fn waiting_pod(name: &str, unschedulable: Option<Unschedulable>) -> WaitingPod {
    WaitingPod {
        name: name.to_owned(),
        requests: amounts("cpu=12"),
        unschedulable,
        woken: Some(requeued_for(GENERATION)),
        ..WaitingPod::default()
    }
}

fn run() -> Run {
    let mut run = crate::fixture::run();
    run.key.uid = UID.to_owned();
    Run {
        created: Some(now()),
        status: SpecStatus::Unset,
        hold: false,
        ..run
    }
}

fn set() -> Placeholder {
    Placeholder {
        uid: SET.to_owned(),
        owned: true,
        deleting: false,
        generation: GENERATION,
        observed: true,
        strategy: Some(Strategy::default()),
        isolation: Some(Isolation::default()),
        warm_nodes: None,
        spec: spec(),
    }
}

/// A placeholder of the usual size.
pub(super) fn spec() -> Spec {
    Spec {
        replicas: 1,
        size: size::usual(&Config::default()).requests(),
        ..Spec::default()
    }
}

fn pod() -> PlaceholderPod {
    PlaceholderPod {
        uid: POD.to_owned(),
        node: None,
        ending: false,
        unschedulable: None,
        tolerations: Vec::new(),
        adopted: false,
        shape: Shape::default(),
    }
}
