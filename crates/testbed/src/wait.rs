//! Waiting by looking, with a deadline and a word on what was last seen.

use crate::error::{Error, Result};
use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Between the first two looks, and at most: who waits for long need not learn at once, and each look costs the API server.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// A look that takes long, because the machine is busy or because it lists much, is followed by a pause so many times as
/// long: what waits must not keep what it waits for from coming.
const PATIENCE: u32 = 4;
const LONGEST_PATIENCE: Duration = Duration::from_secs(1);

static OBSERVER: OnceLock<fn(&str, Duration)> = OnceLock::new();

/// Reports every wait of this process from now on: what for, and for how long. The first observer stays.
pub fn observe(observer: fn(&str, Duration)) {
    let _ = OBSERVER.set(observer);
}

/// Reports a wait that was not made by [`until`].
pub fn waited(what: &str, time: Duration) {
    if let Some(observer) = OBSERVER.get() {
        observer(what, time);
    }
}

/// Looks until `look` answers `Ok`, for at most `deadline`; an `Err` is what was seen instead.
pub async fn until<T, S: Debug>(
    what: impl Into<String>,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> std::result::Result<T, S>,
) -> Result<T> {
    let (what, start, mut pause) = (what.into(), Instant::now(), FIRST_PAUSE);
    let outcome = loop {
        let begun = Instant::now();
        let seen = match look().await {
            Ok(found) => break Ok(found),
            Err(seen) => seen,
        };
        if start.elapsed() >= deadline {
            break Err(format!("{seen:?}"));
        }
        tokio::time::sleep(pause.max(patience(begun.elapsed()))).await;
        pause = LONGEST_PAUSE.min(pause * 5 / 4);
    };
    let waited = start.elapsed();
    self::waited(&what, waited);
    outcome.map_err(|last| Error::Deadline { what, waited, last })
}

fn patience(took: Duration) -> Duration {
    LONGEST_PATIENCE.min(took * PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_a_look_takes_the_longer_is_the_pause_after_it_and_never_more_than_a_second() {
        let millis = Duration::from_millis;
        let pauses = [5, 100, 900].map(|took| patience(millis(took)));
        assert_eq!(pauses, [20, 400, 1000].map(millis));
    }

    #[tokio::test]
    async fn a_wait_in_vain_says_for_what_and_what_it_saw_last() {
        let waited = until("rain", Duration::from_secs(0), async || Err::<(), _>("sun")).await;
        let message = waited.unwrap_err().to_string();
        assert!(message.contains("rain") && message.contains("sun"), "{message}");
    }

    #[tokio::test]
    async fn a_wait_ends_with_what_it_waited_for() {
        let mut looks = 0;
        let found = until("the third look", Duration::from_secs(9), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { Err(looks) }
        });
        assert_eq!(found.await.unwrap(), 3);
    }
}
