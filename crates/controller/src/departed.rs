//! Runs that leave the watch before they are done: deleted, or robbed of the opt-in label.
//!
//! The watch selects by that label, so its removal looks like a deletion, and a run that we hold would be held for
//! ever. Hence one GET for each unfinished run that leaves; done runs leave in masses when they are pruned, and are
//! not asked for. A relist tells of no deletions at all, so the runs that are missing from it count as departed too,
//! and those that came and were robbed of the label between two lists are looked for after each.

use crate::act::Door;
use crate::backoff;
use crate::desk::Desk;
use crate::observe::Stores;
use crate::refusal::Refused;
use crate::view::{group_of, run_of};
use futures::{StreamExt, stream};
use kube::api::ObjectMeta;
use kube::runtime::watcher::Event;
use placement::names::RunKey;
use std::collections::HashSet;
use std::sync::Arc;
use tekton::PipelineRun;
use tokio::sync::{Notify, mpsc};
use tracing::{debug, warn};

/// Seen off at a time.
const AT_ONCE: usize = 8;

/// Notices the unfinished runs that leave.
pub(crate) struct Departures {
    present: HashSet<RunKey>,
    listed: HashSet<RunKey>,
    gone: mpsc::UnboundedSender<RunKey>,
    list_is_in: Arc<Notify>,
}

impl Departures {
    /// Departures told to this channel, and complete lists to those who wait for them.
    pub(crate) fn new(gone: mpsc::UnboundedSender<RunKey>, list_is_in: Arc<Notify>) -> Self {
        Self {
            present: HashSet::new(),
            listed: HashSet::new(),
            gone,
            list_is_in,
        }
    }

    /// Takes notice of what the watch says.
    pub(crate) fn note(&mut self, event: &Event<PipelineRun>) {
        match event {
            Event::Apply(run) => keep(&mut self.present, run),
            Event::Delete(run) => self.leave(run),
            Event::Init => self.listed.clear(),
            Event::InitApply(run) => keep(&mut self.listed, run),
            Event::InitDone => self.relisted(),
        }
    }

    fn leave(&mut self, run: &PipelineRun) {
        if let Some(key) = run.key().and_then(|key| self.present.take(&key)) {
            self.tell(key);
        }
    }

    fn relisted(&mut self) {
        let before = std::mem::replace(&mut self.present, std::mem::take(&mut self.listed));
        before
            .into_iter()
            .filter(|key| !self.present.contains(key))
            .for_each(|key| self.tell(key));
        self.list_is_in.notify_one();
    }

    fn tell(&self, key: RunKey) {
        // Nobody listens any more only when the controller stops.
        let _ = self.gone.send(key);
    }
}

fn keep(runs: &mut HashSet<RunKey>, run: &PipelineRun) {
    let Some(key) = run.key() else { return };
    if run.status.done {
        runs.remove(&key)
    } else {
        runs.insert(key)
    };
}

/// Runs that left while nobody watched: their placeholders are still there. Asked once, when the first lists are in.
pub(crate) fn strays(stores: &Stores) -> Vec<RunKey> {
    let sets = stores.sets.store.state();
    let living = sets
        .iter()
        .filter(|set| set.metadata.deletion_timestamp.is_none());
    living.filter_map(|set| stray(stores, &set.metadata)).collect()
}

fn stray(stores: &Stores, set: &ObjectMeta) -> Option<RunKey> {
    let (run, uid) = (run_of(set)?, group_of(set)?);
    let known = stores
        .runs
        .store
        .get(&run)
        .is_some_and(|found| found.metadata.uid.as_deref() == Some(uid));
    (!known).then(|| RunKey {
        namespace: run.namespace.unwrap_or_default(),
        name: run.name,
        uid: uid.to_owned(),
    })
}

/// Passes on the runs that are held, or in a group, without the label, after each list of those with it.
pub(crate) async fn find_robbed(
    desk: Arc<Desk>,
    list_is_in: Arc<Notify>,
    gone: mpsc::UnboundedSender<RunKey>,
) {
    loop {
        list_is_in.notified().await;
        for key in robbed(&desk.door).await {
            // The other end is gone only when the controller stops.
            drop(gone.send(key));
        }
    }
}

async fn robbed(door: &Door) -> Vec<RunKey> {
    insist("", || async {
        let found = door.robbed().await;
        found
            .inspect_err(|error| {
                warn!(%error, "runs that lost their label while nobody watched are looked for later");
            })
            .ok()
    })
    .await
}

/// Tries until there is an answer, after growing pauses that are spread by the UID.
async fn insist<T, Attempt>(uid: &str, attempt: impl Fn() -> Attempt) -> T
where
    Attempt: Future<Output = Option<T>>,
{
    let mut tries = 0;
    loop {
        if let Some(answer) = attempt().await {
            return answer;
        }
        tries += 1;
        tokio::time::sleep(backoff::delay(uid, tries)).await;
    }
}

/// Sees off each run that comes through the channel.
pub(crate) async fn see_off(desk: Arc<Desk>, mut gone: mpsc::UnboundedReceiver<RunKey>) {
    let keys = stream::poll_fn(move |context| gone.poll_recv(context));
    keys.for_each_concurrent(AT_ONCE, |key| desk.see_off(key)).await;
}

impl Desk {
    /// Settles a run that left the watch, as opted out, unless it is gone or has come back.
    pub(crate) async fn see_off(&self, key: RunKey) {
        insist(&key.uid, || async {
            let seen_off = self.is_seen_off(&key).await;
            seen_off
                .unwrap_or_else(|refused| later(&key, &refused))
                .then_some(())
        })
        .await;
    }

    async fn is_seen_off(&self, key: &RunKey) -> Result<bool, Refused> {
        let Some(run) = self.door.find(key).await? else {
            self.vanished(key);
            return Ok(true);
        };
        // With the label it is in the watch again, which takes care of it.
        Ok(run.opt_in.is_some() || self.settle(&run).await?.at_rest)
    }
}

fn later(key: &RunKey, refused: &Refused) -> bool {
    debug!(run = %key, error = %refused, "a run that left the watch is seen off later");
    false
}

#[cfg(test)]
#[path = "departed_tests.rs"]
mod tests;
