//! The times and nodes of runs that were created together, and whether the nodes are those that the variant guarantees.

use crate::scenario::Figures;
use crate::stats::{number, quantile};
use crate::watch::{PodRecord, RunRecord};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(crate) const TOTAL: &str = "all runs done, s";
pub(crate) const FIRST_POD: &str = "first pod bound p50, s";
pub(crate) const FIRST_POD_P99: &str = "first pod bound p99, s";
pub(crate) const RUN_DONE: &str = "run done p50, s";
pub(crate) const RUN_DONE_P99: &str = "run done p99, s";

/// Where the pods of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guarantee {
    None,
    OneNode,
    /// One node, without other runs.
    OwnNode,
}

/// The events of runs of one variant.
pub(crate) struct BatchOutcome {
    pub(crate) guarantee: Guarantee,
    pub(crate) tasks_of_a_run: usize,
    /// When the request for each run was sent.
    pub(crate) created: BTreeMap<String, Instant>,
    pub(crate) pods: BTreeMap<String, PodRecord>,
    pub(crate) runs: BTreeMap<String, RunRecord>,
}

/// From the binding of a run's first task pod on a node to the end of its last task pod there.
pub(crate) type NodeStay = (Instant, Instant);

impl BatchOutcome {
    pub(crate) fn figures(&self) -> Result<Figures> {
        self.check()?;
        let bound = self.times(|run| self.first_bound(run));
        let done = self.times(|run| self.runs.get(run)?.done);
        let of = |times: &[f64], share| quantile(times, share).context("no times");
        Ok(vec![
            (TOTAL, self.duration()?.as_secs_f64()),
            (FIRST_POD, of(&bound, 0.5)?),
            (FIRST_POD_P99, of(&bound, 0.99)?),
            (RUN_DONE, of(&done, 0.5)?),
            (RUN_DONE_P99, of(&done, 0.99)?),
            ("nodes of a run, maximum", number(self.nodes_of_a_run())),
            (
                "runs on a node at the same time, maximum",
                number(self.runs_on_a_node()),
            ),
        ])
    }

    /// From the creation of the first run to the end of the last run.
    pub(crate) fn duration(&self) -> Result<Duration> {
        let first = self.created.values().min().context("no run was created")?;
        let ends = self.runs.values().filter_map(|run| run.done);
        Ok(ends.max().context("no run is done")? - *first)
    }

    /// Fails if a run failed, if a task pod is missing, or if the variant did not keep its guarantee.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some((name, run)) = self.runs.iter().find(|(_, run)| run.failed.is_some()) {
            bail!("run {name} failed: {:?}", run.failed);
        }
        let (tasks, expected) = (self.tasks().count(), self.created.len() * self.tasks_of_a_run);
        if tasks != expected {
            bail!("{tasks} task pods were bound instead of {expected}");
        }
        if self.guarantee != Guarantee::None && self.nodes_of_a_run() != 1 {
            bail!("a run was on {} nodes", self.nodes_of_a_run());
        }
        if self.guarantee == Guarantee::OwnNode && self.runs_on_a_node() != 1 {
            bail!("{} runs were on one node at the same time", self.runs_on_a_node());
        }
        Ok(())
    }

    fn tasks(&self) -> impl Iterator<Item = &PodRecord> {
        self.pods.values().filter(|pod| pod.is_task)
    }

    fn first_bound(&self, run: &str) -> Option<Instant> {
        let pods = self.tasks().filter(|pod| pod.run == run);
        pods.map(|pod| pod.bound).min()
    }

    /// Seconds from the creation of each run.
    fn times(&self, end: impl Fn(&str) -> Option<Instant>) -> Vec<f64> {
        let times = self
            .created
            .iter()
            .filter_map(|(run, created)| Some(end(run)? - *created));
        times.map(|time| time.as_secs_f64()).collect()
    }

    fn nodes_of_a_run(&self) -> usize {
        let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pod in self.tasks() {
            nodes.entry(&pod.run).or_default().insert(&pod.node);
        }
        nodes.values().map(BTreeSet::len).max().unwrap_or_default()
    }

    /// The stays of the runs on each node.
    pub(crate) fn stays(&self) -> Vec<Vec<NodeStay>> {
        let mut stays: BTreeMap<&str, BTreeMap<&str, NodeStay>> = BTreeMap::new();
        for pod in self.tasks() {
            let Some(ended) = pod.ended else { continue };
            let on_node = stays.entry(&pod.node).or_default();
            let stay = on_node.entry(&pod.run).or_insert((pod.bound, ended));
            *stay = (stay.0.min(pod.bound), stay.1.max(ended));
        }
        let on_nodes = stays.into_values();
        on_nodes.map(|on_node| on_node.into_values().collect()).collect()
    }

    fn runs_on_a_node(&self) -> usize {
        let stays = self.stays();
        stays
            .iter()
            .map(|on_node| most_at_once(on_node))
            .max()
            .unwrap_or_default()
    }

    /// When each run was created and when its first pod was bound, in the order of the creations.
    pub(crate) fn starts(&self) -> Vec<(Instant, Instant)> {
        let runs = self.created.iter();
        let starts = runs.filter_map(|(run, created)| Some((*created, self.first_bound(run)?)));
        let mut starts: Vec<_> = starts.collect();
        starts.sort_unstable();
        starts
    }
}

/// The highest number of stays that overlap.
fn most_at_once(stays: &[NodeStay]) -> usize {
    let at = |moment| {
        stays
            .iter()
            .filter(|(from, to)| *from <= moment && moment < *to)
            .count()
    };
    stays.iter().map(|(from, _)| at(*from)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASKS: usize = 4;

    fn outcome(pods: &[(&str, &str, u64, u64)]) -> BatchOutcome {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let pod = |(index, (run, node, bound, ended)): (usize, &(&str, &str, u64, u64))| {
            let pod = PodRecord {
                run: (*run).to_owned(),
                is_task: true,
                node: (*node).to_owned(),
                bound: at(*bound),
                ended: Some(at(*ended)),
            };
            (index.to_string(), pod)
        };
        let runs: BTreeSet<_> = pods.iter().map(|pod| pod.0.to_owned()).collect();
        let done = RunRecord {
            done: Some(at(100)),
            ..RunRecord::default()
        };
        BatchOutcome {
            guarantee: Guarantee::OwnNode,
            tasks_of_a_run: TASKS,
            created: runs.iter().map(|run| (run.clone(), start)).collect(),
            pods: pods.iter().enumerate().map(pod).collect(),
            runs: runs.into_iter().map(|run| (run, done.clone())).collect(),
        }
    }

    fn error(pods: &[(&str, &str, u64, u64)]) -> String {
        outcome(pods).figures().unwrap_err().to_string()
    }

    #[test]
    fn a_run_on_two_nodes_breaks_the_measurement() {
        let pods = [
            ("a", "1", 1, 2),
            ("a", "1", 1, 2),
            ("a", "1", 1, 2),
            ("a", "2", 3, 4),
        ];
        assert_eq!(error(&pods), "a run was on 2 nodes");
    }

    #[test]
    fn runs_may_follow_each_other_on_a_node_but_not_overlap() {
        let of = |run, from| [(run, "1", from, from + 2); TASKS];
        let figures = outcome(&[of("a", 1), of("b", 3)].concat()).figures().unwrap();
        assert!(figures.contains(&("runs on a node at the same time, maximum", 1.0)));
        assert!(figures.contains(&(FIRST_POD_P99, 3.0)));
        let overlapping = [of("a", 1), of("b", 2)].concat();
        assert_eq!(error(&overlapping), "2 runs were on one node at the same time");
    }

    #[test]
    fn a_pod_that_is_missing_breaks_the_measurement() {
        assert_eq!(
            error(&[("a", "1", 1, 2); 3]),
            "3 task pods were bound instead of 4"
        );
    }
}
