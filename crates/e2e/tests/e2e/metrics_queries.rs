//! The dashboard and the alert rules: every query parses and uses metrics of docs/reference.md, every alert has a runbook, and
//! the dashboard has the structure that Grafana loads. Grafana itself is not run.

use crate::metrics::{Metric, Metrics, documented};
use crate::support::kubectl::workspace;
use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fs;

/// The labels that Prometheus and its operator add to every series.
const TARGET: [&str; 7] = [
    "cluster",
    "job",
    "instance",
    "namespace",
    "pod",
    "container",
    "service",
];
/// Metrics of the API server and of kube-state-metrics, with their labels.
const OTHER_METRICS: [(&str, &[&str]); 3] = [
    (
        "apiserver_admission_webhook_rejection_count",
        &["name", "type", "operation", "error_type", "rejection_code"],
    ),
    ("apiserver_admission_webhook_fail_open_count", &["name", "type"]),
    ("kube_deployment_status_replicas_unavailable", &["deployment"]),
];
const PANELS: [&str; 3] = ["row", "stat", "timeseries"];
const COLUMNS: u64 = 24;

pub(crate) fn overlay(file: &str) -> String {
    fs::read_to_string(workspace().join("config/components/monitoring").join(file)).unwrap()
}

pub(crate) fn yaml(file: &str) -> Value {
    serde_yaml::from_str(&overlay(file)).unwrap()
}

pub(crate) fn dashboard() -> Value {
    serde_json::from_str(&overlay("dashboard.json")).unwrap()
}

pub(crate) fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

pub(crate) fn alerts() -> Vec<Value> {
    let rules = yaml("rules.yaml");
    let groups = rules["spec"]["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("{pointer} is missing in {value:#}"))
}

/// The errors in a query.
#[derive(Default)]
struct Faults(Vec<String>);

/// The metrics and labels that a query uses.
#[derive(Default)]
struct Asked {
    selectors: Vec<VectorSelector>,
    grouping: Vec<String>,
}

impl ExprVisitor for Asked {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        let modifier = match expr {
            Expr::VectorSelector(selector) => {
                self.selectors.push(selector.clone());
                None
            }
            Expr::MatrixSelector(matrix) => {
                self.selectors.push(matrix.vs.clone());
                None
            }
            Expr::Aggregate(aggregate) => aggregate.modifier.as_ref(),
            Expr::Binary(binary) => binary.modifier.as_ref().and_then(|it| it.matching.as_ref()),
            _ => None,
        };
        let labels = modifier.map(|it| it.labels().labels.clone());
        self.grouping.extend(labels.unwrap_or_default());
        Ok(true)
    }
}

/// Grafana replaces its own variables by durations before it sends a query to Prometheus.
fn asked(query: &str) -> Result<Asked, String> {
    let expr = parser::parse(&query.replace("$__rate_interval", "5m"))?;
    let mut asked = Asked::default();
    let Ok(_) = walk_expr(&mut asked, &expr);
    Ok(asked)
}

fn selectors(query: &str) -> Vec<VectorSelector> {
    asked(query).unwrap().selectors
}

fn faults(query: &str, metrics: &Metrics) -> Vec<String> {
    let asked = match asked(query) {
        Ok(asked) => asked,
        Err(error) => return vec![format!("{query}: {error}")],
    };
    let mut faults = Faults::default();
    let mut labels: BTreeSet<&str> = TARGET.into();
    for selector in &asked.selectors {
        labels.extend(faults.of_selector(selector, metrics));
    }
    let unknown = asked
        .grouping
        .iter()
        .filter(|label| !labels.contains(label.as_str()));
    faults
        .0
        .extend(unknown.map(|label| format!("no metric here has the label {label}")));
    faults.0.iter().map(|fault| format!("{query}: {fault}")).collect()
}

impl Faults {
    /// Checks the selector, and returns the labels that the metric has.
    fn of_selector<'a>(&mut self, selector: &VectorSelector, metrics: &'a Metrics) -> Vec<&'a str> {
        let name = selector.name.as_deref().unwrap_or_default();
        if let Some((_, labels)) = OTHER_METRICS.iter().find(|(foreign, _)| *foreign == name) {
            self.of_foreign(selector, labels);
            return labels.to_vec();
        }
        let Some((metric, bucket)) = find(name, metrics) else {
            self.0.push(format!("{name:?} is not a metric of pod-affinity"));
            return Vec::new();
        };
        for matcher in &selector.matchers.matchers {
            self.of_matcher(matcher, metric);
        }
        let own = metric.labels.keys().map(String::as_str);
        own.chain(bucket.then_some("le")).collect()
    }

    /// Checks the labels only: the values of other components' labels are unknown here.
    fn of_foreign(&mut self, selector: &VectorSelector, labels: &[&str]) {
        let matchers = selector.matchers.matchers.iter();
        let unknown = matchers.filter(|it| !TARGET.iter().chain(labels).any(|label| *label == it.name));
        self.0
            .extend(unknown.map(|it| format!("the label {} is never there", it.name)));
    }

    fn of_matcher(&mut self, Matcher { op, name, value }: &Matcher, metric: &Metric) {
        if TARGET.contains(&name.as_str()) {
            return;
        }
        let has = metric
            .labels
            .get(name)
            .is_some_and(|values| values.contains(value));
        let exact = matches!(op, MatchOp::Equal | MatchOp::NotEqual);
        if !(has && exact) {
            self.0.push(format!("the label {name} is never {value:?}"));
        }
    }
}

/// The metric that a series belongs to, and whether the series is a bucket.
fn find<'a>(series: &str, metrics: &'a Metrics) -> Option<(&'a Metric, bool)> {
    let is_histogram = |metric: &&Metric| metric.kind == "histogram";
    let of = |suffix| metrics.get(series.strip_suffix(suffix)?).filter(is_histogram);
    let plain = metrics.get(series).filter(|metric| !is_histogram(metric));
    let part = || of("_sum").or_else(|| of("_count")).map(|metric| (metric, false));
    plain
        .map(|metric| (metric, false))
        .or_else(|| of("_bucket").map(|metric| (metric, true)))
        .or_else(part)
}

#[e2e_test]
fn every_query_of_the_dashboard_uses_existing_metrics_and_labels() {
    let (dashboard, metrics) = (dashboard(), documented());
    let targets = panels(&dashboard)
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<_> = targets.flatten().map(|target| text(target, "/expr")).collect();
    assert!(queries.len() > 20, "{}", queries.len());
    let wrong: Vec<_> = queries.iter().flat_map(|query| faults(query, &metrics)).collect();
    assert_eq!(wrong, [""; 0]);
    for query in queries {
        let clusters = query.matches("cluster=~\"$cluster\"").count();
        assert_eq!(selectors(query).len(), clusters, "{query}");
    }
}

#[e2e_test]
fn every_alert_is_aggregated_by_cluster() {
    for alert in alerts() {
        let query = text(&alert, "/expr");
        let of = |words: [&str; 4]| words.map(|word| query.matches(word).count());
        let per_cluster = of([
            "sum by (cluster",
            "max by (cluster",
            "min by (cluster",
            "count by (cluster",
        ]);
        assert_eq!(
            per_cluster,
            of(["sum by", "max by", "min by", "count by"]),
            "{query}"
        );
        assert_eq!(of(["sum(", "max(", "min(", "count("]), [0; 4], "{query}");
    }
}

#[e2e_test]
fn every_metric_of_pod_affinity_is_on_the_dashboard() {
    let text = overlay("dashboard.json");
    let missing: Vec<_> = documented()
        .into_keys()
        .filter(|name| !text.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[e2e_test]
fn every_alert_uses_existing_metrics_and_has_all_annotations() {
    let (alerts, metrics) = (alerts(), documented());
    let wrong: Vec<_> = alerts
        .iter()
        .flat_map(|alert| faults(text(alert, "/expr"), &metrics))
        .collect();
    assert_eq!(wrong, [""; 0]);
    for alert in &alerts {
        let name = text(alert, "/alert");
        assert!(!text(alert, "/annotations/summary").is_empty());
        assert!(!text(alert, "/annotations/description").is_empty());
        assert!(
            ["critical", "warning", "info"].contains(&text(alert, "/labels/severity")),
            "{name}"
        );
        assert_eq!(
            text(alert, "/annotations/runbook"),
            format!("docs/runbooks/{name}.md")
        );
        let page = fs::read_to_string(workspace().join(text(alert, "/annotations/runbook"))).unwrap();
        let step = text(alert, "/annotations/first_step");
        assert!(page.contains(&format!("\n{step}\n")), "{name}: {step}");
    }
}

#[e2e_test]
fn each_alert_has_a_page_and_each_page_an_alert() {
    let alerts: BTreeSet<_> = alerts()
        .iter()
        .map(|alert| format!("{}.md", text(alert, "/alert")))
        .collect();
    let folder = fs::read_dir(workspace().join("docs/runbooks")).unwrap();
    let pages: BTreeSet<_> = folder
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(alerts, pages);
    for page in pages {
        let text = fs::read_to_string(workspace().join("docs/runbooks").join(&page)).unwrap();
        let title = format!("# {}\n", page.trim_end_matches(".md"));
        assert!(text.starts_with(&title), "{page}");
        for section in [
            "\n## What it means for users\n",
            "\n## Diagnosis\n",
            "\n## Mitigation\n",
        ] {
            assert!(text.contains(section), "{page}: {section}");
        }
    }
}

#[e2e_test]
fn the_dashboard_has_the_structure_that_grafana_loads() {
    let dashboard = dashboard();
    assert_eq!(dashboard["uid"], "pod-affinity");
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 36);
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    for (name, kind) in [("datasource", "datasource"), ("cluster", "query")] {
        let is_it = |it: &&Value| it["name"] == name && it["type"] == kind;
        assert!(variables.iter().any(|it| is_it(&it)), "{name}");
    }
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = text(panel, "/title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: duplicate id");
        assert!(PANELS.contains(&text(panel, "/type")), "{title}");
        for cell in cells(panel) {
            assert!(taken.insert(cell), "{title} lies over another panel at {cell:?}");
        }
        if panel["type"] != "row" {
            is_a_graph(panel);
        }
    }
}

/// The grid cells that a panel covers.
fn cells(panel: &Value) -> Vec<(u64, u64)> {
    let [x, y, w, h] = ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
    assert!(w > 0 && h > 0 && x + w <= COLUMNS, "{}", panel["title"]);
    (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))).collect()
}

fn is_a_graph(panel: &Value) {
    let title = text(panel, "/title");
    assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
    assert!(!text(panel, "/fieldConfig/defaults/unit").is_empty());
    let targets = panel["targets"].as_array().unwrap();
    let references: BTreeSet<_> = targets.iter().map(|target| text(target, "/refId")).collect();
    assert!(
        !targets.is_empty() && references.len() == targets.len(),
        "{title}"
    );
    for target in targets {
        assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
        assert!(!text(target, "/legendFormat").is_empty(), "{title}");
    }
}

#[e2e_test]
fn a_query_for_unknown_metrics_or_labels_is_found() {
    let metrics = documented();
    for (query, fault) in [
        (
            "sum(pod_affinity_hold)",
            "\"pod_affinity_hold\" is not a metric of pod-affinity",
        ),
        ("sum(pod_affinity_releases)", "not a metric of pod-affinity"),
        (
            "rate(pod_affinity_hold_seconds[5m])",
            "not a metric of pod-affinity",
        ),
        (
            "pod_affinity_releases_total{cause=\"dedline\"}",
            "the label cause is never \"dedline\"",
        ),
        (
            "sum by (why) (pod_affinity_releases_total)",
            "no metric here has the label why",
        ),
        (
            "sum by (cause pod_affinity_releases_total",
            "sum by (cause pod_affinity_releases_total: ",
        ),
    ] {
        let found = faults(query, &metrics);
        assert!(found.len() == 1 && found[0].contains(fault), "{query}: {found:?}");
    }
}
