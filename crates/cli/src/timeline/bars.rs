//! The bars of a run: a bar for each place of the run, with its phases, its tasks and its moves.

use super::evidence::{Evidence, ROUNDING, TaskEvidence};
use super::model::{Bar, Mark, MarkKind, Phase, Place, RunInfo, Segment, Span, TaskSpan};
use super::stays::{Stay, stays};
use crate::state::State;
use crate::view::scheduled;
use jiff::Timestamp;
use placement::kept_node::record::KeptUntil;
use placement::run::SpecStatus;
use std::collections::BTreeMap;

/// The bars of a run that pod-affinity places: a bar for each stay, and a bar for each task on another node.
pub(super) fn of_placed_run(evidence: &Evidence<'_>, run: &RunInfo) -> Vec<(Place, Bar)> {
    let stays = stays(evidence);
    let phases = phases(evidence);
    let bars = stays.iter().enumerate().map(|(at, stay)| {
        let is_last = at + 1 == stays.len();
        let bar = Bar {
            run: run.clone(),
            span: stay.span,
            segments: segments(&phases, stay),
            tasks: tasks(evidence, stay),
            marks: marks(&stays, at),
            notes: if is_last { notes(evidence) } else { Vec::new() },
        };
        (stay.place.clone(), bar)
    });
    bars.chain(separate_tasks(evidence, run, &stays)).collect()
}

/// The life of the run, in any place.
fn phases(evidence: &Evidence<'_>) -> Vec<Segment> {
    let (begin, end) = (evidence.begin(), evidence.end());
    let released = evidence.released().unwrap_or(end);
    let waits = waits_from(evidence).map_or(released, |at| at.clamp(begin, released));
    let after = if evidence.view.run.done && evidence.view.ended.is_none() {
        Phase::Unknown
    } else {
        Phase::Running
    };
    let kept = if evidence.state == State::Reserved {
        Phase::Reserved
    } else {
        Phase::Kept
    };
    let segments = [
        (Phase::Held, begin, waits),
        (Phase::Waiting, waits, released),
        (after, released, end),
        (kept, end, evidence.now),
    ];
    let segments = segments.map(|(phase, from, to)| Segment {
        phase,
        span: Span::new(from, to),
    });
    segments
        .into_iter()
        .filter(|it| it.span.from < it.span.to)
        .collect()
}

/// When the scheduler first found no node for the placeholder, from an event or from the placeholder's pod.
fn waits_from(evidence: &Evidence<'_>) -> Option<Timestamp> {
    let event = evidence.first_event("WaitingForNode");
    let unschedulable = evidence.placeholder.pod.and_then(|pod| scheduled(pod, "False"));
    let since = unschedulable.and_then(|it| it.last_transition_time.as_ref());
    event.into_iter().chain(since.map(|time| time.0)).min()
}

/// The phases during the stay. A run that was released and has no node waits for a node.
fn segments(phases: &[Segment], stay: &Stay) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for it in phases {
        let Some(span) = it.span.within(stay.span).filter(|span| span.from < span.to) else {
            continue;
        };
        let phase = match (it.phase, &stay.place) {
            (Phase::Running, Place::Nowhere) => Phase::Waiting,
            (phase, _) => phase,
        };
        match segments.last_mut() {
            Some(last) if last.phase == phase => last.span.to = span.to,
            Some(_) | None => segments.push(Segment { phase, span }),
        }
    }
    segments
}

/// The tasks of this stay. A task whose node is not known was with its run.
fn tasks(evidence: &Evidence<'_>, stay: &Stay) -> Vec<TaskSpan> {
    let here = |it: &&TaskEvidence| match &it.place {
        Place::Node(_) => it.place == stay.place,
        Place::Nowhere | Place::Unknown => !it.opted_out,
    };
    let tasks = evidence.tasks.iter().filter(here).filter_map(|it| {
        let span = it.task.span.within(stay.span)?;
        // A task that is here for less than a second is here only because its times are rounded.
        let lasts = span.length() >= ROUNDING || span == it.task.span;
        lasts.then(|| TaskSpan {
            span,
            ..it.task.clone()
        })
    });
    tasks.collect()
}

/// Tasks on other nodes than their run.
fn separate_tasks(evidence: &Evidence<'_>, run: &RunInfo, stays: &[Stay]) -> Vec<(Place, Bar)> {
    let is_separate = |it: &&TaskEvidence| match &it.place {
        Place::Node(_) => !stays.iter().any(|stay| stay.place == it.place),
        Place::Nowhere | Place::Unknown => it.opted_out,
    };
    let bars = evidence.tasks.iter().filter(is_separate).map(|it| {
        let note = if it.opted_out {
            "a task that opted out, apart from its run"
        } else {
            "a task apart from its run"
        };
        let bar = Bar {
            tasks: vec![it.task.clone()],
            notes: vec![note.to_owned()],
            ..Bar::plain(run, Phase::Running, it.task.span)
        };
        (it.place.clone(), bar)
    });
    bars.collect()
}

/// The moves to and from this stay.
fn marks(stays: &[Stay], at: usize) -> Vec<Mark> {
    let Stay { place, span, left } = &stays[at];
    let is_on_node = place.node().is_some();
    let mark = |kind, at, text| Mark { at, kind, text };
    let before = stays[..at].iter().rev().find_map(|stay| stay.place.node());
    let arrived = before.filter(|_| is_on_node).map(|from| {
        let text = format!("Moved here from node {from}.");
        mark(MarkKind::Arrived, span.from, text)
    });
    let next = stays.get(at + 1).and_then(|stay| stay.place.node());
    let next = next
        .filter(|_| is_on_node)
        .map(|to| format!("Moved to node {to}."));
    let left = left
        .clone()
        .or(next)
        .map(|text| mark(MarkKind::Left, span.to, text));
    arrived.into_iter().chain(left).collect()
}

/// Whether the start was warm, and what is not known because the API server no longer has the objects.
fn notes(evidence: &Evidence<'_>) -> Vec<String> {
    let without_events = evidence.events.is_empty() && evidence.released().is_some();
    let without_events = without_events
        .then_some("without events, how long it waited for a node and whether it moved is unknown");
    let freed = evidence
        .has_freed_reservation()
        .then_some("its node is no longer reserved; since when is unknown");
    let implausible = (evidence.kept_until == KeptUntil::Implausible)
        .then_some("how long its node was kept after its end is unknown");
    let notes = [start(evidence), without_events, freed, implausible]
        .into_iter()
        .flatten();
    notes.map(str::to_owned).collect()
}

/// Why the start was warm or cold, from the end of the event `Released`, if the run prefers warm nodes.
fn start<'a>(evidence: &Evidence<'a>) -> Option<&'a str> {
    let released = evidence.events.iter().find(|event| event.reason == "Released")?;
    let (_, end) = released.text.rsplit_once("; ")?;
    let is_start = end.starts_with("a warm start") || end.starts_with("a cold start");
    is_start.then_some(end)
}

/// The bars of a run that pod-affinity does not place: a bar for each place of its tasks, and a bar for the time before the tasks.
pub(super) fn of_other_run(evidence: &Evidence<'_>, run: &RunInfo) -> Vec<(Place, Bar)> {
    let mut places: BTreeMap<&Place, Vec<&TaskSpan>> = BTreeMap::new();
    for it in &evidence.tasks {
        places.entry(&it.place).or_default().push(&it.task);
    }
    let with_tasks = places
        .into_iter()
        .map(|(place, tasks)| (place.clone(), at_work(place, &tasks, run)));
    let before = before_start(evidence, run).map(|bar| (Place::Nowhere, bar));
    let without_tasks = evidence.view.started.filter(|_| evidence.tasks.is_empty());
    let without_tasks = without_tasks.map(|started| {
        let (place, phase) = if evidence.view.run.done {
            (Place::Unknown, Phase::Running)
        } else {
            (Place::Nowhere, Phase::Unknown)
        };
        (place, Bar::plain(run, phase, Span::new(started, evidence.end())))
    });
    before
        .into_iter()
        .chain(with_tasks)
        .chain(without_tasks)
        .collect()
}

fn at_work(place: &Place, tasks: &[&TaskSpan], run: &RunInfo) -> Bar {
    let from = tasks.iter().map(|it| it.span.from).min();
    let to = tasks.iter().map(|it| it.span.to).max();
    let span = Span::new(from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MIN));
    let phase = match place {
        Place::Nowhere => Phase::Waiting,
        Place::Node(_) | Place::Unknown => Phase::Running,
    };
    Bar {
        tasks: tasks.iter().copied().cloned().collect(),
        ..Bar::plain(run, phase, span)
    }
}

/// From the creation of the run to its start. Why a run that is no longer pending waited is not known.
fn before_start(evidence: &Evidence<'_>, run: &RunInfo) -> Option<Bar> {
    let span = Span::new(evidence.begin(), evidence.view.started.unwrap_or(evidence.end()));
    let phase = match evidence.view.run.status {
        SpecStatus::Pending => Phase::Held,
        SpecStatus::Unset | SpecStatus::Other(_) => Phase::Unknown,
    };
    (span.length() > ROUNDING).then(|| Bar::plain(run, phase, span))
}
