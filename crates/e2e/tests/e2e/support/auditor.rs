//! Watches a testbed during a test, and records violations of the rules that hold at every moment.
//!
//! The auditor reads from the API server directly, without the proxy of the faults, and restarts its watches after an
//! outage. A test fails if a watch has ended, has not restarted yet, or has seen no object.

mod state;

use self::state::{AuditState, BoundPod, Entry, LiveNode, Run, Set, record, remove, uid};
use futures::StreamExt;
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use placement::keys;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use testbed::Testbed;
use testbed::runs::{self, State};
use tokio::task::JoinHandle;

/// A running audit of a whole testbed.
pub(crate) struct Auditor {
    state: Arc<Mutex<AuditState>>,
    watches: [JoinHandle<()>; 4],
}

impl Auditor {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        let client = bed.client().await.unwrap();
        let state = Arc::new(Mutex::new(AuditState::default()));
        let resource = kube::api::ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "tekton.dev",
            "v1",
            "PipelineRun",
        ));
        let of_runs = watcher::Config::default().labels(runs::RUN_LABEL);
        let placeholders = format!("{}={}", keys::COMPONENT, keys::PLACEHOLDER);
        let sets = watcher::Config::default().labels(&placeholders);
        let watches = [
            tokio::spawn(follow::<BoundPod>(
                Api::all(client.clone()),
                of_runs,
                state.clone(),
            )),
            tokio::spawn(follow::<Set>(Api::all(client.clone()), sets, state.clone())),
            tokio::spawn(follow::<LiveNode>(
                Api::all(client.clone()),
                watcher::Config::default(),
                state.clone(),
            )),
            tokio::spawn(follow::<Run>(
                Api::all_with(client, &resource),
                watcher::Config::default(),
                state.clone(),
            )),
        ];
        Self { state, watches }
    }

    fn lock_state(&self) -> MutexGuard<'_, AuditState> {
        self.state.lock().unwrap()
    }

    /// Declares that only the user may release this run.
    pub(crate) fn only_its_user_releases(&self, run: &DynamicObject) {
        self.lock_state().users.insert(run.uid().unwrap());
    }

    /// Ends the declaration, because the user releases the run now.
    pub(crate) fn its_user_releases(&self, run: &DynamicObject) {
        self.lock_state().users.remove(&run.uid().unwrap());
    }

    pub(crate) fn longest_hold(&self) -> Duration {
        self.lock_state().longest_hold
    }

    /// Number of runs that have not ended and that are not held by their users.
    pub(crate) fn live(&self) -> usize {
        let state = self.lock_state();
        let live = state.runs.values().filter(|run| match run.state {
            State::Pending => run.ours,
            State::Running => true,
            State::Succeeded | State::Failed(_) => false,
        });
        live.count()
    }

    /// Names and reasons of all runs that failed.
    pub(crate) fn failed(&self) -> BTreeMap<String, String> {
        self.lock_state().failed.clone()
    }

    /// The violations so far.
    pub(crate) fn violations(&self) -> Result<(), BTreeSet<String>> {
        check(self.lock_state().violations())
    }

    /// Ends the watches; fails if a violation was found.
    pub(crate) fn assert_no_violation(self) {
        self.end();
        self.violations().unwrap();
    }

    /// As `assert_no_violation`, for tests that lose nodes: after a run has left a lost node, its pods stay there for a while.
    pub(crate) fn assert_no_violation_on_live_nodes(self) {
        self.end();
        check(self.lock_state().violations_on_live_nodes()).unwrap();
    }

    fn end(&self) {
        for watch in &self.watches {
            assert!(!watch.is_finished(), "a watch ended, so the audit is incomplete");
            watch.abort();
        }
        let state = self.lock_state();
        assert!(state.unwatched.is_empty(), "not watched: {:?}", state.unwatched);
        assert_eq!(
            state.recorded.len(),
            self.watches.len(),
            "recorded: {:?}",
            state.recorded
        );
    }
}

fn check(violations: BTreeSet<String>) -> Result<(), BTreeSet<String>> {
    if violations.is_empty() {
        Ok(())
    } else {
        Err(violations)
    }
}

/// Backoff between two attempts to watch: short, because the audit has a gap meanwhile.
struct ShortBackoff;

impl Iterator for ShortBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

impl Backoff for ShortBackoff {
    fn reset(&mut self) {}
}

async fn follow<E: Entry>(api: Api<E::Object>, config: watcher::Config, state: Arc<Mutex<AuditState>>) {
    let mut events = watcher(api, config).backoff(ShortBackoff).boxed();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let mut state = state.lock().unwrap();
        let Ok(event) = event else {
            state.unwatched.insert(E::KIND);
            continue;
        };
        if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
            state.unwatched.remove(E::KIND);
        }
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => listed.push(object),
            watcher::Event::InitDone => {
                // Deleted objects are removed first, so that they are not compared with new objects.
                let before = std::mem::take(E::entries(&mut state));
                listed
                    .drain(..)
                    .for_each(|object| record::<E>(&mut state, &object));
                for (uid, entry) in before {
                    if !E::entries(&mut state).contains_key(&uid) {
                        entry.on_delete(&mut state);
                    }
                }
            }
            watcher::Event::Apply(object) => record::<E>(&mut state, &object),
            watcher::Event::Delete(object) => remove::<E>(&mut state, &uid(&object)),
        }
    }
}
