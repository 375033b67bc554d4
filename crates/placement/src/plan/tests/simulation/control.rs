//! The model's controller: observes as the real one does, plans, and carries the step out with the real patches.

use super::super::super::fixtures::answered;
use super::super::super::{
    Decision, Observation, Placeholder, PlaceholderPod, Question, Shape, Wait, WaitingPod, Write, is_pinned,
    plan,
};
use super::life::Life;
use super::world::{Node, World};
use super::{Census, Resize};
use crate::config::Config;
use crate::node::{NodeFacts, NodeState, state};
use crate::placeholder::patches::{pin, recreate, resize, scale, shrink, wake};
use crate::placeholder::stateful_set;
use crate::run::{HeldFrom, SpecStatus};
use crate::strategy::Enrolment;
use crate::strategy::Strategy;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const SET: &str = "set";

impl World {
    /// Step by step until there is nothing to do but wait.
    pub(super) fn settle(&mut self, index: usize) {
        for _ in 0..20 {
            let mut action = self.plan(index, None);
            if action == Decision::Count(Question::Tasks) {
                let census = self.count(index);
                action = self.plan(index, Some(census));
            }
            if !self.act(index, action) {
                return;
            }
        }
        panic!("a run is never at rest: {:?}", self.lives[index]);
    }

    fn count(&mut self, index: usize) -> Census {
        let life = &mut self.lives[index];
        let live = life.tasks.iter().filter(|task| task.node.is_some()).count();
        let census = Census::after(life.census, live, life.ended, self.now);
        life.census = Some(census);
        census
    }

    fn plan(&self, index: usize, census: Option<Census>) -> Decision {
        let life = &self.lives[index];
        let nodes: Vec<_> = self.nodes.iter().filter(|node| !node.gone).map(facts).collect();
        let seen = Observation {
            config: Arc::new(self.config.clone()),
            run: life.run.clone(),
            set: life.placeholder(),
            pod: life.placeholder_pod(),
            node: node_of(life, &nodes),
            nodes,
            waiting: life.waiting(),
            moves: life.moves,
            census,
            ..answered(self.now)
        };
        plan(&seen).decision
    }

    /// Whether anything was written.
    fn act(&mut self, index: usize, action: Decision) -> bool {
        let (now, config) = (self.now, self.config.clone());
        let (can_resize, hears_labels) = (self.can_resize, self.hears_labels);
        let life = &mut self.lives[index];
        let replicas = life.replicas().unwrap_or_default();
        match action {
            Decision::Write(Write::CreatePlaceholder(enrolment)) => life.create(enrolment, &config),
            Decision::Write(Write::Release { node, .. }) => life.release(node),
            Decision::Write(Write::RecordNode { node }) => life.run.node = Some(node),
            Decision::Write(Write::DateHold) => life.run.held_from = HeldFrom::Release(now),
            Decision::Write(Write::MoveOff { set, .. }) => {
                life.patch_set(&scale(&set, replicas, 0));
                life.moves = life.moves.and_one(now);
            }
            Decision::Write(Write::WakeTasks { pods, wake: woken }) => {
                life.wake(&pods, &wake(&life.run, woken), hears_labels);
            }
            Decision::Write(Write::Follow { set }) => life.patch_set(&scale(&set, replicas, 1)),
            Decision::Write(Write::Shrink { set, .. }) => {
                life.patch_set(&shrink(&set, &config));
                let container = resize("", &config)["spec"]["containers"][0].clone();
                let pod = life.pod.as_mut().unwrap();
                if can_resize {
                    pod.set_size(&container);
                } else {
                    pod.resize = Resize::Refused;
                }
            }
            Decision::Write(Write::RecreateSmall { set, node, .. }) => {
                let patch = recreate(&set, &life.run, node.as_deref(), &config);
                life.patch_set(&patch);
                life.pod = None;
            }
            Decision::Write(Write::GiveUpReserve { set, .. }) => {
                life.patch_set(&recreate(&set, &life.run, None, &config));
                life.pod = None;
            }
            Decision::Write(Write::Unpin { set }) => {
                let patch = pin(&set, &life.run, None);
                life.patch_set(&patch);
            }
            Decision::Write(Write::StartOver { .. }) => (life.set, life.pod) = (None, None),
            Decision::Write(Write::Nudge | Write::AskWithinLimits { .. })
            | Decision::Wait(
                Wait::Steady
                | Wait::Node { .. }
                | Wait::Tasks { .. }
                | Wait::Volume { .. }
                | Wait::Fit { .. },
            ) => {
                return false;
            }
            Decision::Leave(_)
            | Decision::Wait(Wait::LabelledTooLate | Wait::Places { .. })
            | Decision::Count(_)
            | Decision::Write(
                Write::Enrol(_)
                | Write::Withdraw
                | Write::MakeRoom { .. }
                | Write::FreePlace { .. }
                | Write::RetryTasks { .. }
                | Write::DeletePlaceholder { .. }
                | Write::AdoptPod { .. }
                | Write::LeavePod { .. },
            ) => panic!("{action:?}: {life:?}"),
        }
        true
    }
}

fn node_of(life: &Life, nodes: &[NodeFacts]) -> NodeState {
    let node = life.pod.as_ref().and_then(|pod| pod.node.as_ref());
    let find = |name: &String| nodes.iter().find(|node| node.name == *name);
    node.map_or(NodeState::Unknown, |name| state(find(name), &[]))
}

fn facts(node: &Node) -> NodeFacts {
    NodeFacts {
        name: node.name.clone(),
        unschedulable: node.cordoned,
        ready: true,
        ..NodeFacts::default()
    }
}

impl Life {
    fn create(&mut self, enrolment: Enrolment, config: &Config) {
        let set = stateful_set(&self.run, enrolment, &BTreeMap::new(), config, "image");
        let mut set = serde_json::to_value(set).unwrap();
        set["metadata"]["uid"] = json!(SET);
        self.set = Some(set);
    }

    fn release(&mut self, node: Option<String>) {
        self.run.status = SpecStatus::Unset;
        self.run.hold = false;
        self.run.group = Some(self.run.key.uid.clone());
        self.run.node = node;
    }

    fn waiting(&self) -> Vec<WaitingPod> {
        let unbound = self.tasks.iter().filter(|task| task.node.is_none());
        unbound
            .map(|task| WaitingPod {
                name: task.name.clone(),
                requests: task.requests.clone(),
                unschedulable: task.unschedulable.clone(),
                tolerations: Vec::new(),
                woken: task.woken(),
                relaxed: false,
            })
            .collect()
    }

    fn placeholder(&self) -> Option<Placeholder> {
        Some(Placeholder {
            uid: SET.to_owned(),
            owned: true,
            deleting: false,
            replicas: self.replicas()?,
            generation: self.generation,
            taken_up: true,
            strategy: Some(Strategy::ColocateCompleted),
            isolation: Some(Self::enrolment().isolation),
            pinned: is_pinned(&self.annotations()),
            within_limits: false,
            left: None,
        })
    }

    fn placeholder_pod(&self) -> Option<PlaceholderPod> {
        let pod = self.pod.as_ref()?;
        Some(PlaceholderPod {
            uid: pod.name.clone(),
            node: pod.node.clone(),
            ending: false,
            unschedulable: pod.unschedulable.clone(),
            tolerations: Vec::new(),
            adopted: false,
            shape: Shape::read(&pod.annotations, pod.requests.clone(), pod.resize),
        })
    }
}
