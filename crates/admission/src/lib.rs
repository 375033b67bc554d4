//! The admission webhook as an axum router: AdmissionReview in, AdmissionReview out.
//!
//! The API server sends every new pod of an enrolled run to this webhook and waits, so the answer depends only on the body of the
//! request: the crate uses no client, no socket and no cache, and holds no lock across an await. The `runtime` crate has TLS,
//! listening and draining. The `placement` crate has the rules.

mod body;
mod decide;
mod metrics;
mod review;

pub use metrics::Metrics;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use body::BodyMemory;
use decide::Webhook;
use placement::keys;
use placement::opt_in::NamespaceLabel;
use review::RequestError;
use std::time::Instant;

/// The state of one route.
#[derive(Clone)]
struct RouteState {
    webhook: Webhook,
    metrics: Metrics,
    memory: BodyMemory,
}

/// The two webhooks at [`keys::PIPELINE_RUN_PATH`] and [`keys::POD_PATH`]. The webhook of PipelineRuns is also at the paths below
/// [`keys::BY_NAMESPACE_PATH`]. Any other path returns a JSON 404.
pub fn router(metrics: Metrics) -> Router {
    let runs = RouteState {
        webhook: Webhook::PipelineRun,
        metrics,
        memory: BodyMemory::default(),
    };
    let pods = RouteState {
        webhook: Webhook::Pod,
        ..runs.clone()
    };
    by_namespace(&runs)
        .merge(route(keys::PIPELINE_RUN_PATH, runs))
        .merge(route(keys::POD_PATH, pods))
        .fallback(|| async { RequestError::UnknownPath })
}

/// A path for each value that the label of a Namespace may have: the review does not contain the Namespace's labels.
fn by_namespace(runs: &RouteState) -> Router {
    NamespaceLabel::all().fold(Router::new(), |router, label| {
        let webhook = Webhook::InNamespace(label);
        router.merge(route(
            &label.path(),
            RouteState {
                webhook,
                ..runs.clone()
            },
        ))
    })
}

fn route(path: &str, state: RouteState) -> Router {
    let methods = post(serve).fallback(|| async { RequestError::WrongMethod });
    Router::new().route(path, methods).with_state(state)
}

async fn serve(State(state): State<RouteState>, request: Request) -> Response {
    let started = Instant::now();
    let body = body::read(request, &state.memory).await;
    let review = body.and_then(|body| {
        let review = state.answer(&body.bytes, started)?;
        Ok(body.answered(review))
    });
    match review {
        Ok(review) => ([(header::CONTENT_TYPE, "application/json")], review).into_response(),
        Err(error) => {
            let outcome = decide::reject(&error);
            state
                .metrics
                .observe(state.webhook, None, outcome, started.elapsed());
            error.into_response()
        }
    }
}

impl RouteState {
    /// Answers a review with a review, and counts the verdict. Every request whose UID was read gets a review.
    fn answer(&self, body: &[u8], started: Instant) -> Result<Vec<u8>, RequestError> {
        let request = review::request(body)?;
        let decision = decide::decide(self.webhook, &request);
        let reply = review::reply(&request.uid, &decision.verdict, decision.warnings())?;
        let operation = Some(request.operation.as_ref());
        let outcome = decision.verdict.outcome();
        self.metrics
            .observe(self.webhook, operation, outcome, started.elapsed());
        if decision.over_limit.is_some() {
            self.metrics.over_limit(self.webhook);
        }
        Ok(reply)
    }
}
