//! What both our servers allow a client: HTTP/1 only, and how long it may be silent.
//!
//! The API server speaks HTTP/1 to webhooks (`apiserver/pkg/util/webhook/client.go`: so that it spreads its calls over
//! replicas), and so do kubelets and Prometheus. With HTTP/2 each client could make us buffer as much as it likes.

use axum_server::{Address, Server};
use hyper_util::rt::TokioTimer;
use std::time::Duration;

/// How long a client may be silent by default: before its first request, within the head of a request, between two requests.
/// Longer than the minute and a half for which the API server keeps an unused connection (Go's default), so that it is always
/// the API server that closes a connection. If we closed it, a call that begins on it at the same moment would be lost, and
/// with it the task whose pod the call was for.
pub const SILENCE: Duration = Duration::from_mins(2);

/// The same server with these limits.
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
