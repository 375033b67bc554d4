//! What is wrapped around every route on the TLS port: an end to each request, and a polite good-bye while draining.

use crate::shutdown::Shutdown;
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use std::time::Duration;
use tokio::time::timeout;

/// The longest timeout a webhook can have: nobody waits for an answer any longer.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// Wraps the routes.
pub(super) fn around(router: Router, shutdown: Shutdown) -> Router {
    router
        .layer(middleware::from_fn(with_deadline))
        .layer(middleware::from_fn_with_state(shutdown, farewell))
}

async fn with_deadline(request: Request, next: Next) -> Response {
    match timeout(REQUEST_DEADLINE, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (
            StatusCode::REQUEST_TIMEOUT,
            "the request took too long to arrive or to answer\n",
        )
            .into_response(),
    }
}

/// While draining, each answer tells the API server not to reuse its connection. So the connections in use are gone before
/// we close the idle ones, and no call can be lost on one that we close while it is being reused.
async fn farewell(State(shutdown): State<Shutdown>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if shutdown.is_asked() {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
