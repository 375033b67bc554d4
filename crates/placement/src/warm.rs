//! Warm starts: a placeholder prefers the nodes of earlier runs of the same Pipeline, which have their images and caches.
//!
//! The preference never makes a run wait: the scheduler ranks the nodes that fit. Runs do not share nodes, so the preference overloads
//! no node.

use crate::config::{Config, is_on};
use crate::names::is_object_name;
use crate::placeholder::spec::name_requirement;
use crate::run::{PodTemplate, Run};
use k8s_openapi::api::core::v1::{NodeSelectorTerm, PreferredSchedulingTerm};
use std::fmt;

/// The weight of the node of the latest run, of the run before, and of the run before that. The highest possible weight is 100.
const WEIGHTS: [i32; 3] = [100, 70, 40];
/// The number of earlier runs whose nodes count.
pub const EARLIER_RUNS: usize = WEIGHTS.len();

/// The nodes of earlier runs, the node of the latest run first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WarmNodes(Vec<String>);

/// Whether a run got a node of an earlier run of its Pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Start {
    /// The node of an earlier run.
    Warm,
    /// Another node.
    Cold,
}

/// Whether the placeholder of a run prefers warm nodes: by the annotation of the run, or by the configuration.
pub fn is_preferred(run: &Run, config: &Config) -> bool {
    is_on(run.warm.as_deref(), config.prefer_warm_nodes)
}

impl WarmNodes {
    /// The nodes of these runs, without duplicates.
    pub fn of_runs(nodes: impl IntoIterator<Item = String>) -> Self {
        let mut known: Vec<String> = Vec::new();
        // Anybody can write the annotation of a run, and the API server rejects a placeholder with a wrong name.
        let nodes = nodes.into_iter().filter(|node| is_object_name(node));
        for node in nodes.take(EARLIER_RUNS) {
            if !known.contains(&node) {
                known.push(node);
            }
        }
        Self(known)
    }

    /// Parses the annotation of a placeholder.
    pub fn parse(text: &str) -> Self {
        Self::of_runs(text.split(',').map(str::to_owned))
    }

    /// Adds the preferences for these nodes to the pod template of a run.
    pub(crate) fn prefer_in(&self, template: &mut PodTemplate) {
        let mut preferences = self.preferences().peekable();
        if preferences.peek().is_some() {
            let affinity = template.affinity.get_or_insert_default();
            let affinity = affinity.node_affinity.get_or_insert_default();
            let preferred = &mut affinity.preferred_during_scheduling_ignored_during_execution;
            preferred.get_or_insert_default().extend(preferences);
        }
    }

    fn preferences(&self) -> impl Iterator<Item = PreferredSchedulingTerm> {
        self.0
            .iter()
            .zip(WEIGHTS)
            .map(|(node, weight)| PreferredSchedulingTerm {
                preference: NodeSelectorTerm {
                    match_expressions: None,
                    match_fields: Some(vec![name_requirement(node)]),
                },
                weight,
            })
    }

    /// The start of a run on a node.
    pub fn start(&self, node: &str) -> Start {
        if self.0.iter().any(|warm| warm == node) {
            Start::Warm
        } else {
            Start::Cold
        }
    }

    /// Why the start of a run on a node is warm or cold, as the end of a sentence about this node.
    pub fn reason(&self, node: &str) -> String {
        match self.start(node) {
            Start::Warm => "a warm start: an earlier run of the same Pipeline used this node".to_owned(),
            Start::Cold if self.0.is_empty() => {
                "a cold start: no earlier run of the same Pipeline that succeeded is known".to_owned()
            }
            Start::Cold => format!(
                "a cold start: the nodes of the latest runs of the same Pipeline, {}, were not free, do not exist or were less suitable",
                self.0.join(" and ")
            ),
        }
    }
}

impl fmt::Display for WarmNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    fn nodes(names: &[&str]) -> WarmNodes {
        WarmNodes::of_runs(names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn the_nodes_of_three_runs_count_and_the_latest_counts_most() {
        let warm = nodes(&["b", "a", "b", "c"]);
        assert_eq!(warm.to_string(), "b,a");
        assert_eq!(
            nodes(&["", "Foo_Bar", "b", "a"]).to_string(),
            "b,a",
            "no node has such a name"
        );
        let preferred: Vec<_> = warm
            .preferences()
            .map(|term| {
                let fields = term.preference.match_fields.unwrap();
                (fields[0].values.clone().unwrap().remove(0), term.weight)
            })
            .collect();
        assert_eq!(preferred, [("b".to_owned(), 100), ("a".to_owned(), 70)]);
    }

    #[test]
    fn the_annotation_of_a_placeholder_keeps_the_nodes() {
        for warm in [nodes(&[]), nodes(&["a"]), nodes(&["a", "b", "c"])] {
            assert_eq!(WarmNodes::parse(&warm.to_string()), warm);
        }
    }

    #[test]
    fn a_start_on_the_node_of_an_earlier_run_is_warm_and_others_have_a_reason() {
        let warm = nodes(&["a", "b"]);
        assert_eq!(warm.start("b"), Start::Warm);
        assert!(warm.reason("b").starts_with("a warm start"));
        assert_eq!(warm.start("c"), Start::Cold);
        assert!(warm.reason("c").contains("a and b, were not free"));
        assert_eq!(nodes(&[]).start("c"), Start::Cold);
        assert!(nodes(&[]).reason("c").contains("no earlier run"));
    }

    #[test]
    fn the_annotation_of_the_run_comes_before_the_configuration() {
        for (annotation, configured, expected) in [
            (None, false, false),
            (None, true, true),
            (Some("true"), false, true),
            (Some("false"), true, false),
            (Some("maybe"), true, true),
        ] {
            let run = Run {
                warm: annotation.map(str::to_owned),
                ..run()
            };
            let config = Config {
                prefer_warm_nodes: configured,
                ..Config::default()
            };
            assert_eq!(
                is_preferred(&run, &config),
                expected,
                "{annotation:?} {configured}"
            );
        }
    }
}
