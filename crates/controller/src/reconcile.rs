//! Reconciles a run in five phases: observe, plan, read (and plan again), write, report.

use crate::api_error::StepError;
use crate::memory::Memory;
use crate::observe::{Clock, Stores};
use crate::report::Report;
use crate::write::{Cluster, Effect};
use placement::config::Config;
use placement::placeholder::size::is_automatic;
use placement::plan::{Creation, Decision, Inputs, Observation, Plan, Quota, Read, TaskCount, Tasks, plan};
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
    pub(crate) quota_lock: Mutex<()>,
}

type QuotaLock<'a> = Option<MutexGuard<'a, ()>>;

impl Reconciler {
    /// Takes the next step of a run. Returns the plan, with the time of the next reconciliation if no object changes before.
    pub(crate) async fn reconcile(&self, run: Run) -> Result<Plan, StepError> {
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
    async fn step(&self, run: Run) -> Result<Plan, StepError> {
        let (mut observed, mut inputs) = self.observe(run).await?;
        let mut next = plan(&observed, &inputs);
        let mut lock = None;
        while let Some(read) = self.missing(&observed, &next) {
            match self.read(read, &mut observed, &mut inputs).await {
                Ok(taken) => lock = taken.or(lock),
                Err(refused) => return self.report(&observed, next, Err(refused)),
            }
            next = plan(&observed, &inputs);
        }
        let result = self.write(&observed, &next).await;
        drop(lock);
        self.report(&observed, next, result)
    }

    async fn observe(&self, run: Run) -> Result<(Observation, Inputs), StepError> {
        let uid = run.key.uid.clone();
        let observed = self.stores.observe(run, &self.config, &self.clock, &self.memory);
        let observed = observed.await;
        observed.inspect_err(|_| self.memory.with(&uid, |entry| entry.backoff.count_failure(&uid)))
    }

    /// The group of inputs that the plan needs, unless the pause before the next read of this group has not passed.
    fn missing(&self, observed: &Observation, plan: &Plan) -> Option<Read> {
        match plan.decision {
            Decision::Read(read) => Some(read).filter(|_| self.pause(observed, plan).is_none()),
            Decision::Ignore(_) | Decision::Wait(_) | Decision::Act(_) => None,
        }
    }

    /// Reads a group of inputs. Reading the tasks also updates the nodes and the waiting pods of the observation.
    async fn read<'a>(
        &'a self,
        read: Read,
        observed: &mut Observation,
        inputs: &mut Inputs,
    ) -> Result<QuotaLock<'a>, StepError> {
        let mut lock = None;
        match read {
            Read::Creation => {
                let creation;
                (creation, lock) = self.creation(observed).await?;
                inputs.creation = creation.into();
            }
            Read::Quota => {
                let quota;
                (quota, lock) = self.quota(observed).await?;
                inputs.quota = quota.into();
            }
            Read::Tasks => inputs.tasks = self.tasks(observed).await?.into(),
            Read::Assistants => inputs.assistants = self.cluster.assistants(observed).await?.into(),
            Read::RejectedTasks => inputs.rejected_tasks = self.rejected_tasks(observed).await?.into(),
            Read::Usage => inputs.usage = self.cluster.stints(observed).await.into(),
            Read::FailedCreate => inputs.failed_create = self.cluster.failed_create(observed).await.into(),
            Read::Autoscaler => inputs.autoscaler = self.autoscaler(observed).await.into(),
        }
        let uid = &observed.run.key.uid;
        self.memory
            .with(uid, |entry| entry.backoff.read(read, observed.now));
        Ok(lock)
    }

    /// Reads the quotas last, because other runs can use the room in the quotas meanwhile.
    async fn creation(&self, observed: &Observation) -> Result<(Creation, QuotaLock<'_>), StepError> {
        let (run, config) = (&observed.run, &observed.config);
        let volumes = self.cluster.volumes(run).await?;
        let labels = if config.placeholder_copied_labels.is_empty() {
            BTreeMap::new()
        } else {
            self.cluster.copied_labels(observed).await?
        };
        let need = match self.stores.need(run) {
            _ if !(run.is_held_by_us() && is_automatic(run, config)) => None,
            Some(need) => Some(need),
            None => Some(self.cluster.largest_task(run).await),
        };
        let (quota, lock) = self.quota(observed).await?;
        let creation = Creation {
            volumes,
            labels,
            need,
            quota,
        };
        Ok((creation, lock))
    }

    /// If Tekton creates StatefulSets for this run or for other runs, the controller counts the StatefulSets and creates a
    /// placeholder for one run at a time.
    async fn quota(&self, observed: &Observation) -> Result<(Quota, QuotaLock<'_>), StepError> {
        let run = &observed.run;
        let others = || self.stores.with_assistants(&run.key);
        if run.assistants() == 0 && others().is_empty() {
            return Ok((Quota::default(), None));
        }
        let lock = self.quota_lock.lock().await;
        // Reads after the lock is taken, because other runs may create StatefulSets before.
        let quota = self.cluster.quota(observed, &others()).await?;
        Ok((quota, Some(lock)))
    }

    async fn tasks(&self, observed: &mut Observation) -> Result<Tasks, StepError> {
        let tasks = self.cluster.tasks(&observed.run, observed.pod.as_ref()).await?;
        let (live, ended) = (tasks.live.len(), tasks.ended);
        observed.node = tasks.node;
        observed.nodes = self.stores.all_nodes();
        observed.waiting.retain(|pod| !tasks.live.contains(&pod.name));
        let pinned_by_volume = match observed.node_name() {
            Some(node) if live == 0 => self.cluster.pinned_by_volume(&observed.run, &tasks, node).await?,
            Some(_) | None => None,
        };
        let counted = |entry: &mut crate::memory::RunMemory| entry.counted(live, ended, observed.now);
        let task_count: TaskCount = self.memory.with(&observed.run.key.uid, counted);
        Ok(Tasks {
            task_count,
            pinned_by_volume,
        })
    }

    async fn rejected_tasks(&self, observed: &Observation) -> Result<Vec<String>, StepError> {
        let tasks = self.cluster.rejected_tasks(&observed.run).await?;
        if tasks.is_empty() {
            let settled = |entry: &mut crate::memory::RunMemory| entry.settled(observed.rejection.clone());
            self.memory.with(&observed.run.key.uid, settled);
        }
        Ok(tasks)
    }

    async fn autoscaler(&self, observed: &Observation) -> Option<String> {
        let answer = self.cluster.autoscaler(observed).await;
        let answered =
            |entry: &mut crate::memory::RunMemory| entry.autoscaler.answered(answer.clone(), observed.now);
        self.memory.with(&observed.run.key.uid, answered);
        answer
    }

    async fn write(&self, observed: &Observation, plan: &Plan) -> Result<Effect, StepError> {
        match (&plan.decision, self.pause(observed, plan)) {
            (Decision::Act(_) | Decision::Read(_), Some(pause)) => Ok(Effect::Paused(pause)),
            (Decision::Act(step), None) => self.cluster.write(observed, step).await,
            (Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_), _) => Ok(Effect::Nothing),
        }
    }

    fn report(
        &self,
        observed: &Observation,
        plan: Plan,
        result: Result<Effect, StepError>,
    ) -> Result<Plan, StepError> {
        self.report.step(&self.memory, observed, plan, result)
    }

    fn pause(&self, observed: &Observation, plan: &Plan) -> Option<Duration> {
        let uid = &observed.run.key.uid;
        self.memory
            .peek(uid, |entry| entry.backoff.pause(&plan.decision, observed.now))
    }

    /// The pause before a run is reconciled again after a failure.
    pub(crate) fn retry_after(&self, uid: &str) -> Duration {
        self.memory.with(uid, |entry| entry.backoff.retry_after())
    }

    /// Drops the memory of deleted runs, and reports their end.
    pub(crate) fn forget(&self, is_gone: impl Fn(&str) -> bool) {
        for entry in self.memory.take(is_gone) {
            self.report.deleted(entry, (self.clock)());
        }
    }
}

#[cfg(test)]
mod move_tests;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod tests;
