//! Reports each step of a run as logs, events and metrics, and updates the memory. No other module reports steps.

use crate::api_error::Refused;
use crate::events::{Notice, Outbox};
use crate::memory::{Known, Memory};
use crate::metrics::Metrics;
use crate::news::Due;
use crate::notes;
use crate::write::Effect;
use jiff::Timestamp;
use placement::plan::{Action, Decision, Event, Observation, Plan, Requeue, State, Step, Wait, Why};
use std::time::Duration;
use tracing::{Span, debug, info, warn};

/// Reports the results of steps.
pub(crate) struct Report {
    outbox: Outbox,
    metrics: Metrics,
}

impl Report {
    /// `outbox` takes the events.
    pub(crate) fn new(outbox: Outbox, metrics: Metrics) -> Self {
        Self { outbox, metrics }
    }

    /// Reports a plan and its result. Returns the plan with the time of the next reconciliation.
    pub(crate) fn step(
        &self,
        memory: &Memory,
        seen: &Observation,
        plan: Plan,
        result: Result<Effect, Refused>,
    ) -> Result<Plan, Refused> {
        log(seen, &plan.decision, &result);
        match (&plan.decision, &result) {
            (Decision::Ignore(why), _) => {
                self.leave(memory, seen, *why);
                Ok(plan)
            }
            (_, Ok(Effect::Paused(pause))) => Ok(sooner(plan, Some(*pause))),
            (Decision::Wait(_) | Decision::Read(_) | Decision::Act(_), _) => {
                let next = memory.with(&seen.run.key.uid, |known| {
                    let news = self.emit(known, seen, &plan, &result);
                    [news, remember(known, seen, &plan.decision, &result)]
                });
                result.map(|_| next.into_iter().fold(plan, sooner))
            }
        }
    }

    /// Reports the end of a run that was deleted before the run was done.
    pub(crate) fn deleted(&self, mut known: Known, now: Timestamp) {
        known.timers.deleted(now, &self.metrics);
    }

    /// Reports the duration of a reconciliation, and its error.
    pub(crate) fn reconciled(&self, took: Duration, refused: Option<&Refused>) {
        self.metrics.reconciled(took);
        if let Some(refused) = refused {
            self.metrics.refused(refused);
            let (step, cause) = (refused.operation.into(), refused.cause().into());
            let (step, cause): (&str, &str) = (step, cause);
            warn!(step, cause, error = %refused, "will retry");
        }
    }

    /// Removes the memory of a settled run. A run with another holder keeps its memory, because pod-affinity continues after the
    /// release.
    fn leave(&self, memory: &Memory, seen: &Observation, why: Why) {
        let known = match why {
            Why::HeldElsewhere => None,
            Why::Child | Why::ManagedElsewhere | Why::NotOptedIn | Why::Done => {
                memory.forget(&seen.run.key.uid)
            }
        };
        if let Some(mut known) = known {
            known.timers.settled(&seen.run, seen.now, &self.metrics);
        }
    }

    /// Updates the metrics and sends the notes that are due. Returns the pause before a new or repeated note is due: the run need
    /// not change until then.
    fn emit(
        &self,
        known: &mut Known,
        seen: &Observation,
        plan: &Plan,
        result: &Result<Effect, Refused>,
    ) -> Option<Duration> {
        if let Ok(Effect::Overtaken) = result {
            self.metrics.overtaken();
        }
        known
            .timers
            .note(seen, done(&plan.decision, result), &self.metrics);
        let (mut at, mut more) = (seen.now, None);
        for note in notes::notes(seen, plan, result) {
            let pause = match known.news.due(&note, seen.now) {
                Due::Now(count) => {
                    let (key, pause) = (seen.run.key.clone(), note.reason.repeat().pause());
                    self.outbox.put(Notice { key, note, count, at });
                    pause
                }
                Due::Later(pause) => Some(pause),
                Due::Not => None,
            };
            more = [more, pause].into_iter().flatten().min();
            // Each note of a step gets a later time, because clients sort events by time. The API server stores microseconds.
            at = at.checked_add(Duration::from_micros(1)).unwrap_or(at);
        }
        more
    }
}

/// Updates the memory for the next reconciliations. Returns the pause before the next reconciliation. An overtaken write waits
/// like a failure, because the cache must change before the next decision.
fn remember(
    known: &mut Known,
    seen: &Observation,
    decision: &Decision,
    result: &Result<Effect, Refused>,
) -> Option<Duration> {
    let pod = || seen.pod.as_ref().map(|pod| pod.uid.clone());
    match result {
        Ok(Effect::Nothing | Effect::Paused(_)) => match decision {
            Decision::Wait(Wait::Node {
                unschedulable: Some(_),
                ..
            }) => known.autoscaler.next_read(seen.now),
            _ => None,
        },
        Ok(Effect::Written) => {
            known.pace.took(decision, seen.now);
            match decision {
                Decision::Act(step) => acted(known, seen, step),
                Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_) => None,
            }
        }
        Ok(Effect::ResizeRefused) => {
            known.pace.took(decision, seen.now);
            known.unshrinkable = pod();
            Some(Duration::ZERO)
        }
        Ok(Effect::Overtaken) | Err(_) => Some(known.pace.failed(&seen.run.key.uid, decision, seen.now)),
    }
}

fn acted(known: &mut Known, seen: &Observation, step: &Step) -> Option<Duration> {
    if let [Action::Requeue(Requeue::TaskRuns { refusal, .. })] = step.actions.as_slice() {
        known.retried(refusal.clone(), seen.now);
        return Some(Duration::ZERO);
    }
    match step.event.as_ref()? {
        Event::MovedOff { .. } => {
            known.moved_off(seen.pod.as_ref().map(|pod| pod.uid.clone()), seen.now);
            None
        }
        Event::MadeRoom { .. } => {
            known.made_room(seen.now);
            None
        }
        Event::PodMissing { .. } | Event::SizedWithinLimits { .. } => Some(known.nudges.sent(seen.now)),
        Event::Enrolled
        | Event::Created(_)
        | Event::ReserveGivenUp { .. }
        | Event::Released { .. }
        | Event::NodeRecorded { .. }
        | Event::PlaceFreed { .. }
        | Event::CleanedUp
        | Event::NodeKept => None,
    }
}

fn sooner(plan: Plan, than: Option<Duration>) -> Plan {
    match than {
        None => plan,
        Some(than) => plan.no_later_than(than),
    }
}

/// The event of a step whose actions were all carried out.
fn done<'a>(decision: &'a Decision, result: &Result<Effect, Refused>) -> Option<&'a Event> {
    match (decision, result) {
        (Decision::Act(step), Ok(Effect::Written)) => step.event.as_ref(),
        _ => None,
    }
}

/// Logs the result. The tracing span has the name of the run.
fn log(seen: &Observation, decision: &Decision, result: &Result<Effect, Refused>) {
    let state: &str = State::of(seen).into();
    Span::current()
        .record("state", state)
        .record("action", decision.name());
    let node = match decision {
        Decision::Act(Step {
            event: Some(Event::Released { node, .. }),
            ..
        }) => node.as_deref(),
        Decision::Act(Step {
            event: Some(Event::NodeRecorded { node }),
            ..
        }) => Some(node.as_str()),
        _ => None,
    };
    match result {
        Ok(Effect::Nothing | Effect::Paused(_)) => debug!("nothing to write"),
        Ok(Effect::Written) => info!(node, "done"),
        Ok(Effect::Overtaken) => info!(node, "overtaken; deciding again"),
        Ok(Effect::ResizeRefused) => info!("this pod cannot be resized in place"),
        // `reconciled` logs the error with its cause.
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests;
