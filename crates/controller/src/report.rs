//! The one reporting point: turns what happened to a run into logs, events and metrics.

use crate::act::Effect;
use crate::events::{Notice, Outbox};
use crate::memory::{Known, Memory, Telling};
use crate::metrics::{HoldEnd, Metrics};
use crate::notes;
use crate::observe::Seen;
use crate::refusal::Refused;
use jiff::Timestamp;
use placement::names::RunKey;
use placement::placeholder::size::Ignored;
use placement::plan::{Action, LetGoCause};
use placement::run::{Run, SpecStatus};
use std::time::Duration;
use tracing::{Span, debug, info, warn};

/// Where results go.
pub(crate) struct Report {
    outbox: Outbox,
    metrics: Metrics,
}

/// A step and what came of it.
pub(crate) struct Step<'a> {
    pub(crate) run: &'a Run,
    pub(crate) seen: &'a Seen,
    pub(crate) action: &'a Action,
    pub(crate) result: &'a Result<Effect, Refused>,
    /// What of the run's wishes is not honoured.
    pub(crate) ignored: Option<&'a Ignored>,
}

impl Report {
    /// A report that tells through this outbox.
    pub(crate) fn new(outbox: Outbox, metrics: Metrics) -> Self {
        Self { outbox, metrics }
    }

    /// Tells of a step; returns when there is more to tell, if it is too soon for it now.
    pub(crate) fn step(&self, memory: &Memory, step: &Step<'_>) -> Option<Duration> {
        log(step);
        if matches!(step.result, Ok(Effect::Overtaken)) {
            self.metrics.overtaken();
        }
        let ignored = step.ignored.map(notes::ignored);
        let notes = notes::notes(step.run, step.seen, step.action, step.result);
        let notes = ignored.into_iter().chain(notes);
        memory.with(&step.run.key.uid, |known| {
            self.time(known, step);
            let mut at = step.seen.now;
            let mut more = None;
            for note in notes {
                match known.tell(&note, step.seen.now) {
                    Telling::Now(count) => {
                        let key = step.run.key.clone();
                        self.outbox.put(Notice { key, note, count, at });
                    }
                    Telling::Later(pause) => more = Some(pause),
                    Telling::Not => {}
                }
                // Notes of one step are sorted by their time, which the API server keeps to the microsecond.
                at = at.checked_add(Duration::from_micros(1)).unwrap_or(at);
            }
            more
        })
    }

    /// Notes that a run is settled and its notes were dropped.
    pub(crate) fn settled(&self, run: &Run, mut known: Known, now: Timestamp) {
        self.end_hold(&mut known, without_us(run), now);
    }

    /// Notes that a run is gone for good.
    pub(crate) fn vanished(&self, key: &RunKey, known: Option<Known>, now: Timestamp) {
        debug!(run = %key, "a run was deleted before it was done");
        if let Some(since) = known.and_then(|known| known.held) {
            self.metrics.hold_ended(HoldEnd::Deleted, between(since, now));
        }
    }

    /// Notes how long one look took, and the error it ended in.
    pub(crate) fn looked(&self, took: Duration, refused: Option<&Refused>) {
        self.metrics.reconciled(took);
        if let Some(refused) = refused {
            self.metrics.refused(refused);
            warn!(step = refused.step.as_str(), cause = refused.cause().as_str(), error = %refused, "will retry");
        }
    }

    fn time(&self, known: &mut Known, step: &Step<'_>) {
        let now = step.seen.now;
        if step.run.hold && step.run.status == SpecStatus::Pending {
            known.held = step.run.held_since().or(known.held).or(Some(now));
        }
        self.end_hold(known, ended(step), now);
        self.time_move(known, step);
        if is_written(step, |action| matches!(action, Action::CreatePlaceholder(_))) {
            known.asked.get_or_insert(now);
        }
        if step.seen.pod.as_ref().is_some_and(|pod| pod.node.is_some()) {
            known
                .asked
                .take()
                .into_iter()
                .for_each(|asked| self.metrics.scheduled(between(asked, now)));
        }
    }

    fn time_move(&self, known: &mut Known, step: &Step<'_>) {
        if let Some(cause) = gives_up(step.action).filter(|_| is_written(step, |_| true)) {
            self.metrics.let_go(cause);
        }
        // Right after it was told to go, the old pod is in the cache still.
        let arrived = |(_, old): &(Timestamp, Option<String>)| {
            let pod = step.seen.pod.as_ref().filter(|pod| pod.node.is_some());
            pod.is_some_and(|pod| old.as_ref() != Some(&pod.uid))
        };
        if let Some((since, _)) = known.nodeless.take_if(|nodeless| arrived(nodeless)) {
            self.metrics.moved(between(since, step.seen.now));
        }
    }

    fn end_hold(&self, known: &mut Known, end: Option<HoldEnd>, now: Timestamp) {
        if let Some(end) = end
            && let Some(since) = known.held.take()
        {
            self.metrics.hold_ended(end, between(since, now));
        }
    }
}

fn ended(step: &Step<'_>) -> Option<HoldEnd> {
    match step.action {
        Action::Release { cause, .. } if is_written(step, |_| true) => Some(HoldEnd::Released(*cause)),
        _ => without_us(step.run),
    }
}

fn gives_up(action: &Action) -> Option<LetGoCause> {
    match action {
        Action::LetGo { cause, .. } | Action::StartOver { cause, .. } => Some(*cause),
        _ => None,
    }
}

/// Our own release takes the mark away, so a run that bears it and is not Pending was released by somebody else.
fn without_us(run: &Run) -> Option<HoldEnd> {
    match run.status {
        _ if run.done => Some(HoldEnd::Cancelled),
        SpecStatus::Pending => None,
        SpecStatus::Unset | SpecStatus::Other(_) => run.hold.then_some(HoldEnd::Foreign),
    }
}

fn is_written(step: &Step<'_>, is: impl Fn(&Action) -> bool) -> bool {
    matches!(step.result, Ok(Effect::Written)) && is(step.action)
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// The span says which run it is about.
fn log(step: &Step<'_>) {
    let node = node(step.action);
    Span::current().record("action", name(step.action));
    match step.result {
        Ok(Effect::Nothing) => debug!("nothing to write"),
        Ok(Effect::Written) => info!(node, "done"),
        Ok(Effect::Overtaken) => info!(node, "overtaken; deciding anew"),
        Ok(Effect::Nudged { complaint }) => {
            info!(complaint, "nudged the placeholder's controller");
        }
        Ok(Effect::ResizeRefused) => info!("this pod cannot be resized in place"),
        // Told with its cause, once, by `looked`.
        Err(_) => {}
    }
}

fn node(action: &Action) -> Option<&str> {
    match action {
        Action::Release { node, .. } => node.as_deref(),
        Action::RecordNode { node } => Some(node),
        _ => None,
    }
}

fn name(action: &Action) -> &'static str {
    match action {
        Action::Leave(_) => "leave",
        Action::Steady => "steady",
        Action::LabelledTooLate => "labelled_too_late",
        Action::Enrol(_) => "enrol",
        Action::Withdraw => "withdraw",
        Action::CreatePlaceholder(_) => "create_placeholder",
        Action::NudgePlaceholder => "nudge_placeholder",
        Action::AwaitNode { .. } => "await_node",
        Action::Release { .. } => "release",
        Action::RecordNode { .. } => "record_node",
        Action::DeletePlaceholder { .. } => "delete_placeholder",
        Action::CountPods => "count_pods",
        Action::LetGo { .. } => "let_go",
        Action::AwaitTasks { .. } => "await_tasks",
        Action::AwaitFit { .. } => "await_fit",
        Action::WakeTasks { .. } => "wake_tasks",
        Action::Follow { .. } => "follow",
        Action::Shrink { .. } => "shrink",
        Action::RecreateSmall { .. } => "recreate_small",
        Action::Unpin { .. } => "unpin",
        Action::StartOver { .. } => "start_over",
        Action::AdoptPod { .. } => "adopt_pod",
        Action::LeavePod { .. } => "leave_pod",
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
