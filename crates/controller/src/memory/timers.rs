//! Measures for the metrics how long a run is held, waits for its placeholder, and has no node.
//!
//! The timers may be lost. A new leader still measures a hold from its start, but no other time that started before it led.

use crate::metrics::{HoldEnd, Metrics};
use jiff::Timestamp;
use placement::plan::{Event, MoveCause, Observation};
use placement::run::{Run, SpecStatus};
use placement::warm::Start;
use std::time::Duration;

/// The timers of one run.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Since when pod-affinity holds the run, as far as observed.
    held: Option<Timestamp>,
    /// When the placeholder was created; `None` after the placeholder got a node.
    created: Option<Timestamp>,
    /// Since when the run has no node, and the UID of the placeholder's pod that gave up the node.
    nodeless: Option<(Timestamp, Option<String>)>,
}

impl Timers {
    /// Starts and stops timers after an observation, and after a step if a step was taken.
    pub(crate) fn note(&mut self, observed: &Observation, done: Option<&Event>, metrics: &Metrics) {
        let (run, now) = (&observed.run, observed.now);
        if run.hold && run.status == SpecStatus::Pending {
            self.held = run.held_since().or(self.held).or(Some(now));
        }
        self.end_hold(released(done).or_else(|| without_us(run)), now, metrics);
        if let Some(start) = done.and_then(|event| start(observed, event)) {
            metrics.started(start);
        }
        if let Some(cause) = done.and_then(gives_up) {
            metrics.moved_off(cause);
        }
        self.arrive(observed, metrics);
        if let Some(Event::Created(_)) = done {
            self.created.get_or_insert(now);
        }
        if observed.node_name().is_some()
            && let Some(created) = self.created.take()
        {
            metrics.scheduled(between(created, now));
        }
    }

    /// The run gave up its node. If the run has no new node since an earlier move, the earlier time counts.
    pub(crate) fn moved_off(&mut self, pod: Option<String>, now: Timestamp) {
        self.nodeless.get_or_insert((now, pod));
    }

    /// Ends the hold of a settled run.
    pub(crate) fn settled(&mut self, run: &Run, now: Timestamp, metrics: &Metrics) {
        self.end_hold(without_us(run), now, metrics);
    }

    /// Ends the hold of a deleted run.
    pub(crate) fn deleted(&mut self, now: Timestamp, metrics: &Metrics) {
        self.end_hold(Some(HoldEnd::Deleted), now, metrics);
    }

    /// Measures the time of a move when another pod has a node. Right after the move, the old pod is still in the cache.
    fn arrive(&mut self, observed: &Observation, metrics: &Metrics) {
        let pod = observed.pod.as_ref().filter(|pod| pod.node.is_some());
        let is_another = |old: &Option<String>| pod.is_some_and(|pod| old.as_ref() != Some(&pod.uid));
        if let Some((since, _)) = self.nodeless.take_if(|(_, old)| is_another(old)) {
            metrics.moved(between(since, observed.now));
        }
    }

    fn end_hold(&mut self, end: Option<HoldEnd>, now: Timestamp, metrics: &Metrics) {
        if let Some(end) = end
            && let Some(since) = self.held.take()
        {
            metrics.hold_ended(end, between(since, now));
        }
    }
}

fn released(done: Option<&Event>) -> Option<HoldEnd> {
    match done? {
        Event::Released { cause, .. } => Some(HoldEnd::Released(*cause)),
        _ => None,
    }
}

/// The start of a run that prefers warm nodes, on the node with which the run is released.
fn start(observed: &Observation, event: &Event) -> Option<Start> {
    match event {
        Event::Released { node: Some(node), .. } => Some(observed.warm_nodes()?.start(node)),
        _ => None,
    }
}

fn gives_up(event: &Event) -> Option<MoveCause> {
    match event {
        Event::MovedOff { cause, .. } => Some(*cause),
        _ => None,
    }
}

/// A release by pod-affinity removes the hold annotation. A run that has the annotation and is not Pending was released by another
/// controller or a user.
fn without_us(run: &Run) -> Option<HoldEnd> {
    match run.status {
        _ if run.done => Some(HoldEnd::Cancelled),
        SpecStatus::Pending => None,
        SpecStatus::Unset | SpecStatus::Other(_) => run.hold.then_some(HoldEnd::Foreign),
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
impl Timers {
    pub(crate) fn nodeless(&self) -> Option<(Timestamp, Option<String>)> {
        self.nodeless.clone()
    }
}
