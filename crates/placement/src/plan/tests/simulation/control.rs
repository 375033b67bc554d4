//! The model's controller: observes, plans, and sends the real requests.

use super::super::super::fixtures::inputs_read;
use super::super::super::{
    Decision, Event, IgnoreReason, Inputs, Observation, Placeholder, PlaceholderPod, Read, RequeueMark,
    Shape, Step, Tasks, Wait, WaitingPod, plan,
};
use super::api::SET;
use super::life::{Life, texts};
use super::world::{Node, World};
use crate::fixture::spec_of;
use crate::keys;
use crate::node::{NodeFacts, NodeState, state};
use std::sync::Arc;

impl World {
    /// Takes steps until the plan waits. No step is repeated at once.
    pub(super) fn settle(&mut self, index: usize) {
        let (mut inputs, mut last) = (inputs_read(), None);
        for _ in 0..20 {
            let observed = self.observe(index);
            match plan(&observed, &inputs).decision {
                Decision::Act(step) if last.as_ref() != Some(&step) => {
                    self.act(index, &observed, &step);
                    inputs = inputs_read();
                    last = Some(step);
                }
                Decision::Read(Read::Tasks) => {
                    inputs = Inputs {
                        tasks: self.count(index).into(),
                        ..inputs_read()
                    };
                }
                Decision::Act(_)
                | Decision::Ignore(IgnoreReason::Done)
                | Decision::Wait(
                    Wait::Settled
                    | Wait::Scheduler
                    | Wait::Pause
                    | Wait::PodEnd
                    | Wait::Node { .. }
                    | Wait::Tasks { .. }
                    | Wait::Fit { .. },
                ) => return,
                // The other inputs were read. Every run is opted in, was held when it was created, and has no volume.
                decision => panic!("{decision:?}: {:?}", self.lives[index]),
            }
        }
        panic!("a run is never at rest: {:?}", self.lives[index]);
    }

    fn act(&mut self, index: usize, observed: &Observation, step: &Step) {
        let life = &mut self.lives[index];
        let name = step.name;
        match name {
            // The model has no reason for these steps.
            "make_room" | "free_places" | "retry_tasks" | "size_within_limits" | "give_up_reserve"
            | "unenrol" | "narrow_isolation" | "leave_out_images" => {
                panic!("{step:?}: {life:?}")
            }
            _ => {}
        }
        if let Some(Event::MovedOff { .. }) = step.event {
            life.progress.moved_off(&mut life.moves, self.now);
        }
        for request in step
            .actions
            .iter()
            .flat_map(|action| action.requests(observed, "image"))
        {
            life.send(&request, self.can_resize, self.hears_labels);
        }
        self.taken.insert(name);
    }

    fn count(&mut self, index: usize) -> Tasks {
        let life = &mut self.lives[index];
        let live = life.tasks.iter().filter(|task| task.node.is_some()).count();
        Tasks {
            task_count: life.progress.counted(&mut life.moves, live, life.ended, self.now),
            pinned_by_volume: None,
        }
    }

    fn observe(&self, index: usize) -> Observation {
        let life = &self.lives[index];
        let nodes: Vec<_> = self.nodes.iter().filter(|node| !node.gone).map(facts).collect();
        let mut observed = Observation {
            statefulset: life.placeholder(),
            pod: life.placeholder_pod(),
            node: node_of(life, &nodes),
            waiting: life.waiting(),
            ..Observation::new(life.run(), Arc::new(self.config.clone()), self.now)
        };
        (observed.cluster.nodes, observed.repeated.moves) = (nodes, life.moves);
        observed
    }
}

fn node_of(life: &Life, nodes: &[Arc<NodeFacts>]) -> NodeState {
    let node = life.pod.as_ref().and_then(|pod| pod.node.as_ref());
    let find = |name: &String| nodes.iter().map(Arc::as_ref).find(|node| node.name == *name);
    node.map_or(NodeState::Unknown, |name| state(find(name), &[]))
}

fn facts(node: &Node) -> Arc<NodeFacts> {
    Arc::new(NodeFacts {
        name: node.name.clone(),
        unschedulable: node.cordoned,
        ready: true,
        ..NodeFacts::default()
    })
}

impl Life {
    fn waiting(&self) -> Vec<WaitingPod> {
        let unbound = self.tasks.iter().filter(|task| task.node.is_none());
        unbound
            .map(|task| WaitingPod {
                name: task.name.clone(),
                requests: task.requests(),
                unschedulable: task.unschedulable.clone(),
                woken: task.object["metadata"]["labels"][keys::WOKEN]
                    .as_str()
                    .and_then(RequeueMark::parse),
                ..WaitingPod::default()
            })
            .collect()
    }

    fn placeholder(&self) -> Option<Placeholder> {
        let set = self.set.as_ref()?;
        let labels = texts(set, "labels");
        Some(Placeholder {
            uid: SET.to_owned(),
            owned: true,
            deleting: false,
            generation: self.generation,
            observed: true,
            strategy: labels[keys::STRATEGY].parse().ok(),
            isolation: labels[keys::ISOLATION].parse().ok(),
            warm_nodes: None,
            spec: spec_of(set),
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
            shape: Shape::from_annotations(&texts(&pod.object, "annotations"), pod.requests(), pod.resize),
        })
    }
}
