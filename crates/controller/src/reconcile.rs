//! Reconciles a run in five phases: observe, plan, read (and plan again), write, report.

use crate::api_error::StepError;
use crate::memory::{Memory, RunMemory};
use crate::observe::{Clock, Stores};
use crate::quotas::{counts_placeholder, may_count_statefulsets};
use crate::report::Report;
use crate::write::{Cluster, Effect};
use kube::runtime::reflector::ObjectRef;
use placement::automatic_reserve::ExpectedRequests;
use placement::config::Config;
use placement::coschedule::Coschedule;
use placement::image_pull::{self, Images};
use placement::mounts::constraints;
use placement::placeholder::size::is_automatic;
use placement::plan::{Creation, Decision, Event, Inputs, Observation, Plan, Read, Step, Tasks, plan};
use placement::quota_room::RejectedTask;
use placement::run::{Run, SpecStatus};
use placement::statefulset_quota::Quota;
use placement::warm;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tekton::PipelineRun;
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::{Instrument, field, info_span};

/// Reconciles runs. kube's controller runs one reconciliation of a run at a time.
pub(crate) struct Reconciler {
    pub(crate) stores: Stores,
    pub(crate) config: watch::Receiver<Arc<Config>>,
    pub(crate) clock: Clock,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) memory: Memory,
    pub(crate) report: Report,
}

/// How soon a run looks for its turn again, while another run of the namespace counts the quotas.
const BUSY: Duration = Duration::from_millis(100);

/// The turn of the run to count the quotas of its namespace, held until the placeholder is created or the run is released.
type QuotaTurn = Option<OwnedMutexGuard<()>>;

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
        let mut observed = self.observe(run).await?;
        let mut inputs = Inputs::default();
        let mut next = plan(&observed, &inputs);
        let mut turn = None;
        while let Some(read) = self.missing(&observed, &next) {
            if let Err(error) = self.read(read, &mut observed, &mut inputs, &mut turn).await {
                return self.report(&observed, next, Err(error));
            }
            if !inputs.has(read) {
                return self.report(&observed, next, Ok(Effect::Paused(BUSY)));
            }
            next = plan(&observed, &inputs);
        }
        let result = self.write(&observed, &next).await;
        let reported = self.report(&observed, next, result);
        drop(turn);
        reported
    }

    async fn observe(&self, run: Run) -> Result<Observation, StepError> {
        let uid = run.key.uid.clone();
        let observed = self.stores.observe(run, &self.config, &self.clock, &self.memory);
        let mut observed = observed
            .await
            .inspect_err(|_| self.memory.with(&uid, |entry| entry.backoff.count_failure(&uid)))?;
        let active = || self.stores.active(&self.config, &self.clock, &self.memory);
        // Each run is visited, because other runs may wait for it.
        observed.turn = self.memory.turns.visit(&observed, &self.stores, active);
        Ok(observed)
    }

    /// The group of inputs that the plan needs, unless the pause before the next read of this group has not passed.
    fn missing(&self, observed: &Observation, plan: &Plan) -> Option<Read> {
        match plan.decision {
            Decision::Read(read) => Some(read).filter(|_| self.pause(observed, plan).is_none()),
            Decision::Ignore(_) | Decision::Wait(_) | Decision::Act(_) => None,
        }
    }

    /// Reads a group of inputs, unless another run of the namespace has the turn to count the quotas. Reading the tasks also updates the
    /// nodes and the waiting pods of the observation.
    async fn read(
        &self,
        read: Read,
        observed: &mut Observation,
        inputs: &mut Inputs,
        turn: &mut QuotaTurn,
    ) -> Result<(), StepError> {
        match read {
            Read::Creation => inputs.creation = self.creation(observed, turn).await?,
            Read::Quota => {
                self.makes_room(observed);
                inputs.quota = self.quota(observed, turn).await?;
            }
            Read::Tasks => inputs.tasks = Some(self.tasks(observed).await?),
            Read::Assistants => inputs.assistants = Some(self.cluster.assistants(observed).await?),
            Read::RejectedTasks => inputs.rejected_tasks = Some(self.rejected_tasks(observed).await?),
            Read::Usage => inputs.usage = Some(self.cluster.stints(observed).await),
        }
        if inputs.has(read) {
            let uid = &observed.run.key.uid;
            self.memory
                .with(uid, |entry| entry.backoff.read(read, observed.now));
        }
        Ok(())
    }

    /// Reads the quotas last, because other runs can use the room in the quotas meanwhile. `None` if another run has the turn.
    async fn creation(
        &self,
        observed: &Observation,
        turn: &mut QuotaTurn,
    ) -> Result<Option<Creation>, StepError> {
        let (run, config) = (&observed.run, &observed.config);
        if self.may_use_places(observed) && self.memory.turns.is_busy(run) {
            return Ok(None);
        }
        let claims = self.cluster.existing_claims(run).await?;
        let volumes = constraints(run, &claims, &self.stores.nodes.read());
        let labels = if config.placeholder_copied_labels.is_empty() {
            BTreeMap::new()
        } else {
            self.cluster.copied_labels(observed).await?
        };
        let (need, images) = self.need_and_images(run, config).await;
        let quota = self.quota(observed, turn).await?;
        let warm_nodes = warm::is_preferred(run, config).then(|| self.stores.warm_nodes(run));
        Ok(quota.map(|quota| Creation {
            volumes,
            labels,
            need,
            warm_nodes,
            images,
            quota,
        }))
    }

    /// What the run is expected to request, for an automatic reserve, and the images that its node pulls ahead. After a failed write,
    /// no image is pulled: a policy may reject a StatefulSet with image volumes.
    async fn need_and_images(&self, run: &Run, config: &Config) -> (Option<ExpectedRequests>, Images) {
        let is_automatic = run.is_held_by_us() && is_automatic(run, config);
        let record = is_automatic.then(|| self.stores.need(run)).flatten();
        let write_failed = |entry: &RunMemory| Some(entry.backoff.write_failed());
        let write_failed = self.memory.peek(&run.key.uid, write_failed) == Some(true);
        let pulls_images = image_pull::is_wanted(run, config) && !write_failed;
        if !pulls_images && (record.is_some() || !is_automatic) {
            return (record, Images::default());
        }
        let most = if pulls_images {
            config.pull_images_maximum
        } else {
            0
        };
        let definitions = self.cluster.definitions(run, most).await;
        let need = record.or_else(|| is_automatic.then_some(definitions.need));
        (need, definitions.images)
    }

    /// If a quota of the namespace counts StatefulSets, and Tekton creates StatefulSets for this run or for other runs, the controller
    /// counts the StatefulSets and creates a placeholder for one run of the namespace at a time. `None` if another run has the turn.
    async fn quota(&self, observed: &Observation, turn: &mut QuotaTurn) -> Result<Option<Quota>, StepError> {
        let run = &observed.run;
        if !self.may_use_places(observed) || !self.are_places_counted(observed).await? {
            return Ok(Some(Quota::default()));
        }
        let Some(taken) = self.memory.turns.quota(run) else {
            return Ok(None);
        };
        *turn = Some(taken);
        // Observed after the turn is taken, because other runs may create StatefulSets before.
        let mut others = self.stores.with_part_in_quotas(&run.key);
        for other in &mut others {
            if self.memory.peek(&other.key.uid, |entry| Some(entry.released)) == Some(true) {
                other.status = SpecStatus::Unset;
            }
        }
        let quota = self.cluster.quota(observed, &others, (self.clock)()).await?;
        Ok(Some(quota))
    }

    /// Remembers since when the plan looks for room in a quota for a run whose hold is over, or that opted out.
    fn makes_room(&self, observed: &Observation) {
        let run = &observed.run;
        if observed.is_opted_out() || run.is_hold_over(observed.now, observed.config.hold_deadline) {
            self.memory.with(&run.key.uid, |entry| {
                entry.recalled.makes_room_since.get_or_insert(observed.now);
            });
        }
    }

    /// Whether Tekton creates StatefulSets in the namespace, which a quota could count.
    fn may_use_places(&self, observed: &Observation) -> bool {
        let run = &observed.run;
        let coschedule = observed.cluster.coschedule;
        coschedule != Coschedule::Disabled
            && (run.assistants(coschedule) > 0 || self.stores.has_assistants_beside(&run.key, coschedule))
    }

    /// Whether a quota of the namespace counts StatefulSets. Before a placeholder is created, the API server is asked as well, because
    /// the cache may lack a new quota.
    async fn are_places_counted(&self, observed: &Observation) -> Result<bool, StepError> {
        let namespace = &observed.run.key.namespace;
        if may_count_statefulsets(&self.stores.quotas, namespace) {
            return Ok(true);
        }
        Ok(observed.statefulset.is_none() && self.cluster.counts_statefulsets(namespace).await?)
    }

    async fn tasks(&self, observed: &mut Observation) -> Result<Tasks, StepError> {
        let tasks = self.cluster.tasks(&observed.run, observed.pod.as_ref()).await?;
        let (live, ended) = (tasks.live.len(), tasks.ended);
        observed.node = tasks.node;
        observed.cluster.nodes = self.stores.all_nodes();
        observed.waiting.retain(|pod| !tasks.live.contains(&pod.name));
        let pinned_by_volume = match observed.node_name() {
            Some(node) if live == 0 => self.cluster.pinned_by_volume(&observed.run, &tasks, node).await?,
            Some(_) | None => None,
        };
        let counted = |entry: &mut RunMemory| {
            let task_count = entry.counted(live, ended, observed.now);
            (task_count, entry.recalled.repeated.moves)
        };
        let (task_count, moves) = self.memory.with(&observed.run.key.uid, counted);
        observed.repeated.moves = moves;
        Ok(Tasks {
            task_count,
            pinned_by_volume,
        })
    }

    /// The rejected tasks for which the placeholder can make room.
    async fn rejected_tasks(&self, observed: &Observation) -> Result<Vec<RejectedTask>, StepError> {
        let mut tasks = self.cluster.rejected_tasks(&observed.run).await?;
        let (quotas, namespace) = (&self.stores.quotas, &observed.run.key.namespace);
        if let Some(placeholder) = &observed.statefulset {
            tasks.retain(|task| {
                let is_counted = task
                    .quota()
                    .is_none_or(|quota| counts_placeholder(quotas, namespace, quota));
                is_counted && task.fits_without(&placeholder.spec)
            });
        }
        if tasks.is_empty() {
            let rejection = observed.messages.rejection.clone();
            let uid = &observed.run.key.uid;
            self.memory
                .with(uid, |entry| entry.found_no_rejected_task(rejection));
        }
        Ok(tasks)
    }

    async fn write(&self, observed: &Observation, plan: &Plan) -> Result<Effect, StepError> {
        match (&plan.decision, self.pause(observed, plan)) {
            (Decision::Act(_) | Decision::Read(_), Some(pause)) => Ok(Effect::Paused(pause)),
            (Decision::Act(step), None) => match self.retry_pause(observed, step) {
                Some(pause) => Ok(Effect::Paused(pause)),
                None => self.cluster.write(observed, step).await,
            },
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

    /// The pause before a repeated attempt to get the placeholder's pod.
    fn retry_pause(&self, observed: &Observation, step: &Step) -> Option<Duration> {
        let turns = &self.memory.turns;
        let is_retry = match &step.event {
            Some(Event::PodMissing { .. }) => true,
            Some(Event::Created(_)) => turns.is_rejected(&observed.run),
            _ => false,
        };
        if is_retry {
            turns.retry_pause(observed.now)
        } else {
            None
        }
    }

    /// The runs that may try now, after a quota of the namespace changed. Ends the pauses of these runs.
    pub(crate) fn on_quota(&self, namespace: &str) -> Vec<ObjectRef<PipelineRun>> {
        let next = self.memory.turns.next_in(namespace).into_iter();
        let next = next.map(|(uid, name)| {
            self.memory.with(&uid, |entry| entry.requeues.end_pause());
            ObjectRef::new(&name).within(namespace)
        });
        next.collect()
    }

    /// The pause before a run is reconciled again after a failure.
    pub(crate) fn retry_after(&self, uid: &str) -> Duration {
        let pause = self.memory.peek(uid, |entry| Some(entry.backoff.retry_after()));
        pause.unwrap_or_default()
    }

    /// Drops the memory of deleted runs, and reports their end.
    pub(crate) fn forget(&self, is_gone: impl Fn(&str) -> bool) {
        self.memory.turns.forget(&is_gone);
        for entry in self.memory.take(is_gone) {
            self.report.deleted(entry, (self.clock)());
        }
    }
}

#[cfg(test)]
mod move_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod read_tests;
#[cfg(test)]
mod tests;
