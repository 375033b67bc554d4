//! What was seen of each run, put together from all lists: its tasks, where they ran, and its events. Pure.

use super::gather::Facts;
use super::model::{Place, Span, Standing, Task};
use super::task_run::{TASK, TaskRun};
use crate::events::Told;
use crate::list::Seats;
use crate::state::State;
use crate::view::{RunView, Seat, created, is_live, is_placeholder, label, node, phase, scheduled};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use placement::keys;
use std::collections::{HashMap, HashSet};

/// Times of runs and tasks have whole seconds.
pub(crate) const ROUNDING: SignedDuration = SignedDuration::from_secs(1);

/// What was seen of one run.
#[derive(Clone, Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) now: Timestamp,
    pub(crate) view: RunView,
    pub(crate) seat: Seat<'a>,
    pub(crate) state: State,
    pub(crate) work: Vec<Work>,
    pub(crate) told: Vec<&'a Told>,
    /// Pods could be read: one that is not there is gone.
    pub(crate) sees_pods: bool,
}

/// A task that was at work, or wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) task: Task,
    pub(crate) place: Place,
    /// When its pod got its node.
    pub(crate) bound: Option<Timestamp>,
    pub(crate) opted_out: bool,
}

/// What was seen of all runs, by what belongs to which run.
pub(crate) struct Index<'a> {
    now: Timestamp,
    sees_pods: bool,
    seats: Seats<'a>,
    task_runs: HashMap<&'a str, Vec<&'a TaskRun>>,
    /// Pods of tasks by the full name of their run.
    pods: HashMap<String, Vec<&'a Pod>>,
    told: HashMap<&'a str, Vec<&'a Told>>,
}

impl<'a> Index<'a> {
    pub(crate) fn of(facts: &'a Facts) -> Self {
        let mut index = Self {
            now: facts.now,
            sees_pods: facts.pods.is_ok(),
            seats: Seats::of(
                facts.sets.as_deref().unwrap_or_default(),
                facts.pods.as_deref().unwrap_or_default(),
            ),
            task_runs: HashMap::new(),
            pods: HashMap::new(),
            told: HashMap::new(),
        };
        for task_run in facts.task_runs.iter().flatten() {
            if let Some(run) = task_run.run() {
                index.task_runs.entry(run).or_default().push(task_run);
            }
        }
        for pod in facts.pods.iter().flatten().filter(|pod| !is_placeholder(pod)) {
            if let Some(run) = run_of(pod) {
                index.pods.entry(run).or_default().push(pod);
            }
        }
        for told in facts.told.iter().flatten() {
            index.told.entry(&told.about).or_default().push(told);
        }
        index
    }

    pub(crate) fn evidence(&self, view: RunView) -> Evidence<'a> {
        let seat = self.seats.of_run(&view);
        let state = State::of(&view, &seat);
        let mut told = self
            .told
            .get(view.run.key.uid.as_str())
            .cloned()
            .unwrap_or_default();
        told.sort_by_key(|told| told.since);
        Evidence {
            now: self.now,
            sees_pods: self.sees_pods,
            work: self.work(&view),
            view,
            seat,
            state,
            told,
        }
    }

    /// TaskRuns, and the pods that none of them names: of earlier attempts, or where TaskRuns cannot be read.
    fn work(&self, view: &RunView) -> Vec<Work> {
        let key = &view.run.key;
        let no_pods = Vec::new();
        let pods = self.pods.get(&key.to_string()).unwrap_or(&no_pods);
        let is_own = |pod: &&&Pod| {
            label(&pod.metadata, keys::TEKTON_PIPELINE_RUN_UID).is_none_or(|uid| *uid == key.uid)
        };
        let pods: Vec<&Pod> = pods.iter().filter(is_own).copied().collect();
        let end = view.ended.unwrap_or(self.now);
        let task_runs = self.task_runs.get(key.uid.as_str());
        let task_runs = task_runs.map(Vec::as_slice).unwrap_or_default();
        let named: HashSet<_> = task_runs.iter().filter_map(|it| it.pod()).collect();
        let others = pods.iter().filter(|pod| !named.contains(pod.name_any().as_str()));
        let of_task_runs = task_runs.iter().map(|it| Work::of_task_run(it, &pods, end));
        let mut work: Vec<_> = of_task_runs
            .chain(others.filter_map(|pod| Work::of_pod(pod, end)))
            .collect();
        work.sort_by(|one, other| {
            let key = |it: &Work| (it.task.span.from, it.task.name.clone());
            key(one).cmp(&key(other))
        });
        work
    }
}

fn run_of(pod: &Pod) -> Option<String> {
    let name = label(&pod.metadata, keys::TEKTON_PIPELINE_RUN)?;
    Some(format!("{}/{name}", pod.namespace()?))
}

impl Work {
    fn of_task_run(task_run: &TaskRun, pods: &[&Pod], end: Timestamp) -> Self {
        let pod = task_run.pod();
        let found = pods.iter().find(|it| it.metadata.name.as_deref() == pod);
        let from = task_run.started().or_else(|| created(&task_run.metadata));
        let place = match (pod, found) {
            (Some(_), None) => Place::Unknown,
            (Some(_), Some(pod)) => place(pod),
            (None, _) => Place::Nowhere,
        };
        let opts_out = |meta| label(meta, keys::OPT_IN) == Some("false");
        Self {
            task: Task {
                name: task_run.task().to_owned(),
                span: Span::new(from.unwrap_or(end), task_run.ended().unwrap_or(end)),
                failed: task_run.failed(),
            },
            place,
            bound: found.and_then(|pod| bound(pod)),
            opted_out: opts_out(&task_run.metadata) || found.is_some_and(|pod| opts_out(&pod.metadata)),
        }
    }

    fn of_pod(pod: &Pod, end: Timestamp) -> Option<Self> {
        let name = label(&pod.metadata, TASK).map_or_else(|| pod.name_any(), str::to_owned);
        let to = if is_live(pod) { Some(end) } else { finished(pod) };
        Some(Self {
            task: Task {
                name,
                span: Span::new(created(&pod.metadata)?, to.unwrap_or(end)),
                failed: phase(pod) == "Failed",
            },
            place: place(pod),
            bound: bound(pod),
            opted_out: label(&pod.metadata, keys::OPT_IN) == Some("false"),
        })
    }
}

fn place(pod: &Pod) -> Place {
    node(pod).map_or(Place::Nowhere, |node| Place::Node(node.to_owned()))
}

/// When a pod got its node.
pub(crate) fn bound(pod: &Pod) -> Option<Timestamp> {
    node(pod)?;
    let status = pod.status.as_ref();
    let scheduled = scheduled(pod, "True").and_then(|it| it.last_transition_time.as_ref());
    let started = || status.and_then(|status| status.start_time.as_ref());
    let time = scheduled.or_else(started).map(|time| time.0);
    time.or_else(|| created(&pod.metadata))
}

/// When the last container of a pod ended.
fn finished(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.as_ref()?.container_statuses.as_deref()?;
    let ends = containers
        .iter()
        .filter_map(|it| it.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|time| time.0).max()
}

impl Evidence<'_> {
    /// Whether pod-affinity places, placed or will place it.
    pub(crate) fn standing(&self) -> Standing {
        let run = &self.view.run;
        let is_ours = match self.state {
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
            () if is_ours => Standing::Labelled,
            () if run.child && run.group.is_some() => Standing::Nested,
            () => Standing::Unlabelled,
        }
    }

    /// When it was created, or at the latest.
    pub(crate) fn begin(&self) -> Timestamp {
        let created = self.view.run.created;
        created.or(self.view.started).unwrap_or(self.now).min(self.now)
    }

    /// When it ended; now, if it has not.
    pub(crate) fn end(&self) -> Timestamp {
        let end = self.view.ended.filter(|_| self.view.run.done);
        end.unwrap_or(self.now).min(self.now).max(self.begin())
    }

    /// The events with this reason, the first one first.
    pub(crate) fn events(&self, reason: &'static str) -> impl Iterator<Item = &Told> {
        let told = self.told.iter().copied();
        told.filter(move |told| told.reason == reason)
    }

    /// When its last holder released it, if that has happened: Tekton starts a run at once then.
    pub(crate) fn released(&self) -> Option<Timestamp> {
        let event = self.events("Released").next().map(|told| told.since);
        let time = event.or(self.view.started);
        time.map(|time| time.clamp(self.begin(), self.end()))
    }
}
