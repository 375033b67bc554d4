//! `cost` reports the node time of a run of a real cluster, and the metrics of the controller have the same time.

use crate::support::SOON;
use crate::support::cli::tool;
use crate::support::events::time_of;
use crate::support::pool::PooledTestbed;
use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
use testbed::probe;
use testbed::runs::{self, RunSpec};

/// The times of runs and pods have whole seconds.
const TOLERANCE: f64 = 2.0;
/// Seconds of each of the two tasks.
pub(crate) const TASK: u32 = 5;

/// The ended runs of the default namespace, and their seconds on nodes, as the controllers counted them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeTime {
    seconds: f64,
    runs: f64,
}

impl NodeTime {
    pub(crate) async fn read(bed: &PooledTestbed) -> Self {
        let (mut seconds, mut runs) = (0.0, 0.0);
        for admin in &bed.installed().controller_admin {
            let read = async || probe::get(*admin, "/metrics").await;
            let text = bed.until("the metrics", SOON, read).await.unwrap();
            seconds += counter(&text, "pod_affinity_node_seconds_total");
            runs += counter(&text, "pod_affinity_runs_ended_total");
        }
        Self { seconds, runs }
    }
}

fn counter(text: &str, name: &str) -> f64 {
    let start = format!("{name}{{run_namespace=\"default\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&start));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// The report on the only labelled run. The node `large-0` costs 1 per second, and the node `small-0` has no price.
pub(crate) async fn report(bed: &PooledTestbed) -> Value {
    let prices = bed.folder().join("prices.csv");
    std::fs::write(&prices, "large,3600\n").unwrap();
    let line = format!("cost --since=0 -o json --prices {}", prices.display());
    let printed = tool(bed, &line).await;
    println!("{}{}", printed.out, printed.err);
    let note = "note: gap price, 1 run: the price file has no price for small\n";
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), note));
    let report: Value = serde_json::from_str(&printed.out).unwrap();
    assert_eq!(report["items"].as_array().unwrap().len(), 1, "{report:#}");
    report["total"].clone()
}

/// Compares the report on a run that moved between two tasks with what the controllers counted since `before`. The report counts
/// the second node from the task's bind time, and the controllers from the return of the placeholder.
pub(crate) async fn the_metrics_and_the_report_have_the_same_time(
    bed: &PooledTestbed,
    run: &RunSpec,
    before: NodeTime,
) {
    let report = report(bed).await;
    let [node, running, cost] =
        ["nodeSeconds", "runningSeconds", "cost"].map(|field| report[field].as_f64().unwrap());
    // Not the time of both tasks: Tekton replaces the start time of a TaskRun if its cache is stale.
    let more_than_one_task = f64::from(TASK) + 1.0;
    assert!(running > more_than_one_task && running <= node, "{report:#}");
    assert!(
        cost > 0.5 && cost < node - 1.0,
        "only the second node has a price: {report:#}"
    );
    let cpu = &report["requested"]["cpu"];
    assert_eq!(cpu["peak"], 0.5, "4 of 8 CPUs: {report:#}");
    assert!(cpu["average"].as_f64().unwrap() < 0.4, "{report:#}");
    let client = bed.client().await.unwrap();
    let at = async |reason| time_of(&client, run, reason).await;
    let returned = at("Moved").await - at("MovedOff").await;
    let away = returned.total(jiff::Unit::Second).unwrap();
    let counted = bed.until("the metrics to have the run", SOON, async || {
        let now = NodeTime::read(bed).await;
        let is_counted = (now.runs - before.runs - 1.0).abs() < 0.1;
        is_counted.then_some(now.seconds - before.seconds).ok_or(now)
    });
    let seconds = counted.await.unwrap();
    // The controllers count until they have deleted the placeholder.
    let late = seconds_since_end(&client, run).await;
    let least = (node - away - TOLERANCE).max(more_than_one_task);
    assert!(
        least < seconds && seconds < node + late,
        "{seconds} of {node}, {away} away, {late} late"
    );
}

async fn seconds_since_end(client: &Client, run: &RunSpec) -> f64 {
    let run = runs::runs(client, run.namespace()).get(run.name()).await.unwrap();
    let end = run.data["status"]["completionTime"].as_str().unwrap();
    let since = Timestamp::now().duration_since(end.parse().unwrap());
    since.as_secs_f64()
}
