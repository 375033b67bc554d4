//! A real Prometheus scrapes an installation, evaluates the alert rules, and answers every query of the dashboard.

use crate::metrics_queries::{alerts, dashboard, panels, text, yaml};
use crate::support::SOON;
use crate::support::events::until_event;
use crate::support::kubectl::workspace;
use crate::support::objects::quota;
use crate::support::pool;
use crate::support::runs::{bound_task, create, nodes_after, small_then};
use crate::support::testbeds::kill_webhooks;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use placement::keys;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use testbed::product::Installed;
use testbed::runs::{self, RunSpec};
use testbed::{Nodes, Options, Part, Testbed, probe};
use tokio::net::TcpListener;

/// The label that relabelling adds where several clusters send their metrics to one place.
const CLUSTER: &str = "one";
/// The range that Grafana would choose.
const RANGE: &str = "5m";
/// A panel whose queries have data only after the API server failed to call a webhook.
const FAILED_CALLS: &str = "Failed calls of the webhooks";
/// The alerts that fire, or are pending, when no webhook answers.
const WITHOUT_WEBHOOK: [(&str, &str); 3] = [
    ("PodAffinityWebhookAbsent", "pending"),
    ("PodAffinityAdmissionRejected", "firing"),
    ("PodAffinityAdmissionSkipped", "firing"),
];

// Nightly: the build of Prometheus takes minutes.
#[e2e_test(nightly)]
async fn prometheus_answers_each_query_of_the_dashboard_and_fires_an_alert_only_when_something_is_wrong() {
    let bed = pool::start(Options {
        deployments: true,
        ..Options::default()
    });
    let bed = bed.await;
    let installed = bed.install_pod_affinity().await.expect("pod-affinity");
    forget_failed_calls(&bed).await;
    let prometheus = Prometheus::start(&bed, &installed).await;
    let held_by_user = everything_that_the_dashboard_shows_happens(&bed).await;
    let queries = queries();
    assert_eq!(prometheus.clusters().await, [CLUSTER]);
    for query in queries.iter().filter(|query| query.panel != FAILED_CALLS) {
        prometheus.until_it_answers(&bed, query).await;
    }
    prometheus.until(&bed, &alert_states(&[])).await;

    kill_webhooks(&bed);
    both_kinds_of_calls_fail(&bed, &held_by_user).await;
    for query in queries.iter().filter(|query| query.panel == FAILED_CALLS) {
        prometheus.until_it_answers(&bed, query).await;
    }
    prometheus.until(&bed, &alert_states(&WITHOUT_WEBHOOK)).await;

    for replica in 0..2 {
        bed.start_again(Part::Webhook(replica)).await.unwrap();
    }
    prometheus.until(&bed, &alert_states(&WITHOUT_WEBHOOK[1..])).await;
}

/// The API server counts calls that failed during the installation. A new Prometheus reports them for ten minutes, as the
/// runbook of the alert describes.
async fn forget_failed_calls(bed: &Testbed) {
    // A controller ends when it cannot renew its Lease.
    bed.keep_alive(Part::Controller(0));
    bed.keep_alive(Part::Controller(1));
    bed.kill(Part::ApiServer).unwrap();
    bed.start_again(Part::ApiServer).await.unwrap();
}

/// A query of the dashboard, with Grafana's variables replaced.
struct Query {
    panel: String,
    text: String,
    legend: String,
}

fn queries() -> Vec<Query> {
    let dashboard = dashboard();
    let mut queries = Vec::new();
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = text(target, "/expr").replace("$cluster", CLUSTER);
            queries.push(Query {
                panel: text(panel, "/title").to_owned(),
                text: query.replace("$__rate_interval", RANGE),
                legend: text(target, "/legendFormat").to_owned(),
            });
        }
    }
    queries
}

/// The state of each alert: inactive, except for `others`.
fn alert_states(others: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    for alert in alerts() {
        states.insert(text(&alert, "/alert").to_owned(), "inactive".to_owned());
    }
    for (alert, state) in others {
        let known = states.insert((*alert).to_owned(), (*state).to_owned());
        assert!(known.is_some(), "there is no alert {alert}");
    }
    states
}

/// Holds, places, moves and rejects runs, and changes the configuration. Returns a run that its user holds.
async fn everything_that_the_dashboard_shows_happens(bed: &Testbed) -> RunSpec {
    bed.add_nodes(&Nodes::new("small", 4).size("2", "8Gi"))
        .await
        .unwrap();
    bed.configure(&[("hold-deadline", Some("9m"))]).await.unwrap();
    nodes_after(bed, &RunSpec::diamond("default", "done").opted_in("true")).await;
    nodes_after(
        bed,
        &RunSpec::diamond("default", "kept").opted_in("isolateAlways"),
    )
    .await;
    let unknown = RunSpec::diamond("default", "unknown").opted_in("unknown");
    let client = bed.client().await.unwrap();
    let rejected = unknown.create(&client).await.expect_err("its label is rejected");
    assert!(rejected.to_string().contains(keys::OPT_IN), "{rejected}");
    let full = bed.namespace("full").await.unwrap();
    quota(bed, &full, "count/statefulsets.apps", "0").await;
    let refused = RunSpec::diamond(&full, "refused").opted_in("true");
    create(bed, &refused).await;
    until_event(bed, &refused, "PlaceholderRefused").await;
    one_moves(bed).await;
    let held_by_user = RunSpec::diamond("default", "held-by-user")
        .opted_in("true")
        .spec("status", json!("PipelineRunPending"));
    create(bed, &held_by_user).await;
    held_by_user
}

async fn one_moves(bed: &Testbed) {
    let run = small_then("4");
    create(bed, &run).await;
    bound_task(bed, &run, "small").await;
    bed.add_nodes(&Nodes::new("large", 1).size("8", "32Gi"))
        .await
        .unwrap();
    until_event(bed, &run, "MovedOff").await;
    bed.until_succeeded(&run, SOON).await.unwrap();
}

/// One call that rejects the object (`failurePolicy: Fail`), and one call that is skipped (`Ignore`).
async fn both_kinds_of_calls_fail(bed: &Testbed, held_by_user: &RunSpec) {
    let client = bed.client().await.unwrap();
    let lost = RunSpec::diamond("default", "lost").opted_in("true");
    let failed = lost.create(&client).await.expect_err("no webhook answers");
    assert!(failed.to_string().contains("failed calling webhook"), "{failed}");
    let released = Patch::Merge(json!({"spec": {"status": null}}));
    let api = runs::runs(&client, held_by_user.namespace());
    api.patch(held_by_user.name(), &PatchParams::default(), &released)
        .await
        .expect("the release is not rejected");
}

struct Prometheus {
    port: u16,
}

impl Prometheus {
    async fn start(bed: &Testbed, installed: &Installed) -> Self {
        let groups = yaml("rules.yaml")["spec"].to_string();
        std::fs::write(bed.folder().join("groups.yaml"), groups).unwrap();
        let mut jobs = monitored(installed);
        jobs.push(api_server(bed));
        jobs.push(kube_state_metrics(bed.client().await.unwrap()).await);
        let configuration = json!({
            "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
            "rule_files": ["groups.yaml"],
            "scrape_configs": jobs,
        });
        let port = bed.start_prometheus(&configuration).await.expect("Prometheus");
        Self { port }
    }

    async fn get(&self, path: &str) -> Result<Value, String> {
        let answer = probe::get(self.port, &format!("/api/v1/{path}")).await?;
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        Ok(answer["data"].take())
    }

    /// The values of the dashboard's variable.
    async fn clusters(&self) -> Vec<String> {
        let variable = dashboard()["templating"]["list"][1].take();
        assert_eq!(
            variable["query"],
            "label_values(pod_affinity_build_info, cluster)"
        );
        let values = self.get("label/cluster/values?match[]=pod_affinity_build_info");
        serde_json::from_value(values.await.unwrap()).unwrap()
    }

    /// Waits until a series of the answer is a number and has the labels of the legend.
    async fn until_it_answers(&self, bed: &Testbed, query: &Query) {
        let encoded: String = query.text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("query?query={encoded}");
        let what = format!("data for {:?}: {}", query.panel, query.text);
        let answered = bed.until(what, SOON, async || {
            let answer = self.get(&path).await?;
            let series = answer["result"].as_array().unwrap();
            if series
                .iter()
                .any(|series| is_a_number(series) && has_labels(series, &query.legend))
            {
                Ok(())
            } else {
                Err(answer.to_string())
            }
        });
        answered.await.unwrap();
    }

    /// The state of each alert. Fails if an alert was not evaluated.
    async fn states(&self) -> BTreeMap<String, String> {
        let groups = self.get("rules").await.unwrap();
        let rules = groups.pointer("/groups/0/rules").and_then(Value::as_array);
        let mut states = BTreeMap::new();
        for rule in rules.unwrap() {
            assert_eq!(rule["health"], "ok", "{rule:#}");
            states.insert(text(rule, "/name").to_owned(), text(rule, "/state").to_owned());
        }
        states
    }

    async fn until(&self, bed: &Testbed, wanted: &BTreeMap<String, String>) {
        let reached = bed.until("the states of the alerts", SOON, async || {
            let mut states = self.states().await;
            if states == *wanted {
                return Ok(());
            }
            states.retain(|alert, state| wanted[alert] != *state);
            Err(states)
        });
        reached.await.unwrap();
    }
}

fn is_a_number(series: &Value) -> bool {
    text(series, "/value/1").parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether the series has each label in the legend of its panel.
fn has_labels(series: &Value, legend: &str) -> bool {
    let mut labels = legend
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split("}}").next());
    labels.all(|label| series["metric"].get(label).is_some())
}

/// A job for each Service that our `ServiceMonitor` selects, with the labels that the Prometheus Operator gives to its replicas.
fn monitored(installed: &Installed) -> Vec<Value> {
    let monitor = yaml("service-monitor.yaml");
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let mut services = testbed::apply::documents(&workspace().join("config/600-services.yaml")).unwrap();
    services.retain(|service| {
        let labels = &service["metadata"]["labels"];
        wanted.iter().all(|(name, value)| labels[name] == *value)
    });
    assert_eq!(services.len(), 2);
    let endpoint = &monitor["spec"]["endpoints"][0];
    services
        .iter()
        .map(|service| job(service, endpoint, installed))
        .collect()
}

fn job(service: &Value, endpoint: &Value, installed: &Installed) -> Value {
    let ports = service["spec"]["ports"].as_array().unwrap();
    assert!(
        ports.iter().any(|port| port["name"] == endpoint["port"]),
        "{service:#}"
    );
    let (name, component) = (
        &service["metadata"]["name"],
        &service["metadata"]["labels"]["app.kubernetes.io/component"],
    );
    let replicas = match component.as_str() {
        Some("webhook") => &installed.webhook_admin,
        Some("controller") => &installed.controller_admin,
        other => panic!("{other:?} is no process of pod-affinity"),
    };
    let target = |(number, port): (usize, &u16)| {
        let pod = format!("{}-{number}", name.as_str().unwrap());
        json!({"targets": [format!("127.0.0.1:{port}")], "labels": {
            "cluster": CLUSTER,
            "namespace": service["metadata"]["namespace"],
            "service": name,
            "pod": pod,
            "container": component,
            "endpoint": endpoint["port"],
        }})
    };
    let targets: Vec<_> = replicas.iter().enumerate().map(target).collect();
    json!({"job_name": name, "metrics_path": endpoint["path"], "static_configs": targets})
}

/// A scrape job for the API server's metrics that the rules and the dashboard use.
fn api_server(bed: &Testbed) -> Value {
    let kubeconfig = std::fs::read_to_string(bed.kubeconfig()).unwrap();
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let (cluster, user) = (
        &kubeconfig["clusters"][0]["cluster"],
        &kubeconfig["users"][0]["user"],
    );
    let address = text(cluster, "/server").trim_start_matches("https://");
    json!({
        "job_name": "apiserver",
        "scheme": "https",
        "tls_config": {
            "ca_file": cluster["certificate-authority"],
            "cert_file": user["client-certificate"],
            "key_file": user["client-key"],
        },
        "metric_relabel_configs": [
            {"source_labels": ["__name__"], "regex": "apiserver_admission_webhook_.+", "action": "keep"},
        ],
        "static_configs": [{"targets": [address], "labels": {"cluster": CLUSTER, "namespace": "default"}}],
    })
}

/// Replaces kube-state-metrics: exposes the one metric that the rules and the dashboard use, from the Deployments in the
/// cluster.
async fn kube_state_metrics(client: Client) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let metrics = async move || {
        (
            [(CONTENT_TYPE, "text/plain; version=0.0.4")],
            unavailable(client).await,
        )
    };
    let router = Router::new().route("/metrics", get(metrics));
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    json!({
        "job_name": "kube-state-metrics",
        "honor_labels": true,
        "static_configs": [{"targets": [address], "labels": {"cluster": CLUSTER, "namespace": "monitoring"}}],
    })
}

async fn unavailable(client: Client) -> String {
    let deployments: Api<Deployment> = Api::all(client);
    let mut metrics = String::new();
    for deployment in deployments.list(&ListParams::default()).await.unwrap() {
        let (namespace, name) = (deployment.namespace().unwrap(), deployment.name_any());
        let status = deployment.status.unwrap_or_default();
        let count = status.unavailable_replicas.unwrap_or(0);
        writeln!(
            metrics,
            "kube_deployment_status_replicas_unavailable{{namespace={namespace:?},deployment={name:?}}} {count}"
        )
        .unwrap();
    }
    metrics
}
