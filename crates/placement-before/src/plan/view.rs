//! How `plan` reads an observation: the stage of the run, and what there is of ours.

use super::decision::Why;
use super::observation::{Observation, Placeholder, PlaceholderPod, Repeated, Unschedulable, WaitingPod};
use crate::config::Config;
use crate::keys;
use crate::opt_in::OptIn;
use crate::placeholder::size;
use crate::run::{self, SpecStatus};
use crate::strategy::{Enrolment, Strategy};
use jiff::Timestamp;
use std::time::Duration;

/// Where a run is in its life, as far as placement goes; with the strategy that an opted-in user asks for.
pub enum Stage {
    Deleting,
    Done,
    Foreign(Why),
    OptedOut,
    HeldByUs(Strategy),
    HeldElsewhere(Strategy),
    Running(Strategy),
}

impl Stage {
    /// The end comes first: what we made is cleaned up whatever became of the labels.
    pub fn of(seen: &Observation) -> Self {
        let run = &seen.run;
        match asked(seen) {
            _ if run.deleting => Self::Deleting,
            _ if run.done => Self::Done,
            _ if run.child => Self::Foreign(Why::Child),
            _ if run.managed_elsewhere => Self::Foreign(Why::ManagedElsewhere),
            None => Self::OptedOut,
            Some(asked) if run.is_held_by_us() => Self::HeldByUs(asked),
            Some(asked) if run.status == SpecStatus::Pending => Self::HeldElsewhere(asked),
            Some(asked) => Self::Running(asked),
        }
    }
}

/// The strategy that the opt-in label asks for; `None` if it is absent, `false` or means nothing.
pub fn asked(seen: &Observation) -> Option<Strategy> {
    if keys::LEFT_OUT.contains(&seen.run.key.namespace.as_str()) {
        return None;
    }
    let opt_in = OptIn::parse(seen.run.opt_in.as_deref()).ok()?;
    opt_in.strategy(seen.config.default_strategy)
}

/// What was resolved once stays for the life of the run: two halves of a group with different terms would be
/// isolated by one and not by the other. Labels of a run that is not enrolled are another's.
pub fn enrolment(seen: &Observation, asked: Strategy) -> Enrolment {
    let placeholder = seen.set.as_ref().filter(|placeholder| placeholder.owned);
    let run = Some(&seen.run).filter(|run| run.is_enrolled());
    let strategy = || run?.strategy.as_deref()?.parse().ok();
    let isolation = || run?.isolation.as_deref()?.parse().ok();
    Enrolment {
        strategy: placeholder
            .and_then(|it| it.strategy)
            .or_else(strategy)
            .unwrap_or(asked),
        isolation: placeholder
            .and_then(|it| it.isolation)
            .or_else(isolation)
            .unwrap_or(seen.config.isolation),
    }
}

#[derive(Clone, Copy)]
pub enum Set<'a> {
    /// There is none: the name is free.
    Missing,
    /// On its way out, or another's of the same name: neither can be used, nor can one be made.
    Unusable,
    /// There, and the run owns it.
    Usable(&'a Placeholder),
}

impl Observation {
    /// The placeholder as far as we may touch it.
    pub fn placeholder(&self) -> Set<'_> {
        Set::of(self.set.as_ref())
    }

    /// A pod beside a set that is not ours is that set's, unless the run itself owns it.
    pub fn live_pod(&self) -> Option<&PlaceholderPod> {
        let foreign = self.set.as_ref().is_some_and(|set| !set.owned);
        let is_ours = |pod: &&PlaceholderPod| !pod.ending && (!foreign || pod.adopted);
        self.pod.as_ref().filter(is_ours)
    }

    pub fn live_node(&self) -> Option<&str> {
        self.live_pod()?.node.as_deref()
    }

    /// Our StatefulSet is at no replicas: the run moved off its node, and its pod is gone or going.
    pub fn has_moved_off(&self) -> bool {
        self.placeholder().usable().is_some_and(|set| set.replicas <= 0)
    }

    /// The run's placeholder is made bigger than usual, or may be.
    pub fn has_reserve(&self) -> bool {
        size::is_automatic(&self.run, &self.config) || size::reserved(&self.run, &self.config).reserves()
    }

    /// How long something may be wrong before anything is done about it.
    pub fn patience(&self) -> Duration {
        self.config.move_after.unwrap_or(Config::MOVE_AFTER)
    }

    /// What is left of a time span that began then.
    pub fn left(&self, since: Timestamp, span: Duration) -> Duration {
        run::left(span, since, self.now)
    }

    /// How long to keep from moving again.
    pub fn pause(&self) -> Duration {
        self.pause_after(self.moves, Repeated::PAUSE)
    }

    /// How long to keep from doing again what was done so often, from the first pause on.
    pub fn pause_after(&self, done: Repeated, first: Duration) -> Duration {
        let last = done.last;
        last.map_or(Duration::ZERO, |last| self.left(last, done.pause(first)))
    }

    /// The pod that waits longest of those for which there is no node.
    pub fn misfit(&self) -> Option<(&WaitingPod, &Unschedulable)> {
        let misfits = self.waiting.iter();
        let misfits = misfits.filter_map(|pod| Some((pod, pod.unschedulable.as_ref()?)));
        misfits.min_by_key(|(pod, it)| (it.since, &pod.name))
    }

    /// The name of that pod, or of one that waits for another reason.
    pub fn waits(&self) -> Option<String> {
        let first = self.misfit().map(|(pod, _)| pod).or(self.waiting.first());
        first.map(|pod| pod.name.clone())
    }
}

impl<'a> Set<'a> {
    fn of(placeholder: Option<&'a Placeholder>) -> Self {
        match placeholder {
            None => Self::Missing,
            Some(placeholder) if placeholder.owned && !placeholder.deleting => Self::Usable(placeholder),
            Some(_) => Self::Unusable,
        }
    }

    pub fn usable(self) -> Option<&'a Placeholder> {
        match self {
            Self::Missing | Self::Unusable => None,
            Self::Usable(placeholder) => Some(placeholder),
        }
    }

    pub fn uid(self) -> Option<String> {
        self.usable().map(|placeholder| placeholder.uid.clone())
    }
}
