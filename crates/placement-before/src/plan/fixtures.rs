//! Scenes for the tests of `plan`: a run and its placeholder, changed step by step.

use super::{
    AssistantPod, Census, Claims, Decision, Enrolment, Message, Observation, Placeholder, PlaceholderPod,
    Plan, Repeated, Shape, Unschedulable, WaitingPod, Write, plan,
};
use crate::config::Config;
use crate::need::Need;
use crate::node::{NodeFacts, NodeState};
use crate::placeholder::size;
use crate::placeholder::wake::Wake;
use crate::resources::Resources;
use crate::run::{Run, SpecStatus};
use crate::strategy::{Isolation, Strategy};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const UID: &str = "run-uid";
pub const SET: &str = "set-uid";
pub const POD: &str = "pod-uid";
pub const NODE: &str = "node-1";
/// Of the StatefulSet; tasks that wait are labelled with it.
pub const GENERATION: i64 = 3;
/// What the scheduler says of a pod that fits nowhere.
pub const NO_NODE: &str = "0/3 nodes are available";
pub const ELSEWHERE: &str = "0/3 nodes are available: 3 node(s) didn't match pod affinity rules";

#[derive(Clone, Debug)]
pub struct Scene {
    pub run: Run,
    pub set: Option<Placeholder>,
    pub pod: Option<PlaceholderPod>,
    pub config: Config,
    pub node: NodeState,
    pub waiting: Vec<WaitingPod>,
    pub census: Option<Census>,
    pub tied: Option<String>,
    pub yields: Repeated,
    pub retries: Repeated,
    pub refusal: Option<String>,
    pub refused: Option<Vec<String>>,
    pub moves: Repeated,
    pub nodes: Vec<NodeFacts>,
    pub assistants: Option<Vec<AssistantPod>>,
}

/// An opted-in run, created now; nothing holds it and nothing has happened yet.
pub fn fresh() -> Scene {
    Scene {
        run: run(),
        set: None,
        pod: None,
        config: Config::default(),
        node: NodeState::Unknown,
        waiting: Vec::new(),
        census: None,
        tied: None,
        yields: Repeated::default(),
        retries: Repeated::default(),
        refusal: None,
        refused: None,
        moves: Repeated::default(),
        nodes: Vec::new(),
        assistants: Some(Vec::new()),
    }
}

/// Held by us.
pub fn held() -> Scene {
    fresh().change(|scene| {
        scene.run.status = SpecStatus::Pending;
        scene.run.hold = true;
    })
}

/// Running and enrolled.
pub fn enrolled() -> Scene {
    fresh().in_group(UID)
}

/// Done, once enrolled by this strategy, its placeholder still on the node.
pub fn done(strategy: Strategy) -> Scene {
    enrolled()
        .resolved(strategy)
        .on(NODE)
        .change(|scene| scene.run.done = true)
}

/// Running on this node, which is written down.
pub fn settled() -> Scene {
    enrolled()
        .on(NODE)
        .change(|scene| scene.run.node = Some(NODE.to_owned()))
}

pub fn default_enrolment() -> Enrolment {
    Enrolment {
        strategy: Strategy::default(),
        isolation: Isolation::default(),
    }
}

pub fn deletion(set: Option<&str>, pod: Option<&str>) -> Decision {
    Decision::Write(Write::DeletePlaceholder {
        set: set.map(str::to_owned),
        pod: pod.map(str::to_owned),
    })
}

impl Scene {
    pub fn change(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn opt_in(self, value: Option<&str>) -> Self {
        self.change(|scene| scene.run.opt_in = value.map(str::to_owned))
    }

    pub fn in_group(self, group: &str) -> Self {
        self.change(|scene| {
            scene.run.group = Some(group.to_owned());
            scene.run.strategy = Some(Strategy::default().to_string());
            scene.run.isolation = Some(Isolation::default().to_string());
        })
    }

    /// The strategy that run and placeholder have as label.
    pub fn resolved(self, strategy: Strategy) -> Self {
        self.change(|scene| scene.run.strategy = Some(strategy.to_string()))
            .with_set()
            .change(|scene| {
                scene.set.as_mut().unwrap().strategy = Some(strategy);
            })
    }

    pub fn created_ago(self, seconds: i64) -> Self {
        self.change(|scene| scene.run.created = Some(ago(seconds)))
    }

    pub fn with_set(self) -> Self {
        self.change(|scene| scene.set = Some(set()))
    }

    pub fn with_pod(self) -> Self {
        self.change(|scene| {
            scene.set.get_or_insert_with(set);
            scene.pod = Some(pod());
        })
    }

    /// The placeholder pod is bound to this node.
    pub fn on(self, node: &str) -> Self {
        self.with_pod()
            .change(|scene| scene.pod.as_mut().unwrap().node = Some(node.to_owned()))
    }

    pub fn adopted(self) -> Self {
        self.change(|scene| scene.pod.as_mut().unwrap().adopted = true)
    }

    pub fn pod_ending(self) -> Self {
        self.change(|scene| scene.pod.as_mut().unwrap().ending = true)
    }

    pub fn set_deleting(self) -> Self {
        self.with_set()
            .change(|scene| scene.set.as_mut().unwrap().deleting = true)
    }

    pub fn foreign_set(self) -> Self {
        self.with_set()
            .change(|scene| scene.set.as_mut().unwrap().owned = false)
    }

    /// The placeholder pod has found no node for so many seconds.
    pub fn stranded(self, seconds: i64) -> Self {
        self.with_pod()
            .change(|scene| scene.pod.as_mut().unwrap().unschedulable = Some(unschedulable(seconds)))
    }

    /// The StatefulSet is at no replicas and its pod is gone.
    pub fn moved_off(self) -> Self {
        self.change(|scene| {
            scene.set.get_or_insert_with(set).replicas = 0;
            scene.pod = None;
        })
    }

    /// A task's pod is not bound, and nothing is wrong with it yet.
    pub fn task_starts(self, name: &str) -> Self {
        self.change(|scene| scene.waiting.push(waiting_pod(name, None)))
    }

    /// A task's pod has found no node for so many seconds.
    pub fn task_waits(self, name: &str, seconds: i64) -> Self {
        let pod = waiting_pod(name, Some(unschedulable(seconds)));
        self.change(|scene| scene.waiting.push(pod))
    }

    /// So many tasks live; if none, for longer than anybody knows.
    pub fn counted(self, live: usize) -> Self {
        self.change(|scene| {
            scene.census = Some(Census {
                live,
                quiet_since: None,
            });
        })
    }

    /// The last task ended so many seconds ago.
    pub fn quiet_for(self, seconds: i64) -> Self {
        self.change(|scene| {
            scene.census = Some(Census {
                live: 0,
                quiet_since: Some(ago(seconds)),
            });
        })
    }

    pub fn node_is(self, state: NodeState) -> Self {
        self.change(|scene| scene.node = state)
    }

    pub fn moved_before(self, count: u32, seconds: i64) -> Self {
        self.change(|scene| {
            scene.moves = Repeated {
                count,
                last: Some(ago(seconds)),
            };
        })
    }

    /// The run asks for a reserve, and its placeholder, if it is there, has it.
    pub fn reserving(self, reserve: &str) -> Self {
        self.change(|scene| {
            scene.run.reserve = Some(reserve.to_owned());
            let requests = size::reserved(&scene.run, &scene.config).requests();
            scene.shaped(|shape| {
                shape.reserves = true;
                shape.requests = requests;
            });
        })
    }

    /// The placeholder pod has the usual size again.
    pub fn shrunk(self) -> Self {
        self.change(|scene| {
            let requests = size::usual(&scene.config).requests();
            scene.shaped(|shape| shape.requests = requests);
        })
    }

    pub fn shape(self, change: impl FnOnce(&mut Shape)) -> Self {
        self.change(|scene| scene.shaped(change))
    }

    fn shaped(&mut self, change: impl FnOnce(&mut Shape)) {
        if let Some(pod) = &mut self.pod {
            change(&mut pod.shape);
        }
    }

    pub fn without_set(self) -> Self {
        self.change(|scene| scene.set = None)
    }

    pub fn seen(&self) -> Observation {
        Observation {
            now: now(),
            config: Arc::new(self.config.clone()),
            run: self.run.clone(),
            set: self.set.clone(),
            pod: self.pod.clone(),
            node: self.node,
            nodes: self.nodes.clone(),
            waiting: self.waiting.clone(),
            moves: self.moves,
            census: self.census,
            tied: self.tied.clone(),
            yields: self.yields,
            retries: self.retries,
            refusal: self.refusal.clone(),
            refused: self.refused.clone(),
            assistants: self.assistants.clone(),
            ..answered(now())
        }
    }

    pub fn plan(&self) -> Plan {
        plan(&self.seen())
    }

    pub fn decision(&self) -> Decision {
        self.plan().decision
    }
}

/// Nothing but a run, of which all questions are answered: nothing speaks against any write.
pub fn answered(now: Timestamp) -> Observation {
    Observation {
        claims: Some(Claims::default()),
        copied_labels: Some(BTreeMap::new()),
        need: Some(Need::default()),
        short_of: Some(Message::default()),
        stints: Some(Vec::new()),
        assistants: Some(Vec::new()),
        complaint: Some(Message::default()),
        autoscaler: Some(Message::default()),
        ..Observation::of(run(), Arc::default(), now)
    }
}

pub fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000)
}

pub fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

pub fn amounts(text: &str) -> Resources {
    Resources::of(&crate::reserve::parse(text).unwrap())
}

pub fn node(name: &str, allocatable: &str) -> NodeFacts {
    NodeFacts {
        name: name.to_owned(),
        ready: true,
        allocatable: amounts(allocatable),
        ..NodeFacts::default()
    }
}

fn unschedulable(seconds: i64) -> Unschedulable {
    Unschedulable {
        message: NO_NODE.to_owned(),
        since: ago(seconds),
    }
}

/// Woken when the run moved off.
pub fn woken_for(generation: i64) -> Wake {
    Wake {
        generation,
        since: None,
    }
}

fn waiting_pod(name: &str, unschedulable: Option<Unschedulable>) -> WaitingPod {
    WaitingPod {
        name: name.to_owned(),
        requests: amounts("cpu=12"),
        unschedulable,
        tolerations: Vec::new(),
        woken: Some(woken_for(GENERATION)),
        relaxed: false,
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
        replicas: 1,
        generation: GENERATION,
        taken_up: true,
        strategy: Some(Strategy::default()),
        isolation: Some(Isolation::default()),
        pinned: false,
        within_limits: false,
        left: None,
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
