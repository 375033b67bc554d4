//! What both our servers allow a client: how long it may be silent, and how much it may ask at once.

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use std::time::Duration;

/// How long a client may be silent, unless a server is told otherwise: before its first request, within the head of one, between two. Longer than the minute
/// and a half for which the API server keeps a connection that it does not use (Go's default), so that it is always the
/// API server that closes one. Were it us, a call that takes up the connection in that very moment would be lost, and
/// with it the task whose pod it was for.
pub const SILENCE: Duration = Duration::from_mins(2);
/// HTTP/2 has no idle limit of its own; a peer that does not answer this is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_DEADLINE: Duration = Duration::from_secs(10);
/// Requests at once on one HTTP/2 connection.
const STREAMS_AT_MOST: u32 = 256;

/// Applies the limits to a server.
pub(crate) fn apply(builder: &mut Builder<TokioExecutor>, silence: Duration) {
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(silence);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_DEADLINE)
        .max_concurrent_streams(STREAMS_AT_MOST);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Go's HTTP client, which API servers use.
    const KEPT_BY_THE_API_SERVER: Duration = Duration::from_secs(90);

    #[test]
    fn it_is_always_the_api_server_that_closes_a_connection() {
        assert_eq!(SILENCE, Duration::from_mins(2));
        assert!(SILENCE > KEPT_BY_THE_API_SERVER + PING_INTERVAL);
    }
}
