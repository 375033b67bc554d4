//! The admission webhook as an axum router: AdmissionReview in, AdmissionReview out.
//!
//! The API server sends every new pod of an enrolled run to this webhook and waits, so the answer depends only on the body of the
//! request: the crate uses no client, no socket and no cache, and holds no lock across an await. The `process` crate has TLS,
//! listening and draining. The `placement` crate has the rules.

mod body;
mod decide;
mod fault;
mod metrics;
mod review;
mod room;
mod webhook;

pub use metrics::Metrics;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use fault::Fault;
use placement::keys;
use placement::opt_in::NamespaceLabel;
use room::Room;
use std::time::Instant;
use webhook::Webhook;

/// The state of one route.
#[derive(Clone)]
struct Gate {
    webhook: Webhook,
    metrics: Metrics,
    room: Room,
}

/// The two webhooks at [`keys::PIPELINE_RUN_PATH`] and [`keys::POD_PATH`]. The webhook of PipelineRuns is also at the paths below
/// [`keys::BY_NAMESPACE_PATH`]. Any other path returns a JSON 404.
pub fn router(metrics: Metrics) -> Router {
    let runs = Gate {
        webhook: Webhook::PipelineRun,
        metrics,
        room: Room::default(),
    };
    let pods = Gate {
        webhook: Webhook::Pod,
        ..runs.clone()
    };
    by_namespace(&runs)
        .merge(route(keys::PIPELINE_RUN_PATH, runs))
        .merge(route(keys::POD_PATH, pods))
        .fallback(|| async { Fault::UnknownPath })
        .layer(DefaultBodyLimit::max(room::LIMIT))
}

/// A path for each value that the label of a Namespace may have: the review does not contain the Namespace's labels.
fn by_namespace(runs: &Gate) -> Router {
    NamespaceLabel::all().fold(Router::new(), |router, label| {
        let webhook = Webhook::InNamespace(label);
        router.merge(route(
            &label.path(),
            Gate {
                webhook,
                ..runs.clone()
            },
        ))
    })
}

fn route(path: &str, gate: Gate) -> Router {
    let methods = post(serve).fallback(|| async { Fault::WrongMethod });
    Router::new().route(path, methods).with_state(gate)
}

async fn serve(State(gate): State<Gate>, request: Request) -> Response {
    let started = Instant::now();
    let body = body::read(request, &gate.room).await;
    match body.and_then(|body| gate.answer(&body.bytes, started)) {
        Ok(review) => ([(header::CONTENT_TYPE, "application/json")], review).into_response(),
        Err(fault) => {
            let outcome = decide::refuse(&fault);
            gate.metrics
                .observe(gate.webhook, None, outcome, started.elapsed());
            fault.into_response()
        }
    }
}

impl Gate {
    /// Answers a review with a review, and counts the verdict. Every request whose UID was read gets a review.
    fn answer(&self, body: &[u8], started: Instant) -> Result<Vec<u8>, Fault> {
        let request = review::request(body)?;
        let verdict = decide::decide(self.webhook, &request);
        let reply = review::reply(&request.uid, &verdict)?;
        let operation = Some(request.operation.as_ref());
        self.metrics
            .observe(self.webhook, operation, verdict.outcome(), started.elapsed());
        Ok(reply)
    }
}
