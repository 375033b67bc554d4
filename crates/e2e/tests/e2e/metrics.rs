//! The metrics of the running processes match docs/reference.md: each metric, its type, its labels and their values.

use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::kubectl::workspace;
use crate::support::objects::quota;
use crate::support::pool;
use std::collections::{BTreeMap, BTreeSet};
use testbed::runs::RunSpec;
use testbed::{Nodes, Testbed, probe};

/// Type and labels of each metric, by the name that queries use.
pub(crate) type Metrics = BTreeMap<String, Metric>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) kind: String,
    /// The values of each label; empty for a label without a closed set of values.
    pub(crate) labels: BTreeMap<String, BTreeSet<String>>,
}

/// The tables of docs/reference.md, section Metrics.
pub(crate) fn documented() -> Metrics {
    let text = std::fs::read_to_string(workspace().join("docs/reference.md")).unwrap();
    let (_, metrics) = text.split_once("\n## Metrics\n").unwrap();
    let (metrics, _) = metrics.split_once("\n## ").unwrap();
    let rows = metrics.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
        let [name, kind, labels, meaning, ""] = cells.as_slice() else {
            return None;
        };
        assert!(!meaning.is_empty(), "{line}");
        let kind = (*kind).to_owned();
        let labels = labels.split(';').filter_map(label).collect();
        Some((name.trim_end_matches('`').to_owned(), Metric { kind, labels }))
    });
    rows.collect()
}

/// Parses `` `cause`: one, other ``.
fn label(text: &str) -> Option<(String, BTreeSet<String>)> {
    let (name, values) = text.trim().strip_prefix('`')?.split_once('`')?;
    let values = values.trim_start_matches(':').split(',').map(str::trim);
    let values = values.filter(|value| !value.is_empty());
    Some((name.to_owned(), values.map(str::to_owned).collect()))
}

/// Parses a response of /metrics.
fn exposed(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            current = match kind {
                "counter" => format!("{name}_total"),
                "info" => format!("{name}_info"),
                _ => name.to_owned(),
            };
            kind.clone_into(&mut metrics.entry(current.clone()).or_default().kind);
        } else if !line.starts_with('#') {
            let sample = line.split(['{', ' ']).next().unwrap();
            assert!(sample.starts_with(&current), "{line} is no sample of {current}");
            let labels = &mut metrics.get_mut(&current).unwrap().labels;
            for (label, value) in labels_of(line) {
                labels.entry(label).or_default().insert(value);
            }
        }
    }
    metrics
}

/// The labels of a sample, except `le` of buckets, which is part of the type.
fn labels_of(sample: &str) -> Vec<(String, String)> {
    let inner = sample
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or("", |(inner, _)| inner);
    let pairs = inner.split(',').filter_map(|pair| pair.split_once("=\""));
    let pairs = pairs.filter(|(label, _)| *label != "le");
    pairs
        .map(|(label, value)| (label.to_owned(), value.trim_end_matches('"').to_owned()))
        .collect()
}

async fn all_exposed(bed: &Testbed, ports: &[u16]) -> Metrics {
    let mut all = Metrics::new();
    for port in ports {
        let read = async || probe::get(*port, "/metrics").await;
        let text = bed.until("the metrics", SOON, read).await.unwrap();
        for (name, metric) in exposed(&text) {
            let known = all.entry(name).or_default();
            known.kind = metric.kind;
            for (label, values) in metric.labels {
                known.labels.entry(label).or_default().extend(values);
            }
        }
    }
    all
}

/// Creates a run that is held, released and done, and a run whose placeholder is rejected by a quota.
async fn something_happens(bed: &Testbed) {
    let client = bed.client().await.unwrap();
    let done = RunSpec::new("default", "done").task("only", &[]).opted_in("true");
    done.create(&client).await.unwrap();
    let namespace = bed.namespace("full").await.unwrap();
    quota(bed, &namespace, "count/statefulsets.apps", "0").await;
    let refused = RunSpec::new(&namespace, "refused")
        .task("only", &[])
        .opted_in("true");
    refused.create(&client).await.unwrap();
    until_event(bed, &refused, "PlaceholderRefused").await;
    bed.until_succeeded(&done, SOON).await.unwrap();
}

#[e2e_test(webhook)]
async fn every_metric_of_the_processes_is_documented_and_every_documented_metric_exists() {
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 2)).await.expect("nodes");
    let installed = bed.install_pod_affinity().await.expect("pod-affinity");
    something_happens(&bed).await;
    let ports = [installed.webhook_admin, installed.controller_admin].concat();
    let (documented, exposed) = (documented(), all_exposed(&bed, &ports).await);
    assert_eq!(
        documented.keys().collect::<Vec<_>>(),
        exposed.keys().collect::<Vec<_>>(),
        "documented on the left, exposed on the right"
    );
    for (name, metric) in &exposed {
        let said = &documented[name];
        assert_eq!(said.kind, metric.kind, "{name}");
        let names = |metric: &Metric| metric.labels.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(said), names(metric), "labels of {name}");
        for (label, values) in &metric.labels {
            let allowed = &said.labels[label];
            let is_open = ["version", "run_namespace"].contains(&label.as_str());
            let bounded = is_open || allowed.is_superset(values);
            assert!(bounded, "{name}: {label} has {values:?}, documented {allowed:?}");
        }
    }
}

#[e2e_test]
fn a_response_of_metrics_and_a_table_of_the_page_are_parsed_alike() {
    let text = "# TYPE a counter\na_total{x=\"1\",y=\"b\"} 0\n# TYPE h histogram\nh_bucket{le=\"1\",x=\"2\"} 0\n# EOF\n";
    let metrics = exposed(text);
    assert_eq!(metrics["a_total"].labels["y"], BTreeSet::from(["b".to_owned()]));
    assert_eq!(metrics["h"].kind, "histogram");
    assert_eq!(metrics["h"].labels.keys().collect::<Vec<_>>(), ["x"]);
    assert_eq!(
        label("`cause`: one, other"),
        Some(("cause".into(), BTreeSet::from(["one".into(), "other".into()])))
    );
}
