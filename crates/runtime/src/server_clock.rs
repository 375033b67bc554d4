//! The API server's clock, computed from the `Date` header of its responses.
//!
//! The API server sets creation timestamps, so only its clock can measure an object's age. With a local clock that is ten minutes
//! ahead, every run would be released at once, without a node. This module is hand-written, because kube does not compare
//! clocks, and NTP provides the right time, which may differ from the API server's time.

use crate::api::without_silence;
use crate::response_limit::ResponseLimit;
use axum::http::{HeaderMap, Response, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822};
use kube::{Client, Config, client::ClientBuilder};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use tower::util::MapResponseLayer;

/// In seconds. Smaller differences between the clocks count as none.
const AGREEMENT: i64 = 5;
/// In seconds. The header has whole seconds and a response takes time to arrive, so smaller changes of the difference count as none.
const PRECISION: i64 = 2;

/// The API server's clock, as the seconds by which the local clock is ahead.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<AtomicI64>);

impl ServerClock {
    /// A client whose responses set this clock, and have limits of time and size.
    pub fn client(&self, config: Config) -> kube::Result<Client> {
        let client = ClientBuilder::try_from(without_silence(config))?.with_layer(&ResponseLimit);
        Ok(client.with_layer(&self.layer()).build())
    }

    /// The API server's time; before the first response, the local time.
    pub fn now(&self) -> Timestamp {
        self.at(Timestamp::now())
    }

    fn at(&self, now: Timestamp) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.0.load(Ordering::Relaxed));
        now.checked_sub(ahead).unwrap_or(now)
    }

    fn layer<B>(&self) -> MapResponseLayer<impl Fn(Response<B>) -> Response<B> + Clone + use<B>> {
        let clock = self.clone();
        MapResponseLayer::new(move |response: Response<B>| {
            clock.adjust(response.headers(), Timestamp::now());
            response
        })
    }

    fn adjust(&self, headers: &HeaderMap, now: Timestamp) {
        let Some(there) = date(headers) else {
            return;
        };
        let (ahead, before) = (
            now.as_second() - there.as_second(),
            self.0.load(Ordering::Relaxed),
        );
        let is_close = before != 0 && (ahead - before).abs() <= PRECISION;
        let limit = if is_close {
            AGREEMENT - PRECISION
        } else {
            AGREEMENT
        };
        let ahead = if ahead.abs() <= limit { 0 } else { ahead };
        let is_new = ahead != before && (ahead == 0 || (ahead - before).abs() > PRECISION);
        if is_new {
            self.0.store(ahead, Ordering::Relaxed);
            tracing::warn!(
                ahead_seconds = ahead,
                "the difference between the clocks of this machine and of the API server changed"
            );
        }
    }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new()
        .parse_timestamp(headers.get(DATE)?.as_bytes())
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use std::convert::Infallible;
    use tower::{Layer, ServiceExt, service_fn};

    fn heard(clock: &ServerClock, date: &str, now: &str) {
        let headers = HeaderMap::from_iter([(DATE, date.parse().unwrap())]);
        clock.adjust(&headers, now.parse().unwrap());
    }

    fn read(clock: &ServerClock, now: &str) -> String {
        clock.at(now.parse().unwrap()).to_string()
    }

    #[test]
    fn a_clock_difference_of_minutes_is_corrected_and_one_of_seconds_is_ignored() {
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

    #[test]
    fn a_fraction_of_a_second_changes_no_difference() {
        for steps in [
            [
                ("07.4", 7),
                ("08.1", 7),
                ("06.9", 7),
                ("10", 10),
                ("04", 0),
                ("03", 0),
            ],
            [
                ("05.9", 0),
                ("06.1", 6),
                ("05.9", 6),
                ("04", 6),
                ("03.9", 0),
                ("05", 0),
            ],
        ] {
            let clock = ServerClock::default();
            for (second, ahead) in steps {
                let now = format!("2026-11-22T21:21:{second}Z");
                heard(&clock, "Sun, 22 Nov 2026 21:21:00 GMT", &now);
                assert_eq!(clock.0.load(Ordering::Relaxed), ahead, "{second}");
            }
        }
    }

    #[tokio::test]
    async fn each_response_sets_the_clock() {
        let clock = ServerClock::default();
        let server = service_fn(async |_: Request<()>| {
            let answer = Response::builder()
                .header(DATE, "Thu, 01 Jan 1970 00:00:00 GMT")
                .body(());
            Ok::<_, Infallible>(answer.unwrap())
        });
        let server = clock.layer().layer(server);
        server.oneshot(Request::new(())).await.unwrap();
        assert!(clock.now().as_second() < 60, "{}", clock.now());
    }
}
