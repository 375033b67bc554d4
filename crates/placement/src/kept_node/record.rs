//! What a run records of the time in which its node is kept: an annotation with the time until which the node is kept.
//!
//! The controller writes the annotation after the end of the run, and again if the pod that keeps the node is gone earlier. Users can
//! write it too, so readers check it.

use super::length;
use crate::config::Config;
use crate::run::Run;
use jiff::Timestamp;
use std::time::Duration;

/// The longest usual time from the end of a run until the controller creates the pod that keeps the node.
const LATENESS: Duration = Duration::from_secs(30);

/// The time until which the node of a run was or will be kept, as a reader may believe it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptUntil {
    /// The run records no time.
    Unrecorded,
    /// Until this time.
    Time(Timestamp),
    /// The run records something else than the controller writes.
    Implausible,
}

impl KeptUntil {
    /// Reads the annotation of a run that ended at this time. Without the configuration, nothing is plausible.
    pub fn read(
        annotation: Option<&str>,
        run: &Run,
        ended: Option<Timestamp>,
        config: Option<&Config>,
    ) -> Self {
        let Some(annotation) = annotation else {
            return Self::Unrecorded;
        };
        plausible(annotation, run, ended, config).map_or(Self::Implausible, Self::Time)
    }
}

fn plausible(
    annotation: &str,
    run: &Run,
    ended: Option<Timestamp>,
    config: Option<&Config>,
) -> Option<Timestamp> {
    let until: Timestamp = annotation.parse().ok()?;
    let ended = ended.filter(|_| run.done)?;
    let latest = ended.checked_add(length(run, config?)).ok()?;
    let usual = ended..=latest.checked_add(LATENESS).ok()?;
    usual.contains(&until).then(|| until.min(latest))
}

/// The time that a run should record, if it records another time. `keeps_until` is the time of the pod that keeps the node; if no
/// pod keeps the node, `ended` is the latest time at which it can have been kept.
pub fn correction(
    recorded: Option<Timestamp>,
    keeps_until: Option<Timestamp>,
    ended: Timestamp,
) -> Option<Timestamp> {
    let earlier = recorded.filter(|recorded| *recorded <= ended);
    let wanted = keeps_until.or(earlier).unwrap_or(ended);
    (recorded != Some(wanted)).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::run;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn only_a_time_that_the_controller_can_have_written_is_plausible() {
        let config = Config {
            keep_node_for: Duration::from_mins(1),
            ..Config::default()
        };
        let done = Run { done: true, ..run() };
        let read = |annotation: &str| KeptUntil::read(Some(annotation), &done, Some(at(100)), Some(&config));
        for (second, found) in [
            (99, KeptUntil::Implausible),
            (100, KeptUntil::Time(at(100))),
            (130, KeptUntil::Time(at(130))),
            (162, KeptUntil::Time(at(160))),
            (191, KeptUntil::Implausible),
        ] {
            assert_eq!(read(&at(second).to_string()), found, "{second}");
        }
        for malformed in ["", "soon", "9999-12-31T23:59:59Z", "1970-01-01T00:02:10"] {
            assert_eq!(read(malformed), KeptUntil::Implausible, "{malformed}");
        }
        let (alive, at_110) = (run(), at(110).to_string());
        let of = |run, ended, config| KeptUntil::read(Some(&at_110), run, ended, config);
        assert_eq!(
            of(&alive, Some(at(100)), Some(&config)),
            KeptUntil::Implausible,
            "not done"
        );
        assert_eq!(of(&done, None, Some(&config)), KeptUntil::Implausible);
        assert_eq!(of(&done, Some(at(100)), None), KeptUntil::Implausible);
        let unrecorded = KeptUntil::read(None, &done, Some(at(100)), None);
        assert_eq!(unrecorded, KeptUntil::Unrecorded);
    }

    #[test]
    fn a_user_cannot_extend_the_time_beyond_the_maximum() {
        let config = Config {
            keep_node_for_maximum: Duration::from_mins(1),
            ..Config::default()
        };
        let done = Run {
            done: true,
            keep_node_for: Some("1h".to_owned()),
            ..run()
        };
        let read = |second| KeptUntil::read(Some(&at(second).to_string()), &done, Some(at(0)), Some(&config));
        assert_eq!(read(60), KeptUntil::Time(at(60)));
        assert_eq!(read(3600), KeptUntil::Implausible);
    }

    #[test]
    fn a_run_records_the_time_of_the_pod_or_the_end_of_it() {
        let wanted = |recorded: Option<i64>, keeps_until: Option<i64>| {
            correction(recorded.map(at), keeps_until.map(at), at(10))
        };
        for (recorded, keeps_until, correction) in [
            (None, Some(20), Some(20)),
            (Some(20), Some(20), None),
            (Some(99), Some(20), Some(20)),
            (Some(20), None, Some(10)),
            (Some(10), None, None),
            (Some(5), None, None),
            (None, None, Some(10)),
        ] {
            assert_eq!(
                wanted(recorded, keeps_until),
                correction.map(at),
                "{recorded:?} {keeps_until:?}"
            );
        }
    }
}
