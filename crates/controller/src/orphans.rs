//! Deletes placeholders whose run no longer exists.
//!
//! Garbage collection deletes the placeholder of a deleted run. It does not if the owner reference was removed, as by
//! `kubectl delete --cascade=orphan`, or by a backup that restores objects without owners. Without its run, such a placeholder would keep
//! its node for ever. The caches tell which placeholders have no run; a list at the API server confirms this before a deletion.

use crate::api_error::StepError;
use crate::observe::{Clock, Stores};
use crate::placeholders::{ObjectKey, OfRun};
use crate::read::all_named;
use crate::write::{Cluster, Effect};
use jiff::Timestamp;
use kube::runtime::reflector::ObjectRef;
use placement::names::{PlaceholderName, RunKey};
use placement::requests::{Object, Operation, Request, Verb};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tekton::PipelineRun;
use tracing::{info, warn};

/// How often the caches are compared. This sends no request.
const COMPARED_EVERY: Duration = Duration::from_secs(10);
/// How long a placeholder has no run before it is deleted: garbage collection usually deletes it within a second.
const GRACE: Duration = Duration::from_secs(20);
/// The most placeholders that are deleted after one comparison.
const AT_ONCE: usize = 20;

/// A placeholder, or the pod of a finished run that keeps its node, without a run in the caches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Orphan {
    namespace: String,
    run: String,
    placeholder: String,
    uid: String,
    is_pod: bool,
}

/// Finds orphans and deletes them.
pub(crate) struct Orphans {
    stores: Stores,
    cluster: Arc<Cluster>,
    clock: Clock,
    /// Since when each orphan has had no run.
    since: BTreeMap<Orphan, Timestamp>,
}

impl Orphans {
    pub(crate) fn new(stores: Stores, cluster: Arc<Cluster>, clock: Clock) -> Self {
        Self {
            stores,
            cluster,
            clock,
            since: BTreeMap::new(),
        }
    }

    /// Compares the caches again and again.
    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(COMPARED_EVERY).await;
            self.compare().await;
        }
    }

    /// Deletes the placeholders that have had no run for the grace period.
    pub(crate) async fn compare(&mut self) {
        let now = (self.clock)();
        let found = self.stores.orphans().into_iter();
        self.since = found
            .map(|orphan| {
                let since = self.since.get(&orphan).copied().unwrap_or(now);
                (orphan, since)
            })
            .collect();
        let is_due = |since: &Timestamp| now.duration_since(*since).unsigned_abs() >= GRACE;
        let due = self.since.iter().filter(|(_, since)| is_due(since));
        for (orphan, _) in due.take(AT_ONCE) {
            match self.cluster.delete_orphan(orphan).await {
                Ok(true) => info!(?orphan, "deleted a placeholder whose run does not exist"),
                Ok(false) => {}
                Err(error) => {
                    warn!(?orphan, %error, "could not delete a placeholder whose run does not exist");
                }
            }
        }
    }
}

impl Stores {
    /// The placeholders whose name is not that of an existing run's placeholder.
    fn orphans(&self) -> Vec<Orphan> {
        let sets = self.sets.read();
        let is_kept = |(namespace, name): &ObjectKey| {
            let set = name.trim_end_matches("-0").to_owned();
            sets.contains_key(&(namespace.clone(), set))
        };
        let statefulsets = sets
            .iter()
            .filter(|(_, set)| !set.it.deleting)
            .filter_map(|(key, set)| self.orphan(key, set, &set.it.uid, false));
        let pods = self.pods.read();
        let pods = pods.iter().filter(|(key, pod)| !pod.it.ending && !is_kept(key));
        let pods = pods.filter_map(|(key, pod)| self.orphan(key, pod, &pod.it.uid, true));
        statefulsets.chain(pods).collect()
    }

    fn orphan<T>(
        &self,
        (namespace, name): &ObjectKey,
        of: &OfRun<T>,
        uid: &str,
        is_pod: bool,
    ) -> Option<Orphan> {
        let placeholder = if is_pod { name.strip_suffix("-0")? } else { name };
        let run = of.run.clone()?;
        let found = self
            .runs
            .get(&ObjectRef::<PipelineRun>::new(&run).within(namespace));
        let is_orphan = PlaceholderName::is_placeholder(placeholder)
            && !found.is_some_and(|run| has_placeholder(&run, placeholder));
        is_orphan.then(|| Orphan {
            namespace: namespace.clone(),
            run,
            placeholder: placeholder.to_owned(),
            uid: uid.to_owned(),
            is_pod,
        })
    }
}

/// The name of a placeholder is derived from the UID of its run.
fn has_placeholder(run: &PipelineRun, placeholder: &str) -> bool {
    let uid = run.metadata.uid.as_deref();
    uid.is_some_and(|uid| PlaceholderName::of_uid(uid).as_str() == placeholder)
}

impl Cluster {
    /// Deletes an orphan, unless the API server has its run.
    async fn delete_orphan(&self, orphan: &Orphan) -> Result<bool, StepError> {
        let runs = all_named(Operation::CleanUp, &self.api(&orphan.namespace), &orphan.run).await?;
        if runs.iter().any(|run| has_placeholder(run, &orphan.placeholder)) {
            return Ok(false);
        }
        let object = if orphan.is_pod {
            Object::OtherPod(format!("{}-0", orphan.placeholder))
        } else {
            Object::OtherStatefulSet(orphan.placeholder.clone())
        };
        let request = Request {
            operation: Operation::CleanUp,
            object,
            verb: Verb::Delete {
                uid: orphan.uid.clone(),
                at_once: orphan.is_pod,
            },
        };
        let key = RunKey {
            namespace: orphan.namespace.clone(),
            name: orphan.run.clone(),
            uid: String::new(),
        };
        Ok(self.send(&key, &request).await? == Effect::Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Caches, Server, at, cluster, run};
    use serde_json::{Value, json};

    const EMPTY: fn() -> Value =
        || json!({"apiVersion": "tekton.dev/v1", "kind": "PipelineRunList", "metadata": {}, "items": []});

    /// The lines of the requests after comparisons at these seconds, each answered by one of the answers.
    async fn requests(caches: &Caches, seconds: &[i64], answers: Vec<Value>) -> Vec<String> {
        let mut server = Server::start();
        for answer in answers {
            server.answer(200, answer);
        }
        let now = Arc::new(std::sync::Mutex::new(at(0)));
        let time = now.clone();
        let clock: Clock = Arc::new(move || *time.lock().unwrap());
        let cluster = cluster(&server);
        let mut orphans = Orphans::new(caches.stores.clone(), cluster, clock);
        for second in seconds {
            *now.lock().unwrap() = at(*second);
            orphans.compare().await;
        }
        server.calls().into_iter().map(|call| call.line).collect()
    }

    fn name() -> String {
        run().key.placeholder().as_str().to_owned()
    }

    #[tokio::test]
    async fn a_placeholder_without_a_run_is_deleted_after_the_grace_period() {
        let mut caches = Caches::ready();
        caches.add_set(&run(), "s1");
        assert!(requests(&caches, &[0, 19], vec![]).await.is_empty());
        let sent = requests(&caches, &[0, 20], vec![EMPTY(), json!({"metadata": {}})]).await;
        assert!(
            sent[0].starts_with("GET") && sent[0].contains("metadata.name%3Dbuild"),
            "{sent:?}"
        );
        assert!(
            sent[1].starts_with("DELETE") && sent[1].contains(&name()),
            "{sent:?}"
        );
    }

    #[tokio::test]
    async fn a_placeholder_with_a_run_is_kept() {
        let mut caches = Caches::ready();
        caches.add_set(&run(), "s1");
        let listed = json!({"metadata": {}, "items": [{"metadata": {"name": "build", "namespace": "ns", "uid": "u1"}}]});
        let sent = requests(&caches, &[0, 20], vec![listed]).await;
        assert_eq!(sent.len(), 1, "the API server has the run: {sent:?}");
        caches.add_held_run("build", "u1");
        assert!(requests(&caches, &[0, 20], vec![]).await.is_empty());
        caches.add_held_run("build", "u2");
        let sent = requests(&caches, &[0, 20], vec![EMPTY(), json!({"metadata": {}})]).await;
        assert_eq!(sent.len(), 2, "another run has the name");
    }

    #[tokio::test]
    async fn a_pod_of_a_finished_run_without_a_statefulset_is_an_orphan_too() {
        let mut caches = Caches::ready();
        caches.add_pod(&run(), "p1", Some("n1"));
        let sent = requests(&caches, &[0, 20], vec![EMPTY(), json!({"metadata": {}})]).await;
        assert!(
            sent[1].starts_with("DELETE") && sent[1].contains(&format!("{}-0", name())),
            "{sent:?}"
        );
    }

    #[tokio::test]
    async fn a_statefulset_with_another_name_is_never_touched() {
        let mut caches = Caches::ready();
        let labels = json!({"metadata": {"name": "database", "labels": {"tekton.dev/pipelineRun": "build"}}});
        caches.add_set_of(&run(), "s1", &labels);
        assert!(requests(&caches, &[0, 20], vec![]).await.is_empty());
    }
}
