//! A stream of short runs of one Pipeline (`math_pipeline.rs`). A new run is created when a run ends.

use crate::admission;
use crate::batch::{self, Batch, RunVariant, Tasks, Workload};
use crate::math_pipeline::{TASKS, VALUE};
use crate::outcome::{BatchOutcome, FIRST_POD, FIRST_POD_P99, RUN_DONE, RUN_DONE_P99};
use crate::part::{BenchPart, Effort};
use crate::scenario::{Figures, Scenario};
use crate::stats::number;
use crate::variants::{COMPLETED, DISABLED, ISOLATE};
use anyhow::{Context, Result, ensure};
use kube::api::{Api, DynamicObject, ListParams};
use testbed::runs;
use testbed::{Limits, Nodes, Testbed};

const PER_MINUTE: &str = "runs a minute";

/// How many runs exist at the same time, and how many nodes.
#[derive(Clone, Copy)]
struct Load {
    runs: usize,
    concurrent: usize,
    /// In ascending order. The first has fewer nodes than concurrent runs.
    nodes: [usize; 2],
}

const LOAD: Load = Load {
    runs: 300,
    concurrent: 60,
    nodes: [30, 60],
};
const QUICK: Load = Load {
    runs: 6,
    concurrent: 3,
    nodes: [2, 3],
};

pub(crate) const RAISED: BenchPart = BenchPart {
    name: "math",
    title: "A stream of runs with results, client limits raised",
    method: "the shape of the scenario `math` of openshift-pipelines/performance: a Pipeline of four Tasks without an order, each \
        with two parameters and a result. 300 runs, and a run is created as soon as fewer than 60 are not done. A task lasts one \
        second, and its result is constant, because no container runs. With 30 nodes, half of the runs wait for a node.",
    in_quick: true,
    measure: |runtime, effort| runtime.block_on(measure(effort, Limits::Raised)),
    figures: &[PER_MINUTE, FIRST_POD, FIRST_POD_P99, RUN_DONE, RUN_DONE_P99],
    ratios: &[
        (PER_MINUTE, ISOLATE),
        (PER_MINUTE, DISABLED),
        (RUN_DONE, ISOLATE),
        (RUN_DONE, DISABLED),
    ],
    aims: &[],
    chart: Some(PER_MINUTE),
};

pub(crate) const AS_SHIPPED: BenchPart = BenchPart {
    name: "math-as-shipped",
    title: "A stream of runs with results, client limits as shipped",
    in_quick: false,
    measure: |runtime, effort| runtime.block_on(measure(effort, Limits::AsShipped)),
    ..RAISED
};

async fn measure(effort: &Effort, limits: Limits) -> Result<Vec<Scenario>> {
    let load = effort.pick(LOAD, QUICK);
    let bed = Testbed::start(effort.options(limits)).await?;
    admission::install(&bed).await?;
    let variants = batch::variants(&[DISABLED, COMPLETED, ISOLATE]);
    let workload = |runs| Workload {
        runs,
        tasks: Tasks::Math,
        lasting: "1s",
    };
    let (mut scenarios, mut existing) = (Vec::new(), 0);
    for nodes in load.nodes {
        bed.add_nodes(&Nodes::new(&format!("of-{nodes}"), nodes - existing))
            .await?;
        if existing == 0 {
            Batch::rehearse(&bed, &variants, workload(nodes)).await?;
        }
        existing = nodes;
        let title = format!(
            "{} runs, {} at a time, on {nodes} nodes",
            load.runs, load.concurrent
        );
        let name = |variant: RunVariant| variant.name.to_owned();
        let measured = Scenario::measure(title, effort.rounds, &variants, name, async |round, variant| {
            let namespace = format!("math-{nodes}-{round}");
            let batch = Batch::prepare(&bed, &namespace, variant, workload(load.runs)).await?;
            let outcome = batch.run_at_most(load.concurrent).await?;
            each_task_has_its_result(&bed, &batch.namespace, load.runs * TASKS.len()).await?;
            batch.delete().await?;
            figures(&outcome)
        });
        scenarios.push(measured.await?);
    }
    Ok(scenarios)
}

fn figures(outcome: &BatchOutcome) -> Result<Figures> {
    let minutes = outcome.duration()?.as_secs_f64() / 60.0;
    let per_minute = (PER_MINUTE, number(outcome.created.len()) / minutes);
    Ok([per_minute].into_iter().chain(outcome.figures()?).collect())
}

async fn each_task_has_its_result(bed: &Testbed, namespace: &str, expected: usize) -> Result<()> {
    let task_runs: Api<DynamicObject> = runs::task_runs(&bed.client().await?, namespace);
    let listed = task_runs.list(&ListParams::default()).await;
    let listed = listed.context("listing the TaskRuns")?;
    let has_result = |task: &&DynamicObject| task.data["status"]["results"][0]["value"] == VALUE;
    let with_result = listed.iter().filter(has_result).count();
    ensure!(
        with_result == expected,
        "{with_result} TaskRuns have a result instead of {expected}"
    );
    Ok(())
}
