//! How long to wait before a run is tried again.
//!
//! kube's controller gives an error policy no count of attempts, so they are counted per run in `memory`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(400);
const LAST: Duration = Duration::from_secs(30);

/// The wait after the given number of failures in a row: between half of a ceiling and all of it, where the
/// ceiling doubles from 0.4 s to 30 s. Runs that failed together are spread by their UIDs, so that they do not
/// come back together.
pub(crate) fn delay(uid: &str, failures: u32) -> Duration {
    within(ceiling(failures), spread(uid, failures))
}

fn ceiling(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(LAST)
}

fn within(ceiling: Duration, spread: u16) -> Duration {
    let half = ceiling / 2;
    half + half * u32::from(spread) / u32::from(u16::MAX)
}

fn spread(uid: &str, failures: u32) -> u16 {
    let mut hasher = DefaultHasher::new();
    (uid, failures).hash(&mut hasher);
    let [low, high, ..] = hasher.finish().to_le_bytes();
    u16::from_le_bytes([low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_comes_within_a_fifth_to_two_fifths_of_a_second() {
        for uid in ["a", "b", "c", ""] {
            let delay = delay(uid, 1);
            assert!((200..=400).contains(&delay.as_millis()), "{delay:?}");
        }
    }

    #[test]
    fn waits_grow_and_never_leave_their_bounds() {
        for failures in [0, 1, 2, 8, 40, u32::MAX] {
            let delay = delay("a", failures);
            assert!(delay >= FIRST / 2 && delay <= LAST, "{failures}: {delay:?}");
        }
        assert!(delay("a", 4) > delay("a", 1));
        assert!(delay("a", 99) >= LAST / 2);
    }

    #[test]
    fn the_ceiling_doubles() {
        let millis: Vec<_> = (1..=8).map(|failures| ceiling(failures).as_millis()).collect();
        assert_eq!(millis, [400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000]);
    }

    #[test]
    fn runs_that_failed_together_are_spread() {
        let delays: std::collections::HashSet<_> =
            (0..100).map(|run| delay(&format!("uid-{run}"), 7)).collect();
        assert!(delays.len() > 90, "{}", delays.len());
    }

    #[test]
    fn the_spread_reaches_both_ends() {
        assert_eq!(within(LAST, 0), LAST / 2);
        assert_eq!(within(LAST, u16::MAX), LAST);
    }
}
