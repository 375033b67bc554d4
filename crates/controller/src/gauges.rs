//! The numbers of runs, holds, placeholders and nodes. Each scrape counts in the caches, so that no gauge can drift.

use crate::observe::Stores;
use crate::placeholders::ObjectKey;
use crate::tekton_flags::coschedule;
use jiff::Timestamp;
use placement::keys;
use placement::plan::PlaceholderPod;
use placement::run::{HeldFrom, Run};
use placement::strategy::Strategy;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use tekton::PipelineRun;

/// All gauges are 0 while this process is not the leader, because only the leader has caches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauges(Arc<Mutex<Option<Stores>>>);

/// How a run uses its node: the strategy of the run, and whether the run is done.
type Use = [(&'static str, &'static str); 2];

/// The run is not done.
fn active(strategy: &'static str) -> Use {
    [("strategy", strategy), ("state", "active")]
}

/// The run is done, and keeps its node until the run is deleted.
fn reserved() -> Use {
    [
        ("strategy", Strategy::IsolateAlways.as_str()),
        ("state", "reserved"),
    ]
}

impl Gauges {
    /// Sets the caches that the gauges count in.
    pub(crate) fn count_in(&self, stores: Option<Stores>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = stores;
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stores = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stores = stores.as_ref();
        let held = stores.map(held).unwrap_or_default();
        let mut gauge = |name, help, value| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        let help = "Runs that carry the opt-in label";
        gauge("runs", help, stores.map_or(0, labelled))?;
        gauge("holds", "Runs that are held by us now", integer(held.len()))?;
        let over_cap = held
            .iter()
            .filter(|run| run.held_from == HeldFrom::OverCap)
            .count();
        let help = "Held runs for which a cap has no room";
        gauge("holds_over_cap", help, integer(over_cap))?;
        let without = stores.map_or(0, |stores| without_placeholder(stores, &held));
        let help = "Held runs without a placeholder that are in line for a node, or new";
        gauge("holds_in_line", help, integer(without - over_cap.min(without)))?;
        let oldest = held.iter().filter_map(Run::held_since).min();
        let help = "Start of the oldest hold, 0 without a hold";
        gauge(
            "oldest_hold_timestamp_seconds",
            help,
            oldest.map_or(0, Timestamp::as_second),
        )?;
        let placeholders = stores.map_or(0, |stores| stores.pods.read().len());
        let help = "Placeholder pods that exist now";
        gauge("placeholders", help, integer(placeholders))?;
        let help = "Placeholder pods of held runs that have no node yet";
        gauge(
            "placeholders_waiting",
            help,
            stores.map_or(0, |stores| waiting(stores, &held)),
        )?;
        let kept = stores.map_or(0, |stores| stores.kept_nodes.read().len());
        let help = "Pods that keep a node after a run, with or without a node";
        gauge("kept_nodes", help, integer(kept))?;
        let places = stores.is_some_and(|stores| coschedule(&stores.tekton_flags).places_pods());
        let help = "Whether Tekton's flag coschedule makes Tekton place the pods of all runs";
        gauge("tekton_places_pods", help, places.into())?;
        let nodes = nodes(stores);
        let help = "Nodes that runs have, by strategy and by whether the run is done";
        nodes.encode(encoder.encode_descriptor("nodes", help, None, nodes.metric_type())?)
    }
}

fn labelled(stores: &Stores) -> i64 {
    integer(stores.runs.state_filter(|run| run.labelled).len())
}

/// The runs that pod-affinity holds. Only Pending runs are converted to a `Run`, because few runs are Pending.
fn held(stores: &Stores) -> Vec<Run> {
    let is_pending = |run: &PipelineRun| run.spec.status.as_deref() == Some(keys::PENDING);
    let pending = stores.runs.state_filter(is_pending);
    let runs = pending.iter().filter_map(|run| run.run());
    runs.filter(|run| !run.done && !run.deleting && run.is_held_by_us())
        .collect()
}

fn without_placeholder(stores: &Stores, held: &[Run]) -> usize {
    let sets = stores.sets.read();
    let key = |run: &Run| {
        (
            run.key.namespace.clone(),
            run.key.placeholder().as_str().to_owned(),
        )
    };
    held.iter().filter(|run| !sets.contains_key(&key(run))).count()
}

fn waiting(stores: &Stores, held: &[Run]) -> i64 {
    let pods = stores.pods.read();
    let waits = |run: &&Run| {
        let pod = pods.get(&(run.key.namespace.clone(), run.key.placeholder().pod()));
        pod.is_some_and(|pod| pod.it.node.is_none() && !pod.it.ending)
    };
    integer(held.iter().filter(waits).count())
}

/// A node that several runs with `colocateAlways` share counts once.
fn nodes(stores: Option<&Stores>) -> Family<Use, Gauge> {
    let used = stores.map(used).unwrap_or_default();
    let all = Strategy::NAMES.iter().map(|strategy| active(strategy));
    let family = Family::<Use, Gauge>::default();
    for each in all.chain([reserved()]) {
        let nodes = used.iter().filter(|(found, _)| *found == each).count();
        family.get_or_create(&each).set(integer(nodes));
    }
    family
}

fn used(stores: &Stores) -> BTreeSet<(Use, String)> {
    let pods = stores.pods.read();
    let runs_on_nodes = pods
        .iter()
        .filter_map(|(key, pod)| Some((key, &pod.it, pod.it.node.clone()?)));
    runs_on_nodes
        .filter_map(|(key, pod, node)| Some((use_of(stores, key, pod)?, node)))
        .collect()
}

/// The pod that reserves the node of a done run has no StatefulSet: the run itself owns the pod.
fn use_of(stores: &Stores, (namespace, name): &ObjectKey, pod: &PlaceholderPod) -> Option<Use> {
    if pod.ending {
        return None;
    }
    if pod.adopted {
        return Some(reserved());
    }
    let set = (namespace.clone(), name.strip_suffix("-0")?.to_owned());
    let strategy = stores.sets.read().get(&set)?.it.strategy?;
    Some(active(strategy.as_str()))
}

fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Caches, exposition, run};
    use prometheus_client::registry::Registry;
    use serde_json::json;

    fn exposed(stores: Option<&Stores>) -> String {
        let gauges = Gauges::default();
        gauges.count_in(stores.cloned());
        let mut registry = Registry::default();
        registry.register_collector(Box::new(gauges));
        exposition(&registry)
    }

    fn assert_line(text: &str, line: &str) {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is not in:\n{text}"
        );
    }

    #[test]
    fn holds_and_placeholders_are_counted_while_this_process_leads() {
        let mut caches = Caches::ready();
        caches.add_held_run("build", "u1");
        let leaving = json!({"metadata": {"deletionTimestamp": "2026-11-23T08:10:00Z"}});
        caches.add_held_run_with("leaving", "u2", &leaving);
        caches.add_pod(&run(), "p1", None);
        caches.add_kept_node("kept", 10);
        let text = exposed(Some(&caches.stores));
        for line in [
            "holds 1",
            "placeholders 1",
            "placeholders_waiting 1",
            "kept_nodes 1",
        ] {
            assert_line(&text, line);
        }
        let text = exposed(None);
        for line in [
            "holds 0",
            "oldest_hold_timestamp_seconds 0",
            "placeholders_waiting 0",
        ] {
            assert_line(&text, line);
        }
    }

    #[test]
    fn the_oldest_hold_is_the_one_that_began_first() {
        let mut caches = Caches::ready();
        let begun = |time: &str| json!({"metadata": {"annotations": {keys::HOLD: time}}});
        caches.add_held_run_with("new", "u1", &begun("2026-11-23T08:10:00Z"));
        caches.add_held_run_with("old", "u2", &begun("2026-11-23T08:00:00Z"));
        let free = json!({"metadata": {"annotations": {keys::HOLD: "2026-11-23T07:00:00Z"}}, "spec": {"status": null}});
        caches.add_held_run_with("released", "u3", &free);
        assert_line(
            &exposed(Some(&caches.stores)),
            "oldest_hold_timestamp_seconds 1795420800",
        );
    }

    #[test]
    fn held_runs_without_a_placeholder_are_in_line_or_over_a_cap() {
        let mut caches = Caches::ready();
        caches.add_held_run("build", "u1");
        caches.add_set(&run(), "s1");
        caches.add_held_run("in-line", "u2");
        let over_cap = json!({"metadata": {"annotations": {keys::HOLD: "over-cap"}}});
        caches.add_held_run_with("over-cap", "u3", &over_cap);
        let text = exposed(Some(&caches.stores));
        for line in ["holds 3", "holds_over_cap 1", "holds_in_line 1"] {
            assert_line(&text, line);
        }
    }

    #[test]
    fn a_mode_in_which_tekton_places_pods_shows() {
        let mut caches = Caches::ready();
        assert_line(&exposed(Some(&caches.stores)), "tekton_places_pods 0");
        caches.set_coschedule("pipelineruns");
        assert_line(&exposed(Some(&caches.stores)), "tekton_places_pods 1");
    }

    #[test]
    fn a_node_is_counted_by_the_strategy_of_its_run() {
        let mut caches = Caches::ready();
        caches.add_set_of(
            &run(),
            "s1",
            &json!({"metadata": {"labels": {keys::STRATEGY: "colocateCompleted"}}}),
        );
        let of_the_set = json!({"metadata": {"ownerReferences": null}, "spec": {"nodeName": "n1"}});
        caches.add_pod_of(&run(), "p1", &of_the_set);
        let text = exposed(Some(&caches.stores));
        assert_line(&text, r#"nodes{strategy="colocateCompleted",state="active"} 1"#);
        assert_line(&text, r#"nodes{strategy="isolateAlways",state="reserved"} 0"#);
    }

    #[test]
    fn a_node_whose_pod_the_run_itself_owns_is_reserved() {
        let mut caches = Caches::ready();
        caches.add_pod(&run(), "p1", Some("n1"));
        let text = exposed(Some(&caches.stores));
        assert_line(&text, r#"nodes{strategy="isolateAlways",state="reserved"} 1"#);
        assert_line(&text, r#"nodes{strategy="isolateAlways",state="active"} 0"#);
    }
}
