//! Watches all along what must hold at every moment, and keeps a book of what did not.
//!
//! It asks the API server itself, by no proxy, and takes its watches up again after an outage.

use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use placement::keys;
use placement::strategy::{IsolateFrom, Isolation, Scope};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use testbed::Testbed;
use testbed::runs::{self, State};
use tokio::task::JoinHandle;

const MET: &str = "met on";

/// A running audit of a whole testbed.
pub(crate) struct Auditor {
    book: Arc<Mutex<Book>>,
    watches: [JoinHandle<()>; 3],
}

#[derive(Default)]
struct Book {
    pods: BTreeMap<String, BoundPod>,
    sets: BTreeMap<String, Set>,
    runs: BTreeMap<String, Run>,
    /// Runs that only their users may release, by UID.
    users: BTreeSet<String>,
    held_since: BTreeMap<String, Instant>,
    longest_hold: Duration,
    /// Names and reasons.
    failed: BTreeMap<String, String>,
    wrongs: BTreeSet<String>,
    bound: usize,
}

/// A live pod on a node.
#[derive(Clone)]
struct BoundPod {
    namespace: String,
    group: String,
    node: String,
    /// Whom this pod keeps off its node.
    isolation: Option<Isolation>,
    enrolled: bool,
    placeholder: bool,
    /// Has our terms, so its place is our business.
    placed: bool,
}

/// A placeholder's StatefulSet.
#[derive(Clone)]
struct Set {
    group: String,
}

#[derive(Clone)]
struct Run {
    name: String,
    state: State,
    ours: bool,
    /// Neither held nor asked to stop.
    released: bool,
}

/// One kind of object in the book, as far as it matters.
trait Entry: Clone + Sized + Send {
    type Object: Resource + Clone + Debug + DeserializeOwned + Send + 'static;
    /// `None`: it does not matter any more.
    fn of(object: &Self::Object) -> Option<Self>;
    fn page(book: &mut Book) -> &mut BTreeMap<String, Self>;
    fn audit(&self, uid: &str, book: &mut Book);
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

    /// From now on nobody but its user may release this run.
    pub(crate) fn only_its_user_releases(&self, run: &DynamicObject) {
        self.book().users.insert(run.uid().unwrap());
    }

    /// Its user is about to release it.
    pub(crate) fn its_user_releases(&self, run: &DynamicObject) {
        self.book().users.remove(&run.uid().unwrap());
    }

    pub(crate) fn longest_hold(&self) -> Duration {
        self.book().longest_hold
    }

    /// Runs that are neither done nor held by their users.
    pub(crate) fn live(&self) -> usize {
        let book = self.book();
        let live = book.runs.values().filter(|run| match run.state {
            State::Pending => run.ours,
            State::Running => true,
            State::Succeeded | State::Failed(_) => false,
        });
        live.count()
    }

    /// Names of all runs that ended otherwise than well, and why they say.
    pub(crate) fn failed(&self) -> BTreeMap<String, String> {
        self.book().failed.clone()
    }

    /// What was wrong so far.
    pub(crate) fn wrongs(&self) -> Result<(), BTreeSet<String>> {
        let wrongs = self.book().wrongs.clone();
        if wrongs.is_empty() { Ok(()) } else { Err(wrongs) }
    }

    /// Ends the watches; fails if anything was wrong at any moment.
    pub(crate) fn found_nothing(self) {
        self.end();
        self.wrongs().unwrap();
    }

    /// Ends the watches; fails if two isolated runs were on one node at any moment. For tests that take nodes away: the
    /// pods of a run that has moved on are there for a while on a node that is gone.
    pub(crate) fn found_no_meeting(self) {
        self.end();
        let mut meetings = self.book().wrongs.clone();
        meetings.retain(|wrong| wrong.contains(MET));
        assert!(meetings.is_empty(), "{meetings:?}");
    }

    fn end(&self) {
        for watch in &self.watches {
            assert!(!watch.is_finished(), "a watch ended, so nothing is known");
            watch.abort();
        }
        assert!(self.book().bound > 0, "nothing was there to watch");
    }
}

async fn follow<E: Entry>(api: Api<E::Object>, config: watcher::Config, book: Arc<Mutex<Book>>) {
    let mut events = watcher(api, config).default_backoff().boxed();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        // An outage; the watch is taken up again.
        let Ok(event) = event else { continue };
        let mut book = book.lock().unwrap();
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => listed.push(object),
            watcher::Event::InitDone => {
                // What has gone meanwhile goes first: it does not meet what has come.
                E::page(&mut book).clear();
                listed.drain(..).for_each(|object| note::<E>(&mut book, &object));
            }
            watcher::Event::Apply(object) => note::<E>(&mut book, &object),
            watcher::Event::Delete(object) => {
                E::page(&mut book).remove(&uid(&object));
            }
        }
    }
}

fn uid<K: Resource>(object: &K) -> String {
    object.meta().uid.clone().unwrap()
}

fn note<E: Entry>(book: &mut Book, object: &E::Object) {
    let uid = uid(object);
    match E::of(object) {
        Some(entry) => {
            E::page(book).insert(uid.clone(), entry.clone());
            entry.audit(&uid, book);
        }
        None => drop(E::page(book).remove(&uid)),
    }
}

impl Entry for BoundPod {
    type Object = Pod;

    fn of(pod: &Pod) -> Option<Self> {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let node = runs::node(pod).filter(|_| !matches!(phase, Some("Succeeded" | "Failed")))?;
        let labels = pod.labels();
        let is = |key: &str, value: &str| labels.get(key).is_some_and(|found| found == value);
        let enrolled = labels.contains_key(keys::GROUP);
        let placed = enrolled && !is(keys::OPT_IN, "false");
        let isolates = placed && !is(keys::STRATEGY, "colocateAlways");
        let isolation = labels.get(keys::ISOLATION).and_then(|label| label.parse().ok());
        Some(Self {
            namespace: pod.namespace()?,
            group: labels
                .get(keys::GROUP)
                .unwrap_or(&labels[runs::RUN_LABEL])
                .clone(),
            node: node.to_owned(),
            isolation: isolates.then(|| isolation.unwrap_or_default()),
            enrolled,
            placeholder: is(keys::COMPONENT, keys::PLACEHOLDER),
            placed,
        })
    }

    fn page(book: &mut Book) -> &mut BTreeMap<String, Self> {
        &mut book.pods
    }

    fn audit(&self, uid: &str, book: &mut Book) {
        book.bound += 1;
        let others = book.pods.iter().filter(|(other, _)| *other != uid);
        let wrongs: Vec<_> = others.filter_map(|(_, other)| self.quarrel(other)).collect();
        book.wrongs.extend(wrongs);
    }
}

impl BoundPod {
    fn quarrel(&self, other: &Self) -> Option<String> {
        let Self { group, node, .. } = self;
        let (mine, here) = (other.group == *group, other.node == *node);
        if !mine && here && (self.keeps_off(other) || other.keeps_off(self)) {
            return Some(format!("{group} and {} {MET} {node}", other.group));
        }
        if mine && !here && self.placed && other.placed {
            return Some(format!("{group} is on {node} and on {}", other.node));
        }
        (mine && self.placeholder && other.placeholder).then(|| format!("{group} has two placeholders"))
    }

    /// Whether a pod of another group may not be on the same node.
    fn keeps_off(&self, other: &Self) -> bool {
        self.isolation.is_some_and(|Isolation { scope, from }| {
            (scope == Scope::Cluster || other.namespace == self.namespace)
                && (from == IsolateFrom::All || other.enrolled)
        })
    }
}

impl Entry for Set {
    type Object = StatefulSet;

    fn of(set: &StatefulSet) -> Option<Self> {
        let group = set.labels()[keys::GROUP].clone();
        Some(Self { group })
    }

    fn page(book: &mut Book) -> &mut BTreeMap<String, Self> {
        &mut book.sets
    }

    fn audit(&self, uid: &str, book: &mut Book) {
        let mut others = book.sets.iter().filter(|(other, _)| *other != uid);
        if others.any(|(_, other)| other.group == self.group) {
            book.wrongs.insert(format!("{} has two StatefulSets", self.group));
        }
    }
}

impl Entry for Run {
    type Object = DynamicObject;

    fn of(run: &DynamicObject) -> Option<Self> {
        Some(Self {
            name: run.name_any(),
            state: runs::state(run),
            ours: run.annotations().contains_key(keys::HOLD),
            released: run.data["spec"].get("status").is_none(),
        })
    }

    fn page(book: &mut Book) -> &mut BTreeMap<String, Self> {
        &mut book.runs
    }

    fn audit(&self, uid: &str, book: &mut Book) {
        let Self {
            name,
            state,
            ours,
            released,
        } = self;
        match state {
            State::Pending if *ours => {
                book.held_since.entry(uid.to_owned()).or_insert_with(Instant::now);
            }
            State::Running if *released && book.users.contains(uid) => {
                book.wrongs
                    .insert(format!("{name} was released, and that was its user's to do"));
            }
            State::Pending | State::Running | State::Succeeded => {}
            State::Failed(reason) => {
                book.failed.insert(name.clone(), reason.clone());
            }
        }
        if *state != State::Pending
            && let Some(since) = book.held_since.remove(uid)
        {
            book.longest_hold = book.longest_hold.max(since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(group: &str, node: &str, isolated: bool) -> BoundPod {
        BoundPod {
            namespace: "red".into(),
            group: group.into(),
            node: node.into(),
            isolation: isolated.then(Isolation::default),
            enrolled: true,
            placeholder: false,
            placed: true,
        }
    }

    fn wrongs(pods: [BoundPod; 2]) -> usize {
        let mut book = Book::default();
        for (number, pod) in pods.into_iter().enumerate() {
            book.pods.insert(number.to_string(), pod.clone());
            pod.audit(&number.to_string(), &mut book);
        }
        book.wrongs.len()
    }

    #[e2e_test]
    fn two_runs_on_one_node_one_run_on_two_and_two_placeholders_are_wrong() {
        let placeholder = BoundPod {
            placeholder: true,
            ..pod("a", "n", true)
        };
        assert_eq!(wrongs([pod("a", "n", true), pod("b", "n", false)]), 1);
        assert_eq!(wrongs([pod("a", "n", false), pod("b", "n", false)]), 0);
        assert_eq!(wrongs([pod("a", "n", true), pod("a", "m", true)]), 1);
        assert_eq!(wrongs([pod("a", "n", true), pod("b", "m", true)]), 0);
        assert_eq!(wrongs([placeholder.clone(), placeholder]), 1);
    }

    #[e2e_test]
    fn a_run_keeps_off_its_node_only_what_its_isolation_names() {
        let isolated = |isolation: &str| BoundPod {
            isolation: Some(isolation.parse().unwrap()),
            ..pod("a", "n", true)
        };
        let in_blue = |enrolled| BoundPod {
            namespace: "blue".into(),
            enrolled,
            ..pod("b", "n", false)
        };
        let in_red = |enrolled| BoundPod {
            namespace: "red".into(),
            ..in_blue(enrolled)
        };
        for (isolation, kept_off) in [
            ("cluster-all", [true, true, true, true]),
            ("cluster-enrolled", [true, false, true, false]),
            ("namespace-all", [true, true, false, false]),
            ("namespace-enrolled", [true, false, false, false]),
        ] {
            let others = [in_red(true), in_red(false), in_blue(true), in_blue(false)];
            let found = others.map(|other| wrongs([isolated(isolation), other]) == 1);
            assert_eq!(found, kept_off, "{isolation}");
        }
    }

    #[e2e_test]
    fn a_run_that_was_not_ours_to_release_and_is_released_is_wrong() {
        let mut book = Book::default();
        book.users.insert("uid".into());
        let run = |state| Run {
            name: "run".into(),
            released: state == State::Running,
            state,
            ours: false,
        };
        run(State::Pending).audit("uid", &mut book);
        assert!(book.wrongs.is_empty());
        run(State::Running).audit("uid", &mut book);
        assert_eq!(book.wrongs.len(), 1);
    }
}
