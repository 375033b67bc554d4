//! One run of the model, with its StatefulSet and its pods.

use super::api::SET;
use super::{Progress, Repeated, Resize, Unschedulable};
use crate::keys;
use crate::quantity::Quantity;
use crate::resources::Resources;
use crate::run::{HeldFrom, Run, SpecStatus};
use crate::strategy::Strategy;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// A task: its CPU request in thousandths, and its duration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) cpu: i64,
    pub(super) seconds: u32,
}

#[derive(Debug)]
pub(super) struct Pod {
    pub(super) name: String,
    /// The pod as the API server stores it.
    pub(super) object: Value,
    pub(super) cpu: Quantity,
    pub(super) node: Option<String>,
    pub(super) unschedulable: Option<Unschedulable>,
    pub(super) created: Timestamp,
    /// The task; `None` for a placeholder.
    pub(super) job: Option<Job>,
    pub(super) resize: Resize,
    /// The scheduler found no node for the pod, and the end of another pod does not requeue it.
    pub(super) deaf: bool,
}

#[derive(Debug)]
pub(super) struct Life {
    /// The immutable part of the run.
    pub(super) base: Run,
    /// The run and its StatefulSet as the API server stores them.
    pub(super) run: Value,
    pub(super) set: Option<Value>,
    pub(super) generation: i64,
    pub(super) pod: Option<Pod>,
    pub(super) tasks: Vec<Pod>,
    pub(super) steps: VecDeque<Vec<Job>>,
    pub(super) moves: Repeated,
    pub(super) progress: Progress,
    pub(super) ended: Option<Timestamp>,
}

/// The labels or the annotations of an object.
pub(super) fn texts(object: &Value, map: &str) -> BTreeMap<String, String> {
    serde_json::from_value(object["metadata"][map].clone()).unwrap_or_default()
}

fn requests(pod: &Value) -> Resources {
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    Resources::from_quantities(&serde_json::from_value(requests.clone()).unwrap_or_default())
}

impl Pod {
    pub(super) fn new(name: String, mut object: Value, job: Option<Job>, created: Timestamp) -> Self {
        object["metadata"]["uid"] = json!(name);
        Self {
            name,
            cpu: requests(&object).get("cpu"),
            object,
            node: None,
            unschedulable: None,
            created,
            job,
            resize: Resize::Possible,
            deaf: false,
        }
    }

    /// The pod of a task, which gets its group from the labels of its run.
    pub(super) fn of_task(name: String, labels: &Value, job: Job, created: Timestamp) -> Self {
        assert!(labels[keys::GROUP].is_string(), "{name} is in no group");
        let requests = json!({"cpu": format!("{}m", job.cpu)});
        let container = json!({"name": "step", "resources": {"requests": requests}});
        let object = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        Self::new(name, object, Some(job), created)
    }

    /// GPUs are left out, because every large node has enough of them.
    pub(super) fn requests(&self) -> Resources {
        requests(&self.object)
    }

    pub(super) fn is_owned_by(&self, uid: &str) -> bool {
        let owners = self.object["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
    }

    /// The node to which the pod is pinned.
    pub(super) fn pin(&self) -> Option<&str> {
        let terms =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        let terms = self.object.pointer(terms)?;
        terms[0]["matchFields"][0]["values"][0].as_str()
    }
}

impl Life {
    pub(super) fn new(base: Run, hold: &str, steps: Vec<Vec<Job>>) -> Self {
        let metadata = json!({
            "uid": base.key.uid, "labels": {keys::OPT_IN: base.opt_in}, "annotations": {keys::HOLD: hold},
        });
        Self {
            base,
            run: json!({"metadata": metadata, "spec": {"status": keys::PENDING}}),
            set: None,
            generation: 0,
            pod: None,
            tasks: Vec::new(),
            steps: steps.into(),
            moves: Repeated::default(),
            progress: Progress::default(),
            ended: None,
        }
    }

    pub(super) fn run(&self) -> Run {
        let (mut labels, mut annotations) = (texts(&self.run, "labels"), texts(&self.run, "annotations"));
        let hold = annotations.remove(keys::HOLD);
        Run {
            status: SpecStatus::parse(self.run["spec"]["status"].as_str()),
            done: self.is_over(),
            hold: hold.is_some(),
            held_from: HeldFrom::parse(hold.as_deref()),
            group: labels.remove(keys::GROUP),
            strategy: labels.remove(keys::STRATEGY),
            isolation: labels.remove(keys::ISOLATION),
            node: annotations.remove(keys::NODE),
            ..self.base.clone()
        }
    }

    pub(super) fn is_held(&self) -> bool {
        !self.is_over() && self.run["spec"].get("status").is_some()
    }

    /// The run is done, with all of its tasks.
    pub(super) fn delete(&mut self) {
        self.base.deleting = true;
        self.steps.clear();
        self.tasks.clear();
    }

    pub(super) fn is_over(&self) -> bool {
        self.steps.is_empty() && self.tasks.is_empty()
    }

    /// Only the pod is left that reserves the node of an isolateAlways run.
    pub(super) fn has_left_too_much(&self) -> bool {
        let run = self.run();
        let keeps_node = !run.deleting && run.strategy == Some(Strategy::IsolateAlways.to_string());
        let is_kept = |pod: &Pod| keeps_node && pod.node.is_some() && !pod.is_owned_by(SET);
        self.set.is_some() || !self.pod.iter().all(is_kept)
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

    /// The pod that the StatefulSet controller creates.
    pub(super) fn template(&self, name: String, now: Timestamp) -> Option<Pod> {
        let mut pod = self.set.as_ref()?["spec"]["template"].clone();
        pod["metadata"]["ownerReferences"] = json!([{"uid": SET, "controller": true}]);
        Some(Pod::new(name, pod, None, now))
    }
}
