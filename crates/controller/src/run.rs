//! Starts and stops the controller: watches, reconciler and the task that sends events. Only the leader calls `run`.

use crate::api_error::StepError;
use crate::events::{self, EventWriter};
use crate::kept_nodes::KeptNodes;
use crate::memory::{Memory, RunMemory};
use crate::metrics::Metrics;
use crate::observe::{Clock, Stores};
use crate::orphans::Orphans;
use crate::reconcile::Reconciler;
use crate::report::Report;
use crate::turns;
use crate::watch::{self, Deleted, Watches, Writers};
use crate::write::Cluster;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::{self, BoxFuture, FutureExt, Shared};
use kube::Client;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use placement::config::Config;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tekton::PipelineRun;
use thiserror::Error;
use tokio::sync::watch as channel;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

/// The number of runs that are reconciled at the same time: enough to keep an API server busy. More runs would queue behind the
/// controller's own requests.
const CONCURRENCY: u16 = 32;
/// How long the controller waits for its last events when it stops.
const LAST_EVENTS: Duration = Duration::from_secs(3);

/// What the controller needs from the process around it.
pub struct Context {
    /// The client for the API server.
    pub client: Client,
    /// The namespace of Tekton.
    pub tekton_namespace: Shared<BoxFuture<'static, String>>,
    /// The API server's clock.
    pub clock: Clock,
    /// The active configuration. After a change, the controller reconciles all runs.
    pub config: channel::Receiver<Arc<Config>>,
    /// Image of the placeholder.
    pub image: String,
    /// The controller's metrics.
    pub metrics: Metrics,
    /// Namespace of the installation.
    pub namespace: String,
    /// Name of this process, for events.
    pub instance: String,
}

/// Why the controller ended before `shutdown` resolved.
#[derive(Debug, Error)]
pub enum Error {
    /// The stream of runs to reconcile ended. This cannot happen while the watches are open.
    #[error("the controller's queue ended by itself")]
    QueueEnded,
    /// A bug ended the task that sends events, so that users would get no more events on their runs.
    #[error("the task that sends events has ended")]
    EventsEnded,
}

/// The runs whose turn has come.
type Triggers = UnboundedReceiver<ObjectRef<PipelineRun>>;
type Stop = Shared<BoxFuture<'static, ()>>;
type Reconciled = Result<(ObjectRef<PipelineRun>, Action), controller::Error<StepError, watcher::Error>>;

/// Reconciles runs until `shutdown` resolves, then completes the steps that already started. Dropping the future stops all tasks
/// at once.
pub async fn run(context: Context, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
    let stop = shutdown.boxed().shared();
    let (stores, writers) = watch::stores();
    let (reconciler, event_writer, turns) = reconciler(&context, &stores);
    info!(
        namespace = context.namespace,
        instance = context.instance,
        "the controller starts"
    );
    context.metrics.count_in(Some(stores.clone()));
    let mut last = JoinSet::new();
    last.spawn(event_writer.run());
    let kept_nodes = KeptNodes::new(
        stores.clone(),
        reconciler.cluster.clone(),
        context.clock.clone(),
        context.metrics.clone(),
    );
    let orphans = Orphans::new(stores.clone(), reconciler.cluster.clone(), context.clock.clone());
    tokio::select! {
        () = stopped_early(stop.clone(), stores.runs.clone()) => {}
        () = control(&context, stores, writers, reconciler, turns, stop.clone()) => {}
        () = Box::pin(orphans.run()) => {}
        () = Box::pin(kept_nodes.run()) => {}
        _ = last.join_next() => return Err(Error::EventsEnded),
    }
    context.metrics.count_in(None);
    drop(timeout(LAST_EVENTS, last.join_next()).await);
    if stop.peek().is_some() {
        Ok(())
    } else {
        Err(Error::QueueEnded)
    }
}

fn reconciler(context: &Context, stores: &Stores) -> (Arc<Reconciler>, EventWriter, Triggers) {
    let cluster = Arc::new(Cluster::new(
        context.client.clone(),
        context.image.clone(),
        context.namespace.clone(),
    ));
    let metrics = &context.metrics;
    let (event_queue, event_writer) =
        events::event_queue(cluster.clone(), context.instance.clone(), metrics.clone());
    let (turns, triggers) = turns::turns();
    let memory = Memory::new(turns);
    let reconciler = Reconciler {
        stores: stores.clone(),
        config: context.config.clone(),
        clock: context.clock.clone(),
        cluster,
        memory,
        report: Report::new(event_queue, metrics.clone()),
    };
    (Arc::new(reconciler), event_writer, triggers)
}

async fn control(
    context: &Context,
    stores: Stores,
    writers: Writers,
    reconciler: Arc<Reconciler>,
    turns: Triggers,
    stop: Stop,
) {
    let watches = Watches {
        client: context.client.clone(),
        metrics: context.metrics.clone(),
        stores: stores.clone(),
        namespace: context.namespace.clone(),
        tekton_namespace: context.tekton_namespace.clone(),
    };
    let (for_gone, runs, for_relaxed) = (reconciler.clone(), stores.runs.clone(), reconciler.clone());
    let relaxed = move |uid: &str| for_relaxed.memory.with(uid, RunMemory::relaxed);
    let gone = move |gone| forget(&for_gone, &runs, &gone);
    let for_quotas = reconciler.clone();
    let on_quota = move |namespace: &str| for_quotas.on_quota(namespace);
    let (runs, woken) = watches.open(writers, gone, relaxed, on_quota);
    Controller::for_stream(runs, stores.runs)
        .reconcile_on(woken)
        .reconcile_on(turns)
        .reconcile_all_on(watch::changes(context.config.clone()))
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(stop)
        .run(reconcile, retry, reconciler)
        .for_each(reconciled)
        .await;
}

async fn reconcile(view: Arc<PipelineRun>, reconciler: Arc<Reconciler>) -> Result<Action, StepError> {
    let Some(run) = view.run() else {
        return Ok(Action::await_change());
    };
    let uid = run.key.uid.clone();
    let result = reconciler.reconcile(run).await;
    if !reconciler.stores.has_run(&view) {
        // The run was deleted meanwhile. This reconciliation may have added the run again to what `forget` had dropped.
        reconciler.memory.turns.forget(|entry| entry == uid);
        drop(reconciler.memory.forget(&uid));
    }
    Ok(result?.again.map_or_else(Action::await_change, Action::requeue))
}

// kube's controller passes these arguments by value.
#[allow(clippy::needless_pass_by_value)]
fn retry(view: Arc<PipelineRun>, _: &StepError, reconciler: Arc<Reconciler>) -> Action {
    Action::requeue(reconciler.retry_after(view.metadata.uid.as_deref().unwrap_or_default()))
}

/// `Report` already logged the failed steps. Any other error is a trigger for a run that was deleted meanwhile.
async fn reconciled(reconciled: Reconciled) {
    match reconciled {
        Ok(_) | Err(controller::Error::ReconcilerFailed(..)) => {}
        Err(error) => debug!(%error, "nothing to reconcile"),
    }
}

/// Drops the memory of deleted runs.
fn forget(reconciler: &Reconciler, runs: &Store<PipelineRun>, gone: &Deleted) {
    match gone {
        Deleted::One(uid) => reconciler.forget(|entry| entry == uid),
        Deleted::Unlisted => {
            let runs = runs.state();
            let there: HashSet<_> = runs
                .iter()
                .filter_map(|run| run.metadata.uid.as_deref())
                .collect();
            reconciler.forget(|entry| !there.contains(entry));
        }
    }
}

/// Resolves if `stop` comes before the first list of runs. In that case, kube 5.0's controller would wait for the list for ever.
async fn stopped_early(stop: Stop, runs: Store<PipelineRun>) {
    stop.await;
    // Polled once and not awaited: the store wakes only the last task that waits, which must be the controller.
    if runs.wait_until_ready().now_or_never().is_some() {
        future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
