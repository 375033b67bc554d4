//! Measures for the metrics how long a run is held, waits for its placeholder, has no node, and has a node.
//!
//! The timers may be lost. A new leader still measures a hold from its start, but no other time that started before it led.

use super::backoff::later;
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
    /// The namespace of the run, and since when the run has a node. The time without a node during moves is added.
    on_node: Option<(String, Timestamp)>,
}

impl Timers {
    /// Starts and stops timers after an observation, and after a step if a step was taken.
    pub(crate) fn note(&mut self, observed: &Observation, done: Option<&Event>, metrics: &Metrics) {
        let (run, now) = (&observed.run, observed.now);
        let is_held = run.hold && run.status == SpecStatus::Pending;
        if is_held {
            self.held = run.held_since().or(self.held).or(Some(now));
        }
        self.end_hold(released(done).or_else(|| without_us(run)), now, metrics);
        if !is_held {
            // The cache had the run as held after its release was counted.
            self.held = None;
        }
        if let Some(start) = done.and_then(|event| start(observed, event)) {
            metrics.started(start);
        }
        if let Some(cause) = done.and_then(gives_up) {
            metrics.moved_off(cause);
        }
        self.arrive(observed, metrics);
        self.take_node(observed, metrics);
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

    /// Ends the hold and the node time of a settled run.
    pub(crate) fn settled(&mut self, run: &Run, now: Timestamp, metrics: &Metrics) {
        self.end_hold(without_us(run), now, metrics);
        self.end_node_time(now, metrics);
    }

    /// Ends the hold and the node time of a deleted run.
    pub(crate) fn deleted(&mut self, now: Timestamp, metrics: &Metrics) {
        self.end_hold(Some(HoldEnd::Deleted), now, metrics);
        self.end_node_time(now, metrics);
    }

    /// Starts the node time of a run that is not done. If an earlier leader created the placeholder, the run has its node since its start.
    fn take_node(&mut self, observed: &Observation, metrics: &Metrics) {
        let (run, now) = (&observed.run, observed.now);
        if !run.done && observed.node_name().is_some() && self.on_node.is_none() {
            let started = run.started.filter(|_| self.created.is_none());
            metrics.has_node(&run.key.namespace);
            self.on_node = Some((run.key.namespace.clone(), started.unwrap_or(now)));
        }
    }

    fn end_node_time(&mut self, now: Timestamp, metrics: &Metrics) {
        if let Some((namespace, since)) = self.on_node.take() {
            let end = self.nodeless.as_ref().map_or(now, |(from, _)| *from);
            metrics.had_node(&namespace, between(since, end));
        }
    }

    /// Measures the time of a move when another pod has a node. Right after the move, the old pod is still in the cache.
    fn arrive(&mut self, observed: &Observation, metrics: &Metrics) {
        let pod = observed.pod.as_ref().filter(|pod| pod.node.is_some());
        let is_another = |old: &Option<String>| pod.is_some_and(|pod| old.as_ref() != Some(&pod.uid));
        if let Some((since, _)) = self.nodeless.take_if(|(_, old)| is_another(old)) {
            let nodeless = between(since, observed.now);
            metrics.moved(nodeless);
            if let Some((_, on_node)) = &mut self.on_node {
                *on_node = later(*on_node, nodeless);
            }
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
        _ if run.deleting => Some(HoldEnd::Deleted),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, exposition, nothing, observed_pod};
    use placement::plan::{PlaceholderPod, ReleaseCause};
    use prometheus_client::registry::Registry;

    #[test]
    fn the_time_without_a_node_during_a_move_is_no_time_on_a_node() {
        for (moved_at, ended_at, seconds) in [(Some(16), 30, "24.0"), (None, 30, "10.0")] {
            let mut registry = Registry::default();
            let metrics = Metrics::register(&mut registry);
            let mut timers = Timers::default();
            let on_node = |timers: &mut Timers, uid: &str, second| {
                let pod = PlaceholderPod {
                    uid: uid.to_owned(),
                    ..observed_pod(Some("n1"))
                };
                let observed = Observation {
                    pod: Some(pod),
                    now: at(second),
                    ..nothing()
                };
                timers.note(&observed, None, &metrics);
            };
            on_node(&mut timers, "p1", 0);
            timers.moved_off(Some("p1".to_owned()), at(10));
            on_node(&mut timers, "p1", 11);
            if let Some(second) = moved_at {
                on_node(&mut timers, "p2", second);
            }
            timers.deleted(at(ended_at), &metrics);
            let expected = format!("node_seconds_total{{run_namespace=\"ns\"}} {seconds}\n");
            let text = exposition(&registry);
            assert!(text.contains(&expected), "{expected}{text}");
        }
    }

    #[test]
    fn the_hold_of_a_run_that_is_being_deleted_ends() {
        let run = Run {
            status: SpecStatus::Pending,
            deleting: true,
            ..nothing().run
        };
        assert!(matches!(without_us(&run), Some(HoldEnd::Deleted)));
    }

    #[test]
    fn a_hold_that_the_cache_still_has_after_the_release_is_not_counted_again() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let mut timers = Timers::default();
        let mut note = |change: &dyn Fn(&mut Run), done: Option<&Event>| {
            let mut observed = nothing();
            change(&mut observed.run);
            timers.note(&observed, done, &metrics);
        };
        let released = Event::Released {
            cause: ReleaseCause::NodeFound,
            enrolment: None,
            node: None,
            message: None,
        };
        note(&|_| {}, Some(&released));
        note(&|_| {}, None);
        for done in [false, true] {
            note(
                &|run| {
                    run.hold = false;
                    run.status = SpecStatus::Unset;
                    run.done = done;
                },
                None,
            );
        }
        let text = exposition(&registry);
        let ended: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("hold_seconds_count"))
            .collect();
        let counted = ended.iter().filter(|line| !line.ends_with(" 0"));
        assert_eq!(counted.count(), 1, "{ended:?}");
    }
}
