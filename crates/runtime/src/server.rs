//! What both servers share: a port that is bound before it is served, HTTP/1 only, and limits on connections and on silent clients.
//!
//! API servers call webhooks over HTTP/1 (`apiserver/pkg/util/webhook/client.go`: to spread the calls over replicas), and so do
//! kubelets and Prometheus. With HTTP/2, each client could make the server buffer any amount of data.
//!
//! The limit on connections is hand-written, because tower and tower-http limit requests, and axum-server does not limit connections.

use crate::response_deadline::ResponseDeadline;
use axum::{Extension, middleware::AddExtension};
use axum_server::{Address, Server, accept::Accept};
use futures::future::BoxFuture;
use hyper_util::rt::TokioTimer;
use prometheus_client::metrics::counter::Counter;
use rustix::net::sockopt::set_ipv6_v6only;
use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpSocket},
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tower::Layer;

/// A port of the process.
#[derive(Debug)]
pub struct Port {
    /// Name of the port.
    pub name: &'static str,
    /// The purpose of the port, for error messages.
    pub serves: &'static str,
    /// The flag that sets the address.
    pub flag: &'static str,
}

/// The reason why a port is not served.
#[derive(Debug, Error)]
pub enum Error {
    /// Binding failed.
    #[error("cannot listen on {address} for {}: {source}; choose another {}", port.serves, port.flag)]
    Bind {
        /// The port.
        port: &'static Port,
        /// The address from the flag.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Serving failed.
    #[error("the server for {} ended: {source}", port.serves)]
    Serve {
        /// The port.
        port: &'static Port,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A bound port that is not served yet.
#[derive(Debug)]
pub struct Listening {
    pub(crate) port: &'static Port,
    pub(crate) listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Binds the port; port 0 selects any free port.
    #[expect(clippy::unused_async, reason = "only a runtime can register the socket")]
    pub async fn bind(port: &'static Port, address: SocketAddr) -> Result<Self, Error> {
        let failed = |source| Error::Bind {
            port,
            address,
            source,
        };
        let listener = bound(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            port,
            listener,
            address,
        })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Binds a socket. `[::]` stands for the addresses of both families; a kernel without IPv6 has only those of IPv4.
fn bound(address: SocketAddr) -> io::Result<TcpListener> {
    match socket(address) {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
            socket((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        outcome => outcome,
    }
}

fn socket(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if address.is_ipv6() {
        // The default is a setting of the machine.
        set_ipv6_v6only(&socket, false)?;
    }
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Connections that wait to be accepted; the kernel applies its own limit as well.
const BACKLOG: u32 = 1024;

/// Maximum number of connections of the admin port, far more than the kubelet and scrapers need.
pub(crate) const ADMIN_CONNECTIONS_AT_MOST: usize = 1000;
/// Default limit on a client's silence: before its first request, within the head of a request, and between two requests.
/// The limit exceeds the 90 seconds for which the API server keeps an idle connection (Go's default), so the API server always
/// closes the connection. If the webhook closed a connection, a call that starts on this connection at the same moment would be
/// lost, and the task whose pod the call was for would fail.
pub const SILENCE: Duration = Duration::from_mins(2);

/// The most bytes that a connection buffers, and so the longest head of a request. The heads of API servers, kubelets and Prometheus
/// have less than 1 KiB.
const BUFFER: usize = 16 << 10;

/// Applies HTTP/1 and the limits on silence and on buffers to a server.
pub(crate) fn with_http_limits<A: Address, B>(server: Server<A, B>, silence: Duration) -> Server<A, B> {
    let mut server = server.http1_only();
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(silence)
        .max_buf_size(BUFFER);
    server
}

/// An acceptor with a limit on open connections, and with a limit on the time in which a client receives a response.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionLimit<A> {
    inner: A,
    permits: Arc<Semaphore>,
    refused: Counter,
}

/// The service of a connection. It owns the connection's permit, so the server drops both together.
type Limited<S> = AddExtension<S, Arc<OwnedSemaphorePermit>>;

impl<A> ConnectionLimit<A> {
    /// Accepts up to `at_most` connections at once through `inner`, and counts refused connections.
    pub(crate) fn new(inner: A, at_most: usize, refused: Counter) -> Self {
        Self {
            inner,
            permits: Arc::new(Semaphore::new(at_most)),
            refused,
        }
    }

    fn permit(&self) -> io::Result<OwnedSemaphorePermit> {
        self.permits.clone().try_acquire_owned().map_err(|_| {
            self.refused.inc();
            io::Error::other("too many connections")
        })
    }
}

impl<A, I, S> Accept<I, S> for ConnectionLimit<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
{
    type Stream = ResponseDeadline<A::Stream>;
    type Service = Limited<A::Service>;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let permit = self.permit();
        let accepted = self.inner.accept(stream, service);
        Box::pin(async move {
            let permit = Extension(Arc::new(permit?));
            let (stream, service) = accepted.await?;
            Ok((ResponseDeadline::new(stream), permit.layer(service)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum_server::accept::DefaultAcceptor;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::{
        net::TcpStream,
        time::{Instant, timeout},
    };

    /// How long Go's HTTP client, which API servers use, keeps an idle connection.
    const IDLE_AT_THE_API_SERVER: Duration = Duration::from_secs(90);

    #[test]
    fn the_api_server_closes_an_idle_connection_first() {
        assert_eq!(SILENCE, Duration::from_mins(2));
        assert!(SILENCE > IDLE_AT_THE_API_SERVER + Duration::from_secs(20));
    }

    #[tokio::test]
    async fn the_unspecified_address_of_ipv6_is_for_clients_of_both_families() {
        let listener = bound((Ipv6Addr::UNSPECIFIED, 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        let has_ipv6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.is_ok();
        let connected = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await;
        assert_eq!(connected.is_ok(), has_ipv6);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_loses_its_connection() {
        let limit = ConnectionLimit::new(DefaultAcceptor::new(), 1, Counter::default());
        let (connection, _client) = duplex(1);
        let (mut stream, _) = limit.accept(connection, ()).await.unwrap();
        let begun = Instant::now();
        let written = timeout(Duration::from_mins(1), stream.write_all(b"response")).await;
        let error = written.unwrap().unwrap_err();
        assert_eq!(
            (error.kind(), begun.elapsed().as_secs()),
            (io::ErrorKind::TimedOut, 10)
        );
    }

    #[tokio::test]
    async fn a_connection_over_the_limit_is_refused_until_another_ends() {
        let limit = ConnectionLimit::new(DefaultAcceptor::new(), 1, Counter::default());
        let first = limit.accept(duplex(1).0, ()).await.unwrap();
        assert!(limit.accept(duplex(1).0, ()).await.is_err());
        assert_eq!(limit.refused.get(), 1);
        drop(first);
        assert!(limit.accept(duplex(1).0, ()).await.is_ok());
    }
}
