//! The bars of a run that pod-affinity places: where it was held, waited, ran, and what it keeps. Pure.

use super::evidence::{Evidence, ROUNDING, Work};
use super::model::{Bar, Mark, MarkKind, Phase, Place, Segment, Span, Task, Who};
use super::sightings::{Stay, stays};
use crate::view::scheduled;
use jiff::Timestamp;

/// A bar for each place, and for each task that opted out and went elsewhere.
pub(crate) fn bars(evidence: &Evidence<'_>, who: &Who) -> Vec<(Place, Bar)> {
    let stays = stays(evidence);
    let phases = phases(evidence);
    let own = (0..stays.len()).map(|at| (stays[at].place.clone(), bar(evidence, who, &stays, at, &phases)));
    own.chain(strays(evidence, who, &stays)).collect()
}

fn bar(evidence: &Evidence<'_>, who: &Who, stays: &[Stay], at: usize, phases: &[Segment]) -> Bar {
    let stay = &stays[at];
    let last = at + 1 == stays.len();
    let segments = phases.iter().filter_map(|segment| {
        let span = segment.span.shared(stay.span)?;
        let phase = phase_at(segment.phase, &stay.place);
        Some(Segment { phase, span })
    });
    Bar {
        who: who.clone(),
        span: stay.span,
        segments: joined(segments.collect()),
        tasks: tasks(evidence, stay),
        marks: marks(stays, at),
        notes: if last { notes(evidence) } else { Vec::new() },
    }
}

/// A run that was released and has no node waits for one.
fn phase_at(phase: Phase, place: &Place) -> Phase {
    match (phase, place) {
        (Phase::Running, Place::Nowhere) => Phase::Waiting,
        (phase, _) => phase,
    }
}

fn joined(segments: Vec<Segment>) -> Vec<Segment> {
    let mut joined: Vec<Segment> = Vec::new();
    for segment in segments {
        match joined.last_mut() {
            Some(last) if last.phase == segment.phase => last.span.to = segment.span.to,
            Some(_) | None => joined.push(segment),
        }
    }
    joined
}

/// The life of the run, wherever it was.
fn phases(evidence: &Evidence<'_>) -> Vec<Segment> {
    let (begin, end) = (evidence.begin(), evidence.end());
    let held = evidence.released().unwrap_or(end);
    let waits = waits_from(evidence).map_or(held, |at| at.clamp(begin, held));
    let after = if evidence.view.run.done && evidence.view.ended.is_none() {
        Phase::Unknown
    } else {
        Phase::Running
    };
    let cuts = [
        (Phase::Held, begin, waits),
        (Phase::Waiting, waits, held),
        (after, held, end),
        (Phase::Reserved, end, evidence.now),
    ];
    let segments = cuts.map(|(phase, from, to)| Segment {
        phase,
        span: Span::new(from, to),
    });
    segments
        .into_iter()
        .filter(|it| it.span.from < it.span.to)
        .collect()
}

/// When the scheduler first found no node for the placeholder, as an event or the placeholder's pod says.
fn waits_from(evidence: &Evidence<'_>) -> Option<Timestamp> {
    let event = evidence.events("WaitingForNode").map(|told| told.since).next();
    let refused = evidence.seat.pod.and_then(|pod| scheduled(pod, "False"));
    let refused = refused.and_then(|it| it.last_transition_time.as_ref());
    [event, refused.map(|time| time.0)].into_iter().flatten().min()
}

/// The tasks of this stay. A task of which nothing says where it ran was with its run.
fn tasks(evidence: &Evidence<'_>, stay: &Stay) -> Vec<Task> {
    let here = |work: &&Work| match &work.place {
        Place::Node(_) => work.place == stay.place,
        Place::Nowhere | Place::Unknown => !work.opted_out,
    };
    let tasks = evidence.work.iter().filter(here).filter_map(|work| {
        let span = work.task.span.within(stay.span)?;
        // The times of tasks have whole seconds: less than one beyond a stay is rounding.
        let lasts = span.length() >= ROUNDING;
        (lasts || span == work.task.span).then(|| Task {
            span,
            ..work.task.clone()
        })
    });
    tasks.collect()
}

/// Tasks on other nodes than their run.
fn strays(evidence: &Evidence<'_>, who: &Who, stays: &[Stay]) -> Vec<(Place, Bar)> {
    let is_stray = |work: &&Work| match &work.place {
        Place::Node(_) => !stays.iter().any(|stay| stay.place == work.place),
        Place::Nowhere | Place::Unknown => work.opted_out,
    };
    let strays = evidence.work.iter().filter(is_stray).map(|work| {
        let segment = Segment {
            phase: Phase::Running,
            span: work.task.span,
        };
        let bar = Bar {
            tasks: vec![work.task.clone()],
            notes: vec![apart(work).to_owned()],
            ..Bar::plain(who, segment)
        };
        (work.place.clone(), bar)
    });
    strays.collect()
}

fn apart(work: &Work) -> &'static str {
    if work.opted_out {
        "a task that opted out, apart from its run"
    } else {
        "a task apart from its run"
    }
}

fn marks(stays: &[Stay], at: usize) -> Vec<Mark> {
    let here = &stays[at];
    let before = stays[..at].iter().rev().find_map(|stay| node(&stay.place));
    let left = here
        .left
        .as_ref()
        .map(|why| mark(MarkKind::Left, here.span.to, why.clone()));
    let moves = before.filter(|_| node(&here.place).is_some());
    let arrived = moves.map(|from| {
        mark(
            MarkKind::Arrived,
            here.span.from,
            format!("Moved here from node {from}."),
        )
    });
    let next = stays.get(at + 1).and_then(|stay| node(&stay.place));
    let gone = next.filter(|_| left.is_none() && node(&here.place).is_some());
    let gone = gone.map(|to| mark(MarkKind::Left, here.span.to, format!("Moved to node {to}.")));
    [arrived, left, gone].into_iter().flatten().collect()
}

fn node(place: &Place) -> Option<&str> {
    match place {
        Place::Node(name) => Some(name),
        Place::Nowhere | Place::Unknown => None,
    }
}

fn mark(kind: MarkKind, at: Timestamp, text: String) -> Mark {
    Mark { at, kind, text }
}

/// What the bars of a run cannot show because the API server no longer has it.
fn notes(evidence: &Evidence<'_>) -> Vec<String> {
    let run = &evidence.view.run;
    let is_silent = evidence.told.is_empty() && evidence.released().is_some();
    let silent =
        is_silent.then_some("without events, how long it waited for a node and whether it moved is unknown");
    let lasted = run.strategy.as_deref() == Some("isolateAlways");
    let freed = lasted && run.done && evidence.sees_pods && evidence.seat.pod.is_none();
    let freed = freed.then_some("its node is no longer reserved; since when is unknown");
    [silent, freed].into_iter().flatten().map(str::to_owned).collect()
}
