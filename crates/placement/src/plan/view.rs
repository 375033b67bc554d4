//! What `plan` makes of an observation before it decides: the stage of the run, and what there is of ours.

use super::{Enrolment, Observed, Placeholder, PlaceholderPod, Why};
use crate::opt_in::OptIn;
use crate::run::{Run, SpecStatus};
use crate::strategy::Strategy;

/// Where a run is in its life, as far as placement goes; with the strategy that an opted-in user asks for.
pub(super) enum Stage {
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
    pub(super) fn of(observed: &Observed<'_>) -> Self {
        let run = observed.run;
        match asked(observed) {
            _ if run.deleting => Self::Deleting,
            _ if run.done => Self::Done,
            _ if run.child => Self::Foreign(Why::Child),
            _ if run.managed_elsewhere => Self::Foreign(Why::ManagedElsewhere),
            None => Self::OptedOut,
            Some(asked) if is_held_by_us(run) => Self::HeldByUs(asked),
            Some(asked) if run.status == SpecStatus::Pending => Self::HeldElsewhere(asked),
            Some(asked) => Self::Running(asked),
        }
    }
}

/// The strategy that the opt-in label asks for; `None` if it is absent, `false` or means nothing.
pub(super) fn asked(observed: &Observed<'_>) -> Option<Strategy> {
    let opt_in = OptIn::parse(observed.run.opt_in.as_deref()).ok()?;
    opt_in.strategy(observed.config.default_strategy)
}

/// A run that Kueue queues is Kueue's to release, also where our webhook came first and left its mark.
pub(super) fn is_held_by_us(run: &Run) -> bool {
    run.status == SpecStatus::Pending && run.hold && !run.queued_by_kueue
}

pub(super) fn is_enrolled(run: &Run) -> bool {
    run.group.as_deref() == Some(run.key.uid.as_str())
}

/// What was resolved once stays for the life of the run: two halves of a group with different terms would be
/// isolated by one and not by the other. Labels of a run that is not enrolled are somebody else's.
pub(super) fn enrolment(observed: &Observed<'_>, asked: Strategy) -> Enrolment {
    let placeholder = observed.placeholder.filter(|placeholder| placeholder.owned);
    let run = Some(observed.run).filter(|run| is_enrolled(run));
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
            .unwrap_or(observed.config.isolation),
    }
}

/// The placeholder as far as we may touch it.
pub(super) struct Ours<'a> {
    pub(super) set: Set<'a>,
    pub(super) pod: Option<&'a PlaceholderPod>,
}

#[derive(Clone, Copy)]
pub(super) enum Set<'a> {
    /// There is none: the name is free.
    Missing,
    /// On its way out, or somebody else's of the same name: neither can be used, nor can one be made.
    Unusable,
    /// There, and the run owns it.
    Usable(&'a Placeholder),
}

impl<'a> Ours<'a> {
    /// A pod beside a set that is not ours is that set's, unless the run itself owns it.
    pub(super) fn of(observed: &Observed<'a>) -> Self {
        let foreign = observed.placeholder.is_some_and(|placeholder| !placeholder.owned);
        Self {
            set: Set::of(observed.placeholder),
            pod: observed
                .pod
                .filter(|pod| !pod.ending && (!foreign || pod.adopted)),
        }
    }

    pub(super) fn node(&self) -> Option<&'a str> {
        self.pod?.node.as_deref()
    }

    pub(super) fn unschedulable(&self) -> Option<String> {
        self.pod?.unschedulable.clone()
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

    pub(super) fn uid(self) -> Option<String> {
        match self {
            Self::Missing | Self::Unusable => None,
            Self::Usable(placeholder) => Some(placeholder.uid.clone()),
        }
    }
}
