//! Serves a router over TLS until the shutdown, which loses no call: the process turns unready, serves while endpoints change,
//! then accepts no new connections, and then completes the calls in flight.

use crate::{
    metrics::Serving,
    readiness::Readiness,
    resources::allowed_connections,
    server::{ConnectionLimit, Error, Listening, Port, with_http_limits},
    shutdown::Shutdown,
};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, header},
    middleware::{Next, from_fn_with_state},
    response::Response,
};
use axum_server::{
    Handle, Server,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use std::{net::SocketAddr, pin::pin, time::Duration};
use tokio::time::sleep;

/// The port for admission requests.
pub const PORT: Port = Port {
    name: "webhook",
    serves: "admission requests",
    flag: "--listen",
};
/// Name of the readiness condition that is met while new calls are accepted.
pub const CONDITION: &str = "listener";
/// Maximum number of connections. An API server opens a few dozen at most.
const CONNECTIONS_AT_MOST: usize = 2000;
/// Timeout for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The durations of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long the process serves new calls after it turned unready.
    pub delay: Duration,
    /// How long calls in flight may take after `delay`.
    pub deadline: Duration,
}

/// The routes and the settings of the server.
#[derive(Debug)]
pub struct TlsServer {
    /// The routes.
    pub router: Router,
    /// The TLS configuration; see [`super::ServedCertificate::config`].
    pub tls: RustlsConfig,
    /// How long a client may be silent; see [`crate::server::SILENCE`].
    pub silence: Duration,
    /// The durations of the shutdown.
    pub drain: Drain,
    /// Starts the shutdown.
    pub shutdown: Shutdown,
    /// The readiness that gets the condition [`CONDITION`].
    pub readiness: Readiness,
    /// The metrics that count refused connections.
    pub metrics: Serving,
}

/// Serves until the shutdown starts, then drains.
pub fn serve(listening: Listening, server: TlsServer) -> impl Future<Output = Result<(), Error>> + Send {
    let Listening { port, listener, .. } = listening;
    let TlsServer {
        router,
        tls,
        silence,
        drain,
        shutdown,
        readiness,
        metrics,
    } = server;
    let tls = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE);
    let limited = ConnectionLimit::new(
        tls.acceptor(NoDelayAcceptor::new()),
        allowed_connections(CONNECTIONS_AT_MOST),
        metrics.connections_refused,
    );
    let handle = Handle::new();
    let server = Server::<SocketAddr>::from_listener(listener)
        .acceptor(limited)
        .handle(handle.clone());
    let server = with_http_limits(server, silence);
    let router = router.layer(from_fn_with_state(shutdown.clone(), close_while_draining));
    let serving = async move {
        let served = server.serve(router.into_make_service()).await;
        served.map_err(|source| Error::Serve { port, source })
    };
    until_drained(serving, end(handle, drain, shutdown, readiness))
}

/// While draining, each response asks the API server to close the connection. Active connections close before the server closes
/// idle connections, and the server never closes a connection that the API server reuses at the same moment for a call.
async fn close_while_draining(State(shutdown): State<Shutdown>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if shutdown.has_started() {
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Waits for `ending`, which stops the server, and then for the server. If the server fails first, returns at once.
async fn until_drained(
    serving: impl Future<Output = Result<(), Error>> + Send,
    ending: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let mut serving = pin!(serving);
    tokio::select! {
        ended = &mut serving => return ended,
        () = ending => {}
    }
    serving.await
}

async fn end(handle: Handle<SocketAddr>, drain: Drain, shutdown: Shutdown, readiness: Readiness) {
    let accepting = readiness.condition(CONDITION, "");
    accepting.met();
    shutdown.started().await;
    accepting.unmet("the process is shutting down");
    sleep(drain.delay).await;
    tracing::info!(connections = handle.connection_count(), "draining");
    handle.graceful_shutdown(Some(drain.deadline));
}

#[cfg(test)]
mod tests;
