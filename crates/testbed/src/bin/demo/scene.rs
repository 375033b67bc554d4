//! One scene: several runs start at once, and the demo watches until all runs are done and their nodes are free.

use crate::screen::Screen;
use crate::{GROUP, NODES, RUNS};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use std::collections::BTreeSet;
use std::time::Duration;
use testbed::runs::{self, RunSpec, State};
use testbed::{Error, Testbed};

/// The nodes of each run's pods.
pub(crate) type Placements = Vec<BTreeSet<String>>;

const SCENE: Duration = Duration::from_mins(3);

/// Creates the runs at once, shows their progress, and returns the nodes of their pods.
pub(crate) async fn play(
    bed: &Testbed,
    screen: &mut Screen,
    namespace: &str,
    label: Option<&str>,
) -> Result<Placements, Error> {
    let client = bed.client().await?;
    bed.namespace(namespace).await?;
    let specs: Vec<_> = (1..=RUNS)
        .map(|number| example(namespace, number, label))
        .collect();
    for spec in &specs {
        spec.create(&client)
            .await
            .map_err(Error::api(format!("creating run {}", spec.name())))?;
    }
    bed.until(
        format!("the {RUNS} runs in {namespace} to succeed"),
        SCENE,
        async || {
            let lines = read_lines(bed, &client, &specs)
                .await
                .map_err(|error| error.to_string())?;
            screen.update(&lines.iter().map(Line::text).collect::<Vec<_>>());
            let awaited = lines.iter().filter(|line| line.awaited);
            let awaited: Vec<_> = awaited.map(Line::text).collect();
            if awaited.is_empty() {
                Ok(())
            } else {
                Err(awaited.join("; "))
            }
        },
    )
    .await?;
    screen.settle();
    placements(&client, &specs).await
}

fn example(namespace: &str, number: usize, label: Option<&str>) -> RunSpec {
    let run = RunSpec::diamond(namespace, &format!("run-{number}")).lasting("3s");
    match label {
        Some(value) => run.opted_in(value),
        None => run,
    }
}

struct Line {
    run: String,
    state: String,
    nodes: String,
    pods: usize,
    /// The line of a run that has not succeeded.
    awaited: bool,
}

impl Line {
    fn text(&self) -> String {
        format!(
            "{:<8} {:<12} {} pod(s) on {}",
            self.run, self.state, self.pods, self.nodes
        )
    }
}

async fn read_lines(bed: &Testbed, client: &Client, specs: &[RunSpec]) -> Result<Vec<Line>, Error> {
    let mut lines = Vec::new();
    for spec in specs {
        lines.push(line_of(client, spec).await?);
    }
    let nodes = bed.ready_nodes_of(GROUP).await?;
    lines.push(Line {
        run: "nodes".into(),
        state: format!("{} ready", nodes.len()),
        nodes: nodes.join(" "),
        pods: count_pods(client, specs[0].namespace()).await?,
        awaited: false,
    });
    Ok(lines)
}

async fn line_of(client: &Client, spec: &RunSpec) -> Result<Line, Error> {
    let api = runs::runs(client, spec.namespace());
    let run = api
        .get(spec.name())
        .await
        .map_err(Error::api(format!("reading run {}", spec.name())))?;
    let pods = runs::pods(client, spec.namespace(), spec.name()).await?;
    let nodes = runs::nodes(&pods).into_iter().collect::<Vec<_>>().join(" ");
    let state = runs::state(&run);
    let awaited = state != State::Succeeded;
    let nodes = if nodes.is_empty() {
        "no node yet".into()
    } else {
        nodes
    };
    Ok(Line {
        run: run.name_any(),
        state: word(&state),
        nodes,
        pods: pods.len(),
        awaited,
    })
}

fn word(state: &State) -> String {
    match state {
        State::Pending => "held".into(),
        State::Running => "running".into(),
        State::Succeeded => "succeeded".into(),
        State::Failed(reason) => format!("failed: {reason}"),
    }
}

async fn count_pods(client: &Client, namespace: &str) -> Result<usize, Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pods = api
        .list(&ListParams::default())
        .await
        .map_err(Error::api("listing pods"))?;
    Ok(pods.items.len())
}

async fn placements(client: &Client, specs: &[RunSpec]) -> Result<Placements, Error> {
    let mut placements = Vec::new();
    for spec in specs {
        placements.push(runs::nodes(
            &runs::pods(client, spec.namespace(), spec.name()).await?,
        ));
    }
    Ok(placements)
}

/// Waits until the autoscaler has removed the nodes that it added.
pub(crate) async fn until_nodes_are_back(bed: &Testbed, screen: &mut Screen) -> Result<(), Error> {
    bed.until("the autoscaler to remove the nodes it added", SCENE, async || {
        let nodes = bed
            .ready_nodes_of(GROUP)
            .await
            .map_err(|error| error.to_string())?;
        screen.update(&[format!(
            "{:<8} {:<12} {}",
            "nodes",
            format!("{} ready", nodes.len()),
            nodes.join(" ")
        )]);
        if nodes.len() == NODES {
            Ok(())
        } else {
            Err(nodes.join(" "))
        }
    })
    .await?;
    screen.settle();
    Ok(())
}
