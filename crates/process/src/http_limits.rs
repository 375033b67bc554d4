//! Limits of both servers: HTTP/1 only, and a limit on how long a client may be silent.
//!
//! API servers call webhooks over HTTP/1 (`apiserver/pkg/util/webhook/client.go`: to spread the calls over replicas), and so do
//! kubelets and Prometheus. With HTTP/2, each client could make the server buffer any amount of data.

use axum_server::{Address, Server};
use hyper_util::rt::TokioTimer;
use std::time::Duration;

/// Default limit on a client's silence: before its first request, within the head of a request, and between two requests.
/// The limit exceeds the 90 seconds for which the API server keeps an idle connection (Go's default), so the API server always
/// closes the connection. If the webhook closed a connection, a call that starts on this connection at the same moment would be
/// lost, and the task whose pod the call was for would fail.
pub const SILENCE: Duration = Duration::from_mins(2);

/// Applies the limits to a server.
pub(crate) fn applied<A: Address, B>(server: Server<A, B>, silence: Duration) -> Server<A, B> {
    let mut server = server.http1_only();
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(silence);
    server
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Go's HTTP client, which API servers use.
    const KEPT_BY_THE_API_SERVER: Duration = Duration::from_secs(90);

    #[test]
    fn it_is_always_the_api_server_that_closes_a_connection() {
        assert_eq!(SILENCE, Duration::from_mins(2));
        assert!(SILENCE > KEPT_BY_THE_API_SERVER + Duration::from_secs(20));
    }
}
