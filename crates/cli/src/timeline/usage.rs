//! How long each labelled run had nodes, and what its tasks requested there. Pure.

use super::evidence::{Evidence, Index, TaskEvidence, grouped};
use super::model::{Enrollment, Place, Span};
use super::read::History;
use super::stays::{Stay, stays};
use crate::view::{PipelineRun, RunView, label};
use jiff::{SignedDuration, Timestamp};
use placement::automatic_reserve::PodUsage;
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;

/// The label in which Tekton records the Pipeline of a run.
const PIPELINE: &str = "tekton.dev/pipeline";

/// The use of nodes by a run, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunUsage {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) pipeline: String,
    /// The time without a node.
    pub(crate) waiting: f64,
    pub(crate) nodes: Vec<NodeUsage>,
    pub(crate) gaps: Vec<Gap>,
}

/// The use of one node by a run, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeUsage {
    /// `None` if the node is not known.
    pub(crate) node: Option<String>,
    /// The time of the run on the node, until the end of the run.
    pub(crate) span: Span,
    /// The time in which at least one task of the run was on the node.
    pub(crate) running: f64,
    /// The time after the end of the run.
    pub(crate) kept: f64,
    /// The pods that still exist.
    pub(crate) pods: Vec<PodUsage>,
}

/// What is unknown about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Gap {
    /// The node is unknown or was deleted, so its size and its price are unknown.
    Node,
    /// The price file does not have the instance type of the node.
    Price,
    /// Pods or TaskRuns were deleted, so the requests or the running time are unknown.
    Pods,
    /// The events and the pods were deleted, so moves are unknown.
    Moves,
    /// The time in which the run kept its node after its end is unknown.
    Kept,
}

/// The usage in the last period of this length, or in all time.
pub(crate) fn usage(history: &History, period: Option<Duration>) -> Vec<RunUsage> {
    let period = period.and_then(|period| SignedDuration::try_from(period).ok());
    let from = period.and_then(|period| history.now.checked_sub(period).ok());
    let window = Span::new(from.unwrap_or(Timestamp::MIN), history.now);
    let index = Index::new(history);
    let evidence = |run| Some((run, index.evidence(RunView::of(run)?)));
    let mut runs: Vec<_> = history.runs.iter().filter_map(evidence).collect();
    let mut nested = tasks_of_nested_runs(&runs);
    for (_, evidence) in &mut runs {
        let tasks = nested.remove(&evidence.view.run.key.uid);
        evidence.tasks.extend(tasks.unwrap_or_default());
    }
    runs.iter()
        .filter_map(|(run, evidence)| of_run(evidence, pipeline(run), window))
        .collect()
}

/// The tasks of nested runs, by the UID of the root run, which is the group of a nested run.
fn tasks_of_nested_runs(runs: &[(&PipelineRun, Evidence<'_>)]) -> HashMap<String, Vec<TaskEvidence>> {
    let nested = runs
        .iter()
        .filter(|(_, evidence)| !evidence.view.run.is_enrolled());
    let tasks = nested.flat_map(|(_, evidence)| {
        let root = evidence.view.run.group.iter();
        root.flat_map(|root| evidence.tasks.iter().map(|task| (root.clone(), task.clone())))
    });
    grouped(tasks)
}

/// `None` for a run that pod-affinity did not place, or that was done before the window.
fn of_run(evidence: &Evidence<'_>, pipeline: String, window: Span) -> Option<RunUsage> {
    let all = stays(evidence);
    let in_window = |stay: &Stay| {
        let span = stay.span.within(window).filter(|span| span.from < span.to)?;
        Some(Stay { span, ..stay.clone() })
    };
    let stays: Vec<_> = all.iter().filter_map(in_window).collect();
    if stays.is_empty() || evidence.enrollment() != Enrollment::Labelled {
        return None;
    }
    let (nowhere, there): (Vec<_>, Vec<_>) = stays.iter().partition(|stay| stay.place == Place::Nowhere);
    Some(RunUsage {
        namespace: evidence.view.run.key.namespace.clone(),
        name: evidence.view.run.key.name.clone(),
        pipeline,
        waiting: nowhere.iter().map(|stay| seconds(stay.span)).sum(),
        gaps: gaps(evidence, !there.is_empty()),
        nodes: there.iter().map(|stay| on_node(evidence, stay)).collect(),
    })
}

fn on_node(evidence: &Evidence<'_>, stay: &Stay) -> NodeUsage {
    let end = evidence.end().clamp(stay.span.from, stay.span.to);
    let span = Span::new(stay.span.from, end);
    let is_here = |it: &&TaskEvidence| it.place == stay.place || it.place == Place::Unknown;
    let tasks = members(evidence).filter(is_here);
    let running = tasks.filter_map(|it| Some((it, time_on_node(it)?.within(span)?)));
    let running: Vec<_> = running.collect();
    let pods = running.iter().filter_map(|(it, span)| {
        Some(PodUsage {
            node: it.place.node()?.to_owned(),
            from: span.from,
            to: span.to,
            requests: it.requests.clone()?,
        })
    });
    NodeUsage {
        node: stay.place.node().map(str::to_owned),
        span,
        running: covered(running.iter().map(|(_, span)| *span).collect()).as_secs_f64(),
        kept: seconds(Span::new(end, stay.span.to)),
        pods: pods.collect(),
    }
}

fn members<'a>(evidence: &'a Evidence<'_>) -> impl Iterator<Item = &'a TaskEvidence> {
    evidence.tasks.iter().filter(|it| !it.opted_out)
}

/// The time of a task after its pod was bound.
fn time_on_node(task: &TaskEvidence) -> Option<Span> {
    let from = task.bound.unwrap_or(task.task.span.from).max(task.task.span.from);
    (from <= task.task.span.to).then(|| Span::new(from, task.task.span.to))
}

/// The length of the union of these spans.
fn covered(mut spans: Vec<Span>) -> SignedDuration {
    spans.sort_by_key(|span| span.from);
    let mut last = Timestamp::MIN;
    let parts = spans.into_iter().map(|span| {
        let from = span.from.max(last);
        last = span.to.max(last);
        Span::new(from, span.to).length()
    });
    parts.sum()
}

fn gaps(evidence: &Evidence<'_>, has_node: bool) -> Vec<Gap> {
    let pods_lost = members(evidence).any(|it| it.place == Place::Unknown) || evidence.tasks.is_empty();
    let is_traced = !evidence.events.is_empty()
        || evidence.placeholder.pod.is_some()
        || members(evidence).any(|it| it.bound.is_some());
    let gaps = [
        (
            Gap::Pods,
            has_node && evidence.view.started.is_some() && pods_lost,
        ),
        (Gap::Moves, has_node && !is_traced),
        (Gap::Kept, evidence.lacks_kept_time()),
    ];
    gaps.into_iter()
        .filter(|(_, is_there)| *is_there)
        .map(|(gap, _)| gap)
        .collect()
}

/// The name of the Pipeline. Runs with an embedded Pipeline and the same generated name count as runs of one Pipeline.
fn pipeline(run: &PipelineRun) -> String {
    let (meta, reference) = (&run.metadata, &run.spec["pipelineRef"]);
    let generated = meta
        .generate_name
        .as_deref()
        .map(|name| name.trim_end_matches('-'));
    let resolved = label(meta, PIPELINE).or(reference["resolver"].as_str());
    let own = generated.or(meta.name.as_deref());
    let name = reference["name"]
        .as_str()
        .or(if reference.is_object() { resolved } else { own });
    name.unwrap_or_default().to_owned()
}

pub(crate) fn seconds(span: Span) -> f64 {
    span.length().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, run};
    use serde_json::json;

    #[test]
    fn overlapping_tasks_count_once() {
        let span = |from, to| Span::new(at(from), at(to));
        let spans = vec![span(5, 9), span(0, 4), span(1, 2), span(8, 12)];
        assert_eq!(covered(spans), SignedDuration::from_secs(11));
        assert_eq!(covered(Vec::new()), SignedDuration::ZERO);
    }

    #[test]
    fn a_pipeline_has_the_name_of_the_reference_or_of_its_generated_runs() {
        let name = |changes| pipeline(&run(&changes));
        let by_resolver = json!({"pipelineRef": {"resolver": "git", "params": []}});
        let resolved = json!({"metadata": {"labels": {PIPELINE: "release"}}, "spec": by_resolver});
        assert_eq!(
            name(json!({"spec": {"pipelineRef": {"name": "release"}}})),
            "release"
        );
        assert_eq!(name(resolved), "release");
        assert_eq!(name(json!({"spec": by_resolver})), "git");
        assert_eq!(name(json!({"metadata": {"generateName": "nightly-"}})), "nightly");
        assert_eq!(name(json!({})), "build");
    }
}
