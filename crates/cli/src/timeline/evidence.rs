//! Groups what was read by run: the placeholder, the tasks with their nodes, and the events.

use super::model::{Enrollment, Place, Span, TaskSpan};
use super::read::{History, TASK, TaskRun};
use crate::events::RunEvent;
use crate::list::PlaceholdersByName;
use crate::state::State;
use crate::view::{
    PlaceholderObjects, RunView, created, ended_at, is_live, is_opted_out, is_placeholder, label, node,
    phase, scheduled,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::config::Config;
use placement::kept_node::record::KeptUntil;
use placement::keys;
use placement::resources::Resources;
use std::collections::{HashMap, HashSet};

/// The precision of the times of runs and tasks.
pub(super) const ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// What is known of a run.
#[derive(Clone, Debug)]
pub(super) struct Evidence<'a> {
    pub(super) now: Timestamp,
    pub(super) view: RunView,
    pub(super) placeholder: PlaceholderObjects<'a>,
    pub(super) state: State,
    pub(super) tasks: Vec<TaskEvidence>,
    /// The events of the run, in order.
    pub(super) events: Vec<&'a RunEvent>,
    /// Pods were read, so a pod that is not known is gone.
    pub(super) sees_pods: bool,
    /// Until when the node is kept after the run.
    pub(super) kept_until: KeptUntil,
}

/// What is known of a task: from its TaskRun, from its pod, or from both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskEvidence {
    pub(super) task: TaskSpan,
    pub(super) place: Place,
    /// When the pod was bound to its node.
    pub(super) bound: Option<Timestamp>,
    pub(super) opted_out: bool,
    /// What the pod requests; `None` without a pod.
    pub(super) requests: Option<Resources>,
}

/// The objects of all runs, by run.
pub(super) struct Index<'a> {
    now: Timestamp,
    config: Option<&'a Config>,
    sees_pods: bool,
    placeholders: PlaceholdersByName<'a>,
    /// By the UID of the run.
    task_runs: HashMap<&'a str, Vec<&'a TaskRun>>,
    /// By namespace and name of the run.
    pods: HashMap<String, Vec<&'a Pod>>,
    /// By the UID of the run.
    events: HashMap<&'a str, Vec<&'a RunEvent>>,
}

impl<'a> Index<'a> {
    pub(super) fn new(history: &'a History) -> Self {
        let task_runs = history.task_runs.iter().flatten();
        let pods = history.pods.iter().flatten().filter(|pod| !is_placeholder(pod));
        let events = history.events.iter().flatten();
        Self {
            now: history.now,
            config: history.config.as_ref().ok(),
            sees_pods: history.pods.is_ok(),
            placeholders: PlaceholdersByName::of(
                history.sets.as_deref().unwrap_or_default(),
                history.pods.as_deref().unwrap_or_default(),
            ),
            task_runs: grouped(task_runs.filter_map(|it| Some((it.run()?, it)))),
            pods: grouped(pods.filter_map(|pod| Some((run_of(pod)?, pod)))),
            events: grouped(events.map(|it| (it.about.as_str(), it))),
        }
    }

    pub(super) fn evidence(&self, view: RunView) -> Evidence<'a> {
        let placeholder = self.placeholders.of_run(&view);
        let events = self.events.get(view.run.key.uid.as_str());
        let mut events = events.cloned().unwrap_or_default();
        events.sort_by_key(|event| event.since);
        Evidence {
            now: self.now,
            sees_pods: self.sees_pods,
            tasks: self.tasks(&view),
            kept_until: KeptUntil::read(view.kept_until.as_deref(), &view.run, view.ended, self.config),
            state: State::of(&view, &placeholder),
            view,
            placeholder,
            events,
        }
    }

    /// The tasks of TaskRuns, and those of pods that no TaskRun names: pods of earlier attempts, and all pods where TaskRuns cannot
    /// be read.
    fn tasks(&self, view: &RunView) -> Vec<TaskEvidence> {
        let key = &view.run.key;
        let is_own = |pod: &&Pod| {
            let uid = label(&pod.metadata, keys::TEKTON_PIPELINE_RUN_UID);
            uid.is_none_or(|uid| *uid == key.uid)
        };
        let pods = self.pods.get(&key.to_string()).into_iter().flatten().copied();
        let pods: Vec<_> = pods.filter(is_own).collect();
        let task_runs = self.task_runs.get(key.uid.as_str()).into_iter().flatten();
        let named: HashSet<_> = task_runs.clone().filter_map(|it| it.pod()).collect();
        let others = pods.iter().filter(|pod| !named.contains(pod.name_any().as_str()));
        let end = view.ended.unwrap_or(self.now);
        let of_task_runs = task_runs.map(|it| TaskEvidence::of_task_run(it, &pods, end));
        let of_pods = others.filter_map(|pod| TaskEvidence::of_pod(pod, end));
        let mut tasks: Vec<_> = of_task_runs.chain(of_pods).collect();
        tasks.sort_by_cached_key(|it| (it.task.span.from, it.task.name.clone()));
        tasks
    }
}

pub(super) fn grouped<K: Eq + std::hash::Hash, V>(pairs: impl Iterator<Item = (K, V)>) -> HashMap<K, Vec<V>> {
    let mut groups: HashMap<K, Vec<V>> = HashMap::new();
    for (key, value) in pairs {
        groups.entry(key).or_default().push(value);
    }
    groups
}

fn run_of(pod: &Pod) -> Option<String> {
    let name = label(&pod.metadata, keys::TEKTON_PIPELINE_RUN)?;
    Some(format!("{}/{name}", pod.namespace()?))
}

impl TaskEvidence {
    fn of_task_run(task_run: &TaskRun, pods: &[&Pod], end: Timestamp) -> Self {
        let pod = task_run.pod();
        let found = pods.iter().find(|it| it.metadata.name.as_deref() == pod);
        let from = task_run.started().or_else(|| created(&task_run.metadata));
        let is_declined = label(&task_run.metadata, keys::OPT_IN) == Some("false");
        Self {
            task: TaskSpan {
                name: task_run.task().to_owned(),
                span: Span::new(from.unwrap_or(end), task_run.ended().unwrap_or(end)),
                failed: task_run.failed(),
            },
            place: match (pod, found) {
                (Some(_), None) => Place::Unknown,
                (Some(_), Some(pod)) => place(pod),
                (None, _) => Place::Nowhere,
            },
            bound: found.and_then(|pod| bound(pod)),
            opted_out: is_declined || found.is_some_and(|pod| is_opted_out(pod)),
            requests: found.and_then(|pod| requests(pod)),
        }
    }

    fn of_pod(pod: &Pod, end: Timestamp) -> Option<Self> {
        let to = ended_at(pod).filter(|_| !is_live(pod)).unwrap_or(end);
        Some(Self {
            task: TaskSpan {
                name: label(&pod.metadata, TASK).map_or_else(|| pod.name_any(), str::to_owned),
                span: Span::new(created(&pod.metadata)?, to),
                failed: phase(pod) == "Failed",
            },
            place: place(pod),
            bound: bound(pod),
            opted_out: is_opted_out(pod),
            requests: requests(pod),
        })
    }
}

fn place(pod: &Pod) -> Place {
    node(pod).map_or(Place::Nowhere, |node| Place::Node(node.to_owned()))
}

fn requests(pod: &Pod) -> Option<Resources> {
    pod.spec.as_ref().map(Resources::from_pod_spec)
}

/// When the pod was bound to its node.
pub(super) fn bound(pod: &Pod) -> Option<Timestamp> {
    node(pod)?;
    let scheduled = scheduled(pod, "True").and_then(|it| it.last_transition_time.as_ref());
    let started = || pod.status.as_ref()?.start_time.as_ref();
    let time = scheduled.or_else(started).map(|time| time.0);
    time.or_else(|| created(&pod.metadata))
}

impl Evidence<'_> {
    /// Labelled if pod-affinity placed, places or will place the run.
    pub(super) fn enrollment(&self) -> Enrollment {
        let run = &self.view.run;
        let is_placed = match self.state {
            State::Held | State::WaitingForNode | State::HeldElsewhere | State::Running | State::Moving => {
                true
            }
            State::Done | State::Reserved | State::Ending => run.is_enrolled() || run.is_held_by_us(),
            State::Declined
            | State::TooLate
            | State::Invalid
            | State::Nested
            | State::ManagedElsewhere
            | State::Unlabelled => false,
        };
        match () {
            () if is_placed => Enrollment::Labelled,
            () if run.child && run.group.is_some() => Enrollment::Nested,
            () => Enrollment::Unlabelled,
        }
    }

    /// When the run was created, or another time before which nothing is known.
    pub(super) fn begin(&self) -> Timestamp {
        let created = self.view.run.created;
        created.or(self.view.started).unwrap_or(self.now).min(self.now)
    }

    /// When the run ended, or now.
    pub(super) fn end(&self) -> Timestamp {
        let end = self.view.ended.filter(|_| self.view.run.done);
        end.unwrap_or(self.now).min(self.now).max(self.begin())
    }

    /// When the first event with this reason was first emitted.
    pub(super) fn first_event(&self, reason: &str) -> Option<Timestamp> {
        let event = self.events.iter().find(|event| event.reason == reason);
        event.map(|event| event.since)
    }

    /// The run kept its node after its end, and no longer keeps it. The time between is unknown.
    pub(super) fn has_freed_reservation(&self) -> bool {
        let run = &self.view.run;
        let is_reserving = run.strategy.as_deref() == Some("isolateAlways");
        is_reserving && run.done && self.sees_pods && self.placeholder.pod.is_none()
    }

    /// The time in which the run kept its node after its end is unknown.
    pub(super) fn lacks_kept_time(&self) -> bool {
        self.has_freed_reservation() || self.kept_until == KeptUntil::Implausible
    }

    /// When the last holder released the run. Without an event, this is the start of the run: Tekton starts a released run at once.
    pub(super) fn released(&self) -> Option<Timestamp> {
        let time = self.first_event("Released").or(self.view.started);
        time.map(|time| time.clamp(self.begin(), self.end()))
    }
}
