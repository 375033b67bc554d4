//! The nodes of a labelled run, one after another, from events, from pods, and from the annotation of the run.

use super::evidence::{Evidence, bound};
use super::model::{Place, Span};
use crate::state::State;
use jiff::{SignedDuration, Timestamp};
use placement::kept_node::record::KeptUntil;

/// The time of a run in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    pub(super) place: Place,
    pub(super) span: Span,
    /// The message of the event `MovedOff`, if this event ended the stay.
    pub(super) left: Option<String>,
}

/// The place of a run from a moment on.
#[derive(Clone, Debug)]
struct PlaceChange {
    at: Timestamp,
    /// When this change counts, compared with others. Times of pods have whole seconds, and may be up to a second too early.
    order: Timestamp,
    place: Place,
    /// The message of the event `MovedOff`.
    left: Option<String>,
}

impl PlaceChange {
    fn exact(at: Timestamp, place: Place, left: Option<String>) -> Self {
        Self {
            at,
            order: at,
            place,
            left,
        }
    }

    fn rounded(at: Timestamp, place: Place) -> Self {
        let order = at.checked_add(SignedDuration::from_millis(999)).unwrap_or(at);
        Self {
            order,
            ..Self::exact(at, place, None)
        }
    }
}

/// The stays of a labelled run, from its creation on.
pub(super) fn stays(evidence: &Evidence<'_>) -> Vec<Stay> {
    // A reservation lasts longer than the run.
    let end = if evidence.state == State::Reserved {
        evidence.now
    } else {
        evidence.end()
    };
    let stay = |place, from| Stay {
        place,
        span: Span::new(from, end),
        left: None,
    };
    let mut stays = vec![stay(Place::Nowhere, evidence.begin())];
    for place_change in place_changes(evidence) {
        let Some(open) = stays.last_mut() else { continue };
        if open.place == place_change.place {
            continue;
        }
        let at = place_change.at.clamp(open.span.from, end);
        open.span.to = at;
        open.left = place_change.left;
        stays.push(stay(place_change.place, at));
    }
    if let (KeptUntil::Time(until), Some(last)) = (evidence.kept_until, stays.last_mut())
        && last.place != Place::Nowhere
    {
        last.span.to = until.min(evidence.now).max(end);
    }
    // The only stay of a run that was created now takes no time.
    let only = stays.len() == 1;
    stays.retain(|it| only || it.span.from < it.span.to);
    stays
}

fn place_changes(evidence: &Evidence<'_>) -> Vec<PlaceChange> {
    let mut found: Vec<_> = by_events(evidence).chain(by_pods(evidence)).collect();
    found.sort_by_key(|it| it.order);
    match found.first_mut() {
        Some(first) => begin_at_release(evidence, first),
        None => found.extend(by_annotation(evidence)),
    }
    found
}

/// A run is released when its placeholder has a node. Without an event, the run had its first node by then.
fn begin_at_release(evidence: &Evidence<'_>, first: &mut PlaceChange) {
    if evidence.first_event("Released").is_none() && first.place != Place::Nowhere {
        first.at = evidence.released().map_or(first.at, |at| first.at.min(at));
    }
}

fn by_events(evidence: &Evidence<'_>) -> impl Iterator<Item = PlaceChange> {
    evidence.events.iter().filter_map(|event| {
        let (place, left) = match event.reason.as_str() {
            "Released" => (
                Place::Node(node_in(event.text.strip_prefix("Released: ")?)?),
                None,
            ),
            "NodeAssigned" | "Moved" => (Place::Node(node_in(&event.text)?), None),
            "MovedOff" => (Place::Nowhere, Some(event.text.clone())),
            _ => return None,
        };
        Some(PlaceChange::exact(event.since, place, left))
    })
}

/// The node that the message of an event names first.
fn node_in(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("node ")?;
    let name = rest.split([' ', ';', ',', ':']).next()?;
    let name = name.trim_end_matches('.');
    (!name.is_empty()).then(|| name.to_owned())
}

fn by_pods(evidence: &Evidence<'_>) -> impl Iterator<Item = PlaceChange> {
    let members = evidence.tasks.iter().filter(|it| !it.opted_out);
    let tasks = members.filter_map(|it| Some((it.bound?, it.place.clone())));
    let placeholder = evidence.placeholder.pod.and_then(|pod| {
        let node = evidence.placeholder.node()?;
        Some((bound(pod)?, Place::Node(node.to_owned())))
    });
    tasks
        .chain(placeholder)
        .map(|(at, place)| PlaceChange::rounded(at, place))
}

/// Without pods and events, the annotation names the last node. Whether the run moved is then not known.
fn by_annotation(evidence: &Evidence<'_>) -> Option<PlaceChange> {
    let at = evidence.released()?;
    let place = match &evidence.view.run.node {
        Some(node) => Place::Node(node.clone()),
        None if evidence.view.run.done => Place::Unknown,
        None => return None,
    };
    Some(PlaceChange::exact(at, place, None))
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
