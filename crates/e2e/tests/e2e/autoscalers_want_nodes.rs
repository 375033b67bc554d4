//! Autoscalers that want a node which a run uses, or gets at this moment: a node that another run left, the node of a run between two
//! tasks, a node that expires, and a spot node before its interruption.

use crate::support::SOON;
use crate::support::autoscalers::{Autoscaler, bed, delete_runs, until_left};
use crate::support::custom_runs::{custom_run, end_custom_run, with_custom_task};
use crate::support::events::reasons;
use crate::support::objects::{node_of, patch_node};
use crate::support::runs::{bound_task, create, let_succeed, let_task_end, nodes_of};
use crate::support::testbeds::fresh;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use testbed::Testbed;
use testbed::runs::{self, RunSpec, State};
use tokio::time::sleep;

/// Runs that get the node of an earlier run.
const HAND_OVERS: usize = 200;
/// Sequences of runs at the same time.
const SEQUENCES: usize = 20;
/// The longest pause between two runs of a sequence: Karpenter looks for empty nodes every ten seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(40);
/// The longest time until a run ends, with the time for several nodes.
const LONGEST_RUN: Duration = Duration::from_mins(3);
/// More CPU than the fixed nodes have, so that only nodes of the autoscaler fit.
const CPU: &str = "3";

/// Changes the only `NodePool`.
async fn configure_pool(client: &Client, spec: Value) {
    let kind = GroupVersionKind::gvk("karpenter.sh", "v1", "NodePool");
    let pools: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let spec = Patch::Merge(json!({"spec": spec}));
    pools
        .patch("default", &PatchParams::default(), &spec)
        .await
        .unwrap();
}

fn large(name: &str, tasks: &[&str]) -> RunSpec {
    let size = json!({"cpu": CPU});
    let one_more = |run: RunSpec, task: &&str| run.sized_task(task, &[], &size);
    let run = tasks.iter().fold(RunSpec::new("default", name), one_more);
    run.annotation(keys::RESERVE, &format!("cpu={CPU}"))
}

/// The placeholder alone keeps the node, longer than the autoscaler needs to remove the empty node of another run.
async fn keeps_the_node_between_two_tasks(autoscaler: Autoscaler) {
    let bed = bed(autoscaler).await;
    let run = with_custom_task(large("run", &["first"]), "gap", &["first"]);
    let run = run.sized_task("last", &["gap"], &json!({"cpu": CPU}));
    let run = run.opted_in("true").lasting("1s");
    create(&bed, &run).await;
    let gap = custom_run(&bed, &run, "gap").await.unwrap();
    let other = large("other", &["only"]).opted_in("true").lasting("1s");
    create(&bed, &other).await;
    bed.until_succeeded(&other, SOON).await.unwrap();
    until_left(&bed, 1).await;
    end_custom_run(&bed, &gap, true).await.unwrap();
    bed.until_succeeded(&run, SOON).await.unwrap();
    assert_eq!(nodes_of(&bed, &run).await.len(), 1);
    delete_runs(&bed).await;
    until_left(&bed, 0).await;
}

#[e2e_test(autoscaler, second)]
async fn the_cluster_autoscaler_keeps_the_node_of_a_run_between_two_tasks() {
    keeps_the_node_between_two_tasks(Autoscaler::Cluster).await;
}

#[e2e_test(autoscaler, second)]
async fn karpenter_keeps_the_node_of_a_run_between_two_tasks() {
    keeps_the_node_between_two_tasks(Autoscaler::Karpenter).await;
}

/// Karpenter taints an expired node, and waits for the pods that must not be disrupted. Tekton copies the annotation to the pods of tasks.
#[e2e_test(nightly, autoscaler)]
async fn a_run_on_a_node_that_expires_ends_its_task_there_and_continues_on_another_node() {
    let bed = bed(Autoscaler::Karpenter).await;
    let client = bed.client().await.unwrap();
    configure_pool(&client, json!({"template": {"spec": {"expireAfter": "20s"}}})).await;
    let size = json!({"cpu": CPU});
    let run = large("run", &["first"]).sized_task("last", &["first"], &size);
    let run = run
        .opted_in("true")
        .annotation(keys::DO_NOT_DISRUPT, "true")
        .ending("hang");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "first").await);
    until_tainted(&bed, &client, &first).await;
    configure_pool(&client, json!({"template": {"spec": {"expireAfter": "Never"}}})).await;
    let_succeed(&bed, &run).await;
    let last = node_of(&bound_task(&bed, &run, "last").await);
    assert_ne!(first, last);
    let reported = reasons(&client, &run).await;
    assert_eq!(
        reported.iter().filter(|reason| *reason == "MovedOff").count(),
        1,
        "{reported:?}"
    );
}

async fn until_tainted(bed: &Testbed, client: &Client, node: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    bed.until(format!("Karpenter to taint {node}"), SOON, async || {
        let node = nodes.get(node).await.map_err(|error| error.to_string())?;
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let is_disrupted = taints.iter().any(|taint| taint.key == "karpenter.sh/disrupted");
        is_disrupted.then_some(()).ok_or_else(|| format!("{taints:?}"))
    })
    .await
    .unwrap();
}

/// AWS's termination handler adds this taint two minutes before the interruption.
#[e2e_test]
async fn a_run_leaves_a_spot_node_before_its_interruption_when_its_task_has_ended() {
    let bed = fresh(2).await;
    let run = RunSpec::new("default", "run")
        .task("first", &[])
        .task("last", &["first"]);
    let run = run.opted_in("true").ending("hang");
    create(&bed, &run).await;
    let first = node_of(&bound_task(&bed, &run, "first").await);
    let taint = json!([{"key": "aws-node-termination-handler/spot-itn", "effect": "NoSchedule"}]);
    patch_node(&bed, &first, json!({"spec": {"taints": taint}})).await;
    let_task_end(&bed, &run, "first").await;
    let last = node_of(&bound_task(&bed, &run, "last").await);
    assert_ne!(first, last);
    let_succeed(&bed, &run).await;
}

/// What happened to some runs.
#[derive(Debug, Default)]
struct Counts {
    runs: usize,
    /// The run got the node of an earlier run.
    handed_over: usize,
    moved: usize,
    /// The run did not succeed. A task had started on a node that Karpenter removed.
    lost: usize,
}

/// The nodes that runs have used.
type Used = Mutex<BTreeSet<String>>;

#[e2e_test(nightly, autoscaler)]
async fn two_hundred_hand_overs_beside_karpenters_consolidation_lose_no_run_that_has_not_started() {
    let bed = bed(Autoscaler::Karpenter).await;
    let (all, nodes) = hand_overs(&bed).await;
    assert!(all.handed_over >= HAND_OVERS, "{all:?}");
    assert!(nodes > SEQUENCES, "Karpenter removed no node between two runs");
}

#[e2e_test(nightly, autoscaler)]
async fn two_hundred_hand_overs_of_kept_nodes_beside_karpenters_consolidation_lose_no_run_and_no_node() {
    let bed = bed(Autoscaler::Karpenter).await;
    let most = (2 * SEQUENCES).to_string();
    bed.configure(&[("keep-node-for", Some("1m")), ("keep-nodes-at-most", Some(&most))])
        .await
        .unwrap();
    let (all, nodes) = hand_overs(&bed).await;
    assert!(all.handed_over >= HAND_OVERS, "{all:?}");
    assert_eq!((all.lost, all.moved), (0, 0), "{all:?}");
    assert!(
        nodes <= SEQUENCES,
        "Karpenter removed a node that was kept: {nodes} nodes"
    );
}

/// What happened to the runs of all sequences, and the number of nodes that they used.
async fn hand_overs(bed: &Testbed) -> (Counts, usize) {
    let client = bed.client().await.unwrap();
    configure_pool(&client, json!({"disruption": {"consolidateAfter": "1s"}})).await;
    let used = Used::default();
    let sequences = (0..SEQUENCES).map(|number| sequence(bed, &client, number, &used));
    let counts = join_all(sequences).await;
    let all = counts.into_iter().fold(Counts::default(), |all, counts| Counts {
        runs: all.runs + counts.runs,
        handed_over: all.handed_over + counts.handed_over,
        moved: all.moved + counts.moved,
        lost: all.lost + counts.lost,
    });
    let nodes = used.into_inner().unwrap().len();
    println!("hand-overs beside Karpenter's consolidation: {all:?} on {nodes} nodes");
    (all, nodes)
}

/// Runs one after another, with pauses around the moment in which Karpenter removes the empty node.
async fn sequence(bed: &Testbed, client: &Client, number: usize, used: &Used) -> Counts {
    let mut counts = Counts::default();
    while counts.handed_over < HAND_OVERS / SEQUENCES {
        let name = format!("run-{number}-{}", counts.runs);
        let run = large(&name, &["only"]).lasting("1s").opted_in("true");
        create(bed, &run).await;
        let is_over = |run: &DynamicObject| runs::state(run).is_over();
        let ended = bed.until_run(&run, "to end", LONGEST_RUN, is_over).await.unwrap();
        counts.runs += 1;
        if runs::state(&ended) != State::Succeeded {
            let tasks = started_tasks(client, &run).await;
            println!("{name} was lost; tasks that had started: {tasks}");
            assert!(tasks > 0, "{ended:?}");
            counts.lost += 1;
        }
        for node in nodes_of(bed, &run).await {
            counts.handed_over += usize::from(!used.lock().unwrap().insert(node));
        }
        let reported = reasons(client, &run).await;
        counts.moved += reported.iter().filter(|reason| *reason == "MovedOff").count();
        sleep(LONGEST_PAUSE.mul_f64(fastrand::f64())).await;
    }
    counts
}

/// The number of tasks of the run whose step had started.
async fn started_tasks(client: &Client, run: &RunSpec) -> usize {
    let tasks = runs::task_runs(client, run.namespace());
    let of_run = ListParams::default().labels(&format!("{}={}", runs::RUN_LABEL, run.name()));
    let tasks = tasks.list(&of_run).await.unwrap().items;
    let has_started = |task: &&DynamicObject| !task.data["status"]["steps"].is_null();
    tasks.iter().filter(has_started).count()
}
