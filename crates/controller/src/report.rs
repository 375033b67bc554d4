//! Reports each step of a run as logs, events and metrics, and updates the memory. No other module reports steps.

use crate::api_error::{ErrorCause, StepError};
use crate::events::{EventQueue, QueuedNote};
use crate::memory::deduplicator::Due;
use crate::memory::{Memory, RunMemory};
use crate::metrics::Metrics;
use crate::notes;
use crate::turns::Turns;
use crate::write::Effect;
use jiff::Timestamp;
use placement::attempts::Rejection;
use placement::notes::{Reason, waiting_task_run};
use placement::plan::{
    Action, Decision, Event, IgnoreReason, Observation, Plan, PodChange, Requeue, Resize, State, Step,
    Target, Wait,
};
use placement::requests::Operation;
use std::time::Duration;
use tracing::{Span, debug, info, warn};

/// Reports the results of steps.
pub(crate) struct Report {
    event_queue: EventQueue,
    metrics: Metrics,
}

impl Report {
    pub(crate) fn new(event_queue: EventQueue, metrics: Metrics) -> Self {
        Self { event_queue, metrics }
    }

    /// Reports a plan and its result. Returns the plan with the time of the next reconciliation.
    pub(crate) fn step(
        &self,
        memory: &Memory,
        observed: &Observation,
        plan: Plan,
        result: Result<Effect, StepError>,
    ) -> Result<Plan, StepError> {
        log(observed, &plan.decision, &result);
        if let Some(rejection) = rejection(observed, &plan.decision, &result) {
            memory.turns.rejected(&observed.run, rejection);
        }
        match (&plan.decision, &result) {
            (Decision::Ignore(why), _) => {
                self.leave(memory, observed, *why);
                Ok(plan)
            }
            (_, Ok(Effect::Paused(pause))) => Ok(sooner(plan, Some(*pause))),
            (Decision::Wait(_) | Decision::Read(_) | Decision::Act(_), _) => {
                let next = memory.with(&observed.run.key.uid, |entry| {
                    let reported = self.emit(entry, observed, &plan, &result);
                    [
                        reported,
                        remember(&memory.turns, entry, observed, &plan.decision, &result),
                    ]
                });
                result.map(|_| next.into_iter().fold(plan, sooner))
            }
        }
    }

    /// Reports the end of a run that was deleted before the run was done.
    pub(crate) fn deleted(&self, mut entry: RunMemory, now: Timestamp) {
        entry.timers.deleted(now, &self.metrics);
    }

    /// Reports the duration of a reconciliation, and its error.
    pub(crate) fn reconciled(&self, duration: Duration, refused: Option<&StepError>) {
        self.metrics.reconciled(duration);
        if let Some(refused) = refused {
            self.metrics.refused(refused);
            let (step, cause) = (refused.operation.into(), refused.cause().into());
            let (step, cause): (&str, &str) = (step, cause);
            warn!(step, cause, error = %refused, "will retry");
        }
    }

    /// Removes the memory of a settled run. A run with another holder keeps its memory, because pod-affinity continues after the
    /// release.
    fn leave(&self, memory: &Memory, observed: &Observation, why: IgnoreReason) {
        let entry = match why {
            IgnoreReason::HeldElsewhere => None,
            IgnoreReason::Child
            | IgnoreReason::ManagedElsewhere
            | IgnoreReason::NotOptedIn
            | IgnoreReason::Done => memory.forget(&observed.run.key.uid),
        };
        if let Some(mut entry) = entry {
            entry.timers.settled(&observed.run, observed.now, &self.metrics);
        }
    }

    /// Updates the metrics and sends the notes that are due. Returns the pause before a new or repeated note is due: the run need
    /// not change until then.
    fn emit(
        &self,
        entry: &mut RunMemory,
        observed: &Observation,
        plan: &Plan,
        result: &Result<Effect, StepError>,
    ) -> Option<Duration> {
        if let Ok(Effect::Overtaken) = result {
            self.metrics.overtaken();
        }
        entry
            .timers
            .note(observed, done(&plan.decision, result), &self.metrics);
        let (mut at, mut more) = (observed.now, None);
        for note in notes::notes(observed, plan, result) {
            let pause = match entry.reported.due(&note, observed.now) {
                Due::Now(count) => {
                    if note.reason == Reason::FieldIgnored {
                        self.metrics.field_ignored();
                    }
                    let pause = note.reason.repeat().pause();
                    self.event_queue.put(QueuedNote {
                        key: observed.run.key.clone(),
                        task_run: waiting_task_run(observed, &plan.decision, note.reason).map(str::to_owned),
                        note,
                        count,
                        at,
                    });
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

/// How the API server rejects the placeholder's StatefulSet. `Turns` learns from an event that the API server rejects the pod.
fn rejection(
    observed: &Observation,
    decision: &Decision,
    result: &Result<Effect, StepError>,
) -> Option<Rejection> {
    match (decision, result) {
        (Decision::Wait(Wait::Places { .. }), _) => observed.statefulset.is_none().then_some(Rejection::Full),
        (_, Err(error)) if error.operation == Operation::Placeholder => match error.cause() {
            ErrorCause::Quota => Some(Rejection::Full),
            ErrorCause::Denied | ErrorCause::Forbidden | ErrorCause::Invalid => Some(Rejection::Other),
            ErrorCause::WebhookDown
            | ErrorCause::Conflict
            | ErrorCause::NotFound
            | ErrorCause::Throttled
            | ErrorCause::Unavailable
            | ErrorCause::NotSynced => None,
        },
        _ => None,
    }
}

/// Updates the memory for the next reconciliations. Returns the pause before the next reconciliation. An overtaken write waits
/// like a failure, because the cache must change before the next decision.
fn remember(
    turns: &Turns,
    entry: &mut RunMemory,
    observed: &Observation,
    decision: &Decision,
    result: &Result<Effect, StepError>,
) -> Option<Duration> {
    let pod = || observed.pod.as_ref().map(|pod| pod.uid.clone());
    match result {
        Ok(Effect::Nothing | Effect::Paused(_)) => None,
        Ok(Effect::Written) => {
            entry.backoff.on_success(decision, observed.now);
            match decision {
                Decision::Act(step) => acted(turns, entry, observed, step),
                Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_) => None,
            }
        }
        Ok(Effect::ResizeRefused) => {
            entry.backoff.on_success(decision, observed.now);
            entry.recalled.resize = pod().map(|uid| (uid, Resize::Refused));
            Some(Duration::ZERO)
        }
        Ok(Effect::Overtaken) | Err(_) => {
            if let Err(error) = result {
                entry.released |= error.may_have_released();
                if let Some(message) = error.invalid_template() {
                    entry.recalled.invalid_template = Some(message);
                }
            }
            let uid = &observed.run.key.uid;
            Some(entry.backoff.failed(uid, decision, observed.now))
        }
    }
}

fn acted(turns: &Turns, entry: &mut RunMemory, observed: &Observation, step: &Step) -> Option<Duration> {
    for action in &step.actions {
        if let Action::Delete(Target::Placeholder(uid)) = action {
            entry.recalled.deleted = Some(uid.clone());
        }
    }
    if let [.., Action::Pod(PodChange::Resize(uid))] = step.actions.as_slice() {
        entry.recalled.resize = Some((uid.clone(), Resize::Accepted));
    }
    if let [Action::Requeue(Requeue::TaskRuns { rejection, .. })] = step.actions.as_slice() {
        entry.retried(rejection.clone(), observed.now);
        return Some(Duration::ZERO);
    }
    match step.event.as_ref()? {
        Event::MovedOff { .. } => {
            entry.moved_off(observed.pod.as_ref().map(|pod| pod.uid.clone()), observed.now);
            None
        }
        Event::MadeRoom { .. } => {
            entry.made_room(observed.now);
            None
        }
        Event::Released { .. } => {
            entry.released = true;
            None
        }
        Event::PodMissing { .. } | Event::SizedWithinLimits { .. } | Event::ReserveOverQuota { .. } => {
            let turn = |wanted| turns.retry_at(&observed.run, wanted);
            Some(entry.requeues.sent(observed.now, turn))
        }
        Event::Enrolled
        | Event::Created(_)
        | Event::ReserveGivenUp { .. }
        | Event::NodeRecorded { .. }
        | Event::PlacesFreed { .. }
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
fn done<'a>(decision: &'a Decision, result: &Result<Effect, StepError>) -> Option<&'a Event> {
    match (decision, result) {
        (Decision::Act(step), Ok(Effect::Written)) => step.event.as_ref(),
        _ => None,
    }
}

/// Logs the result. The tracing span has the name of the run.
fn log(observed: &Observation, decision: &Decision, result: &Result<Effect, StepError>) {
    let state: &str = State::from_observation(observed).into();
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
