//! The second port, plain HTTP: `/livez`, `/readyz` and `/metrics`. The port stays open until the process exits, so that the
//! kubelet sees a draining process as unready instead of unreachable.

use crate::{
    metrics::Registry,
    readiness::Readiness,
    server::{ADMIN_CONNECTIONS_AT_MOST, ConnectionLimit, Error, Listening, Port, with_http_limits},
};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use axum_server::{Server, accept::DefaultAcceptor};
use prometheus_client::metrics::counter::Counter;
use std::{net::SocketAddr, sync::Arc, time::Duration};

/// The port for probes and metrics.
pub const PORT: Port = Port {
    name: "admin",
    serves: "probes and metrics",
    flag: "--admin-listen",
};
/// How long a client may be silent. A kubelet opens a connection for each probe, and Prometheus opens another one if its connection was
/// closed.
const SILENCE: Duration = Duration::from_secs(10);
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves until the future is dropped.
pub async fn serve(listening: Listening, readiness: Readiness, registry: Registry) -> Result<(), Error> {
    let Listening { port, listener, .. } = listening;
    // Refused connections are not exported: no alert needs the count, and this port would have to serve it.
    let limited = ConnectionLimit::new(
        DefaultAcceptor::new(),
        ADMIN_CONNECTIONS_AT_MOST,
        Counter::default(),
    );
    let server = Server::<SocketAddr>::from_listener(listener).acceptor(limited);
    let server = with_http_limits(server, SILENCE);
    let served = server.serve(router(readiness, registry).into_make_service());
    served.await.map_err(|source| Error::Serve { port, source })
}

/// The three routes.
pub fn router(readiness: Readiness, registry: Registry) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(readiness)
        .merge(
            Router::new()
                .route("/metrics", get(metrics))
                .with_state(Arc::new(registry)),
        )
}

async fn readyz(State(readiness): State<Readiness>) -> (StatusCode, String) {
    let status = if readiness.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, readiness.to_string())
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    match registry.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{self, Body};
    use axum::http::Request;
    use tower::ServiceExt;

    async fn get_text(readiness: &Readiness, path: &str) -> (StatusCode, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router(readiness.clone(), Registry::new("test"))
            .oneshot(request)
            .await
            .unwrap();
        let status = response.status();
        let bytes = body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn an_unready_process_is_alive_and_reports_the_unmet_condition() {
        let readiness = Readiness::default();
        readiness.condition("certificate", "the Secret is empty");
        let (status, text) = get_text(&readiness, "/readyz").await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "[-] certificate: the Secret is empty\n");
        assert_eq!(get_text(&readiness, "/livez").await.0, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_ready_process_reports_each_condition() {
        let readiness = Readiness::default();
        readiness.condition("certificate", "none").met();
        assert_eq!(
            get_text(&readiness, "/readyz").await,
            (StatusCode::OK, "[+] certificate\n".to_owned())
        );
    }

    #[tokio::test]
    async fn metrics_are_served() {
        let (status, text) = get_text(&Readiness::default(), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("pod_affinity_build_info"), "{text}");
    }

    #[tokio::test]
    async fn the_error_about_a_port_in_use_names_the_flag() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let first = Listening::bind(&PORT, address).await.unwrap();
        let error = Listening::bind(&PORT, first.address()).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains("choose another --admin-listen"), "{error}");
    }
}
