//! Reconciles a run in five phases: observe, plan, read (and plan again), write, report.

use crate::api_error::Refused;
use crate::memory::Memory;
use crate::observe::{Clock, Stores};
use crate::report::Report;
use crate::write::{Cluster, Effect};
use placement::config::Config;
use placement::placeholder::size::is_automatic;
use placement::plan::{Census, Creation, Decision, Inputs, Observation, Plan, Quota, Read, Tasks, plan};
use placement::run::Run;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, MutexGuard, watch};
use tracing::{Instrument, field, info_span};

/// Reconciles runs. kube's controller runs one reconciliation of a run at a time.
pub(crate) struct Reconciler {
    pub(crate) stores: Stores,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) clock: Clock,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) memory: Memory,
    pub(crate) report: Report,
    /// Held while the controller counts a quota of StatefulSets and creates a placeholder.
    pub(crate) places: Mutex<()>,
}

type Turn<'a> = Option<MutexGuard<'a, ()>>;

impl Reconciler {
    /// Takes the next step of a run. Returns the plan, with the time of the next reconciliation if no object changes before.
    pub(crate) async fn reconcile(&self, run: Run) -> Result<Plan, Refused> {
        let span = info_span!("reconcile", run = %run.key, uid = run.key.uid, state = field::Empty, action = field::Empty);
        let timed = async {
            let started = Instant::now();
            let result = self.step(run).await;
            self.report.reconciled(started.elapsed(), result.as_ref().err());
            result
        };
        timed.instrument(span).await
    }

    /// The five phases. Only `observe` and `read` read, only `write` writes, and only `plan` decides.
    async fn step(&self, run: Run) -> Result<Plan, Refused> {
        let (mut seen, mut inputs) = self.observe(run).await?;
        let mut next = plan(&seen, &inputs);
        let mut turn = None;
        while let Some(read) = self.missing(&seen, &next) {
            match self.read(read, &mut seen, &mut inputs).await {
                Ok(taken) => turn = taken.or(turn),
                Err(refused) => return self.report(&seen, next, Err(refused)),
            }
            next = plan(&seen, &inputs);
        }
        let result = self.write(&seen, &next).await;
        drop(turn);
        self.report(&seen, next, result)
    }

    async fn observe(&self, run: Run) -> Result<(Observation, Inputs), Refused> {
        let uid = run.key.uid.clone();
        let seen = self.stores.observe(run, &self.config, &self.clock, &self.memory);
        let seen = seen.await;
        seen.inspect_err(|_| self.memory.with(&uid, |known| known.pace.stumbled(&uid)))
    }

    /// The group of inputs that the plan needs, unless the pause before the next read of this group has not passed.
    fn missing(&self, seen: &Observation, plan: &Plan) -> Option<Read> {
        match plan.decision {
            Decision::Read(read) => Some(read).filter(|_| self.pause(seen, plan).is_none()),
            Decision::Ignore(_) | Decision::Wait(_) | Decision::Act(_) => None,
        }
    }

    /// Reads a group of inputs. Reading the tasks also updates the nodes and the waiting pods of the observation.
    async fn read<'a>(
        &'a self,
        read: Read,
        seen: &mut Observation,
        inputs: &mut Inputs,
    ) -> Result<Turn<'a>, Refused> {
        let mut turn = None;
        match read {
            Read::Creation => {
                let creation;
                (creation, turn) = self.creation(seen).await?;
                inputs.creation = creation.into();
            }
            Read::Quota => {
                let quota;
                (quota, turn) = self.quota(seen).await?;
                inputs.quota = quota.into();
            }
            Read::Tasks => inputs.tasks = self.tasks(seen).await?.into(),
            Read::Assistants => inputs.assistants = self.cluster.assistants(seen).await?.into(),
            Read::RejectedTasks => inputs.rejected_tasks = self.rejected_tasks(seen).await?.into(),
            Read::Usage => inputs.usage = self.cluster.stints(seen).await.into(),
            Read::FailedCreate => inputs.failed_create = self.cluster.failed_create(seen).await.into(),
            Read::Autoscaler => inputs.autoscaler = self.autoscaler(seen).await.into(),
        }
        let uid = &seen.run.key.uid;
        self.memory.with(uid, |known| known.pace.read(read, seen.now));
        Ok(turn)
    }

    /// Reads the quotas last, because other runs can use the room in the quotas meanwhile.
    async fn creation(&self, seen: &Observation) -> Result<(Creation, Turn<'_>), Refused> {
        let (run, config) = (&seen.run, &seen.config);
        let volumes = self.cluster.volumes(run).await?;
        let labels = if config.placeholder_copied_labels.is_empty() {
            BTreeMap::new()
        } else {
            self.cluster.copied_labels(seen).await?
        };
        let need = match self.stores.need(run) {
            _ if !(run.is_held_by_us() && is_automatic(run, config)) => None,
            Some(need) => Some(need),
            None => Some(self.cluster.largest_task(run).await),
        };
        let (quota, turn) = self.quota(seen).await?;
        let creation = Creation {
            volumes,
            labels,
            need,
            quota,
        };
        Ok((creation, turn))
    }

    /// If Tekton creates StatefulSets for this run or for other runs, the controller counts the StatefulSets and creates a
    /// placeholder for one run at a time.
    async fn quota(&self, seen: &Observation) -> Result<(Quota, Turn<'_>), Refused> {
        let run = &seen.run;
        let others = || self.stores.with_assistants(&run.key);
        if run.assistants() == 0 && others().is_empty() {
            return Ok((Quota::default(), None));
        }
        let turn = self.places.lock().await;
        // Reads after the lock is taken, because other runs may create StatefulSets before.
        let quota = self.cluster.quota(seen, &others()).await?;
        Ok((quota, Some(turn)))
    }

    async fn tasks(&self, seen: &mut Observation) -> Result<Tasks, Refused> {
        let tasks = self.cluster.tasks(&seen.run, seen.pod.as_ref()).await?;
        let (live, ended) = (tasks.live.len(), tasks.ended);
        seen.node = tasks.node;
        seen.nodes = self.stores.all_nodes();
        seen.waiting.retain(|pod| !tasks.live.contains(&pod.name));
        let tied = match seen.node_name() {
            Some(node) if live == 0 => self.cluster.tied(&seen.run, &tasks, node).await?,
            Some(_) | None => None,
        };
        let counted = |known: &mut crate::memory::Known| known.counted(live, ended, seen.now);
        let census: Census = self.memory.with(&seen.run.key.uid, counted);
        Ok(Tasks { census, tied })
    }

    async fn rejected_tasks(&self, seen: &Observation) -> Result<Vec<String>, Refused> {
        let tasks = self.cluster.rejected_tasks(&seen.run).await?;
        if tasks.is_empty() {
            let settled = |known: &mut crate::memory::Known| known.settled(seen.refusal.clone());
            self.memory.with(&seen.run.key.uid, settled);
        }
        Ok(tasks)
    }

    async fn autoscaler(&self, seen: &Observation) -> Option<String> {
        let answer = self.cluster.autoscaler(seen).await;
        let answered = |known: &mut crate::memory::Known| known.autoscaler.answered(answer.clone(), seen.now);
        self.memory.with(&seen.run.key.uid, answered);
        answer
    }

    async fn write(&self, seen: &Observation, plan: &Plan) -> Result<Effect, Refused> {
        match (&plan.decision, self.pause(seen, plan)) {
            (Decision::Act(_) | Decision::Read(_), Some(pause)) => Ok(Effect::Paused(pause)),
            (Decision::Act(step), None) => self.cluster.write(seen, step).await,
            (Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_), _) => Ok(Effect::Nothing),
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

    /// The pause before a run is reconciled again after a failure.
    pub(crate) fn retry_after(&self, uid: &str) -> Duration {
        self.memory.with(uid, |known| known.pace.retry_after())
    }

    /// Drops the memory of deleted runs, and reports their end.
    pub(crate) fn forget(&self, is_gone: impl Fn(&str) -> bool) {
        for known in self.memory.take(is_gone) {
            self.report.deleted(known, (self.clock)());
        }
    }
}

#[cfg(test)]
mod move_tests;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod tests;
