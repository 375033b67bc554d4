//! One run: observe -> plan -> (count -> plan) -> write -> report.

use crate::api_error::Refused;
use crate::memory::Memory;
use crate::observe::{Clock, Stores};
use crate::report::Report;
use crate::write::{Cluster, Effect};
use placement::config::Config;
use placement::plan::{Decision, Observation, Plan, Question, plan};
use placement::run::Run;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, watch};
use tracing::{Instrument, field, info_span};

/// Reconciles runs, one at a time each.
pub(crate) struct Reconciler {
    pub(crate) stores: Stores,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) clock: Clock,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) memory: Memory,
    pub(crate) report: Report,
    /// Whoever has it looks for places in a quota, and takes one.
    pub(crate) places: Mutex<()>,
}

impl Reconciler {
    /// Takes the next step for a run, and returns it, with the time of the next one if nothing changes.
    pub(crate) async fn reconcile(&self, run: Run) -> Result<Plan, Refused> {
        let span = info_span!("reconcile", run = %run.key, uid = run.key.uid, action = field::Empty);
        let timed = async {
            let started = Instant::now();
            let result = self.step(run).await;
            self.report.reconciled(started.elapsed(), result.as_ref().err());
            result
        };
        timed.instrument(span).await
    }

    /// The five steps. Only `observe` and `count` read, only `write` writes, and only `plan` decides.
    async fn step(&self, run: Run) -> Result<Plan, Refused> {
        let mut seen = self.observe(run).await?;
        let mut next = plan(&seen);
        let mut turn = None;
        while let Some(question) = self.question(&seen, &next) {
            if question == Question::Places {
                turn = self.turn(&mut seen).await;
            }
            if let Err(refused) = self.count(question, &mut seen).await {
                return self.report(&seen, next, Err(refused));
            }
            next = plan(&seen);
        }
        let result = self.write(&seen, &next).await;
        drop(turn);
        self.report(&seen, next, result)
    }

    /// What the caches hold, and what is remembered.
    async fn observe(&self, run: Run) -> Result<Observation, Refused> {
        let uid = run.key.uid.clone();
        let seen = self.stores.observe(run, &self.config, &self.clock).await;
        let mut seen = seen.inspect_err(|_| self.memory.with(&uid, |known| known.pace.stumbled(&uid)))?;
        self.memory.recall(&mut seen);
        Ok(seen)
    }

    /// What the plan asks, unless it is too early to ask it.
    fn question(&self, seen: &Observation, plan: &Plan) -> Option<Question> {
        match plan.decision {
            Decision::Count(question) => Some(question).filter(|_| self.pause(seen, plan).is_none()),
            Decision::Leave(_) | Decision::Wait(_) | Decision::Write(_) => None,
        }
    }

    /// Waits until nobody else looks for a place that this run could take, or that could be this run's.
    async fn turn(&self, seen: &mut Observation) -> Option<MutexGuard<'_, ()>> {
        seen.others = self.stores.with_assistants(&seen.run.key);
        if !seen.is_beside_assistants() {
            return None;
        }
        let turn = self.places.lock().await;
        // Those whose turn it was have gone on meanwhile.
        seen.others = self.stores.with_assistants(&seen.run.key);
        Some(turn)
    }

    /// What only the API server can tell.
    async fn count(&self, question: Question, seen: &mut Observation) -> Result<(), Refused> {
        if question == Question::Need {
            seen.need = self.stores.need(&seen.run);
        }
        self.cluster.count(question, seen).await?;
        if question == Question::Tasks {
            seen.nodes = self.stores.all_nodes();
        }
        self.memory.answered(question, seen);
        Ok(())
    }

    async fn write(&self, seen: &Observation, plan: &Plan) -> Result<Effect, Refused> {
        match (&plan.decision, self.pause(seen, plan)) {
            (Decision::Write(_) | Decision::Count(_), Some(pause)) => Ok(Effect::Paused(pause)),
            (Decision::Write(write), None) => self.cluster.write(seen, write).await,
            (Decision::Leave(_) | Decision::Wait(_) | Decision::Count(_), _) => Ok(Effect::Nothing),
        }
    }

    fn report(
        &self,
        seen: &Observation,
        plan: Plan,
        result: Result<Effect, Refused>,
    ) -> Result<Plan, Refused> {
        self.report.step(&self.memory, seen, plan, result)
    }

    fn pause(&self, seen: &Observation, plan: &Plan) -> Option<Duration> {
        let uid = &seen.run.key.uid;
        self.memory
            .peek(uid, |known| known.pace.pause(&plan.decision, seen.now))
    }

    /// When to reconcile a run again after a failure.
    pub(crate) fn retry_after(&self, uid: &str) -> Duration {
        self.memory.with(uid, |known| known.pace.retry_after())
    }

    /// Drops what is remembered of runs that are not there any more.
    pub(crate) fn forget(&self, is_gone: impl Fn(&str) -> bool) {
        for known in self.memory.take(is_gone) {
            self.report.deleted(known, (self.clock)());
        }
    }
}

#[cfg(test)]
#[path = "reconcile_move_tests.rs"]
mod move_tests;
#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
