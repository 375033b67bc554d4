//! The bars of a run that pod-affinity does not place: its tasks may be on several nodes at a time. Pure.

use super::evidence::{Evidence, ROUNDING, Work};
use super::model::{Bar, Phase, Place, Segment, Span, Who};
use jiff::Timestamp;
use placement::run::SpecStatus;
use std::collections::BTreeMap;

/// A bar for each place of its tasks, and one for the time before them.
pub(crate) fn bars(evidence: &Evidence<'_>, who: &Who) -> Vec<(Place, Bar)> {
    let mut places: BTreeMap<&Place, Vec<&Work>> = BTreeMap::new();
    for work in &evidence.work {
        places.entry(&work.place).or_default().push(work);
    }
    let on = places
        .into_iter()
        .map(|(place, work)| (place.clone(), at_work(place, &work, who)));
    let before = before(evidence).map(|segment| (Place::Nowhere, Bar::plain(who, segment)));
    let none = (evidence.work.is_empty())
        .then(|| without_tasks(evidence))
        .flatten();
    let none = none.map(|(place, segment)| (place, Bar::plain(who, segment)));
    before.into_iter().chain(on).chain(none).collect()
}

fn at_work(place: &Place, work: &[&Work], who: &Who) -> Bar {
    let from = work.iter().map(|it| it.task.span.from).min();
    let to = work.iter().map(|it| it.task.span.to).max();
    let span = Span::new(from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MIN));
    let phase = match place {
        Place::Nowhere => Phase::Waiting,
        Place::Node(_) | Place::Unknown => Phase::Running,
    };
    Bar {
        tasks: work.iter().map(|it| it.task.clone()).collect(),
        ..Bar::plain(who, Segment { phase, span })
    }
}

/// From its creation to its start: held, or for a reason that the run no longer has.
fn before(evidence: &Evidence<'_>) -> Option<Segment> {
    let begin = evidence.begin();
    let end = evidence.view.started.unwrap_or(evidence.end());
    let phase = match evidence.view.run.status {
        SpecStatus::Pending => Phase::Held,
        SpecStatus::Unset | SpecStatus::Other(_) => Phase::Unknown,
    };
    let is_long = end.duration_since(begin) > ROUNDING;
    is_long.then(|| Segment {
        phase,
        span: Span::new(begin, end),
    })
}

fn without_tasks(evidence: &Evidence<'_>) -> Option<(Place, Segment)> {
    let span = Span::new(evidence.view.started?, evidence.end());
    let (place, phase) = if evidence.view.run.done {
        (Place::Unknown, Phase::Running)
    } else {
        (Place::Nowhere, Phase::Unknown)
    };
    Some((place, Segment { phase, span }))
}
