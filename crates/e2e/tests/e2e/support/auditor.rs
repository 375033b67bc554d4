//! Watches a testbed during a test, and records violations of the rules that hold at every moment.
//!
//! The auditor reads from the API server directly, without the proxy of the faults, and restarts its watches after an
//! outage. A test fails if a watch has ended, has not restarted yet, or has seen no object.

mod book;

use self::book::{Book, BoundPod, Entry, LiveNode, Run, Set, note, remove, uid};
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
    book: Arc<Mutex<Book>>,
    watches: [JoinHandle<()>; 4],
}

impl Auditor {
    pub(crate) async fn start(bed: &Testbed) -> Self {
        let client = bed.client().await.unwrap();
        let book = Arc::new(Mutex::new(Book::default()));
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
                book.clone(),
            )),
            tokio::spawn(follow::<Set>(Api::all(client.clone()), sets, book.clone())),
            tokio::spawn(follow::<LiveNode>(
                Api::all(client.clone()),
                watcher::Config::default(),
                book.clone(),
            )),
            tokio::spawn(follow::<Run>(
                Api::all_with(client, &resource),
                watcher::Config::default(),
                book.clone(),
            )),
        ];
        Self { book, watches }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    /// Declares that only the user may release this run.
    pub(crate) fn only_its_user_releases(&self, run: &DynamicObject) {
        self.book().users.insert(run.uid().unwrap());
    }

    /// Ends the declaration, because the user releases the run now.
    pub(crate) fn its_user_releases(&self, run: &DynamicObject) {
        self.book().users.remove(&run.uid().unwrap());
    }

    pub(crate) fn longest_hold(&self) -> Duration {
        self.book().longest_hold
    }

    /// Number of runs that have not ended and that are not held by their users.
    pub(crate) fn live(&self) -> usize {
        let book = self.book();
        let live = book.runs.values().filter(|run| match run.state {
            State::Pending => run.ours,
            State::Running => true,
            State::Succeeded | State::Failed(_) => false,
        });
        live.count()
    }

    /// Names and reasons of all runs that failed.
    pub(crate) fn failed(&self) -> BTreeMap<String, String> {
        self.book().failed.clone()
    }

    /// The violations so far.
    pub(crate) fn wrongs(&self) -> Result<(), BTreeSet<String>> {
        complaint(self.book().wrongs())
    }

    /// Ends the watches; fails if a violation was found.
    pub(crate) fn found_nothing(self) {
        self.end();
        self.wrongs().unwrap();
    }

    /// As `found_nothing`, for tests that lose nodes: after a run has left a lost node, its pods stay there for a while.
    pub(crate) fn found_nothing_on_live_nodes(self) {
        self.end();
        complaint(self.book().wrongs_on_live_nodes()).unwrap();
    }

    fn end(&self) {
        for watch in &self.watches {
            assert!(!watch.is_finished(), "a watch ended, so nothing is known");
            watch.abort();
        }
        let book = self.book();
        assert!(book.unwatched.is_empty(), "not watched: {:?}", book.unwatched);
        assert_eq!(book.noted.len(), self.watches.len(), "noted: {:?}", book.noted);
    }
}

fn complaint(wrongs: BTreeSet<String>) -> Result<(), BTreeSet<String>> {
    if wrongs.is_empty() { Ok(()) } else { Err(wrongs) }
}

/// Backoff between two attempts to watch: short, because the audit has a gap meanwhile.
struct Pauses;

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::from_millis(500))
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {}
}

async fn follow<E: Entry>(api: Api<E::Object>, config: watcher::Config, book: Arc<Mutex<Book>>) {
    let mut events = watcher(api, config).backoff(Pauses).boxed();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let mut book = book.lock().unwrap();
        let Ok(event) = event else {
            book.unwatched.insert(E::KIND);
            continue;
        };
        if !matches!(event, watcher::Event::Init | watcher::Event::InitApply(_)) {
            book.unwatched.remove(E::KIND);
        }
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => listed.push(object),
            watcher::Event::InitDone => {
                // Deleted objects are removed first, so that they are not compared with new objects.
                let before = std::mem::take(E::page(&mut book));
                listed.drain(..).for_each(|object| note::<E>(&mut book, &object));
                for (uid, entry) in before {
                    if !E::page(&mut book).contains_key(&uid) {
                        entry.gone(&mut book);
                    }
                }
            }
            watcher::Event::Apply(object) => note::<E>(&mut book, &object),
            watcher::Event::Delete(object) => remove::<E>(&mut book, &uid(&object)),
        }
    }
}
