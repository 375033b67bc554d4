//! The model: nodes, pods, a scheduler, a StatefulSet controller and Tekton.

use super::super::super::fixtures::{ELSEWHERE, NO_NODE, held, now};
use super::api::SET;
use super::life::{Job, Life, Pod};
use super::{BIG, Unschedulable};
use crate::config::Config;
use crate::quantity::Quantity;
use crate::run::RELEASED;
use crate::strategy::Strategy;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// A disturbance of a node, of the placeholder on a node, or of a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trouble {
    Cordon,
    Remove,
    Evict,
    Delete,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) cpu: i64,
    pub(super) cordoned: bool,
    pub(super) gone: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Timestamp,
    pub(super) config: Config,
    pub(super) nodes: Vec<Node>,
    pub(super) lives: Vec<Life>,
    pub(super) can_resize: bool,
    /// The scheduler retries a pod whose label changed: Kubernetes 1.36 and newer.
    pub(super) hears_labels: bool,
    /// The steps that the controller took.
    pub(super) taken: BTreeSet<&'static str>,
    serial: u32,
    seed: u64,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: now(),
            config: Config {
                hold_deadline: Duration::MAX,
                ..Config::default()
            },
            nodes: Vec::new(),
            lives: Vec::new(),
            can_resize: true,
            hears_labels: true,
            taken: BTreeSet::new(),
            serial: 0,
            seed,
        }
    }

    pub(super) fn add_node(&mut self, cpu: i64) {
        let name = self.name("node");
        self.nodes.push(Node {
            name,
            cpu,
            cordoned: false,
            gone: false,
        });
        self.lives
            .iter_mut()
            .flat_map(Life::pods_mut)
            .for_each(|pod| pod.deaf = false);
    }

    pub(super) fn add_run(&mut self, steps: Vec<Vec<Job>>, reserve: Option<String>) {
        let mut run = held().run;
        run.key.uid = self.name("run");
        run.reserve = reserve;
        let is_odd = |seed: u64| seed % 2 == 1;
        if is_odd(self.seed >> self.lives.len()) {
            run.opt_in = Some(Strategy::IsolateAlways.to_string());
        }
        let hold = if is_odd(self.seed >> 32) { "true" } else { RELEASED };
        self.lives.push(Life::new(run, hold, steps));
    }

    /// A disturbance, after which an autoscaler adds large nodes until there are as many as runs.
    pub(super) fn befall(&mut self, trouble: Trouble) {
        let node = self.roll(self.nodes.len());
        let life = self.roll(self.lives.len());
        match trouble {
            Trouble::Cordon => self.nodes[node].cordoned = true,
            Trouble::Remove => self.nodes[node].gone = true,
            Trouble::Evict => self.lives[life].pod = None,
            Trouble::Delete => self.lives[life].delete(),
        }
        let fit = |node: &&Node| !node.cordoned && !node.gone && node.cpu >= BIG;
        while self.nodes.iter().filter(fit).count() < self.lives.len() {
            self.add_node(BIG);
        }
    }

    /// Simulates one second.
    pub(super) fn tick(&mut self) {
        self.now += SignedDuration::from_secs(1);
        self.tend_sets();
        self.collect_garbage();
        self.schedule();
        self.work();
        self.start_tasks();
        (0..self.lives.len()).for_each(|index| self.settle(index));
    }

    /// Simulates this number of seconds, or until all runs are done.
    pub(super) fn live(&mut self, seconds: usize) {
        for _ in 0..seconds {
            if !self.is_over() {
                self.tick();
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.lives.iter().all(Life::is_over)
    }

    pub(super) fn moves(&self) -> u32 {
        self.lives.iter().map(|life| life.moves.count).sum()
    }

    /// The longest waiting times in seconds, of tasks that are not bound and of runs that are held.
    pub(super) fn longest_wait(&self) -> usize {
        let waiting = self.lives.iter().flat_map(|life| {
            let tasks = life.tasks.iter().filter(|task| task.node.is_none());
            let held = life.is_held().then_some(now());
            tasks.map(|task| task.created).chain(held)
        });
        let longest = waiting
            .map(|since| self.now.duration_since(since).as_secs())
            .max();
        longest.unwrap_or_default().try_into().unwrap()
    }

    pub(super) fn broken_rule(&self) -> Option<&'static str> {
        let there = || self.nodes.iter().filter(|node| !node.gone);
        if there().any(|node| self.groups_on(&node.name).len() > 1) {
            return Some("two groups share a node");
        }
        if (0..self.lives.len()).any(|index| self.nodes_of(index).len() > 1) {
            return Some("a group is on two nodes");
        }
        let mut over = self.lives.iter().filter(|life| life.is_over());
        over.any(Life::has_left_too_much)
            .then_some("a run left something behind")
    }

    fn groups_on(&self, name: &str) -> BTreeSet<usize> {
        let on = |index: &usize| {
            self.lives[*index]
                .bound()
                .any(|pod| pod.node.as_deref() == Some(name))
        };
        (0..self.lives.len()).filter(on).collect()
    }

    /// The pods as the scheduler counts them, without pods on deleted nodes.
    fn nodes_of(&self, index: usize) -> BTreeSet<&str> {
        let there = |name: &&str| self.nodes.iter().any(|node| node.name == *name && !node.gone);
        let nodes = self.lives[index].bound().filter_map(|pod| pod.node.as_deref());
        nodes.filter(there).collect()
    }

    fn tend_sets(&mut self) {
        for index in 0..self.lives.len() {
            if self.roll(8) == 0 {
                continue;
            }
            let name = self.name("placeholder");
            let now = self.now;
            let life = &mut self.lives[index];
            match life.replicas() {
                None | Some(0) => drop(life.pod.take_if(|pod| pod.is_owned_by(SET))),
                Some(_) if life.pod.is_none() => life.pod = life.template(name, now),
                Some(_) => {}
            }
        }
    }

    /// Pods on deleted nodes are deleted after a while, and Tekton retries their tasks.
    fn collect_garbage(&mut self) {
        if self.roll(8) != 0 {
            return;
        }
        let gone = self.nodes.iter().filter(|node| node.gone);
        let gone: Vec<_> = gone.map(|node| node.name.clone()).collect();
        let lost = |pod: &Pod| pod.node.as_ref().is_some_and(|node| gone.contains(node));
        for life in &mut self.lives {
            life.pod.take_if(|pod| lost(pod));
            let (dead, alive) = std::mem::take(&mut life.tasks).into_iter().partition(lost);
            life.tasks = alive;
            let retries: Vec<_> = Vec::<Pod>::into_iter(dead).filter_map(|pod| pod.job).collect();
            if !retries.is_empty() {
                life.steps.push_front(retries);
            }
        }
    }

    /// Schedules the pods in random order, and not always at once.
    fn schedule(&mut self) {
        let pods = |life: &Life| life.tasks.len() + 1;
        let mut queue: Vec<_> = (0..self.lives.len())
            .flat_map(|index| (0..pods(&self.lives[index])).map(move |pod| (index, pod)))
            .collect();
        while !queue.is_empty() {
            let (index, pod) = queue.swap_remove(self.roll(queue.len()));
            if self.roll(8) != 0 {
                self.place(index, pod);
            }
        }
    }

    fn place(&mut self, index: usize, pod: usize) {
        let Some(found) = self.lives[index].pods().nth(pod) else {
            return;
        };
        if found.node.is_some() || found.deaf {
            return;
        }
        let fitting = self.nodes.iter().filter(|node| self.takes(node, index, found));
        let names: Vec<_> = fitting.map(|node| node.name.clone()).collect();
        let cpu = found.cpu;
        let chosen = (!names.is_empty()).then(|| names[self.roll(names.len())].clone());
        let since = self.now;
        let lacks_its_group = !self.nodes_of(index).is_empty();
        let deaf = lacks_its_group && !self.is_short_somewhere(cpu);
        let message = if lacks_its_group { ELSEWHERE } else { NO_NODE };
        if chosen.is_some() {
            self.lives[index].pods_mut().for_each(|pod| pod.deaf = false);
        }
        let Some(pod) = self.lives[index].pods_mut().nth(pod) else {
            return;
        };
        pod.node = chosen;
        if pod.node.is_some() {
            pod.unschedulable = None;
        } else {
            pod.deaf = deaf;
            let since = pod.unschedulable.as_ref().map_or(since, |verdict| verdict.since);
            let message = message.to_owned();
            pod.unschedulable = Some(Unschedulable { message, since });
        }
    }

    /// The end of any pod requeues the pods that lack room.
    fn is_short_somewhere(&self, cpu: Quantity) -> bool {
        let fit = |node: &&Node| !node.cordoned && !node.gone;
        let mut nodes = self.nodes.iter().filter(fit);
        nodes.any(|node| self.used(&node.name) + cpu > Quantity::of_milli(node.cpu))
    }

    fn used(&self, node: &str) -> Quantity {
        let bound = self.lives.iter().flat_map(Life::bound);
        let on_node = bound.filter(|pod| pod.node.as_deref() == Some(node));
        on_node.fold(Quantity::default(), |used, pod| used + pod.cpu)
    }

    fn takes(&self, node: &Node, index: usize, pod: &Pod) -> bool {
        let members = self.nodes_of(index);
        !node.cordoned
            && !node.gone
            && self.used(&node.name) + pod.cpu <= Quantity::of_milli(node.cpu)
            && pod.pin().is_none_or(|pin| pin == node.name)
            && (members.is_empty() || members.contains(node.name.as_str()))
            && self.groups_on(&node.name).iter().all(|group| *group == index)
    }

    fn work(&mut self) {
        let now = self.now;
        for life in &mut self.lives {
            let before = life.tasks.len();
            for task in life.tasks.iter_mut().filter(|task| task.node.is_some()) {
                task.job = task.job.map(|job| Job {
                    seconds: job.seconds.saturating_sub(1),
                    ..job
                });
            }
            life.tasks
                .retain(|task| task.job.is_some_and(|job| job.seconds > 0));
            if life.tasks.len() < before {
                life.ended = Some(now);
            }
        }
    }

    fn start_tasks(&mut self) {
        for index in 0..self.lives.len() {
            let life = &mut self.lives[index];
            if life.is_held() || !life.tasks.is_empty() {
                continue;
            }
            for job in life.steps.pop_front().unwrap_or_default() {
                let name = self.name("task");
                let life = &mut self.lives[index];
                let pod = Pod::of_task(name, &life.run["metadata"]["labels"], job, self.now);
                life.tasks.push(pod);
            }
        }
    }

    pub(super) fn name(&mut self, kind: &str) -> String {
        self.serial += 1;
        format!("{kind}-{}", self.serial)
    }

    /// A random number below this.
    fn roll(&mut self, sides: usize) -> usize {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let sides = u64::try_from(sides).unwrap();
        usize::try_from((self.seed >> 33) % sides).unwrap()
    }
}
