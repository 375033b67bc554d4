//! How far the starts of runs are from the order in which the runs were created.

use std::fmt;
use std::time::{Duration, Instant};

/// The order of the starts of runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    /// The longest time from the creation of a run to its start.
    pub longest_wait: Duration,
    /// The longest wait if the same starts were in order.
    pub wait_in_order: Duration,
    /// The highest number of younger runs that started before a run.
    pub most_overtakes: usize,
    /// The share of the pairs in which the older run started later than the younger run, in percent.
    pub wrong_pairs: f64,
}

impl Order {
    /// The order of runs that were created and started at these times, in the order of their creation.
    ///
    /// `None` if there are no runs.
    #[must_use]
    pub fn new(runs: &[(Instant, Instant)]) -> Option<Self> {
        let mut in_order: Vec<_> = runs.iter().map(|(_, started)| *started).collect();
        in_order.sort_unstable();
        let in_order = runs.iter().map(|(created, _)| *created).zip(in_order);
        let overtakes = runs.iter().enumerate().map(|(older, (_, started))| {
            let younger = runs[older + 1..].iter();
            younger.filter(|(_, younger)| younger < started).count()
        });
        let overtakes: Vec<_> = overtakes.collect();
        let pairs = runs.len() * runs.len().saturating_sub(1) / 2;
        Some(Self {
            longest_wait: longest_wait(runs.iter().copied())?,
            wait_in_order: longest_wait(in_order)?,
            most_overtakes: overtakes.iter().copied().max()?,
            wrong_pairs: percent(overtakes.iter().sum(), pairs.max(1)),
        })
    }

    /// The longest wait, compared with the longest wait if the same starts were in order.
    #[must_use]
    pub fn wait_ratio(&self) -> f64 {
        self.longest_wait.as_secs_f64() / self.wait_in_order.as_secs_f64()
    }
}

fn longest_wait(runs: impl Iterator<Item = (Instant, Instant)>) -> Option<Duration> {
    runs.map(|(created, started)| started.saturating_duration_since(created))
        .max()
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn percent(of: usize, all: usize) -> f64 {
    100.0 * of as f64 / all as f64
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "longest wait {:.1?} (in order: {:.1?}), most overtakes {}, wrong pairs {:.1} %",
            self.longest_wait, self.wait_in_order, self.most_overtakes, self.wrong_pairs
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_three_runs_that_starts_first_overtakes_both_and_makes_two_wrong_pairs() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let order = Order::new(&[(at(0), at(5)), (at(1), at(6)), (at(2), at(3))]).unwrap();
        assert_eq!(order.longest_wait, Duration::from_secs(5));
        // 0 to 3, 1 to 5, 2 to 6.
        assert_eq!(order.wait_in_order, Duration::from_secs(4));
        assert!((order.wait_ratio() - 1.25).abs() < 1e-9);
        assert_eq!(order.most_overtakes, 1);
        assert!((order.wrong_pairs - 200.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn one_run_is_in_order_and_no_run_has_none() {
        let now = Instant::now();
        let order = Order::new(&[(now, now)]).unwrap();
        assert_eq!((order.most_overtakes, order.wrong_pairs), (0, 0.0));
        assert_eq!(Order::new(&[]), None);
    }
}
