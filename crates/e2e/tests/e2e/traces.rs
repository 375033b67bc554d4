//! A collector on this machine gets the spans of an admission and of a run, by OTLP from the running processes.

use crate::support::SOON;
use crate::support::pool;
use crate::support::runs::create;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use kube::ResourceExt;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testbed::runs::RunSpec;
use testbed::{Nodes, Testbed};
use tokio::net::TcpListener;

/// A span, with the process that it came from.
#[derive(Clone, Debug)]
struct Span {
    process: String,
    name: String,
    fields: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Starts to listen, and returns where.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .route("/v1/traces", post(take))
            .with_state(self.clone());
        tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
        address
    }

    fn spans(&self, name: &str) -> Vec<Span> {
        let spans = self.0.lock().unwrap();
        spans.iter().filter(|span| span.name == name).cloned().collect()
    }
}

async fn take(State(collector): State<Collector>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut spans = collector.0.lock().unwrap();
    for sent in request.resource_spans {
        let process = fields(sent.resource.unwrap_or_default().attributes);
        for span in sent.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            spans.push(Span {
                process: process["service.name"].clone(),
                name: span.name,
                fields: fields(span.attributes),
            });
        }
    }
    StatusCode::OK
}

fn fields(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |it: KeyValue| match it.value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => (it.key, text),
        other => (it.key, format!("{other:?}")),
    };
    attributes.into_iter().map(text).collect()
}

/// Waits for a span of this name with these fields.
async fn until_sent(bed: &Testbed, collector: &Collector, name: &str, wanted: &[(&str, &str)]) -> Span {
    bed.until(format!("a span {name} with {wanted:?}"), SOON, async || {
        let spans = collector.spans(name);
        let has = |span: &&Span| {
            wanted
                .iter()
                .all(|(field, value)| span.fields.get(*field).is_some_and(|it| it == value))
        };
        spans.iter().find(has).cloned().ok_or(spans)
    })
    .await
    .unwrap()
}

#[e2e_test(webhook)]
async fn a_collector_gets_the_spans_of_an_admission_and_of_a_run() {
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let bed = pool::bare().await;
    bed.add_nodes(&Nodes::new("node", 1)).await.expect("nodes");
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "200"),
    ];
    bed.install_pod_affinity_with(&environment)
        .await
        .expect("pod-affinity");
    let spec = RunSpec::new("default", "traced")
        .task("only", &[])
        .opted_in("true");
    let run = create(&bed, &spec).await;
    let wanted = [
        ("webhook", "pipelinerun"),
        ("name", "traced"),
        ("verdict", "held"),
    ];
    let admission = until_sent(&bed, &collector, "admission", &wanted).await;
    assert_eq!(admission.process, "pod-affinity-webhook");
    assert_eq!(
        admission.fields["uid"].len(),
        36,
        "the request's own: {admission:?}"
    );
    assert_ne!(admission.fields["uid"], run.uid().unwrap());
    let uid = run.uid().unwrap();
    let wanted = [
        ("run", "default/traced"),
        ("uid", uid.as_str()),
        ("action", "release"),
    ];
    let reconcile = until_sent(&bed, &collector, "reconcile", &wanted).await;
    assert_eq!(reconcile.process, "pod-affinity-controller");
    let pod = until_sent(
        &bed,
        &collector,
        "admission",
        &[("webhook", "pod"), ("verdict", "injected")],
    )
    .await;
    assert_eq!(pod.fields["namespace"], "default");
}
