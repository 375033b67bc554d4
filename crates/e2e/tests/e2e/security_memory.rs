//! Objects of one user, of the worst form that the API server stores, use little memory of pod-affinity. The runs of other users are held
//! no longer.

use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::runs::{create, until_released};
use crate::support::testbeds::{shipped, start_controllers, stop_controllers};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testbed::runs::RunSpec;
use testbed::{Part, Testbed, usage};

/// Large runs that are stored when a new leader starts: how many, and the size of the parameter of each. The API server stores at most
/// 1.5 MB in an object, with its other fields.
const LARGE_RUNS: (usize, usize) = (16, 1_000_000);
const MANY_LARGE_RUNS: (usize, usize) = (300, 1_300_000);
/// How many of the runs have a podTemplate of the worst form. Such a run costs the API server seconds.
const WORST_TEMPLATES: usize = 16;
/// The most memory of a controller above its memory without large runs, in bytes.
const CONTROLLER: u64 = 60_000_000;
/// The most memory of a webhook, in bytes.
const WEBHOOK: u64 = 100_000_000;
/// The Lease of a stopped leader is free at once, or after 15 seconds if the leader could not give it up.
const LEASE: Duration = Duration::from_secs(17);
/// How much longer a hold may last beside large runs: the API server and Tekton are busy with the large runs for seconds.
const LONGER: Duration = Duration::from_secs(10);

/// The most memory that a replica has used so far.
fn peak(bed: &Testbed, part: fn(u8) -> Part) -> u64 {
    let peak = |replica| usage::memory(bed.pid(part(replica)).unwrap()).unwrap().peak;
    [0, 1].map(peak).into_iter().max().unwrap_or_default()
}

/// The duration of the hold of an ordinary run of another user.
async fn hold(bed: &Testbed, name: &str) -> Duration {
    let namespace = bed.namespace(name).await.unwrap();
    let run = RunSpec::diamond(&namespace, "run")
        .opted_in("true")
        .ending("hang");
    let since = Instant::now();
    create(bed, &run).await;
    until_released(bed, &run).await;
    since.elapsed()
}

fn large(namespace: &str, name: &str, template: &Value, bytes: usize) -> RunSpec {
    RunSpec::diamond(namespace, name)
        .opted_in("true")
        .ending("hang")
        .spec("taskRunTemplate", json!({"podTemplate": template}))
        .spec("params", json!([{"name": "large", "value": "x".repeat(bytes)}]))
}

/// The API server itself uses gigabytes for more tolerations. No node has the label, so the run stays held, and Tekton creates no pod.
fn tolerations() -> Value {
    json!({"tolerations": vec![json!({}); 20_000], "nodeSelector": {"disk": "none"}})
}

fn node_affinity() -> Value {
    let terms = vec![json!({"matchExpressions": [{}]}); 5_000];
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

/// Runs that their user holds: Tekton does not start them, and the controller caches them.
async fn create_large_runs(bed: &Testbed, namespace: &str, (count, bytes): (usize, usize)) {
    for number in 0..count {
        let template = match number {
            WORST_TEMPLATES.. => json!({}),
            _ if number % 2 == 0 => tolerations(),
            _ => node_affinity(),
        };
        let run = large(namespace, &format!("large-{number}"), &template, bytes);
        create_large(bed, &run.spec("status", json!("PipelineRunPending"))).await;
    }
}

/// etcd and Tekton's webhook can need longer for such runs than the API server waits. A repeated request finds the stored run.
async fn create_large(bed: &Testbed, run: &RunSpec) {
    let client = bed.client().await.unwrap();
    bed.until(format!("{} to be stored", run.name()), SOON, async || {
        match run.create(&client).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await
    .unwrap();
}

#[e2e_test(webhook, second)]
async fn runs_of_the_worst_form_use_little_memory_and_hold_no_other_run_longer() {
    run_beside(LARGE_RUNS).await;
}

#[e2e_test(nightly, webhook)]
async fn hundreds_of_runs_of_the_worst_form_use_little_memory_and_hold_no_other_run_longer() {
    run_beside(MANY_LARGE_RUNS).await;
}

async fn run_beside(large_runs: (usize, usize)) {
    // With API priority and fairness.
    let bed = &*shipped(4).await;
    let usual = hold(bed, "usual").await;
    let memory = peak(bed, Part::Controller);
    let namespace = bed.namespace("large").await.unwrap();
    create_large_runs(bed, &namespace, large_runs).await;
    stop_controllers(bed);
    start_controllers(bed).await;
    let beside_many = hold(bed, "beside-many").await;
    let run = large(&namespace, "large", &tolerations(), large_runs.1);
    create_large(bed, &run).await;
    let note = until_event(bed, &run, "FieldIgnored").await;
    assert!(note.contains("the field tolerations"), "{note}");
    let beside_one = hold(bed, "beside-one").await;
    let controller = peak(bed, Part::Controller);
    let webhook = peak(bed, Part::Webhook);
    println!(
        "holds: {usual:?}, {beside_many:?}, {beside_one:?}; bytes of a controller: {memory}, {controller}; of a webhook: {webhook}"
    );
    assert!(beside_many < usual + LEASE + LONGER, "{beside_many:?}");
    assert!(beside_one < usual + LONGER, "{beside_one:?}");
    assert!(controller < memory + CONTROLLER, "{controller}");
    assert!(webhook < WEBHOOK, "{webhook}");
}
