//! Puts the parts together. Called in the leader only, until it is told to stop.

use crate::act::Door;
use crate::cache::Cache;
use crate::departed::{self, Departures};
use crate::desk::Desk;
use crate::events::{self, Courier};
use crate::memory::Memory;
use crate::metrics::Metrics;
use crate::observe::Stores;
use crate::refusal::Refused;
use crate::report::Report;
use crate::view::run_of;
use crate::watches::{self, Feeds};
use futures::StreamExt;
use futures::future::{self, BoxFuture, FutureExt, Shared};
use kube::Client;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::watcher;
use placement::config::Config;
use placement::names::RunKey;
use std::sync::Arc;
use std::time::Duration;
use tekton::PipelineRun;
use thiserror::Error;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info};

/// Looks at a time: enough to keep an API server busy, few enough not to queue behind our own requests.
const AT_ONCE: u16 = 32;
/// How long the last events may take when we stop.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// What the controller needs from the process around it.
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// Configuration in force; a change is taken up by all runs that are not settled.
    pub config: watch::Receiver<Arc<Config>>,
    /// Image of the placeholder.
    pub image: String,
    /// Where to count.
    pub metrics: Metrics,
    /// Namespace of the installation.
    pub namespace: String,
    /// Name of this process, for events.
    pub instance: String,
}

/// Why the controller ended before it was told to.
#[derive(Debug, Error)]
pub enum Error {
    /// Cannot happen while the watches hold their ends.
    #[error("the controller's queue ended by itself")]
    QueueEnded,
}

type Stop = Shared<BoxFuture<'static, ()>>;
type Looked = Result<(kube::runtime::reflector::ObjectRef<PipelineRun>, Action), LookError>;
type LookError = controller::Error<Refused, watcher::Error>;

/// Settles runs until `shutdown` resolves, then lets the steps that were begun end. Dropped before that, it stops at
/// once and leaves no task behind.
pub async fn run(context: Context, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
    let stop = shutdown.boxed().shared();
    let (stores, feeds) = watches::stores();
    let (gone, departed) = mpsc::unbounded_channel();
    let list_is_in = Arc::<Notify>::default();
    let departures = Departures::new(gone.clone(), list_is_in.clone());
    let (desk, courier) = desk(&context, &stores);
    info!(
        namespace = context.namespace,
        instance = context.instance,
        "the controller starts"
    );
    context.metrics.count_in(Some(stores.clone()));

    let (mut helpers, mut last) = (JoinSet::new(), JoinSet::new());
    helpers.spawn(departed::see_off(desk.clone(), departed));
    helpers.spawn(find_strays(stores.clone(), gone.clone()));
    helpers.spawn(departed::find_robbed(desk.clone(), list_is_in, gone));
    last.spawn(courier.run());
    tokio::select! {
        () = stopped_early(stop.clone(), stores.runs.clone()) => {}
        () = looks(&context, stores, feeds, departures, desk, stop.clone()) => {}
    }

    context.metrics.count_in(None);
    // A helper holds the desk and with it the outbox, and the courier goes on for as long as there is one.
    helpers.shutdown().await;
    drop(timeout(LAST_WORDS, last.join_next()).await);
    if stop.peek().is_some() {
        Ok(())
    } else {
        Err(Error::QueueEnded)
    }
}

fn desk(context: &Context, stores: &Stores) -> (Arc<Desk>, Courier) {
    let metrics = &context.metrics;
    let (outbox, courier) = events::post(context.client.clone(), context.instance.clone(), metrics.clone());
    let desk = Desk {
        stores: stores.clone(),
        config: context.config.clone(),
        door: Door::new(context.client.clone(), context.image.clone()),
        memory: Memory::default(),
        report: Report::new(outbox, metrics.clone()),
    };
    (Arc::new(desk), courier)
}

async fn looks(
    context: &Context,
    stores: Stores,
    feeds: Feeds,
    departures: Departures,
    desk: Arc<Desk>,
    stop: Stop,
) {
    let (client, metrics) = (|| context.client.clone(), || context.metrics.clone());
    let runs = watches::runs(client(), feeds.runs, departures, metrics());
    let nodes = watches::nodes(client(), feeds.nodes, stores.clone(), metrics());
    let waiting = watches::waiting(client(), feeds.waiting, stores.clone(), metrics());
    Controller::for_stream(runs, stores.runs.store)
        .watches_stream(watches::sets(client(), feeds.sets, metrics()), |set| {
            run_of(&set.metadata)
        })
        .watches_stream(watches::pods(client(), feeds.pods, metrics()), |pod| {
            run_of(&pod.metadata)
        })
        .reconcile_on(nodes)
        .reconcile_on(waiting)
        .reconcile_all_on(watches::changes(context.config.clone()))
        .with_config(controller::Config::default().concurrency(AT_ONCE))
        .graceful_shutdown_on(stop)
        .run(look, look_again, desk)
        .for_each(looked)
        .await;
}

async fn look(view: Arc<PipelineRun>, desk: Arc<Desk>) -> Result<Action, Refused> {
    let Some(run) = view.run() else {
        return Ok(Action::await_change());
    };
    let settled = desk.settle(&run).await?;
    Ok(settled.again.map_or_else(Action::await_change, Action::requeue))
}

// By value, because kube's controller passes it so.
#[allow(clippy::needless_pass_by_value)]
fn look_again(view: Arc<PipelineRun>, _: &Refused, desk: Arc<Desk>) -> Action {
    Action::requeue(desk.retry_after(view.metadata.uid.as_deref().unwrap_or_default()))
}

/// Failed steps were reported where they failed; what is left is a trigger for a run that left the cache meanwhile.
async fn looked(looked: Looked) {
    match looked {
        Ok(_) | Err(controller::Error::ReconcilerFailed(..)) => {}
        Err(error) => debug!(%error, "nothing to look at"),
    }
}

/// kube's controller, told to stop before its first list is in, waits for that list for ever (5.0).
async fn stopped_early(stop: Stop, runs: Cache<PipelineRun>) {
    stop.await;
    if runs.is_filled_now() {
        future::pending::<()>().await;
    }
}

async fn find_strays(stores: Stores, gone: mpsc::UnboundedSender<RunKey>) {
    let ready = future::join(stores.runs.is_filled(), stores.sets.is_filled()).await;
    if ready == (true, true) {
        for key in departed::strays(&stores) {
            // The other end is gone only when the controller stops.
            drop(gone.send(key));
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
