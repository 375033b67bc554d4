//! All that the story of one run is made from.

use crate::ask::{Gap, Seen};
use crate::events::{Told, latest};
use crate::fit::{Bound, Scene};
use crate::state::State;
use crate::view::{RunView, Seat, is_assistant, is_live, is_opted_out, is_placeholder, node, unschedulable};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use placement::config::Config;
use placement::opt_in::OptIn;
use placement::strategy::{Isolation, Strategy};

/// What was seen of a run and around it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) now: Timestamp,
    pub(crate) config: Seen<Config>,
    pub(crate) view: RunView,
    pub(crate) set: Seen<Option<StatefulSet>>,
    /// The run's pods, the placeholder's among them.
    pub(crate) pods: Seen<Vec<Pod>>,
    pub(crate) told: Seen<Vec<Told>>,
    /// The node of [`Facts::home_name`], if it was looked for by name or among those around.
    pub(crate) home: Option<Seen<Option<Node>>>,
    pub(crate) around: Option<Around>,
    /// Of the run's PVCs, if a pod of the run waits, or its node is unfit.
    pub(crate) volumes: Seen<Vec<Bound>>,
}

/// The cluster, which is looked at only when a pod of the run waits.
#[derive(Clone, Debug)]
pub(crate) struct Around {
    pub(crate) nodes: Seen<Vec<Node>>,
    pub(crate) pods: Partial,
}

/// Pods of all namespaces; of the run's own only where more may not be seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partial {
    pub(crate) pods: Vec<Pod>,
    pub(crate) gaps: Vec<Gap>,
}

impl Facts {
    pub(crate) fn seat(&self) -> Seat<'_> {
        Seat {
            set: self.set.as_ref().ok().and_then(Option::as_ref),
            pod: self.all_pods().iter().find(|pod| is_placeholder(pod)),
        }
    }

    pub(crate) fn state(&self) -> State {
        State::of(&self.view, &self.seat())
    }

    pub(crate) fn all_pods(&self) -> &[Pod] {
        self.pods.as_deref().unwrap_or_default()
    }

    /// Pods of the run's tasks.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &Pod> {
        let is_task = |pod: &&Pod| !is_placeholder(pod) && !is_assistant(pod);
        self.all_pods().iter().filter(is_task)
    }

    /// Pods of the run's tasks that are alive and have to be where the run is.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Pod> {
        self.tasks().filter(|pod| is_live(pod) && !is_opted_out(pod))
    }

    /// Pods of the run that find no node.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Pod> {
        self.all_pods().iter().filter(|pod| waits(pod))
    }

    /// The first pod of a task that finds no node, and has to be where the run is.
    pub(crate) fn waiting_member(&self) -> Option<&Pod> {
        self.members().find(|pod| waits(pod))
    }

    pub(crate) fn uid(&self) -> &str {
        &self.view.run.key.uid
    }

    /// The last event with this reason on the run.
    pub(crate) fn event(&self, reason: &str) -> Option<&Told> {
        latest(self.told.as_deref().unwrap_or_default(), self.uid(), reason)
    }

    /// The configuration, or what holds without one.
    pub(crate) fn config(&self) -> Config {
        self.config.clone().unwrap_or_default()
    }

    /// The strategy that is in force for the run, or would be.
    pub(crate) fn strategy(&self) -> Strategy {
        let enrolled = self
            .view
            .run
            .strategy
            .as_deref()
            .filter(|_| self.view.run.is_enrolled());
        let asked = || {
            OptIn::parse(self.view.run.opt_in.as_deref())
                .ok()
                .and_then(|opt_in| opt_in.strategy(self.config().default_strategy))
        };
        enrolled
            .and_then(|name| name.parse().ok())
            .or_else(asked)
            .unwrap_or_default()
    }

    /// Likewise whom it keeps away from.
    pub(crate) fn isolation(&self) -> Isolation {
        let enrolled = self
            .view
            .run
            .isolation
            .as_deref()
            .filter(|_| self.view.run.is_enrolled());
        enrolled
            .and_then(|name| name.parse().ok())
            .unwrap_or(self.config().isolation)
    }

    /// The node where the run is or was, by its placeholder or by its annotation.
    pub(crate) fn node(&self) -> Option<&str> {
        self.seat().node().or(self.view.run.node.as_deref())
    }

    /// The node where the run is: that of its placeholder, or that of its tasks while the placeholder has none.
    pub(crate) fn home_name(&self) -> Option<&str> {
        let of_tasks = || self.members().find_map(node);
        let name = self.seat().node().or_else(of_tasks);
        name.filter(|_| self.view.run.is_enrolled())
    }

    /// The cluster as far as it was seen.
    pub(crate) fn scene(&self) -> Option<Scene<'_>> {
        let around = self.around.as_ref()?;
        Some(Scene {
            nodes: around.nodes.as_deref().ok()?,
            pods: &around.pods.pods,
            volumes: self.volumes.as_deref().unwrap_or_default(),
        })
    }

    /// What was not seen, and why.
    pub(crate) fn gaps(&self) -> Vec<&Gap> {
        let (run, around) = (&self.view.run, self.around.as_ref());
        // A run bears what the configuration said when it was enrolled; for how long it may be held is not among that.
        let bears_it = run.is_enrolled() && !run.is_held_by_us();
        let own = [
            self.config.as_ref().err().filter(|_| !bears_it),
            self.set.as_ref().err(),
            self.pods.as_ref().err(),
            self.told.as_ref().err(),
        ];
        let others = [
            self.home.as_ref().and_then(|it| it.as_ref().err()),
            around.and_then(|it| it.nodes.as_ref().err()),
            self.volumes.as_ref().err(),
        ];
        let pods = around.into_iter().flat_map(|it| &it.pods.gaps);
        own.into_iter().chain(others).flatten().chain(pods).collect()
    }
}

fn waits(pod: &Pod) -> bool {
    unschedulable(pod).is_some() && node(pod).is_none()
}
