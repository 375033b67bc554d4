//! The API server's clock, as its answers tell it.
//!
//! How old an object is can only be told by the clock that dated it. By one of ours that is ten minutes ahead, every run would be
//! released at once, without a node.

use axum::http::{HeaderMap, Request, Response, header::DATE};
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::{Client, Config, client::ClientBuilder};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
};
use tower::{Layer, Service};

/// An answer is dated to the second and takes a moment to come: as far as this the clocks agree.
const AGREEMENT: i64 = 5;

/// The clock: how many seconds ours is ahead of it.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<AtomicI64>);

impl ServerClock {
    /// A client whose answers set this clock.
    pub fn client(&self, config: Config) -> kube::Result<Client> {
        Ok(ClientBuilder::try_from(config)?.with_layer(self).build())
    }

    /// What time it is there. Until the first answer, what time it is here.
    pub fn now(&self) -> Timestamp {
        self.at(Timestamp::now())
    }

    fn at(&self, now: Timestamp) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.0.load(Ordering::Relaxed));
        now.checked_sub(ahead).unwrap_or(now)
    }

    fn heard(&self, headers: &HeaderMap, now: Timestamp) {
        let Some(there) = date(headers) else {
            return;
        };
        let ahead = now.as_second() - there.as_second();
        let ahead = if ahead.abs() <= AGREEMENT { 0 } else { ahead };
        if self.0.swap(ahead, Ordering::Relaxed) != ahead {
            tracing::warn!(
                ahead_seconds = ahead,
                "the clock of this machine and the API server's differ, or do so no more"
            );
        }
    }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new()
        .parse_timestamp(headers.get(DATE)?.as_bytes())
        .ok()
}

impl<S> Layer<S> for ServerClock {
    type Service = Dated<S>;

    fn layer(&self, inner: S) -> Dated<S> {
        Dated {
            inner,
            clock: self.clone(),
        }
    }
}

/// A way to the API server whose answers set a clock.
#[derive(Clone, Debug)]
pub struct Dated<S> {
    inner: S,
    clock: ServerClock,
}

impl<S, Sent, Answered> Service<Request<Sent>> for Dated<S>
where
    S: Service<Request<Sent>, Response = Response<Answered>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Sent>) -> Self::Future {
        let (answer, clock) = (self.inner.call(request), self.clock.clone());
        Box::pin(async move {
            let answer = answer.await?;
            clock.heard(answer.headers(), Timestamp::now());
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use tower::{ServiceExt, service_fn};

    fn heard(clock: &ServerClock, date: &str, now: &str) {
        let headers = HeaderMap::from_iter([(DATE, date.parse().unwrap())]);
        clock.heard(&headers, now.parse().unwrap());
    }

    fn read(clock: &ServerClock, now: &str) -> String {
        clock.at(now.parse().unwrap()).to_string()
    }

    #[test]
    fn a_clock_of_ours_that_is_minutes_off_is_put_right_and_a_second_is_nothing() {
        let clock = ServerClock::default();
        assert_eq!(read(&clock, "2026-11-22T21:21:29Z"), "2026-11-22T21:21:29Z");
        heard(&clock, "Sun, 22 Nov 2026 21:11:29 GMT", "2026-11-22T21:21:29Z");
        assert_eq!(read(&clock, "2026-11-22T21:21:40Z"), "2026-11-22T21:11:40Z");
        heard(&clock, "nonsense", "2026-11-22T21:21:41Z");
        assert_eq!(read(&clock, "2026-11-22T21:21:41Z"), "2026-11-22T21:11:41Z");
        heard(&clock, "Sun, 22 Nov 2026 21:31:29 GMT", "2026-11-22T21:21:29Z");
        assert_eq!(read(&clock, "2026-11-22T21:21:29Z"), "2026-11-22T21:31:29Z");
        heard(&clock, "Sun, 22 Nov 2026 21:31:29 GMT", "2026-11-22T21:31:33.9Z");
        assert_eq!(read(&clock, "2026-11-22T21:31:33Z"), "2026-11-22T21:31:33Z");
    }

    #[tokio::test]
    async fn each_answer_sets_the_clock() {
        let clock = ServerClock::default();
        let server = service_fn(async |_: Request<()>| {
            let answer = Response::builder()
                .header(DATE, "Thu, 01 Jan 1970 00:00:00 GMT")
                .body(());
            Ok::<_, Infallible>(answer.unwrap())
        });
        clock.layer(server).oneshot(Request::new(())).await.unwrap();
        assert!(clock.now().as_second() < 60, "{}", clock.now());
    }
}
