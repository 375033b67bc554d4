//! The state of a run: where the run is in its life, and where its placeholder is.

use super::action::{Action, Target};
use super::decision::IgnoreReason;
use super::observation::{Observation, Placeholder, PlaceholderPod, Repeated, Unschedulable, WaitingPod};
use crate::config::Config;
use crate::cross_namespace_quota::TermsRejected;
use crate::keys;
use crate::messages;
use crate::opt_in::OptIn;
use crate::placeholder::size;
use crate::run::{self, SpecStatus};
use crate::strategy::{Enrolment, Isolation, Scope, Strategy};
use crate::warm::WarmNodes;
use jiff::Timestamp;
use std::time::Duration;
use strum::IntoStaticStr;

/// Where a run is, and where its placeholder is. The table in `plan.rs` lists the steps of each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
pub enum State {
    /// Not, or no longer, a run of pod-affinity: nested, of another controller, not opted in, or done and cleaned up.
    Ignored,
    /// Another controller holds the run.
    Queued,
    /// Held, and there is no placeholder that belongs to the run.
    HeldWithoutPlaceholder,
    /// Held; the StatefulSet exists, its pod does not.
    HeldWithoutPod,
    /// Held; the placeholder's pod has no node.
    HeldUnscheduled,
    /// Held; the placeholder's pod has a node.
    HeldOnNode,
    /// Held; the StatefulSet is at no replicas.
    HeldScaledDown,
    /// Running, without the labels of a group.
    Unenrolled,
    /// Running, and there is no placeholder that belongs to the run.
    RunningWithoutPlaceholder,
    /// Running; the StatefulSet exists, its pod does not.
    RunningWithoutPod,
    /// Running; the placeholder's pod has no node.
    RunningUnscheduled,
    /// Running; the placeholder's pod has a node.
    RunningOnNode,
    /// Running; the StatefulSet is at no replicas.
    RunningScaledDown,
    /// Opted out, and something of pod-affinity is left.
    OptedOut,
    /// Done or being deleted, and the placeholder is left.
    Ending,
    /// Done, and the run itself owns the placeholder's pod.
    NodeKept,
}

impl State {
    /// The state of the run that was observed.
    pub fn from_observation(observed: &Observation) -> Self {
        let run = &observed.run;
        let placeholder = observed.placeholder().usable();
        let adopted = observed.live_pod().is_some_and(|pod| pod.adopted);
        match Stage::from_observation(observed) {
            Stage::Done | Stage::Deleting if placeholder.is_some() => Self::Ending,
            Stage::Done | Stage::Deleting if adopted => Self::NodeKept,
            Stage::OptedOut if placeholder.is_some() || run.is_held_by_us() => Self::OptedOut,
            Stage::OptedOut if run.status == SpecStatus::Pending && run.is_enrolled() => Self::OptedOut,
            Stage::Done | Stage::Deleting | Stage::OptedOut | Stage::Foreign(_) => Self::Ignored,
            Stage::HeldElsewhere(_) => Self::Queued,
            Stage::HeldByUs(_) => by_placeholder(observed, HELD),
            Stage::Running(_) if !run.is_enrolled() => Self::Unenrolled,
            Stage::Running(_) => by_placeholder(observed, RUNNING),
        }
    }
}

impl State {
    /// pod-affinity holds the run.
    pub(crate) fn is_held(self) -> bool {
        HELD.contains(&self)
    }
}

/// The state by where the placeholder is: absent, at no replicas, without a pod, without a node, on a node.
fn by_placeholder(observed: &Observation, states: [State; 5]) -> State {
    let [absent, scaled_down, without_pod, unscheduled, on_node] = states;
    match (observed.placeholder(), observed.live_pod().map(|pod| &pod.node)) {
        (PlaceholderState::Missing | PlaceholderState::Unusable, _) => absent,
        (PlaceholderState::Usable(_), _) if observed.is_scaled_down() => scaled_down,
        (PlaceholderState::Usable(_), None) => without_pod,
        (PlaceholderState::Usable(_), Some(None)) => unscheduled,
        (PlaceholderState::Usable(_), Some(Some(_))) => on_node,
    }
}

const HELD: [State; 5] = [
    State::HeldWithoutPlaceholder,
    State::HeldScaledDown,
    State::HeldWithoutPod,
    State::HeldUnscheduled,
    State::HeldOnNode,
];
const RUNNING: [State; 5] = [
    State::RunningWithoutPlaceholder,
    State::RunningScaledDown,
    State::RunningWithoutPod,
    State::RunningUnscheduled,
    State::RunningOnNode,
];

/// Where a run is in its life, as far as placement goes; with the strategy that an opted-in user asks for.
pub(super) enum Stage {
    Deleting,
    Done,
    Foreign(IgnoreReason),
    OptedOut,
    HeldByUs(Strategy),
    HeldElsewhere(Strategy),
    Running(Strategy),
}

impl Stage {
    /// The end of a run comes first: the objects of pod-affinity are deleted whatever labels the run has.
    pub(super) fn from_observation(observed: &Observation) -> Self {
        let run = &observed.run;
        match chosen_strategy(observed) {
            _ if run.deleting => Self::Deleting,
            _ if run.done => Self::Done,
            _ if run.child => Self::Foreign(IgnoreReason::Child),
            _ if run.managed_elsewhere => Self::Foreign(IgnoreReason::ManagedElsewhere),
            None => Self::OptedOut,
            Some(chosen) if run.is_held_by_us() => Self::HeldByUs(chosen),
            Some(chosen) if run.status == SpecStatus::Pending => Self::HeldElsewhere(chosen),
            Some(chosen) => Self::Running(chosen),
        }
    }
}

/// The strategy that the opt-in label chooses; `None` if the label is absent, `false` or invalid.
pub(super) fn chosen_strategy(observed: &Observation) -> Option<Strategy> {
    if keys::EXCLUDED_NAMESPACES.contains(&observed.run.key.namespace.as_str()) {
        return None;
    }
    let opt_in = OptIn::parse(observed.run.opt_in.as_deref()).ok()?;
    opt_in.strategy(observed.config.default_strategy)
}

/// Strategy and isolation of the run. A quota can limit the isolation as long as no pod depends on it.
pub(super) fn enrolment(observed: &Observation, chosen: Strategy) -> Enrolment {
    let resolved = resolved(observed, chosen);
    match narrowing(observed, resolved) {
        None => resolved,
        Some(_) => Enrolment {
            isolation: Isolation {
                scope: Scope::Namespace,
                ..resolved.isolation
            },
            ..resolved
        },
    }
}

/// Why the run is isolated within its namespace only, if it is. A run with a placeholder, and a run that may have pods, keeps its
/// isolation.
fn narrowing(observed: &Observation, Enrolment { strategy, isolation }: Enrolment) -> Option<&TermsRejected> {
    let rejected = observed.cluster.terms_rejected.as_ref()?;
    let has_placeholder = observed.statefulset.as_ref().is_some_and(|it| it.owned);
    let may_have_pods = observed.run.is_enrolled() && !observed.run.is_held_by_us();
    let is_resolved = has_placeholder || may_have_pods;
    (!is_resolved && crosses_namespaces(strategy, isolation)).then_some(rejected)
}

/// Whether pods with this strategy and isolation have affinity terms across namespaces.
pub(super) fn crosses_namespaces(strategy: Strategy, isolation: Isolation) -> bool {
    strategy.isolates() && isolation.scope == Scope::Cluster
}

/// Strategy and isolation are resolved once for the life of a run: pods of one group with different terms would be
/// isolated from each other. The labels of a run that is not enrolled were copied from another run, so they do not
/// count.
fn resolved(observed: &Observation, chosen: Strategy) -> Enrolment {
    let placeholder = observed
        .statefulset
        .as_ref()
        .filter(|placeholder| placeholder.owned);
    let run = Some(&observed.run).filter(|run| run.is_enrolled());
    let strategy = || run?.strategy.as_deref()?.parse().ok();
    let isolation = || run?.isolation.as_deref()?.parse().ok();
    Enrolment {
        strategy: placeholder
            .and_then(|it| it.strategy)
            .or_else(strategy)
            .unwrap_or(chosen),
        isolation: placeholder
            .and_then(|it| it.isolation)
            .or_else(isolation)
            .unwrap_or(observed.config.isolation),
    }
}

#[derive(Clone, Copy)]
pub(super) enum PlaceholderState<'a> {
    /// No StatefulSet has the placeholder's name.
    Missing,
    /// The StatefulSet with the placeholder's name is being deleted or belongs to another owner. It cannot be used, and
    /// no other can be created.
    Unusable,
    /// The StatefulSet exists, and the run owns it.
    Usable(&'a Placeholder),
}

impl Observation {
    /// The strategy and the isolation of the run: those that the run has, or those that the run gets when it is enrolled. A run
    /// that is not opted in would get the strategy of the configuration.
    pub fn enrolment(&self) -> Enrolment {
        let chosen = chosen_strategy(self).unwrap_or(self.config.default_strategy);
        enrolment(self, chosen)
    }

    /// The opt-in label is absent, `false` or invalid.
    pub fn is_opted_out(&self) -> bool {
        chosen_strategy(self).is_none()
    }

    /// The placeholder has a node, and the run did not opt out.
    pub fn keeps_placeholder(&self) -> bool {
        !self.is_opted_out() && self.pod.as_ref().is_some_and(|pod| pod.node.is_some())
    }

    /// Why the run is isolated within its namespace only, if it is.
    pub(crate) fn narrowing(&self) -> Option<&TermsRejected> {
        let chosen = chosen_strategy(self).unwrap_or(self.config.default_strategy);
        narrowing(self, resolved(self, chosen))
    }

    /// The nodes that the placeholder prefers, if the run prefers warm nodes.
    pub fn warm_nodes(&self) -> Option<&WarmNodes> {
        self.statefulset.as_ref()?.warm_nodes.as_ref()
    }

    /// The placeholder, if pod-affinity may change it.
    pub(super) fn placeholder(&self) -> PlaceholderState<'_> {
        match self.statefulset.as_ref() {
            None => PlaceholderState::Missing,
            Some(placeholder) if placeholder.owned && !placeholder.deleting => {
                PlaceholderState::Usable(placeholder)
            }
            Some(_) => PlaceholderState::Unusable,
        }
    }

    /// The placeholder's pod, unless it has ended. A pod beside a StatefulSet of another owner belongs to that
    /// StatefulSet, unless the run itself owns the pod.
    pub(super) fn live_pod(&self) -> Option<&PlaceholderPod> {
        let foreign = self
            .statefulset
            .as_ref()
            .is_some_and(|placeholder| !placeholder.owned);
        let is_ours = |pod: &&PlaceholderPod| !pod.ending && (!foreign || pod.adopted);
        self.pod.as_ref().filter(is_ours)
    }

    pub(super) fn live_node(&self) -> Option<&str> {
        self.live_pod()?.node.as_deref()
    }

    /// The placeholder's StatefulSet has zero replicas: its pod has ended or is ending.
    pub(super) fn is_scaled_down(&self) -> bool {
        self.placeholder()
            .usable()
            .is_some_and(|placeholder| placeholder.spec.replicas <= 0)
    }

    /// The run's placeholder has a reserve, or may get one.
    pub(super) fn has_reserve(&self) -> bool {
        size::is_automatic(&self.run, &self.config) || size::reserved(&self.run, &self.config).reserves()
    }

    /// How long a pod may be unschedulable before the run moves.
    pub(super) fn patience(&self) -> Duration {
        self.config.move_after.unwrap_or(Config::MOVE_AFTER)
    }

    /// The remaining time of a span that began at `since`.
    pub(super) fn remaining(&self, since: Timestamp, span: Duration) -> Duration {
        run::remaining(span, since, self.now)
    }

    /// The remaining pause before the run may move again.
    pub(super) fn pause(&self) -> Duration {
        self.pause_after(self.repeated.moves, Repeated::PAUSE)
    }

    /// The remaining pause before a step may be repeated.
    pub(super) fn pause_after(&self, done: Repeated, first: Duration) -> Duration {
        let last = done.last;
        last.map_or(Duration::ZERO, |last| self.remaining(last, done.pause(first)))
    }

    /// The pod that has been unschedulable for the longest time.
    pub(super) fn unschedulable_task(&self) -> Option<(&WaitingPod, &Unschedulable)> {
        self.longest_unschedulable(|_| true)
    }

    /// The pod that has been unschedulable for the longest time, without pods that wait for an unbound PVC: a move does not help
    /// them.
    pub(super) fn unschedulable_for_its_node(&self) -> Option<(&WaitingPod, &Unschedulable)> {
        self.longest_unschedulable(|it| !messages::waits_for_its_volume(&it.message))
    }

    fn longest_unschedulable(
        &self,
        counts: impl Fn(&Unschedulable) -> bool,
    ) -> Option<(&WaitingPod, &Unschedulable)> {
        let pods = self.waiting.iter();
        let pods = pods.filter_map(|pod| Some((pod, pod.unschedulable.as_ref()?)));
        let pods = pods.filter(|(_, it)| counts(it));
        pods.min_by_key(|(pod, it)| (it.since, &pod.name))
    }

    /// The name of the pod that has been unschedulable for the longest time, or of a pod that waits for another reason.
    pub(super) fn first_waiting_pod(&self) -> Option<String> {
        let first = self
            .unschedulable_for_its_node()
            .or(self.unschedulable_task())
            .map(|(pod, _)| pod)
            .or(self.waiting.first());
        first.map(|pod| pod.name.clone())
    }
}

impl Placeholder {
    pub(super) fn delete(&self) -> Action {
        Action::Delete(Target::Placeholder(self.uid.clone()))
    }
}

impl PlaceholderPod {
    pub(super) fn delete(&self) -> Action {
        Action::Delete(Target::Pod(self.uid.clone()))
    }
}

impl<'a> PlaceholderState<'a> {
    pub(super) fn usable(self) -> Option<&'a Placeholder> {
        match self {
            Self::Missing | Self::Unusable => None,
            Self::Usable(placeholder) => Some(placeholder),
        }
    }
}
