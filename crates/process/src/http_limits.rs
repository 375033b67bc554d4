//! What both our servers allow a client: how long it may take to send a request's head, and how long it may be silent.

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto::Builder,
};
use std::time::Duration;

/// For the head of a request, and so also for how long a kept-alive connection may be idle. Not shorter: a server that
/// closes an idle connection in the very moment in which the API server reuses it loses that call, and Tekton the task.
const HEAD_DEADLINE: Duration = Duration::from_mins(1);
/// HTTP/2 has no idle limit of its own; a peer that does not answer this is gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_DEADLINE: Duration = Duration::from_secs(10);
/// Requests at once on one HTTP/2 connection.
const STREAMS_AT_MOST: u32 = 256;

/// Applies the limits to a server.
pub(crate) fn apply(builder: &mut Builder<TokioExecutor>) {
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_DEADLINE)
        .max_concurrent_streams(STREAMS_AT_MOST);
}
