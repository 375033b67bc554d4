//! Decides whose turn it is: which runs of a kind may have a placeholder, which runs of a namespace may try to get their
//! placeholder's pod, and which run counts a quota.
//!
//! `placement::queue` and `placement::attempts` have the rules. This module keeps the runs, and triggers a run when its turn comes.
//! A new leader first adds all active runs to the queue, because a young run may be reconciled before an older one.

use crate::memory::backoff::{later, until};
use crate::observe::Stores;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use placement::attempts::{Attempts, Before, Position, Rejection, Turn};
use placement::plan::{Observation, State};
use placement::queue::{Member, Name, Queue};
use placement::quota_room::rejection;
use placement::run::Run;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tekton::PipelineRun;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The pause between two retries in the whole cluster: each retry costs the StatefulSet controller requests, and the default limit of
/// its client is 20 requests per second for all StatefulSets of the cluster.
const CLUSTER_PAUSE: Duration = Duration::from_millis(500);
/// The pause between two retries in one namespace, so that the retries of one namespace leave half of the limit to others.
const NAMESPACE_PAUSE: Duration = Duration::from_secs(1);

/// The turns of all namespaces.
pub(crate) struct Turns {
    /// `None` until the active runs were added.
    queue: Mutex<Option<Queue>>,
    namespaces: Mutex<HashMap<String, Namespace>>,
    next_retry: Mutex<Timestamp>,
    triggers: UnboundedSender<ObjectRef<PipelineRun>>,
}

#[derive(Default)]
struct Namespace {
    attempts: Attempts,
    /// Held while the controller counts a quota of StatefulSets and creates a placeholder or releases a run.
    quota: Arc<AsyncMutex<()>>,
    next_retry: Option<Timestamp>,
}

impl Namespace {
    /// Whether no run waits, and no run has the turn to count a quota. The guard of a turn is a second reference to the lock.
    fn is_idle(&self) -> bool {
        self.attempts.is_empty() && Arc::strong_count(&self.quota) == 1
    }
}

/// The turns, and the runs whose turn has come.
pub(crate) fn turns() -> (Turns, UnboundedReceiver<ObjectRef<PipelineRun>>) {
    let (triggers, triggered) = unbounded();
    let turns = Turns {
        queue: Mutex::default(),
        namespaces: Mutex::default(),
        next_retry: Mutex::new(Timestamp::MIN),
        triggers,
    };
    (turns, triggered)
}

impl Turns {
    /// Adds or removes the run, by whether it waits for a node, and by whether its placeholder lacks a pod. Returns whether it is
    /// the run's turn. `active` reads all runs that are not done.
    pub(crate) fn visit(
        &self,
        observed: &Observation,
        stores: &Stores,
        active: impl FnOnce() -> Vec<Observation>,
    ) -> Turn {
        let run = &observed.run;
        let before = self.queue(observed, stores, active);
        let turn = if before.is_some() || !lacks_pod(observed) {
            self.leave(run);
            before.map_or(Turn::Now, Turn::Later)
        } else {
            self.attempt(observed)
        };
        self.tell_queue(run);
        turn
    }

    /// Tells the queue whether a quota of the run's namespace has no room for placeholders.
    fn tell_queue(&self, run: &Run) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &run.key.namespace;
        let is_full = self.lock().get(name).is_some_and(|it| it.attempts.is_full());
        self.trigger_each(queue.as_mut().map(|queue| queue.set_full(name, is_full)));
    }

    /// Adds a run whose placeholder lacks a pod. Returns whether it is the run's turn.
    fn attempt(&self, observed: &Observation) -> Turn {
        let run = &observed.run;
        let message = observed.messages.failed_create.as_deref();
        let rejection = message.map(rejection);
        self.with(run, |namespace| {
            let position = position(run);
            namespace
                .attempts
                .record(position.clone(), &run.key.name, rejection);
            namespace.attempts.turn(&position)
        })
    }

    /// The queue and the attempts of an earlier leader.
    fn inherited(&self, active: &[Observation], now: Timestamp) -> Queue {
        for observed in active.iter().filter(|observed| lacks_pod(observed)) {
            self.attempt(observed);
        }
        let mut queue = Queue::default();
        for (name, namespace) in self.lock().iter() {
            queue.set_full(name, namespace.attempts.is_full());
        }
        for member in active.iter().filter_map(Member::from_observation) {
            queue.record(member);
        }
        queue.inherit(now);
        queue
    }

    /// Adds the run to the queue or removes it. Returns why other runs come first, if they do.
    fn queue(
        &self,
        observed: &Observation,
        stores: &Stores,
        active: impl FnOnce() -> Vec<Observation>,
    ) -> Option<Before> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.get_or_insert_with(|| self.inherited(&active(), observed.now));
        queue.set_caps(&observed.config.caps);
        let uid = &observed.run.key.uid;
        let mut changed = match Member::from_observation(observed) {
            Some(member) => queue.record(member),
            None => queue.remove(uid),
        };
        if observed.run.done || observed.run.deleting {
            // The end of a run may free a node.
            changed.extend(queue.next());
        }
        let key = &observed.run.key;
        let is_other = |(namespace, name): &&Name| (namespace, name) != (&key.namespace, &key.name);
        for (namespace, name) in changed.iter().filter(is_other) {
            self.trigger(namespace, name);
        }
        let before = queue.before(uid, observed.now, || stores.free_nodes(observed));
        // An older ClusterRole may lack the right to read events: then autoscalers seem to be silent.
        before.filter(|before| stores.autoscalers.is_filled_now() || matches!(before, Before::OverCap(_)))
    }

    /// Records that the API server rejected the run's placeholder.
    pub(crate) fn rejected(&self, run: &Run, rejection: Rejection) {
        self.with(run, |namespace| {
            let attempts = &mut namespace.attempts;
            attempts.record(position(run), &run.key.name, Some(rejection));
        });
        self.tell_queue(run);
    }

    /// UID and name of the runs that may try in a namespace in which a quota rejected a placeholder.
    pub(crate) fn next_in(&self, namespace: &str) -> Vec<(String, String)> {
        let namespaces = self.lock();
        let Some(found) = namespaces.get(namespace).filter(|it| it.attempts.is_rejected()) else {
            return Vec::new();
        };
        let next = found.attempts.next();
        next.map(|(uid, name)| (uid.to_owned(), name.to_owned()))
            .collect()
    }

    /// Whether a quota rejected a placeholder in the run's namespace.
    pub(crate) fn is_rejected(&self, run: &Run) -> bool {
        let namespaces = self.lock();
        namespaces
            .get(&run.key.namespace)
            .is_some_and(|it| it.attempts.is_rejected())
    }

    /// Removes deleted runs.
    pub(crate) fn forget(&self, is_gone: impl Fn(&str) -> bool) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        self.trigger_each(queue.as_mut().map(|queue| queue.forget(&is_gone)));
        self.lock().retain(|name, namespace| {
            for next in namespace.attempts.forget(&is_gone) {
                self.trigger(name, &next);
            }
            let is_full = namespace.attempts.is_full();
            self.trigger_each(queue.as_mut().map(|queue| queue.set_full(name, is_full)));
            !namespace.is_idle()
        });
    }

    /// Whether another run of the namespace counts the quotas.
    pub(crate) fn is_busy(&self, run: &Run) -> bool {
        self.with(run, |namespace| namespace.quota.try_lock().is_err())
    }

    /// The turn to count the quotas of a namespace and to create a placeholder; `None` while another run has the turn.
    pub(crate) fn quota(&self, run: &Run) -> Option<OwnedMutexGuard<()>> {
        let lock = self.with(run, |namespace| namespace.quota.clone());
        lock.try_lock_owned().ok()
    }

    /// When the run may retry, if the retry is wanted at this time.
    pub(crate) fn retry_at(&self, run: &Run, wanted: Timestamp) -> Timestamp {
        self.with(run, |namespace| {
            let earliest = namespace.next_retry.map_or(wanted, |next| next.max(wanted));
            namespace.next_retry = Some(later(earliest, NAMESPACE_PAUSE));
            earliest
        })
    }

    /// The pause before a retry, because another run of the cluster has retried. Without a pause, the retry counts.
    pub(crate) fn retry_pause(&self, now: Timestamp) -> Option<Duration> {
        let mut next = self.next_retry.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = until(*next, now);
        if pause.is_none() {
            *next = later(now, CLUSTER_PAUSE);
        }
        pause
    }

    fn leave(&self, run: &Run) {
        let mut namespaces = self.lock();
        let Some(namespace) = namespaces.get_mut(&run.key.namespace) else {
            return;
        };
        let next = namespace.attempts.remove(&position(run));
        if namespace.is_idle() {
            namespaces.remove(&run.key.namespace);
        }
        for name in next {
            self.trigger(&run.key.namespace, &name);
        }
    }

    /// Triggers the runs whose turn may have come, if there is a queue.
    fn trigger_each(&self, next: Option<Vec<Name>>) {
        for (namespace, name) in next.into_iter().flatten() {
            self.trigger(&namespace, &name);
        }
    }

    fn trigger(&self, namespace: &str, name: &str) {
        // The receiver is closed only while the controller stops.
        drop(
            self.triggers
                .unbounded_send(ObjectRef::new(name).within(namespace)),
        );
    }

    fn with<R>(&self, run: &Run, work: impl FnOnce(&mut Namespace) -> R) -> R {
        work(self.lock().entry(run.key.namespace.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Namespace>> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn position(run: &Run) -> Position {
    (run.created, run.key.uid.clone())
}

/// Whether the run waits for its placeholder's pod. A run with an invalid template gets no placeholder.
fn lacks_pod(observed: &Observation) -> bool {
    observed.messages.invalid_template.is_none() && is_without_pod(observed)
}

fn is_without_pod(observed: &Observation) -> bool {
    match State::from_observation(observed) {
        State::HeldWithoutPlaceholder | State::HeldWithoutPod | State::RunningWithoutPlaceholder => true,
        State::Ignored
        | State::Queued
        | State::HeldUnscheduled
        | State::HeldOnNode
        | State::HeldScaledDown
        | State::Unenrolled
        | State::RunningWithoutPod
        | State::RunningUnscheduled
        | State::RunningOnNode
        | State::RunningScaledDown
        | State::OptedOut
        | State::Ending
        | State::NodeKept => false,
    }
}
