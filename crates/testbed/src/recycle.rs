//! Resets a used testbed to the objects of an earlier moment, in about a second, so that another test can reuse the testbed.
//!
//! The reset writes to etcd directly, so that no finalizer, garbage collector or admission interferes. Every process sees each
//! write in its watches, like any other change. Late writes of a process about a deleted object are possible, so a reset repeats
//! until nothing changes.

use crate::error::Result;
use crate::kubeconfig::client;
use crate::part::{Launch, Part};
use crate::probe;
use crate::store::{Change, Contents, Store};
use crate::testbed::Testbed;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::time::Duration;

/// Leases are not restored, because their holders renew them constantly. New Leases belong to deleted objects and are deleted.
const LEASES: &str = "/registry/leases/";
const NODES: &str = "/registry/minions/";
const PODS: &str = "/registry/pods/";
const TEKTON_CONFIGURATION: &str = "/registry/configmaps/tekton-pipelines/";
/// A reset ends after this number of checks without a change, which takes nearly half a second.
const STABLE_CHECKS: u32 = 5;
/// Number of concurrent changes.
const AT_ONCE: usize = 16;
/// A baseline is taken when nothing changes for this time, or after [`BASELINE_ATTEMPTS`] attempts.
const BASELINE_PAUSE: Duration = Duration::from_secs(1);
const BASELINE_ATTEMPTS: usize = 10;
/// Timeout of a reset: a new testbed would start faster.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The objects and processes of a testbed at one moment.
#[derive(Debug)]
pub struct Baseline {
    contents: Contents,
    parts: BTreeMap<Part, Launch>,
    next_port: u16,
}

impl Testbed {
    /// The current state, for [`Testbed::reset`].
    pub async fn baseline(&self) -> Result<Baseline> {
        Ok(Baseline {
            contents: at_rest(&self.store().await?).await?,
            parts: self.parts.launches(),
            next_port: self.ports().next(),
        })
    }

    /// Ends the processes that were started after the baseline. Returns whether the processes of the baseline still run with the
    /// same settings.
    pub fn keeps_only(&mut self, baseline: &Baseline) -> bool {
        if !baseline.has_pod_affinity() {
            self.forget_pod_affinity();
        }
        self.parts.erase(|part| !baseline.parts.contains_key(&part));
        self.ports().go_back_to(baseline.next_port);
        self.check().is_ok() && !self.is_disturbed() && self.parts.launches() == baseline.parts
    }

    /// Restores all objects, and returns when pod-affinity, if installed, takes effect again.
    pub async fn reset(&self, baseline: &mut Baseline) -> Result<()> {
        self.client.forget();
        if self.restore(baseline).await?.contains(TEKTON_CONFIGURATION) {
            self.restart_tekton().await?;
        }
        self.scheduler_cache_is_current(baseline).await?;
        if baseline.has_pod_affinity() {
            self.admits().await?;
        }
        Ok(())
    }

    /// Waits for the scheduler's cache: a scheduler whose cache still has a deleted node would bind pods to this node.
    async fn scheduler_cache_is_current(&self, baseline: &Baseline) -> Result<()> {
        let wanted = baseline.scheduler_cache();
        self.until("the scheduler's cache to be current", TIMEOUT, async || {
            let metrics = self
                .scheduler_metrics()
                .await
                .map_err(|error| error.to_string())?;
            let missing = wanted
                .iter()
                .find(|line| !metrics.lines().any(|found| found == *line));
            missing.map_or(Ok(()), |line| Err(format!("not yet {line}")))
        })
        .await
    }

    /// Restores the objects and returns their keys.
    async fn restore(&self, baseline: &mut Baseline) -> Result<Restored> {
        let (store, mut calm, mut restored) = (self.store().await?, 0, Restored::default());
        self.until(
            "the objects of the baseline to be restored",
            TIMEOUT,
            async || {
                let changes = baseline
                    .put_back(&store)
                    .await
                    .map_err(|error| error.to_string())?;
                calm = if changes.is_empty() { calm + 1 } else { 0 };
                if calm == STABLE_CHECKS {
                    return Ok(());
                }
                let keys: Vec<_> = changes.iter().map(Change::key).map(String::from).collect();
                let seen = keys.join(" ");
                restored.0.extend(keys);
                Err(seen)
            },
        )
        .await?;
        Ok(restored)
    }

    /// The size of each object of a namespace in etcd, by key. A key is `/registry/`, the resource, the namespace and the name.
    pub async fn stored_sizes(&self, namespace: &str) -> Result<BTreeMap<String, usize>> {
        let (contents, part) = (self.store().await?.contents().await?, format!("/{namespace}/"));
        let inside = contents.into_iter().filter(|(key, _)| key.contains(&part));
        Ok(inside.map(|(key, stored)| (key, stored.value.0.len())).collect())
    }

    /// The metrics of etcd in Prometheus' text format.
    pub async fn etcd_metrics(&self) -> Result<String> {
        probe::metrics(&client(&self.plane.store).await?, "etcd").await
    }

    async fn store(&self) -> Result<Store> {
        Ok(Store::new(client(&self.plane.store).await?))
    }
}

/// The objects when nothing changes any more.
async fn at_rest(store: &Store) -> Result<Contents> {
    let mut contents = store.contents().await?;
    for _ in 0..BASELINE_ATTEMPTS {
        tokio::time::sleep(BASELINE_PAUSE).await;
        if changes(&contents, &store.revisions().await?).is_empty() {
            break;
        }
        contents = store.contents().await?;
    }
    Ok(contents)
}

/// Keys of restored objects.
#[derive(Debug, Default)]
struct Restored(Vec<String>);

impl Restored {
    fn contains(&self, prefix: &str) -> bool {
        self.0.iter().any(|key| key.starts_with(prefix))
    }
}

impl Baseline {
    fn has_pod_affinity(&self) -> bool {
        self.parts.contains_key(&Part::Controller(0))
    }

    /// The scheduler's metrics lines when its cache has the nodes and pods of the baseline.
    fn scheduler_cache(&self) -> [String; 2] {
        [("nodes", NODES), ("pods", PODS)].map(|(kind, prefix)| {
            let count = self.contents.keys().filter(|key| key.starts_with(prefix)).count();
            format!("scheduler_cache_size{{type=\"{kind}\"}} {count}")
        })
    }

    /// Restores all objects that differ and returns the changes.
    async fn put_back(&mut self, store: &Store) -> Result<Vec<Change>> {
        let changes = changes(&self.contents, &store.revisions().await?);
        self.make(store, &changes).await?;
        Ok(changes)
    }

    async fn make(&mut self, store: &Store, changes: &[Change]) -> Result<()> {
        let made = stream::iter(changes).map(async |change| (change, store.change(change).await));
        let mut made = made.buffer_unordered(AT_ONCE);
        while let Some((change, revision)) = made.next().await {
            let revision = revision?;
            if let Some(stored) = self.contents.get_mut(change.key()) {
                stored.revision = revision;
            }
        }
        Ok(())
    }
}

/// The changes that turn `found` into `wanted`. Deletions are in reverse alphabetical order, so runs and StatefulSets go before
/// their pods: a controller that still sees an owner would recreate its pods.
fn changes(wanted: &Contents, found: &Contents) -> Vec<Change> {
    let gone = found
        .keys()
        .rev()
        .filter(|key| !wanted.contains_key(*key))
        .map(|key| Change::Delete(key.clone()));
    let back = wanted
        .iter()
        .filter(|(key, _)| !key.starts_with(LEASES))
        .filter(|(key, stored)| {
            found
                .get(*key)
                .is_none_or(|found| found.revision != stored.revision)
        })
        .map(|(key, stored)| Change::Put(key.clone(), stored.value.clone()));
    gone.chain(back).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Stored;
    use k8s_openapi::ByteString;

    fn contents(stored: &[(&str, &str)]) -> Contents {
        let stored = stored.iter().map(|(key, revision)| {
            let value = ByteString(format!("value of {revision}").into_bytes());
            let revision = (*revision).to_owned();
            ((*key).to_owned(), Stored { revision, value })
        });
        stored.collect()
    }

    #[test]
    fn new_objects_are_deleted_and_changed_or_deleted_objects_are_restored() {
        let wanted = contents(&[("/same", "1"), ("/changed", "2"), ("/gone", "3")]);
        let found = contents(&[("/same", "1"), ("/changed", "8"), ("/new", "9")]);
        let back = |key: &str| Change::Put(key.into(), wanted[key].value.clone());
        let expected = [Change::Delete("/new".into()), back("/changed"), back("/gone")];
        assert_eq!(changes(&wanted, &found), expected);
    }

    #[test]
    fn the_scheduler_cache_is_current_when_it_counts_the_nodes_and_pods_of_the_baseline() {
        let contents = contents(&[("/registry/minions/a", "1"), ("/registry/minions/b", "2")]);
        let baseline = Baseline {
            contents,
            parts: BTreeMap::new(),
            next_port: 0,
        };
        let expected = ["nodes\"} 2", "pods\"} 0"].map(|end| format!("scheduler_cache_size{{type=\"{end}"));
        assert_eq!(baseline.scheduler_cache(), expected);
    }

    #[test]
    fn a_renewed_lease_is_kept_and_a_new_lease_is_deleted() {
        let wanted = contents(&[("/registry/leases/a/held", "1")]);
        let found = contents(&[("/registry/leases/a/held", "7"), ("/registry/leases/a/new", "8")]);
        assert_eq!(
            changes(&wanted, &found),
            [Change::Delete("/registry/leases/a/new".into())]
        );
    }
}
