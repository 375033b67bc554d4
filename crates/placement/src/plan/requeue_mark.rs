//! The label `woken` of a waiting task pod, whose change makes the scheduler requeue the pod.

use std::fmt;

/// The change for which the scheduler should requeue a waiting task pod: the value of the label `woken`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequeueMark {
    /// The run moved off its node: the generation that the placeholder's StatefulSet has since then.
    pub generation: i64,
    /// When the last other task of the run ended since then, or the last full minute of the pod's waiting, in seconds
    /// since 1970.
    pub since: Option<i64>,
}

impl RequeueMark {
    /// Parses the label; `None` if another client wrote the value.
    pub fn parse(label: &str) -> Option<Self> {
        let (generation, since) = match label.split_once('.') {
            None => (label, None),
            Some((generation, since)) => (generation, Some(since.parse().ok()?)),
        };
        Some(Self {
            generation: generation.parse().ok()?,
            since,
        })
    }

    /// Whether a pod that was requeued for this change needs no requeue for the other.
    pub fn covers(self, other: Self) -> bool {
        self.generation == other.generation && self.since >= other.since
    }
}

impl fmt::Display for RequeueMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            None => write!(f, "{}", self.generation),
            Some(since) => write!(f, "{}.{since}", self.generation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(generation: i64, since: Option<i64>) -> RequeueMark {
        RequeueMark { generation, since }
    }

    #[test]
    fn a_requeue_mark_is_parsed_as_it_was_formatted() {
        for (it, label) in [
            (wake(4, None), "4"),
            (wake(4, Some(1_790_000_000)), "4.1790000000"),
        ] {
            assert_eq!(it.to_string(), label);
            assert_eq!(RequeueMark::parse(label), Some(it));
        }
        for label in ["", ".", "4.", ".4", "4.x", "four", "4.1.2"] {
            assert_eq!(RequeueMark::parse(label), None, "{label:?}");
        }
    }

    #[test]
    fn a_requeue_mark_covers_only_the_same_move_and_no_later_end_of_a_task() {
        assert!(wake(4, None).covers(wake(4, None)));
        assert!(wake(4, Some(7)).covers(wake(4, None)));
        assert!(wake(4, Some(7)).covers(wake(4, Some(7))));
        assert!(!wake(4, None).covers(wake(4, Some(7))));
        assert!(!wake(4, Some(7)).covers(wake(4, Some(8))));
        assert!(!wake(4, Some(7)).covers(wake(6, None)));
    }
}
