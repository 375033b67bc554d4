//! One run of the model: its pods, and its StatefulSet as the API server would have it.

use super::{Census, Repeated, Resize, Unschedulable};
use crate::keys;
use crate::placeholder::wake::Wake;
use crate::quantity::Quantity;
use crate::resources::Resources;
use crate::run::Run;
use crate::strategy::Enrolment;
use crate::strategy::{Isolation, Strategy};
use jiff::Timestamp;
use json_patch::Patch;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// A task: how much it asks for, in thousandths of a CPU, and how long it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) cpu: i64,
    pub(super) seconds: u32,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) cpu: i64,
    pub(super) node: Option<String>,
    pub(super) unschedulable: Option<Unschedulable>,
    pub(super) created: Timestamp,
    /// The task; none for a placeholder.
    pub(super) job: Option<Job>,
    pub(super) annotations: BTreeMap<String, String>,
    /// GPUs are asked for too, and every big node has them.
    pub(super) requests: Resources,
    pub(super) resize: Resize,
    pub(super) labels: Value,
    /// The scheduler has set it aside, and the end of another pod is no reason for it to look again.
    pub(super) deaf: bool,
}

#[derive(Debug)]
pub(super) struct Life {
    pub(super) run: Run,
    /// The StatefulSet as the API server would have it.
    pub(super) set: Option<Value>,
    pub(super) generation: i64,
    pub(super) pod: Option<Pod>,
    pub(super) tasks: Vec<Pod>,
    pub(super) steps: VecDeque<Vec<Job>>,
    pub(super) moves: Repeated,
    pub(super) census: Option<Census>,
    pub(super) ended: Option<Timestamp>,
}

impl Pod {
    pub(super) fn task(name: String, job: Job, created: Timestamp) -> Self {
        let asks = BTreeMap::from([("cpu".to_owned(), format!("{}m", job.cpu))]);
        Self {
            name,
            cpu: job.cpu,
            node: None,
            unschedulable: None,
            created,
            job: Some(job),
            annotations: BTreeMap::new(),
            requests: Resources::of(&asks),
            resize: Resize::Possible,
            labels: json!({}),
            deaf: false,
        }
    }

    pub(super) fn woken(&self) -> Option<Wake> {
        Wake::read(self.labels.get(keys::WOKEN)?.as_str()?)
    }

    pub(super) fn set_size(&mut self, container: &Value) {
        let requests = serde_json::from_value(container["resources"]["requests"].clone()).unwrap();
        self.requests = Resources::read(&requests);
        let milli = |cpu: i64| self.requests.get("cpu") <= Quantity::of_milli(cpu);
        self.cpu = (0..=20_000).step_by(50).find(|cpu| milli(*cpu)).unwrap();
    }
}

impl Life {
    pub(super) fn enrolment() -> Enrolment {
        Enrolment {
            strategy: Strategy::ColocateCompleted,
            isolation: Isolation::default(),
        }
    }

    pub(super) fn bound(&self) -> impl Iterator<Item = &Pod> {
        self.pods().filter(|pod| pod.node.is_some())
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.tasks.iter().chain(&self.pod)
    }

    pub(super) fn pods_mut(&mut self) -> impl Iterator<Item = &mut Pod> {
        self.tasks.iter_mut().chain(&mut self.pod)
    }

    pub(super) fn replicas(&self) -> Option<i32> {
        self.set.as_ref()?["spec"]["replicas"].as_i64()?.try_into().ok()
    }

    pub(super) fn annotations(&self) -> BTreeMap<String, String> {
        let template = self
            .set
            .as_ref()
            .map(|set| &set["spec"]["template"]["metadata"]["annotations"]);
        serde_json::from_value(template.unwrap_or(&json!({})).clone()).unwrap()
    }

    /// A patch that does not apply changes nothing, as at an API server.
    pub(super) fn patch_set(&mut self, patch: &Patch) {
        json_patch::patch(self.set.as_mut().unwrap(), patch).unwrap();
        self.generation += 1;
    }

    pub(super) fn wake(&mut self, pods: &[String], patch: &Patch, is_heard: bool) {
        for task in self.tasks.iter_mut().filter(|task| pods.contains(&task.name)) {
            let mut labels = task.labels.clone();
            labels[keys::GROUP] = json!(self.run.key.uid);
            let mut object = json!({"metadata": {"labels": labels}});
            json_patch::patch(&mut object, patch).unwrap();
            task.labels = object["metadata"]["labels"].take();
            task.deaf &= !is_heard;
        }
    }

    pub(super) fn template(&self, name: String, now: Timestamp) -> Option<Pod> {
        let container = &self.set.as_ref()?["spec"]["template"]["spec"]["containers"][0];
        let mut pod = Pod::task(name, Job { cpu: 0, seconds: 0 }, now);
        pod.job = None;
        pod.annotations = self.annotations();
        pod.set_size(container);
        Some(pod)
    }
}
