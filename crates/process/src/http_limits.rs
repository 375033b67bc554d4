//! What both our servers allow a client: HTTP/1 only, and how long it may be silent.
//!
//! The API server speaks HTTP/1 to webhooks (`apiserver/pkg/util/webhook/client.go`: so that it spreads its calls over
//! replicas), and so do kubelets and whoever scrapes metrics. With HTTP/2 each client could have us buffer what it likes.

use axum_server::{Address, Server};
use hyper_util::rt::TokioTimer;
use std::time::Duration;

/// How long a client may be silent, unless a server is told otherwise: before its first request, within the head of one,
/// between two. Longer than the minute and a half for which the API server keeps a connection that it does not use (Go's
/// default), so that it is always the API server that closes one. Were it us, a call that takes up the connection in that
/// very moment would be lost, and with it the task whose pod it was for.
pub const SILENCE: Duration = Duration::from_mins(2);

/// The same server with the limits.
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
