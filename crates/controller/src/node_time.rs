//! How long runs had nodes, by the namespace of the run, and how long nodes were kept after runs.
//!
//! A run is counted once, when it ends. Only a controller that saw the run alive counts it, so a change of the leader never counts a
//! run twice. A run that ends while no controller leads is not counted. Kept nodes are counted while they are kept, and not while no
//! controller leads.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The number of namespaces with series of their own. Runs of further namespaces count as runs of [`OTHER`].
const MOST_NAMESPACES: usize = 100;
const OTHER: &str = "other";
/// Prometheus adds the label `namespace` itself, with the namespace of the controller.
const LABEL: &str = "run_namespace";

type Label = [(&'static str, String); 1];

/// Counters by namespace; clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTime {
    namespaces: Arc<Mutex<BTreeSet<String>>>,
    seconds: Family<Label, Counter<f64, AtomicU64>>,
    kept: Family<Label, Counter<f64, AtomicU64>>,
    runs: Family<Label, Counter>,
}

impl NodeTime {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let it = Self::default();
        let help = "Seconds for which ended runs had a node, by namespace. A run that ends without a leader is not counted";
        registry.register("node_seconds", help, it.seconds.clone());
        let help = "Seconds for which nodes were kept after runs, by namespace of the run";
        registry.register("kept_node_seconds", help, it.kept.clone());
        registry.register(
            "runs_ended",
            "Ended runs that had a node, by namespace",
            it.runs.clone(),
        );
        it.add(OTHER, Duration::ZERO, 0);
        it
    }

    /// A run of this namespace has a node. Creates its counters with the value 0, so that the end of the first run is an increase.
    pub(crate) fn began(&self, namespace: &str) {
        self.add(self.name(namespace), Duration::ZERO, 0);
    }

    /// A run of this namespace ended, or was deleted, and had a node for this time.
    pub(crate) fn ended(&self, namespace: &str, duration: Duration) {
        self.add(self.name(namespace), duration, 1);
    }

    /// The node of a run of this namespace was kept for a further time.
    pub(crate) fn kept(&self, namespace: &str, duration: Duration) {
        let label = [(LABEL, self.name(namespace).to_owned())];
        self.kept.get_or_create(&label).inc_by(duration.as_secs_f64());
    }

    fn add(&self, namespace: &str, duration: Duration, runs: u64) {
        let label = [(LABEL, namespace.to_owned())];
        self.seconds.get_or_create(&label).inc_by(duration.as_secs_f64());
        self.runs.get_or_create(&label).inc_by(runs);
        drop(self.kept.get_or_create(&label));
    }

    fn name<'a>(&self, namespace: &'a str) -> &'a str {
        let mut known = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(namespace) {
            return namespace;
        }
        if known.len() == MOST_NAMESPACES {
            return OTHER;
        }
        known.insert(namespace.to_owned());
        namespace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::exposition;

    #[test]
    fn runs_and_their_node_seconds_are_counted_by_namespace_up_to_a_limit() {
        let mut registry = Registry::default();
        let node_time = NodeTime::register(&mut registry);
        for number in 0..MOST_NAMESPACES + 2 {
            node_time.ended(&format!("team-{number}"), Duration::from_millis(1500));
        }
        node_time.ended("team-0", Duration::from_secs(2));
        node_time.began("team-0");
        node_time.kept("team-0", Duration::from_millis(500));
        node_time.kept("team-0", Duration::from_secs(5));
        node_time.kept("team-100", Duration::from_secs(5));
        let text = exposition(&registry);
        for line in [
            r#"node_seconds_total{run_namespace="team-0"} 3.5"#,
            r#"runs_ended_total{run_namespace="team-0"} 2"#,
            r#"runs_ended_total{run_namespace="team-99"} 1"#,
            r#"node_seconds_total{run_namespace="other"} 3.0"#,
            r#"kept_node_seconds_total{run_namespace="team-0"} 5.5"#,
            r#"kept_node_seconds_total{run_namespace="other"} 5.0"#,
            r#"runs_ended_total{run_namespace="other"} 2"#,
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in:\n{text}"
            );
        }
        assert_eq!(text.matches("runs_ended_total{").count(), MOST_NAMESPACES + 1);
    }
}
