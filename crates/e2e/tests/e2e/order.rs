//! On a full pool, runs of a kind get nodes in the order of their creation.

use crate::support::SOON;
use crate::support::controller::until_a_replica_leads;
use crate::support::events::notes;
use crate::support::objects::changes;
use crate::support::placeholders::{is_unschedulable, placeholder_name, pods, sets};
use crate::support::runs::{bound_task, create, let_end};
use crate::support::testbeds::fresh;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DynamicObject, PostParams};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testbed::order::Order;
use testbed::runs::{self, RunSpec, State};
use testbed::{Part, Testbed};
use tokio::time::sleep_until;

/// The number of runs that are created at once, before the others.
const BACKLOG: usize = 6;
/// The time between the creations of two later runs: a little less than three nodes need for a run.
const INTERVAL: Duration = Duration::from_millis(800);

fn run(namespace: &str, number: usize) -> RunSpec {
    RunSpec::new(namespace, &format!("run-{number:03}"))
        .task("only", &[])
        .lasting("2s")
        .opted_in("true")
}

/// Emits the event of an autoscaler that adds no node for the placeholder of a run.
async fn refuse_node(bed: &Testbed, run: &DynamicObject) {
    let placeholder = placeholder_name(run).pod();
    let client = bed.client().await.unwrap();
    let pods = pods(&client, &run.namespace().unwrap());
    let pod = bed
        .until(format!("the pod {placeholder}"), SOON, async || {
            pods.get(&placeholder).await.map_err(|error| error.to_string())
        })
        .await
        .unwrap();
    refuse(&client, &pod).await;
}

async fn refuse(client: &Client, placeholder: &Pod) {
    let (name, namespace) = (placeholder.name_any(), placeholder.namespace().unwrap());
    let event = json!({
        "metadata": {"generateName": format!("{name}."), "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace, "uid": placeholder.uid()},
        "type": "Normal", "reason": "NotTriggerScaleUp", "source": {"component": "cluster-autoscaler"},
        "message": "pod didn't trigger scale-up: 1 max node group size reached",
        "firstTimestamp": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "lastTimestamp": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    });
    let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let event = serde_json::from_value(event).unwrap();
    events.create(&PostParams::default(), &event).await.unwrap();
}

/// Answers each placeholder of the namespace that found no node: the autoscaler adds no node.
async fn refuse_all(bed: &Testbed, namespace: &str) {
    let client = bed.client().await.unwrap();
    let placeholders =
        watcher::Config::default().labels(&format!("{}={}", keys::COMPONENT, keys::PLACEHOLDER));
    let mut changes = changes(pods(&client, namespace), placeholders);
    tokio::spawn(async move {
        let mut refused = BTreeSet::new();
        while let Some(pod) = changes.next().await {
            if is_unschedulable(&pod) && refused.insert(pod.uid()) {
                refuse(&client, &pod).await;
            }
        }
    });
}

/// When each run started, by its name.
type Starts = Arc<Mutex<BTreeMap<String, Instant>>>;

/// Records when each run of the namespace starts.
async fn record_starts(bed: &Testbed, namespace: &str) -> Starts {
    let starts = Starts::default();
    let (written, api) = (
        starts.clone(),
        runs::runs(&bed.client().await.unwrap(), namespace),
    );
    let mut changes = changes(api, watcher::Config::default());
    tokio::spawn(async move {
        while let Some(run) = changes.next().await {
            if runs::state(&run) != State::Pending {
                let mut starts = written.lock().unwrap();
                starts.entry(run.name_any()).or_insert_with(Instant::now);
            }
        }
    });
    starts
}

/// Creates the backlog, and then this number of runs one after the other.
async fn start_many(bed: &Testbed, namespace: &str, later: usize) -> Order {
    refuse_all(bed, namespace).await;
    let starts = record_starts(bed, namespace).await;
    let (mut created, mut next) = (Vec::new(), Instant::now());
    for number in 0..BACKLOG + later {
        if number >= BACKLOG {
            next += INTERVAL;
        }
        sleep_until(next.into()).await;
        created.push(Instant::now());
        create(bed, &run(namespace, number)).await;
    }
    let runs = created.len();
    bed.until(
        format!("{runs} runs to start"),
        Duration::from_mins(4),
        async || {
            let started = starts.lock().unwrap().len();
            if started == runs { Ok(()) } else { Err(started) }
        },
    )
    .await
    .unwrap();
    let starts = starts.lock().unwrap();
    let runs: Vec<_> = created.into_iter().zip(starts.values().copied()).collect();
    Order::new(&runs).unwrap()
}

const NODES: usize = 3;

async fn no_run_starves(later: usize) {
    let bed = fresh(NODES).await;
    let namespace = bed.namespace("crowded").await.unwrap();
    let order = start_many(&bed, &namespace, later).await;
    println!("{} runs on {NODES} nodes: {order}", BACKLOG + later);
    assert!(order.most_overtakes <= NODES, "{order}");
    assert!(order.wait_ratio() <= 1.3, "{order}");
    assert!(order.wrong_pairs <= 2.0, "{order}");
}

#[e2e_test(first)]
async fn on_a_full_pool_runs_start_in_the_order_of_their_creation() {
    no_run_starves(24).await;
}

#[e2e_test(second)]
async fn on_a_full_pool_no_run_starves_however_many_younger_runs_come() {
    no_run_starves(75).await;
}

/// Waits for an event `WaitingForNode` that contains these words, and returns its note.
async fn until_note(bed: &Testbed, run: &RunSpec, words: &str) -> String {
    let client = bed.client().await.unwrap();
    bed.until(format!("{words:?} on {}", run.name()), SOON, async || {
        let notes = notes(&client, run).await;
        let is_it = |(reason, note): &&(String, String)| reason == "WaitingForNode" && note.contains(words);
        notes
            .iter()
            .find(is_it)
            .map(|(_, note)| note.clone())
            .ok_or(notes)
    })
    .await
    .unwrap()
}

/// Whether the run has a placeholder.
async fn has_placeholder(bed: &Testbed, run: &DynamicObject) -> bool {
    let sets = sets(&bed.client().await.unwrap(), &run.namespace().unwrap());
    let set = sets.get_opt(placeholder_name(run).as_str()).await.unwrap();
    set.is_some()
}

async fn until_placeholder(bed: &Testbed, run: &DynamicObject, exists: bool) {
    let what = format!("whether {} has a placeholder to be {exists}", run.name_any());
    bed.until(what, SOON, async || {
        let found = has_placeholder(bed, run).await;
        if found == exists { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
}

/// Lets the controller read the answer of an autoscaler to a run of another kind. In an earlier test on the same testbed, the
/// controller may have learned that no autoscaler answers.
async fn an_autoscaler_answers(bed: &Testbed, namespace: &str) {
    let nowhere = json!({"podTemplate": {"nodeSelector": {"of-another-kind": "true"}}});
    let run = RunSpec::new(namespace, "elsewhere")
        .task("only", &[])
        .opted_in("true")
        .spec("taskRunTemplate", nowhere);
    refuse_node(bed, &create(bed, &run).await).await;
    until_note(bed, &run, "max node group size reached").await;
}

#[e2e_test(first)]
async fn without_an_autoscaler_younger_runs_wait_in_line_after_30_seconds_also_with_a_new_leader() {
    let bed = fresh(1).await;
    let namespace = bed.namespace("line").await.unwrap();
    an_autoscaler_answers(&bed, &namespace).await;
    let hanging = run(&namespace, 0).ending("hang");
    create(&bed, &hanging).await;
    bound_task(&bed, &hanging, "only").await;
    let runs = [1, 2, 3, 4, 5, 6].map(|number| run(&namespace, number));
    let mut created = Vec::new();
    for run in &runs[..5] {
        created.push(create(&bed, run).await);
        // The API server dates objects to the second.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let [.., last] = created.as_slice() else {
        unreachable!()
    };
    // An autoscaler may still answer.
    until_placeholder(&bed, last, true).await;
    until_placeholder(&bed, last, false).await;
    let waits = until_note(&bed, &runs[4], "4 older runs of the same kind").await;
    assert!(waits.contains("no autoscaler adds one"), "{waits}");
    let killed = until_a_replica_leads(&bed, bed.installed()).await;
    bed.kill(Part::Controller(killed)).unwrap();
    let youngest = create(&bed, &runs[5]).await;
    until_note(&bed, &runs[5], "5 older runs of the same kind").await;
    assert!(!has_placeholder(&bed, last).await && !has_placeholder(&bed, &youngest).await);
    let starts = record_starts(&bed, &namespace).await;
    let_end(&bed, &hanging).await;
    for run in &runs {
        bed.until_succeeded(run, SOON).await.unwrap();
    }
    // The next test uses the testbed again.
    bed.start_again(Part::Controller(killed)).await.unwrap();
    let starts = starts.lock().unwrap();
    let starts: Vec<_> = runs.iter().map(|run| starts[run.name()]).collect();
    assert!(
        starts[2..].is_sorted() && starts[..2].iter().all(|start| *start < starts[4]),
        "{starts:?}"
    );
}

/// An autoscaler adds nodes only for placeholders that exist.
#[e2e_test(second)]
async fn a_run_that_no_node_holds_keeps_no_smaller_run_from_an_autoscaler() {
    let bed = fresh(1).await;
    let (here, there) = (
        bed.namespace("here").await.unwrap(),
        bed.namespace("there").await.unwrap(),
    );
    an_autoscaler_answers(&bed, &here).await;
    let hanging = run(&here, 0).ending("hang");
    create(&bed, &hanging).await;
    bound_task(&bed, &hanging, "only").await;
    let large = |number| run(&here, number).annotation(keys::RESERVE, "cpu=500");
    refuse_node(&bed, &create(&bed, &large(1)).await).await;
    until_note(&bed, &large(1), "max node group size reached").await;
    for run in [run(&here, 2), run(&there, 3)] {
        until_placeholder(&bed, &create(&bed, &run).await, true).await;
    }
    let as_large = create(&bed, &large(4)).await;
    until_note(&bed, &large(4), "3 older runs of the same kind").await;
    assert!(!has_placeholder(&bed, &as_large).await);
}
