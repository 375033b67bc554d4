//! What was seen of runs that were created at once, and whether they were where they were promised to be.

use crate::scenario::Figures;
use crate::stats::{number, quantile};
use crate::watch::{SeenPod, SeenRun};
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(crate) const TOTAL: &str = "all done, s";
const TASKS: usize = 4;

/// What a variant says of where a run's pods are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    Nothing,
    OneNode,
    /// One node, and no other run there.
    ANodeOfItsOwn,
}

/// What was seen in one turn.
pub(crate) struct Turn {
    pub(crate) promise: Promise,
    /// When each run was asked for.
    pub(crate) asked: BTreeMap<String, Instant>,
    pub(crate) pods: BTreeMap<String, SeenPod>,
    pub(crate) runs: BTreeMap<String, SeenRun>,
}

impl Turn {
    pub(crate) fn figures(&self) -> Result<Figures> {
        self.all_is_well()?;
        let (bound, done) = (self.until_first_bound(), self.until_done());
        let of = |times: &[f64], share| quantile(times, share).context("no times");
        Ok(vec![
            (TOTAL, self.lasted()?.as_secs_f64()),
            ("first pod bound p50, s", of(&bound, 0.5)?),
            ("first pod bound p99, s", of(&bound, 0.99)?),
            ("done p50, s", of(&done, 0.5)?),
            ("done p99, s", of(&done, 0.99)?),
            ("nodes a run, most", number(self.nodes_a_run())),
            ("runs on a node at a time, most", number(self.runs_at_a_time())),
        ])
    }

    /// From the creation of the first run to the end of the last one.
    pub(crate) fn lasted(&self) -> Result<Duration> {
        let first = self.asked.values().min().context("no run was created")?;
        let ends = self.runs.values().filter_map(|run| run.done);
        Ok(ends.max().context("no run is done")? - *first)
    }

    pub(crate) fn all_is_well(&self) -> Result<()> {
        if let Some((name, run)) = self.runs.iter().find(|(_, run)| run.failed.is_some()) {
            bail!("run {name} failed: {:?}", run.failed);
        }
        let tasks = self.tasks().count();
        if tasks != self.asked.len() * TASKS {
            bail!(
                "{tasks} task pods were bound, {} were to be",
                self.asked.len() * TASKS
            );
        }
        if self.promise != Promise::Nothing && self.nodes_a_run() != 1 {
            bail!("a run was on {} nodes", self.nodes_a_run());
        }
        if self.promise == Promise::ANodeOfItsOwn && self.runs_at_a_time() != 1 {
            bail!("{} runs were on one node at a time", self.runs_at_a_time());
        }
        Ok(())
    }

    fn tasks(&self) -> impl Iterator<Item = &SeenPod> {
        self.pods.values().filter(|pod| pod.is_task)
    }

    fn first_bound(&self, run: &str) -> Option<Instant> {
        let pods = self.tasks().filter(|pod| pod.run == run);
        pods.map(|pod| pod.bound).min()
    }

    fn until_first_bound(&self) -> Vec<f64> {
        let times = self
            .asked
            .iter()
            .filter_map(|(run, asked)| Some(self.first_bound(run)? - *asked));
        times.map(|time| time.as_secs_f64()).collect()
    }

    fn until_done(&self) -> Vec<f64> {
        let times = self
            .asked
            .iter()
            .filter_map(|(run, asked)| Some(self.runs.get(run)?.done? - *asked));
        times.map(|time| time.as_secs_f64()).collect()
    }

    fn nodes_a_run(&self) -> usize {
        let mut nodes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for pod in self.tasks() {
            nodes.entry(&pod.run).or_default().insert(&pod.node);
        }
        nodes.values().map(BTreeSet::len).max().unwrap_or_default()
    }

    /// Those of the runs on each node: from the binding of a run's first pod there to the end of its last one.
    pub(crate) fn stays(&self) -> Vec<Vec<Stay>> {
        let mut stays: BTreeMap<&str, BTreeMap<&str, Stay>> = BTreeMap::new();
        for pod in self.tasks() {
            let Some(ended) = pod.ended else { continue };
            let on_node = stays.entry(&pod.node).or_default();
            let stay = on_node.entry(&pod.run).or_insert((pod.bound, ended));
            *stay = (stay.0.min(pod.bound), stay.1.max(ended));
        }
        let on_nodes = stays.into_values();
        on_nodes.map(|on_node| on_node.into_values().collect()).collect()
    }

    fn runs_at_a_time(&self) -> usize {
        let stays = self.stays();
        let most = stays.iter().map(|on_node| most_at_a_time(on_node));
        most.max().unwrap_or_default()
    }

    /// When the first pod of each run was bound, in the order in which the runs were created.
    pub(crate) fn starts(&self) -> Vec<Instant> {
        let mut runs: Vec<_> = self.asked.iter().collect();
        runs.sort_by_key(|(_, asked)| **asked);
        runs.into_iter()
            .filter_map(|(run, _)| self.first_bound(run))
            .collect()
    }
}

/// From when to when.
pub(crate) type Stay = (Instant, Instant);

/// How many of these stays overlap at the start of one of them.
fn most_at_a_time(stays: &[Stay]) -> usize {
    let at = |moment: Instant| {
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

    fn turn(promise: Promise, pods: &[(&str, &str, u64, u64)]) -> Turn {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let pod = |(index, (run, node, bound, ended)): (usize, &(&str, &str, u64, u64))| {
            let pod = SeenPod {
                run: (*run).to_owned(),
                is_task: true,
                node: (*node).to_owned(),
                bound: at(*bound),
                ended: Some(at(*ended)),
            };
            (index.to_string(), pod)
        };
        let runs: BTreeSet<_> = pods.iter().map(|pod| pod.0.to_owned()).collect();
        let done = SeenRun {
            done: Some(at(100)),
            ..SeenRun::default()
        };
        Turn {
            promise,
            asked: runs.iter().map(|run| (run.clone(), start)).collect(),
            pods: pods.iter().enumerate().map(pod).collect(),
            runs: runs.into_iter().map(|run| (run, done.clone())).collect(),
        }
    }

    #[test]
    fn a_run_on_two_nodes_breaks_the_measurement() {
        let two = turn(
            Promise::ANodeOfItsOwn,
            &[
                ("a", "1", 1, 2),
                ("a", "1", 1, 2),
                ("a", "1", 1, 2),
                ("a", "2", 3, 4),
            ],
        );
        assert!(two.figures().unwrap_err().to_string().contains("2 nodes"));
    }

    #[test]
    fn runs_may_follow_one_another_on_a_node_but_not_overlap() {
        let of = |run, from| [(run, "1", from, from + 2); TASKS];
        let one_after_another = [of("a", 1), of("b", 3)].concat();
        let figures = turn(Promise::ANodeOfItsOwn, &one_after_another)
            .figures()
            .unwrap();
        assert!(figures.contains(&("runs on a node at a time, most", 1.0)));
        assert!(figures.contains(&("first pod bound p99, s", 3.0)));
        let overlapping = [of("a", 1), of("b", 2)].concat();
        assert!(turn(Promise::ANodeOfItsOwn, &overlapping).figures().is_err());
    }

    #[test]
    fn a_pod_that_is_missing_breaks_the_measurement() {
        let three = turn(Promise::ANodeOfItsOwn, &[("a", "1", 1, 2); 3]);
        assert!(three.figures().unwrap_err().to_string().contains("3 task pods"));
    }
}
