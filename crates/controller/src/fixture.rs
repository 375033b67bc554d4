//! What the tests share: a run, caches that are filled by hand, and an API server that follows a script.

use crate::events::{self, EventWriter};
use crate::foreign_events::EventKey;
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::observe::{Clock, Stores};
use crate::placeholders::ObjectKey;
use crate::reconcile::Reconciler;
use crate::report::Report;
use crate::watch::{self, Writers};
use crate::write::Cluster;
use crate::{foreign_events, kept_nodes, nodes, placeholders, quotas, tekton_flags, turns, waiting_pods};
use jiff::Timestamp;
use kube::Client;
use kube::runtime::watcher::Event;
use placement::config::Config;
use placement::keys;
use placement::names::RunKey;
use placement::placeholder::spec::Spec;
use placement::plan::{
    Action, Decision, Event as Meaning, Observation, Placeholder, PlaceholderPod, Plan, Shape, Step, Wait,
};
use placement::run::{HeldFrom, PodTemplate, Run, SpecStatus};
use placement::strategy::{Enrolment, Isolation, Strategy};
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tekton::PipelineRun;
pub(crate) use testing::Call;
use testing::FakeApi;
use tokio::sync::watch as channel;

/// A run that is held by us and has nothing yet.
pub(crate) fn run() -> Run {
    Run {
        key: RunKey {
            namespace: "ns".into(),
            name: "build".into(),
            uid: "u1".into(),
        },
        created: Some(at(0)),
        started: None,
        deleting: false,
        done: false,
        succeeded: false,
        status: SpecStatus::Pending,
        managed_elsewhere: false,
        child: false,
        queued_by_kueue: false,
        opt_in: Some("true".into()),
        group: None,
        strategy: None,
        isolation: None,
        hold: true,
        held_from: HeldFrom::Creation,
        node: None,
        reserve: None,
        used: None,
        warm: None,
        keep_node_for: None,
        pull_images: None,
        pipeline: None,
        template: PodTemplate::default(),
        claims: Vec::new(),
        over_limit: None,
        other_claims: 0,
        templates: 0,
        opted_out_tasks: false,
    }
}

/// A run that runs, and was last on node n1.
pub(crate) fn running() -> Run {
    Run {
        status: SpecStatus::Unset,
        hold: false,
        group: Some("u1".into()),
        node: Some("n1".into()),
        ..run()
    }
}

pub(crate) fn enrolment() -> Enrolment {
    Enrolment {
        strategy: Strategy::ColocateCompleted,
        isolation: Isolation::default(),
    }
}

/// Seconds after the tests' epoch.
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A run, and nothing around it.
pub(crate) fn nothing() -> Observation {
    Observation::new(run(), Arc::default(), at(0))
}

/// A plan to do this.
pub(crate) fn planned(decision: Decision) -> Plan {
    Plan {
        decision,
        again: None,
    }
}

/// A step that means this.
pub(crate) fn step_of(event: Meaning) -> Decision {
    Decision::Act(Step {
        name: "step",
        event: Some(event),
        actions: Vec::new(),
    })
}

/// A step of these actions, which means nothing to the user.
pub(crate) fn actions(actions: impl Into<Vec<Action>>) -> Decision {
    Decision::Act(Step {
        name: "step",
        event: None,
        actions: actions.into(),
    })
}

/// There is nothing left to do until something changes.
pub(crate) fn is_at_rest(plan: &Plan) -> bool {
    matches!(plan.decision, Decision::Ignore(_) | Decision::Wait(Wait::Settled)) && plan.again.is_none()
}

/// The name of the run's placeholder.
pub(crate) fn placeholder() -> String {
    run().key.placeholder().as_str().to_owned()
}

/// A held run as the API server sends it.
pub(crate) fn view_json(name: &str, uid: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1",
            "creationTimestamp": Timestamp::now().to_string(),
            "labels": {keys::OPT_IN: "true"}, "annotations": {keys::HOLD: "true"},
        },
        "spec": {"status": keys::PENDING},
        "status": {},
    })
}

/// A held run as the watch brings it.
pub(crate) fn view(name: &str, uid: &str, changes: &Value) -> PipelineRun {
    let mut run = view_json(name, uid);
    json_patch::merge(&mut run, changes);
    serde_json::from_value(run).unwrap()
}

/// The run's placeholder as the API server sends it.
pub(crate) fn placeholder_set(run: &Run) -> Value {
    member(run, run.key.placeholder().as_str(), "s1", &json!({"replicas": 1}))
}

/// The placeholder's pod on its node, as the API server sends it.
pub(crate) fn bound_pod(run: &Run) -> Value {
    member(
        run,
        &run.key.placeholder().pod(),
        "p1",
        &json!({"nodeName": "n1"}),
    )
}

/// A node of 4 CPU, ready and empty.
pub(crate) fn node(name: &str, changes: &Value) -> Value {
    let mut node = json!({
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "4"}},
    });
    json_patch::merge(&mut node, changes);
    node
}

/// A pod of a run's task that asks for 12 CPU; the scheduler has found no node for it since then.
pub(crate) fn stuck_task(run: &Run, name: &str, since: Timestamp) -> Value {
    let task_run = name.trim_end_matches("-pod");
    let labels = json!({
        keys::GROUP: run.key.uid, keys::TEKTON_PIPELINE_RUN: run.key.name, keys::TEKTON_TASK_RUN: task_run,
    });
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu.", "lastTransitionTime": since.to_string(),
    });
    json!({
        "metadata": {"name": name, "namespace": run.key.namespace, "labels": labels},
        "spec": {"containers": [{"name": "step", "resources": {"requests": {"cpu": "12"}}}]},
        "status": {"phase": "Pending", "conditions": [condition]},
    })
}

/// Conditions of a run that is done.
pub(crate) fn done() -> Value {
    json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})
}

/// Caches filled by hand.
pub(crate) struct Caches {
    pub(crate) stores: Stores,
    pub(crate) config: channel::Receiver<Arc<Config>>,
    writers: Writers,
    sender: channel::Sender<Arc<Config>>,
}

impl Caches {
    /// Before the first lists.
    pub(crate) fn empty() -> Self {
        let (stores, writers) = watch::stores();
        let (sender, config) = channel::channel(Arc::new(Config::default()));
        Self {
            stores,
            config,
            writers,
            sender,
        }
    }

    /// Before the first lists. The first list of autoscaler events failed.
    pub(crate) fn without_answers() -> Self {
        let caches = Self::empty();
        caches.writers.autoscalers.on_error()();
        caches
    }

    /// After first lists without any object but the node n1.
    pub(crate) fn ready() -> Self {
        let mut caches = Self::empty();
        caches.writers.runs.apply_watcher_event(&Event::InitDone);
        caches.writers.sets.take(Event::InitDone, placeholders::set);
        caches.writers.pods.take(Event::InitDone, placeholders::pod);
        caches.writers.nodes.take(Event::InitDone, nodes::node);
        caches.add_node(node("n1", &json!({})));
        caches.writers.waiting.take(Event::InitDone, waiting_pods::pod);
        caches.writers.quotas.take(Event::InitDone, quotas::quota);
        let answers = &mut caches.writers.autoscalers;
        answers.take(Event::InitDone, foreign_events::of_autoscaler);
        caches.writers.failed_creates.on_error()();
        caches.writers.tekton_flags.on_error()();
        caches.writers.kept_nodes.take(Event::InitDone, kept_nodes::pod);
        caches
    }

    /// Adds a task's pod, as the API server sends it. Returns the changed pods.
    pub(crate) fn add_task(&mut self, pod: Value) -> Vec<ObjectKey> {
        let event = Event::Apply(serde_json::from_value(pod).unwrap());
        let changed = self.writers.waiting.take(event, waiting_pods::pod);
        changed.into_iter().map(|(key, _)| key).collect()
    }

    /// An event that a quota rejected a task's pod. Returns the TaskRuns whose events changed.
    pub(crate) fn add_rejected_task(&mut self, namespace: &str, task: &str, version: &str) -> Vec<EventKey> {
        let event = event(
            namespace,
            task,
            &json!({"metadata": {"resourceVersion": version}}),
        );
        let changed = self
            .writers
            .rejected_tasks
            .take(event, foreign_events::of_task_run);
        changed.into_iter().map(|(key, _)| key).collect()
    }

    /// An event `FailedCreate` of the placeholder's StatefulSet s1.
    pub(crate) fn add_failed_create(&mut self, run: &Run, second: i64, message: &str) {
        let placeholder = run.key.placeholder();
        let changes = json!({
            "metadata": {"name": format!("{placeholder}.{second}")}, "involvedObject": {"uid": "s1"},
            "lastTimestamp": at(second).to_string(), "message": message,
        });
        let event = event(&run.key.namespace, placeholder.as_str(), &changes);
        self.writers
            .failed_creates
            .take(event, foreign_events::of_statefulset);
    }

    /// An event about the placeholder's pod p1.
    pub(crate) fn add_answer(&mut self, run: &Run, reporter: &str, reason: &str, second: i64, message: &str) {
        let pod = run.key.placeholder().pod();
        let changes = json!({
            "metadata": {"name": format!("{pod}.{second}")}, "involvedObject": {"uid": "p1"}, "reason": reason,
            "source": {"component": reporter}, "lastTimestamp": at(second).to_string(), "message": message,
        });
        let event = event(&run.key.namespace, &pod, &changes);
        self.writers
            .autoscalers
            .take(event, foreign_events::of_autoscaler);
    }

    /// A quota of the namespace ns. Returns whether the change can matter to a run that waits.
    pub(crate) fn add_quota(&mut self, hard: &Value, used: &Value) -> bool {
        let quota =
            json!({"metadata": {"namespace": "ns", "name": "q"}, "status": {"hard": hard, "used": used}});
        let event = Event::Apply(serde_json::from_value(quota).unwrap());
        !self.writers.quotas.take(event, quotas::quota).is_empty()
    }

    /// A quota of the namespace ns that allows so many pods of this scope.
    pub(crate) fn add_scoped_quota(&mut self, name: &str, scope: &str, pods: &str) {
        let spec = json!({"hard": {"pods": pods}, "scopes": [scope]});
        let quota = json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec});
        let event = Event::Apply(serde_json::from_value(quota).unwrap());
        self.writers.quotas.take(event, quotas::quota);
    }

    /// Tekton's feature flags. Returns whether the mode changed.
    pub(crate) fn set_coschedule(&mut self, mode: &str) -> bool {
        let flags = json!({"metadata": {"name": "feature-flags"}, "data": {"coschedule": mode}});
        let event = Event::Apply(serde_json::from_value(flags).unwrap());
        !self
            .writers
            .tekton_flags
            .take(event, tekton_flags::mode)
            .is_empty()
    }

    /// Adds a node, as the API server sends it. Returns the names of the changed nodes.
    pub(crate) fn add_node(&mut self, node: Value) -> Vec<String> {
        let event = Event::Apply(serde_json::from_value(node).unwrap());
        let changed = self.writers.nodes.take(event, nodes::node);
        changed.into_iter().map(|(name, _)| name).collect()
    }

    /// A pod that keeps the node n1 after the run build of UID u1, until this second.
    pub(crate) fn add_kept_node(&mut self, name: &str, second: i64) {
        let annotations = json!({
            keys::KEPT_UNTIL: at(second).to_string(), keys::KEPT_AFTER: "ns/build", keys::KEPT_AFTER_UID: "u1",
        });
        let pod = json!({
            "metadata": {"name": name, "uid": name, "annotations": annotations},
            "spec": {"nodeName": "n1"},
        });
        let event = Event::Apply(serde_json::from_value(pod).unwrap());
        self.writers.kept_nodes.take(event, kept_nodes::pod);
    }

    /// Adds the run's placeholder with these changes.
    pub(crate) fn add_set_of(&mut self, run: &Run, uid: &str, changes: &Value) {
        let mut set: Value = member(run, run.key.placeholder().as_str(), uid, &json!({}));
        json_patch::merge(&mut set, changes);
        let event = Event::Apply(serde_json::from_value(set).unwrap());
        self.writers.sets.take(event, placeholders::set);
    }

    /// Adds the placeholder's pod with these changes.
    pub(crate) fn add_pod_of(&mut self, run: &Run, uid: &str, changes: &Value) {
        let mut pod: Value = member(run, &run.key.placeholder().pod(), uid, &json!({}));
        json_patch::merge(&mut pod, changes);
        let event = Event::Apply(serde_json::from_value(pod).unwrap());
        self.writers.pods.take(event, placeholders::pod);
    }

    pub(crate) fn add_held_run(&mut self, name: &str, uid: &str) {
        self.add_held_run_with(name, uid, &json!({}));
    }

    /// A held run with other fields, reduced as by the watch.
    pub(crate) fn add_held_run_with(&mut self, name: &str, uid: &str, changes: &Value) {
        let mut run = view(name, uid, changes);
        run.prune();
        self.writers.runs.apply_watcher_event(&Event::Apply(run));
    }

    pub(crate) fn remove_run(&mut self, run: &PipelineRun) {
        let event = Event::Delete(run.clone());
        self.writers.runs.apply_watcher_event(&event);
    }

    pub(crate) fn add_set(&mut self, run: &Run, uid: &str) {
        self.add_set_of(run, uid, &json!({"spec": {"replicas": 1}}));
    }

    pub(crate) fn add_observed_set(&mut self, run: &Run, uid: &str) {
        self.add_set_of(run, uid, &json!({"status": {"observedGeneration": 1}}));
    }

    pub(crate) fn add_pod(&mut self, run: &Run, uid: &str, node: Option<&str>) {
        self.add_pod_of(run, uid, &json!({"spec": {"nodeName": node}}));
    }

    pub(crate) fn add_unschedulable_pod(&mut self, run: &Run, uid: &str, message: &str) {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        self.add_pod_of(run, uid, &json!({"status": {"conditions": [condition]}}));
    }

    pub(crate) fn remove_pod(&mut self, run: &Run) {
        let pod = member(run, &run.key.placeholder().pod(), "gone", &json!({}));
        self.writers.pods.take(Event::Delete(pod), placeholders::pod);
    }

    pub(crate) fn set_config(&self, config: Config) {
        self.sender.send_replace(Arc::new(config));
    }
}

fn event<K: DeserializeOwned>(namespace: &str, about: &str, changes: &Value) -> Event<K> {
    let mut event = json!({
        "metadata": {"namespace": namespace, "name": format!("{about}.1"), "resourceVersion": "1"},
        "involvedObject": {"name": about},
    });
    json_patch::merge(&mut event, changes);
    Event::Apply(serde_json::from_value(event).unwrap())
}

fn member<K: DeserializeOwned>(run: &Run, name: &str, uid: &str, spec: &Value) -> K {
    let key = &run.key;
    let owner = json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "name": key.name, "uid": key.uid, "controller": true});
    let labels = json!({keys::GROUP: key.uid, keys::TEKTON_PIPELINE_RUN: key.name});
    let metadata = json!({
        "resourceVersion": "2", "name": name, "namespace": key.namespace, "uid": uid, "labels": labels, "ownerReferences": [owner],
    });
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(turns::turns().0)
    }
}

/// Writes to the server.
pub(crate) fn cluster(server: &Server) -> Arc<Cluster> {
    let image = "image".to_owned();
    Arc::new(Cluster::new(server.client(), image, keys::NAMESPACE.to_owned()))
}

/// A reconciler at this server, and what it reports.
pub(crate) fn reconciler(caches: &Caches, server: &Server) -> (Reconciler, EventWriter, Registry) {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let cluster = cluster(server);
    let (event_queue, event_writer) = events::event_queue(cluster.clone(), "pod-1".into(), metrics.clone());
    let reconciler = Reconciler {
        stores: caches.stores.clone(),
        config: caches.config.clone(),
        clock: clock(),
        cluster,
        memory: Memory::default(),
        report: Report::new(event_queue, metrics),
    };
    (reconciler, event_writer, registry)
}

/// A clock that shows these seconds after the tests' epoch.
pub(crate) fn clock_of(seconds: &Arc<AtomicI64>) -> Clock {
    let seconds = seconds.clone();
    Arc::new(move || at(seconds.load(Ordering::Relaxed)))
}

/// The machine's own clock.
pub(crate) fn clock() -> Clock {
    Arc::new(Timestamp::now)
}

/// The placeholder's StatefulSet, as observed.
pub(crate) fn observed_set() -> Placeholder {
    Placeholder {
        uid: "s1".into(),
        owned: true,
        deleting: false,
        generation: 4,
        observed: true,
        strategy: None,
        isolation: None,
        warm_nodes: None,
        spec: Spec {
            replicas: 1,
            ..Spec::default()
        },
    }
}

/// The placeholder's pod, as observed.
pub(crate) fn observed_pod(node: Option<&str>) -> PlaceholderPod {
    PlaceholderPod {
        uid: "p1".into(),
        node: node.map(str::to_owned),
        ending: false,
        unschedulable: None,
        tolerations: Vec::new(),
        adopted: false,
        shape: Shape::default(),
    }
}

/// Everything in the text format.
pub(crate) fn exposition(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// The API server's answer to a write, whose content no test needs.
pub(crate) fn written() -> Value {
    json!({"metadata": {}})
}

/// An API server that gives scripted responses and records the calls.
pub(crate) struct Server(FakeApi);

impl Server {
    pub(crate) fn start() -> Self {
        Self(FakeApi::scripted())
    }

    pub(crate) fn client(&self) -> Client {
        self.0.client()
    }

    pub(crate) fn answer(&mut self, status: u16, body: Value) {
        self.0.script(status, body);
    }

    /// Receives the next call and never responds.
    pub(crate) fn hang(&mut self) {
        self.0.script_silence();
    }

    pub(crate) fn refuse(&mut self, code: u16, reason: &str, message: &str) {
        self.0.script_failure(code, reason, message);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.0.calls()
    }
}
