//! What was hoped for beside what came.

use crate::stats::Spread;
use serde::Serialize;
use std::fmt::Write;

/// At most so much, by the median of all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Aim {
    what: String,
    at_most: f64,
    measured: Spread,
    reached: bool,
    /// Some rounds reached it and others did not, or there was one only.
    within_noise: bool,
}

impl Aim {
    /// No figure, no aim: a variant that was left out cannot miss one.
    pub(crate) fn at_most(what: impl Into<String>, at_most: f64, measured: Option<Spread>) -> Option<Self> {
        measured.map(|measured| Self {
            what: what.into(),
            at_most,
            measured,
            reached: measured.median <= at_most,
            within_noise: measured.rounds < 2 || (measured.low <= at_most && at_most < measured.high),
        })
    }
}

/// All aims of a report, none without any.
pub(crate) fn table(aims: &[Aim]) -> String {
    if aims.is_empty() {
        return String::new();
    }
    let mut text = "| aim | at most | measured | |\n| --- | --- | --- | --- |\n".to_owned();
    for Aim {
        what,
        at_most,
        measured,
        reached,
        within_noise,
    } in aims
    {
        let mark = verdict(*reached, *within_noise);
        let _ = writeln!(text, "| {what} | {at_most} | {measured} | {mark} |");
    }
    text + "\n"
}

pub(crate) fn verdict(reached: bool, within_noise: bool) -> &'static str {
    match (reached, within_noise) {
        (true, false) => "reached",
        (false, false) => "missed",
        (true, true) => "reached, within noise",
        (false, true) => "missed, within noise",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_missed_by_its_median() {
        let missed = Aim::at_most("w", 1.0, Spread::of(&[0.5, 1.1, 1.2])).unwrap();
        assert!(!missed.reached);
        assert!(table(&[missed]).contains("| w | 1 | 1.10 (0.50 to 1.20) | missed, within noise |"));
        assert!(Aim::at_most("w", 1.0, None).is_none());
    }

    #[test]
    fn an_aim_is_told_from_noise_by_all_its_rounds() {
        let words = |rounds: &[f64]| {
            let aim = Aim::at_most("w", 1.0, Spread::of(rounds)).unwrap();
            verdict(aim.reached, aim.within_noise)
        };
        assert_eq!(words(&[1.1, 1.2]), "missed");
        assert_eq!(words(&[0.8, 0.9]), "reached");
        assert_eq!(words(&[0.8, 0.9, 1.1]), "reached, within noise");
        assert_eq!(words(&[0.8]), "reached, within noise");
        assert_eq!(words(&[1.0, 1.0]), "reached");
        assert_eq!(words(&[1.0, 1.1, 1.1]), "missed, within noise");
    }
}
