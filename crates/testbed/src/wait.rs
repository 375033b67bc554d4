//! Waiting by looking, with a deadline and a word on what was last seen.

use crate::error::{Error, Result};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks until `look` answers `Ok`, for at most `deadline`; an `Err` is what was seen instead.
pub async fn until<T, S: Debug>(
    what: impl Into<String>,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> std::result::Result<T, S>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        let seen = match look().await {
            Ok(found) => return Ok(found),
            Err(seen) => seen,
        };
        if start.elapsed() >= deadline {
            return Err(Error::Deadline {
                what: what.into(),
                waited: start.elapsed(),
                last: format!("{seen:?}"),
            });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
