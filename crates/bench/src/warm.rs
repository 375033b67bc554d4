//! Warm starts: how many runs get a node that a run of the same Pipeline used before, and what the preference costs.

use crate::admission;
use crate::cluster;
use crate::outcome::{FIRST_POD, FIRST_POD_P99};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::{number, quantile};
use crate::variants::COMPLETED;
use crate::watch::{self, PodRecord};
use anyhow::{Context, Result};
use placement::keys;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use testbed::apply::apply_all;
use testbed::runs::RunSpec;
use testbed::{Admission, Limits, Nodes, Testbed};

const WARM: &str = "runs on a node that their Pipeline used before, %";
const PIPELINES: usize = 4;
const NODES: usize = 3 * PIPELINES;
const DONE: Duration = Duration::from_mins(2);

/// The suffix of the variant, and the value of the annotation.
const PREFERENCES: [(&str, &str); 2] = [("", "false"), (", warm", "true")];

pub(crate) const PART: BenchPart = BenchPart {
    name: "warm",
    title: "Warm starts",
    method: "twelve nodes, and four Pipelines of one task. In each of ten steps, a run of each Pipeline is created, and the next step \
        begins when the four runs are done. Each step begins with another Pipeline, because kube-scheduler 1.37 assigns equal nodes in \
        the same order every time. The first step does not count, because no Pipeline has used a node. Simulated nodes pull \
        no images, so the figures show where the runs are, and not the time that a warm node saves.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort)),
    figures: &[WARM, FIRST_POD, FIRST_POD_P99],
    ratios: &[(FIRST_POD, COMPLETED)],
    aims: &[],
    chart: None,
};

async fn measure(effort: &Effort) -> Result<Vec<Scenario>> {
    let steps = effort.pick(10, 3);
    let bed = Testbed::start(effort.options(Limits::Raised)).await?;
    bed.add_nodes(&Nodes::new("node", NODES)).await?;
    admission::install(&bed).await?;
    // The first runs on a testbed fill caches.
    for (_, value) in PREFERENCES {
        one_round(&bed, &format!("rehearsal-{value}"), value, 2).await?;
    }
    let title = format!("{steps} runs of each of {PIPELINES} Pipelines on {NODES} nodes");
    let name = |(suffix, _): (&str, &str)| format!("{COMPLETED}{suffix}");
    let measured = Scenario::measure(
        title,
        effort.rounds,
        &PREFERENCES,
        name,
        async |round, (_, value)| one_round(&bed, &format!("warm-{value}-{round}"), value, steps).await,
    );
    Ok(vec![measured.await?])
}

async fn one_round(bed: &Testbed, namespace: &str, preference: &str, steps: usize) -> Result<Figures> {
    let namespace = admission::namespace(bed, namespace, Admission::Webhook).await?;
    let client = bed.client().await?;
    let pipelines = (0..PIPELINES).map(|pipeline| pipeline_of_one_task(&namespace, pipeline));
    apply_all(&client, &pipelines.collect::<Vec<_>>()).await?;
    let pods = watch::pods(&client, &namespace).await?;
    let mut created = BTreeMap::new();
    for step in 0..steps {
        let pipelines = (0..PIPELINES).map(|index| (index + step) % PIPELINES);
        let runs = pipelines.map(|pipeline| (pipeline, run(&namespace, pipeline, step, preference)));
        let runs: Vec<_> = runs.collect();
        for (pipeline, run) in &runs {
            created.insert(run.name().to_owned(), (Instant::now(), *pipeline));
            run.create(&client).await?;
        }
        for (_, run) in &runs {
            bed.until_succeeded(run, DONE).await?;
        }
    }
    let figures = figures(&created, &pods.records());
    cluster::delete_runs(bed, &namespace).await?;
    figures
}

/// From the creation of each run, with its Pipeline, and the pods by name.
fn figures(
    created: &BTreeMap<String, (Instant, usize)>,
    pods: &BTreeMap<String, PodRecord>,
) -> Result<Figures> {
    let mut starts: Vec<_> = pods.values().filter(|pod| pod.is_task).collect();
    starts.sort_by_key(|pod| pod.bound);
    let (mut used, mut warm, mut waits) = (BTreeSet::new(), 0, Vec::new());
    for pod in starts {
        let (sent, pipeline) = created.get(&pod.run).context("a pod of an unknown run")?;
        let is_first = !used.iter().any(|(known, _)| known == pipeline);
        let is_new = used.insert((*pipeline, pod.node.clone()));
        if !is_first {
            warm += usize::from(!is_new);
            waits.push((pod.bound - *sent).as_secs_f64());
        }
    }
    let of = |share| quantile(&waits, share).context("no run started");
    Ok(vec![
        (WARM, number(warm) / number(waits.len()) * 100.0),
        (FIRST_POD, of(0.5)?),
        (FIRST_POD_P99, of(0.99)?),
    ])
}

fn pipeline_of_one_task(namespace: &str, pipeline: usize) -> Value {
    let step = json!({"name": "step", "image": "testbed.invalid/step", "script": "true"});
    json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "Pipeline",
        "metadata": {"namespace": namespace, "name": format!("pipeline-{pipeline}")},
        "spec": {"tasks": [{"name": "only", "taskSpec": {"steps": [step]}}]},
    })
}

fn run(namespace: &str, pipeline: usize, step: usize, preference: &str) -> RunSpec {
    let run = RunSpec::of_pipeline(
        namespace,
        &format!("run-{pipeline}-{step}"),
        &format!("pipeline-{pipeline}"),
    );
    run.opted_in("colocateCompleted")
        .annotation(keys::WARM, preference)
        .lasting("500ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_warm_on_a_node_that_a_run_of_the_same_pipeline_used_before() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let runs = [("a", 0, "x"), ("b", 1, "y"), ("c", 0, "x"), ("d", 1, "x")];
        let pods = (1..).zip(runs).map(|(second, (run, _, node))| {
            let pod = PodRecord {
                run: run.to_owned(),
                is_task: true,
                node: node.to_owned(),
                bound: at(second),
                ended: None,
            };
            (run.to_owned(), pod)
        });
        let created = runs.map(|(run, pipeline, _)| (run.to_owned(), (start, pipeline)));
        let figures = figures(&created.into(), &pods.collect()).unwrap();
        assert_eq!(figures, [(WARM, 50.0), (FIRST_POD, 3.0), (FIRST_POD_P99, 4.0)]);
    }
}
