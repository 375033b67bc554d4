//! Tests with a real autoscaler. It adds as many nodes as are missing, in as few steps as possible; a run that moves gets a
//! larger node; a run that reserves gets a large node from the start; at the end all new nodes are removed.

use crate::support::SOON;
use crate::support::auditor::Auditor;
use crate::support::autoscalers::{Autoscaler, FIXED, bed, delete_runs, until_left};
use crate::support::events::notes;
use crate::support::objects::changes;
use crate::support::runs::{create, let_end_once_bound, nodes_of, of_pipeline};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::watcher;
use placement::keys;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testbed::Testbed;
use testbed::runs::{self, RunSpec, State};
use tokio::task::JoinHandle;

/// Nodes that are created within this time of one another count as one step.
const ONE_STEP: Duration = Duration::from_millis(1_500);
/// The namespace of every second run.
const OTHER: &str = "other";
/// Number of concurrent runs: many more than nodes.
const MANY: usize = 20;

/// Records every node that is created.
struct Growth {
    came: Arc<Mutex<BTreeMap<String, Instant>>>,
    task: JoinHandle<()>,
}

impl Growth {
    async fn start(bed: &Testbed) -> Self {
        let nodes: Api<Node> = Api::all(bed.client().await.unwrap());
        let came = Arc::new(Mutex::new(BTreeMap::new()));
        let noted = came.clone();
        let task = tokio::spawn(async move {
            let mut nodes = changes(nodes, watcher::Config::default());
            while let Some(node) = nodes.next().await {
                let mut noted = noted.lock().unwrap();
                noted.entry(node.name_any()).or_insert_with(Instant::now);
            }
        });
        Self { came, task }
    }

    /// Number of created nodes, and number of steps.
    fn so_far(&self) -> (usize, usize) {
        assert!(!self.task.is_finished(), "the watch of nodes has ended");
        let mut times: Vec<_> = self
            .came
            .lock()
            .unwrap()
            .iter()
            .filter(|(name, _)| !name.starts_with("fixed"))
            .map(|(_, at)| *at)
            .collect();
        times.sort();
        let gaps = times.windows(2).filter(|pair| pair[1] - pair[0] > ONE_STEP);
        let steps = usize::from(!times.is_empty()) + gaps.count();
        (times.len(), steps)
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Creates runs of one task each at once. The autoscaler starts to act after each run has a node or is known to have none.
/// Otherwise the number of steps would depend on how fast this machine creates the runs.
async fn create_at_once(bed: &Testbed, specs: &[RunSpec], autoscaler: Autoscaler) {
    bed.pause(autoscaler.part()).unwrap();
    join_all(specs.iter().map(|spec| create(bed, spec))).await;
    let client = bed.client().await.unwrap();
    let runs: Api<DynamicObject> = Api::all_with(client.clone(), &runs::resource());
    let pods: Api<Pod> = Api::all(client);
    let placeholders = format!("{}={}", keys::COMPONENT, keys::PLACEHOLDER);
    let placeholders = ListParams::default().labels(&placeholders);
    bed.until("each run to have a node or to wait for one", SOON, async || {
        let pods = pods
            .list(&placeholders)
            .await
            .map_err(|error| error.to_string())?;
        let has_been_seen = |pod: &&Pod| {
            pod.status
                .as_ref()
                .is_some_and(|status| status.conditions.is_some())
        };
        let seen: BTreeSet<_> = pods
            .iter()
            .filter(has_been_seen)
            .map(|pod| &pod.labels()[keys::GROUP])
            .collect();
        let runs = runs
            .list(&ListParams::default())
            .await
            .map_err(|error| error.to_string())?;
        let is_unseen = |run: &&DynamicObject| {
            runs::state(run) == State::Pending && !seen.contains(run.metadata.uid.as_ref().unwrap())
        };
        match runs.iter().filter(is_unseen).count() {
            0 => Ok(()),
            unseen => Err(format!(
                "{unseen} are held, and the scheduler has not seen their placeholders"
            )),
        }
    })
    .await
    .unwrap();
    bed.resume(autoscaler.part()).unwrap();
}

/// Waits until all runs have succeeded, and returns how long that took.
async fn all_succeed(bed: &Testbed, specs: &[RunSpec]) -> Duration {
    let start = Instant::now();
    for spec in specs {
        bed.until_succeeded(spec, SOON).await.unwrap();
        assert_eq!(nodes_of(bed, spec).await.len(), 1, "{}", spec.name());
    }
    start.elapsed()
}

/// Runs in two namespaces.
fn many(prefix: &str, count: usize) -> Vec<RunSpec> {
    let run = |index| {
        let strategy = if index % 5 == 4 { "isolateAlways" } else { "true" };
        let namespace = if index % 2 == 0 { "default" } else { OTHER };
        RunSpec::new(namespace, &format!("{prefix}-{index}"))
            .task("only", &[])
            .lasting("5s")
            .opted_in(strategy)
    };
    (0..count).map(run).collect()
}

fn small_then_large(name: &str) -> RunSpec {
    RunSpec::new("default", name)
        .task("small", &[])
        .sized_task("large", &["small"], &json!({"cpu": "4"}))
        .opted_in("true")
        .lasting("2s")
}

/// Creates one run more than nodes, later many runs at once, and waits until the new nodes are removed.
async fn grows_by_what_is_missing(autoscaler: Autoscaler) {
    let bed = bed(autoscaler).await;
    let (growth, auditor) = (Growth::start(&bed).await, Auditor::start(&bed).await);
    bed.namespace(OTHER).await.unwrap();
    // The runs hang until each has a node. Otherwise the last run would take the node of a run that has ended.
    let runs = many("one-more", FIXED + 1)
        .into_iter()
        .map(|run| run.ending("hang"));
    let runs: Vec<_> = runs.collect();
    create_at_once(&bed, &runs, autoscaler).await;
    let_end_once_bound(&bed, &runs, &["only"]).await;
    let took = all_succeed(&bed, &runs).await;
    let (nodes, steps) = growth.so_far();
    println!(
        "{autoscaler:?}: {} runs on {FIXED} nodes: {nodes} added in {steps} steps, {took:?}",
        FIXED + 1
    );
    assert_eq!((nodes, steps), (1, 1));
    let runs = many("many", MANY).into_iter().map(|run| run.ending("hang"));
    let runs: Vec<_> = runs.collect();
    create_at_once(&bed, &runs, autoscaler).await;
    let_end_once_bound(&bed, &runs, &["only"]).await;
    let took = all_succeed(&bed, &runs).await;
    let (all_nodes, all_steps) = growth.so_far();
    let (nodes, steps) = (all_nodes - nodes, all_steps - steps);
    println!("{autoscaler:?}: then {MANY} runs at once: {nodes} added in {steps} steps, {took:?}");
    // The node that was added before may be removed already.
    let missing = MANY - FIXED - 1..=MANY - FIXED;
    assert!(
        missing.contains(&nodes) && steps <= 3,
        "{nodes} nodes in {steps} steps"
    );
    delete_runs(&bed).await;
    bed.remove_namespace(OTHER).await.unwrap();
    println!(
        "{autoscaler:?}: back to {FIXED} nodes after {:?}",
        until_left(&bed, 0).await
    );
    auditor.assert_no_violation_on_live_nodes();
}

/// A run that must move gets a larger node. A run that reserves, by annotation or automatically, is on a large node from the
/// start.
async fn adds_a_node_that_fits(autoscaler: Autoscaler) {
    let bed = bed(autoscaler).await;
    let (growth, auditor) = (Growth::start(&bed).await, Auditor::start(&bed).await);
    let client = bed.client().await.unwrap();
    let moves = small_then_large("moves");
    let automatic = small_then_large("automatic").annotation(keys::RESERVE, "auto");
    let automatic = of_pipeline(&bed, automatic, json!({"name": "grows"})).await;
    let reserves = small_then_large("reserves").annotation(keys::RESERVE, "cpu=4");
    let moves_of = async |run: &RunSpec| {
        let reported = notes(&client, run).await;
        reported.iter().filter(|(reason, _)| reason == "MovedOff").count()
    };

    let added_by = async |run: &RunSpec, what: &str| {
        let ((nodes, steps), start) = (growth.so_far(), Instant::now());
        create(&bed, run).await;
        bed.until_succeeded(run, SOON).await.unwrap();
        let (all_nodes, all_steps) = growth.so_far();
        let (nodes, steps) = (all_nodes - nodes, all_steps - steps);
        println!(
            "{autoscaler:?}: {what}: {nodes} node added in {steps} steps, {:?}",
            start.elapsed()
        );
        (nodes, steps)
    };

    let (nodes, steps) = added_by(&reserves, "a run that reserves 4 CPU").await;
    assert_eq!((nodes, steps, moves_of(&reserves).await), (1, 1, 0));
    assert_eq!(nodes_of(&bed, &reserves).await.len(), 1);
    delete_runs(&bed).await;
    until_left(&bed, 0).await;

    let (nodes, _) = added_by(&moves, "a run that moves").await;
    assert_eq!((nodes, moves_of(&moves).await), (1, 1));
    assert_eq!(nodes_of(&bed, &moves).await.len(), 2);
    delete_runs(&bed).await;
    until_left(&bed, 0).await;

    let (nodes, steps) = added_by(&automatic, "a run with an automatic reserve").await;
    assert_eq!((nodes, steps, moves_of(&automatic).await), (1, 1, 0));
    assert_eq!(nodes_of(&bed, &automatic).await.len(), 1);
    delete_runs(&bed).await;
    until_left(&bed, 0).await;
    auditor.assert_no_violation_on_live_nodes();
}

#[e2e_test(first, autoscaler, second)]
async fn the_cluster_autoscaler_adds_as_many_nodes_as_are_missing_and_removes_them() {
    grows_by_what_is_missing(Autoscaler::Cluster).await;
}

#[e2e_test(autoscaler, second)]
async fn the_cluster_autoscaler_adds_a_node_that_fits_for_a_reserve_or_a_run_that_moves() {
    adds_a_node_that_fits(Autoscaler::Cluster).await;
}

#[e2e_test(first, autoscaler, second)]
async fn karpenter_adds_as_many_nodes_as_are_missing_and_removes_them() {
    grows_by_what_is_missing(Autoscaler::Karpenter).await;
}

#[e2e_test(first, autoscaler, second)]
async fn karpenter_adds_a_node_that_fits_for_a_reserve_or_a_run_that_moves() {
    adds_a_node_that_fits(Autoscaler::Karpenter).await;
}
