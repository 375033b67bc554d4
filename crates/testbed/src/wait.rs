//! Polls for a state, with a deadline and an error that contains the last observed state.

use crate::error::{Error, Result};
use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// First and longest pause between two polls: each poll costs the API server, and a long wait does not need a quick result.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// After a slow poll, on a busy machine or with a long list, the pause is this multiple of the poll's duration, so that polling
/// does not delay the expected state.
const SLOW_FACTOR: u32 = 4;
const LONGEST_SLOW_PAUSE: Duration = Duration::from_secs(1);
/// A poll that takes longer than the rest of the deadline and this time gets no answer.
const LONGEST_POLL: Duration = Duration::from_mins(2);

/// Receives the subject of a wait, its duration, and its deadline.
pub type Observer = fn(&str, Duration, Duration);

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// Reports every wait of this process from now on. Only the first observer is used.
pub fn observe(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Polls until `look` returns `Ok`, for at most `deadline`. An `Err` is the observed state.
pub async fn until<T, S: Debug>(
    what: impl Into<String>,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> std::result::Result<T, S>,
) -> Result<T> {
    let (what, start, mut pause) = (what.into(), Instant::now(), FIRST_PAUSE);
    let outcome = loop {
        let begun = Instant::now();
        let left = deadline.saturating_sub(start.elapsed()) + LONGEST_POLL;
        let seen = match timeout(left, look()).await {
            Ok(Ok(found)) => break Ok(found),
            Ok(Err(seen)) => seen,
            Err(_) => break Err(format!("no answer to the last poll within {left:.0?}")),
        };
        if start.elapsed() >= deadline {
            break Err(format!("{seen:?}"));
        }
        tokio::time::sleep(pause.max(pause_after(begun.elapsed()))).await;
        pause = LONGEST_PAUSE.min(pause * 5 / 4);
    };
    let waited = start.elapsed();
    if let Some(observe) = OBSERVER.get() {
        observe(&what, waited, deadline);
    }
    outcome.map_err(|last| Error::Deadline { what, waited, last })
}

fn pause_after(took: Duration) -> Duration {
    LONGEST_SLOW_PAUSE.min(took * SLOW_FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_with_the_duration_of_a_poll_up_to_one_second() {
        let millis = Duration::from_millis;
        let pauses = [5, 100, 900].map(|took| pause_after(millis(took)));
        assert_eq!(pauses, [20, 400, 1000].map(millis));
    }

    #[tokio::test(start_paused = true)]
    async fn a_poll_that_gets_no_answer_ends_the_wait() {
        let wait = until("rain", Duration::from_secs(1), async || {
            std::future::pending::<Result<(), ()>>().await
        });
        let message = wait.await.unwrap_err().to_string();
        assert!(
            message.contains("rain") && message.contains("no answer"),
            "{message}"
        );
    }

    #[tokio::test]
    async fn a_timeout_reports_the_expected_and_the_last_state() {
        let waited = until("rain", Duration::from_secs(0), async || Err::<(), _>("sun")).await;
        let message = waited.unwrap_err().to_string();
        assert!(message.contains("rain") && message.contains("sun"), "{message}");
    }

    #[tokio::test]
    async fn a_wait_returns_the_value_of_the_last_poll() {
        let mut looks = 0;
        let found = until("the third look", Duration::from_secs(9), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(looks) }
        });
        assert_eq!(found.await.unwrap(), 3);
    }
}
