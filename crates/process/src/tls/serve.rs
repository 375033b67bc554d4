//! Serves a router over TLS until it is told to end, and ends so that no call is lost: not ready first, serving on while
//! the endpoints change, then no new connections, then the calls that are under way.

use super::layers;
use crate::{
    guard::Guard, http_limits, metrics::Serving, open_files, readiness::Readiness, shutdown::Shutdown,
};
use axum::Router;
use axum_server::{
    Handle, Server,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use rustls::ServerConfig;
use std::{io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use thiserror::Error;
use tokio::{net::TcpListener, time::sleep};

/// Name of the readiness condition that is met while new calls are welcome.
pub const CONDITION: &str = "listener";
/// Connections at once. An API server holds a few dozen at most.
const CONNECTIONS_AT_MOST: usize = 2000;
/// For a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why nothing is served.
#[derive(Debug, Error)]
pub enum Error {
    /// Binding failed.
    #[error("cannot listen on {address} for admission requests: {source}; choose another --listen")]
    Bind {
        /// What was asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Serving failed.
    #[error("the server for admission requests ended: {0}")]
    Serve(#[source] io::Error),
}

/// How to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long to serve on after the process turned not ready.
    pub delay: Duration,
    /// How long calls under way may take after that.
    pub deadline: Duration,
}

/// What is served, and all it needs.
#[derive(Debug)]
pub struct Service {
    /// The routes.
    pub router: Router,
    /// How connections are made safe; see [`super::store::Store::server_config`].
    pub tls: Arc<ServerConfig>,
    /// How long a client may be silent; see [`crate::http_limits::SILENCE`].
    pub silence: Duration,
    /// How to end.
    pub drain: Drain,
    /// When to end.
    pub shutdown: Shutdown,
    /// Told whether calls are welcome.
    pub readiness: Readiness,
    /// Told of refused connections.
    pub metrics: Serving,
}

/// A bound port that does not serve yet.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Binds the port; port 0 takes any that is free.
    pub async fn bind(address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the service's shutdown is asked for, and drains then.
    pub fn serve(self, service: Service) -> impl Future<Output = Result<(), Error>> + Send {
        let Service {
            router,
            tls,
            silence,
            drain,
            shutdown,
            readiness,
            metrics,
        } = service;
        let tls = RustlsAcceptor::new(RustlsConfig::from_config(tls)).handshake_timeout(HANDSHAKE);
        let guard = Guard::new(
            tls.acceptor(NoDelayAcceptor::new()),
            open_files::room_for(CONNECTIONS_AT_MOST),
            metrics.connections_refused,
        );
        let handle = Handle::new();
        let server = Server::<SocketAddr>::from_listener(self.listener)
            .acceptor(guard)
            .handle(handle.clone());
        let server = http_limits::applied(server, silence);
        let router = layers::around(router, shutdown.clone());
        let serving = async move {
            server
                .serve(router.into_make_service())
                .await
                .map_err(Error::Serve)
        };
        until_drained(serving, end(handle, drain, shutdown, readiness))
    }
}

/// The server ends by itself once `ending` has told it to; should it fail before, nobody waits for `ending`.
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
    shutdown.asked().await;
    accepting.unmet("the process is shutting down");
    sleep(drain.delay).await;
    tracing::info!(connections = handle.connection_count(), "draining");
    handle.graceful_shutdown(Some(drain.deadline));
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
