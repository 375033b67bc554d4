//! The model's controller: observes as the real one does, plans, and sends the real requests.

use super::super::fixtures::answered;
use super::super::{
    Decision, Observation, Placeholder, PlaceholderPod, Question, Shape, Wait, WaitingPod, Why, Write,
    is_pinned, plan,
};
use super::Census;
use super::api::SET;
use super::life::{Life, texts};
use super::world::{Node, World};
use crate::keys;
use crate::node::{NodeFacts, NodeState, state};
use crate::placeholder::wake::Wake;
use std::sync::Arc;

impl World {
    /// Step by step until there is nothing to do but wait. No write is repeated at once.
    pub(super) fn settle(&mut self, index: usize) {
        let (mut census, mut last) = (None, None);
        for _ in 0..20 {
            let seen = self.observe(index, census.take());
            self.keep(index, &seen);
            match plan(&seen).decision {
                Decision::Write(write) if last.as_ref() != Some(&write) => {
                    self.write(index, &seen, &write);
                    last = Some(write);
                }
                Decision::Count(Question::Tasks) => census = Some(self.count(index)),
                Decision::Write(_)
                | Decision::Leave(Why::Done)
                | Decision::Wait(Wait::Steady | Wait::Node { .. } | Wait::Tasks { .. } | Wait::Fit { .. }) => {
                    return;
                }
                // The other questions are answered, and every run is ours, was held when it came, and has no volume.
                decision => panic!("{decision:?}: {:?}", self.lives[index]),
            }
        }
        panic!("a run is never at rest: {:?}", self.lives[index]);
    }

    fn write(&mut self, index: usize, seen: &Observation, write: &Write) {
        let life = &mut self.lives[index];
        match write {
            // The model has no reason for these.
            Write::MakeRoom { .. }
            | Write::FreePlace { .. }
            | Write::RetryTasks { .. }
            | Write::AskWithinLimits { .. }
            | Write::GiveUpReserve { .. }
            | Write::Withdraw => panic!("{write:?}: {life:?}"),
            Write::MoveOff { .. } | Write::StartOver { .. } => life.moves = life.moves.and_one(self.now),
            _ => {}
        }
        for request in write.requests(seen, "image") {
            life.send(&request, self.can_resize, self.hears_labels);
        }
        self.written.insert(write.into());
    }

    fn keep(&mut self, index: usize, seen: &Observation) {
        let life = &self.lives[index];
        let live = life.tasks.iter().filter(|task| task.node.is_some()).count();
        let census = Some(Census::after(life.census, live, life.ended, self.now));
        self.observed.push((
            Observation {
                census,
                ..seen.clone()
            },
            life.set.clone(),
        ));
    }

    fn count(&mut self, index: usize) -> Census {
        let life = &mut self.lives[index];
        let live = life.tasks.iter().filter(|task| task.node.is_some()).count();
        let census = Census::after(life.census, live, life.ended, self.now);
        life.census = Some(census);
        census
    }

    fn observe(&self, index: usize, census: Option<Census>) -> Observation {
        let life = &self.lives[index];
        let nodes: Vec<_> = self.nodes.iter().filter(|node| !node.gone).map(facts).collect();
        Observation {
            config: Arc::new(self.config.clone()),
            run: life.run(),
            set: life.placeholder(),
            pod: life.placeholder_pod(),
            node: node_of(life, &nodes),
            nodes,
            waiting: life.waiting(),
            moves: life.moves,
            census,
            ..answered(self.now)
        }
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
    fn waiting(&self) -> Vec<WaitingPod> {
        let unbound = self.tasks.iter().filter(|task| task.node.is_none());
        unbound
            .map(|task| WaitingPod {
                name: task.name.clone(),
                requests: task.requests(),
                unschedulable: task.unschedulable.clone(),
                tolerations: Vec::new(),
                woken: task.object["metadata"]["labels"][keys::WOKEN]
                    .as_str()
                    .and_then(Wake::read),
                relaxed: false,
            })
            .collect()
    }

    fn placeholder(&self) -> Option<Placeholder> {
        let set = self.set.as_ref()?;
        let labels = texts(set, "labels");
        let mut template = texts(&set["spec"]["template"], "annotations");
        Some(Placeholder {
            uid: SET.to_owned(),
            owned: true,
            deleting: false,
            replicas: self.replicas()?,
            generation: self.generation,
            taken_up: true,
            strategy: labels[keys::STRATEGY].parse().ok(),
            isolation: labels[keys::ISOLATION].parse().ok(),
            pinned: is_pinned(&template),
            within_limits: false,
            left: template.remove(keys::LEFT),
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
            adopted: pod.is_owned_by(&self.base.key.uid),
            shape: Shape::read(&texts(&pod.object, "annotations"), pod.requests(), pod.resize),
        })
    }
}
