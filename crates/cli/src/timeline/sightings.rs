//! Where a labelled run was when, from events, from its pods and from its annotation. Pure.

use super::evidence::{Evidence, bound};
use super::model::{Place, Span};
use jiff::{SignedDuration, Timestamp};

/// A time during which a run is in one place, and why it came there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) place: Place,
    pub(crate) span: Span,
    /// What the event says by which the run moved off, if this stay ended so.
    pub(crate) left: Option<String>,
}

#[derive(Clone, Debug)]
struct Sighting {
    at: Timestamp,
    place: Place,
    why: Option<String>,
    /// Pods have whole seconds: such a time may be up to a second too early.
    rough: bool,
}

/// The stays of a labelled run, one after the other, from its creation on.
pub(crate) fn stays(evidence: &Evidence<'_>) -> Vec<Stay> {
    let (begin, end) = (evidence.begin(), last(evidence));
    let mut stays: Vec<Stay> = vec![stay(Place::Nowhere, begin, end)];
    for sighting in sightings(evidence) {
        let Some(open) = stays.last_mut() else { continue };
        if open.place == sighting.place {
            continue;
        }
        let at = sighting.at.clamp(open.span.from, end);
        open.span.to = at;
        open.left = sighting.why;
        stays.push(stay(sighting.place, at, end));
    }
    // A run that was created this moment has one stay, and that takes no time.
    let only = stays.len() == 1;
    stays.retain(|it| only || it.span.from < it.span.to);
    stays
}

fn stay(place: Place, from: Timestamp, to: Timestamp) -> Stay {
    Stay {
        place,
        span: Span::new(from, to),
        left: None,
    }
}

/// Until when the run counts: a reservation lasts beyond its end.
fn last(evidence: &Evidence<'_>) -> Timestamp {
    if evidence.state == crate::state::State::Reserved {
        evidence.now
    } else {
        evidence.end()
    }
}

fn sightings(evidence: &Evidence<'_>) -> Vec<Sighting> {
    let mut found: Vec<_> = by_events(evidence).into_iter().chain(by_pods(evidence)).collect();
    found.sort_by_key(|it| if it.rough { after_a_second(it.at) } else { it.at });
    match found.first_mut() {
        Some(first) => extend(evidence, first),
        None => found.extend(by_record(evidence)),
    }
    found
}

fn after_a_second(at: Timestamp) -> Timestamp {
    at.checked_add(SignedDuration::from_millis(999)).unwrap_or(at)
}

/// A run is released when it has a node. Where no event says otherwise, it had its first node by then.
fn extend(evidence: &Evidence<'_>, first: &mut Sighting) {
    let released = evidence
        .released()
        .filter(|_| evidence.events("Released").next().is_none());
    if let Some(released) = released.filter(|_| first.place != Place::Nowhere) {
        first.at = first.at.min(released);
    }
}

fn by_events(evidence: &Evidence<'_>) -> Vec<Sighting> {
    let sightings = evidence.told.iter().filter_map(|told| {
        let (place, why) = match told.reason.as_str() {
            "Released" => (Place::Node(node_in(told.text.strip_prefix("Released: ")?)?), None),
            // Older releases told of every first node by itself.
            "NodeAssigned" | "Moved" => (Place::Node(node_in(&told.text)?), None),
            "MovedOff" => (Place::Nowhere, Some(told.text.clone())),
            _ => return None,
        };
        Some(Sighting {
            at: told.since,
            place,
            why,
            rough: false,
        })
    });
    sightings.collect()
}

/// The node that an event names first.
fn node_in(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("node ")?;
    let name = rest.split([' ', ';', ',', ':']).next()?;
    let name = name.trim_end_matches('.');
    (!name.is_empty()).then(|| name.to_owned())
}

fn by_pods(evidence: &Evidence<'_>) -> Vec<Sighting> {
    let members = evidence.work.iter().filter(|work| !work.opted_out);
    let tasks = members.filter_map(|work| Some((work.bound?, work.place.clone())));
    let placeholder = evidence.seat.pod.and_then(|pod| {
        let node = evidence.seat.node()?;
        Some((bound(pod)?, Place::Node(node.to_owned())))
    });
    let all = tasks.chain(placeholder).map(|(at, place)| Sighting {
        at,
        place,
        why: None,
        rough: true,
    });
    all.collect()
}

/// What is left when pods and events are gone: the annotation names the last node, and nothing says whether the run moved.
fn by_record(evidence: &Evidence<'_>) -> Option<Sighting> {
    let at = evidence.released()?;
    let place = match &evidence.view.run.node {
        Some(node) => Place::Node(node.clone()),
        None if evidence.view.run.done => Place::Unknown,
        None => return None,
    };
    Some(Sighting {
        at,
        place,
        why: None,
        rough: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_read_from_each_event_that_names_one() {
        let table = [
            (
                "Released: all pods of this run go to node node-1; no other PipelineRun's pods can use it",
                "node-1",
            ),
            ("All pods of this run go to node a.b.internal.", "a.b.internal"),
            (
                "All pods of this run go to node n, which it may share with other runs (colocateAlways)",
                "n",
            ),
            (
                "The placeholder is on node n-2 (before: n-1); this run's pods are there or will be scheduled there.",
                "n-2",
            ),
        ];
        for (text, node) in table {
            assert_eq!(node_in(text).as_deref(), Some(node));
        }
        assert_eq!(node_in("It has no place."), None);
    }
}
