//! Event texts for a run that waits for other runs, and has no placeholder yet.

use super::reason::{Note, Reason, note};
use super::seconds;
use crate::caps::{Cap, OverCap};
use crate::names::RunKey;
use crate::plan::Observation;

/// Between the number of runs and the rest of the text.
const OF_THE_KIND: &str = " of the same kind wait for a node";

/// Whether a note with the reason `WaitingForNode` is about older runs.
pub fn is_about_line(text: &str) -> bool {
    text.contains(OF_THE_KIND)
}

/// Older runs of the kind wait for a node, and this run has no placeholder.
pub(super) fn in_line(observed: &Observation, ahead: usize) -> Note {
    let (run, deadline) = (&observed.run, seconds(observed.config.hold_deadline));
    let RunKey { namespace, name, .. } = &run.key;
    let text = format!(
        "No node for this run yet: {}{OF_THE_KIND}, and no autoscaler adds one. Runs that may use the same nodes \
         get them in the order of their creation, so this run gets its placeholder after these runs. The hold lasts {deadline} at \
         most. To start it earlier, add nodes, or delete finished runs that reserve a node (isolateAlways). `kubectl pod-affinity list -n \
         {namespace}` has the position of each run; `kubectl pod-affinity explain -n {namespace} {name}` lists the reasons for each \
         node.",
        older_runs(ahead)
    );
    note(Reason::WaitingForNode, text)
}

/// The number of older runs. A large number is rounded up, because each change of the text is another event.
fn older_runs(ahead: usize) -> String {
    const EXACT: usize = 5;
    match ahead {
        0 | 1 => "1 older run".to_owned(),
        ahead if ahead <= EXACT => format!("{ahead} older runs"),
        ahead => format!("up to {} older runs", round_up(ahead)),
    }
}

/// The next of 10, 20, 50, 100, 200, 500 and so on.
fn round_up(number: usize) -> usize {
    let steps = (1..).map(|exponent| 10_usize.saturating_pow(exponent));
    let mut rounded = steps.flat_map(|step| [1, 2, 5].map(|factor| step.saturating_mul(factor)));
    rounded.find(|it| *it >= number).unwrap_or(number)
}

/// Other runs use up a cap.
pub(super) fn over_cap(observed: &Observation, OverCap { cap, ahead }: OverCap) -> Note {
    let RunKey { namespace, .. } = &observed.run.key;
    let (limit, key) = (cap.limit(), cap.key());
    let whose = match cap {
        Cap::Cluster(_) => "in the cluster".to_owned(),
        Cap::EachNamespace(_) | Cap::Namespace(_) => format!("in the namespace {namespace}"),
    };
    let others = match ahead {
        0 => "this run is the next".to_owned(),
        ahead => format!("{} get their placeholders before this run", older_runs(ahead)),
    };
    let text = format!(
        "Held by pod-affinity, because {key} allows {limit} labelled runs {whose} at a time, and other runs use them up; {others}. Until \
         then, hold-deadline does not count. To start the run earlier, raise {key} in the configuration of pod-affinity, or end other \
         runs."
    );
    note(Reason::OverCap, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use jiff::Timestamp;
    use std::sync::Arc;

    #[test]
    fn the_words_of_a_text_have_single_spaces() {
        let observed = Observation::new(fixture::run(), Arc::default(), Timestamp::UNIX_EPOCH);
        let cap = Cap::Cluster(3);
        for note in [
            in_line(&observed, 2),
            over_cap(&observed, OverCap { cap, ahead: 2 }),
        ] {
            assert!(!note.text.contains("  "), "{}", note.text);
        }
    }

    #[test]
    fn a_large_number_of_older_runs_is_rounded_up() {
        let texts = [1, 2, 5, 6, 20, 21, 300].map(older_runs);
        let expected = [
            "1 older run",
            "2 older runs",
            "5 older runs",
            "up to 10 older runs",
            "up to 20 older runs",
            "up to 50 older runs",
            "up to 500 older runs",
        ];
        assert_eq!(texts, expected);
    }
}
