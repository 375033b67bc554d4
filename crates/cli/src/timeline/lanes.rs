//! Sorts bars into lanes, and adds when each node was added and removed.

use super::model::{Bar, Lane, Mark, MarkKind, Place, Span};
use super::read::History;
use crate::view::created;
use jiff::Timestamp;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// When nodes were created and removed.
pub(super) struct Nodes<'a> {
    /// `None` if nodes could not be read: then no node counts as removed.
    created: Option<BTreeMap<String, Option<Timestamp>>>,
    ends: BTreeMap<&'a str, BTreeSet<Timestamp>>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(history: &'a History) -> Self {
        let created = history.nodes.as_ref().ok().map(|nodes| {
            let nodes = nodes.iter();
            nodes
                .map(|node| (node.name_any(), created(&node.metadata)))
                .collect()
        });
        let mut ends: BTreeMap<&str, BTreeSet<Timestamp>> = BTreeMap::new();
        for end in history.node_ends.iter().flatten() {
            ends.entry(&end.node).or_default().insert(end.at);
        }
        Self { created, ends }
    }

    /// The nodes that were added or removed in the window, with and without runs.
    pub(super) fn changed(&self, window: Span) -> Vec<String> {
        let added = self.created.iter().flatten();
        let added = added.filter(|(_, at)| at.is_some_and(|at| window.has(at)));
        let removed = self
            .ends
            .iter()
            .filter(|(_, ends)| ends.iter().any(|at| window.has(*at)));
        let removed = removed.map(|(name, _)| (*name).to_owned());
        added.map(|(name, _)| name.clone()).chain(removed).collect()
    }

    fn is_removed(&self, name: &str) -> bool {
        self.created
            .as_ref()
            .is_some_and(|nodes| !nodes.contains_key(name))
    }

    fn created(&self, name: &str) -> Option<Timestamp> {
        self.created.as_ref()?.get(name).copied().flatten()
    }

    fn ends(&self, name: &str) -> impl Iterator<Item = Timestamp> {
        self.ends.get(name).into_iter().flatten().copied()
    }

    /// From the creation of the node to its removal. Bars extend the life: an earlier node may have had the same name.
    fn life(&self, name: &str, bars: &[Bar], window: Span) -> Span {
        let first = bars.iter().map(|bar| bar.span.from).min();
        let last = bars.iter().map(|bar| bar.span.to).max();
        let created = self.created(name).unwrap_or(window.from);
        let removed = self.ends(name).last().filter(|_| self.is_removed(name));
        let from = created.max(window.from).min(first.unwrap_or(window.to));
        let to = removed.unwrap_or(window.to).min(window.to);
        Span::new(from.min(window.to), to.max(last.unwrap_or(window.from)))
    }

    fn marks(&self, name: &str) -> impl Iterator<Item = Mark> {
        let added = self.created(name).map(|at| (at, MarkKind::NodeAdded, "added"));
        let removed = self.ends(name).map(|at| (at, MarkKind::NodeRemoved, "removed"));
        let marks = added.into_iter().chain(removed);
        marks.map(move |(at, kind, change)| {
            let text = format!("Node {name} was {change}.");
            Mark { at, kind, text }
        })
    }

    fn remark(&self, name: &str) -> Option<&'static str> {
        match (self.is_removed(name), self.ends(name).next()) {
            (true, Some(_)) => Some("removed"),
            (true, None) => Some("removed, time unknown"),
            (false, _) => None,
        }
    }
}

/// The lanes of these bars and of the nodes with these names: runs without a node first, then the nodes by name.
pub(super) fn lanes(
    bars: Vec<(Place, Bar)>,
    names: Vec<String>,
    nodes: &Nodes<'_>,
    window: Span,
) -> Vec<Lane> {
    let empty = names.into_iter().map(|name| (Place::Node(name), Vec::new()));
    let mut places: BTreeMap<Place, Vec<Bar>> = empty.collect();
    for (place, bar) in bars {
        if let Some(bar) = bar.clipped(window) {
            places.entry(place).or_default().push(bar);
        }
    }
    let lanes = places
        .into_iter()
        .map(|(place, bars)| lane(place, bars, nodes, window));
    let mut lanes: Vec<_> = lanes.collect();
    lanes.sort_by_cached_key(|lane| order(&lane.place));
    lanes
}

fn lane(place: Place, mut bars: Vec<Bar>, nodes: &Nodes<'_>, window: Span) -> Lane {
    bars.sort_by_cached_key(|bar| (bar.span.from, bar.run.label.clone()));
    let (life, remark, marks) = match place.node() {
        None => (window, None, Vec::new()),
        Some(name) => (
            nodes.life(name, &bars, window),
            nodes.remark(name),
            nodes.marks(name).filter(|mark| window.has(mark.at)).collect(),
        ),
    };
    Lane {
        place,
        life,
        remark,
        marks,
        bars,
    }
}

/// Sorts `node-2` before `node-10`.
fn order(place: &Place) -> (u8, Vec<(String, u64)>) {
    match place {
        Place::Nowhere => (0, Vec::new()),
        Place::Node(name) => (1, natural(name)),
        Place::Unknown => (2, Vec::new()),
    }
}

/// The texts and the numbers in a name.
fn natural(name: &str) -> Vec<(String, u64)> {
    let letters: Vec<char> = name.chars().collect();
    let parts = letters.chunk_by(|one, other| one.is_ascii_digit() == other.is_ascii_digit());
    let parts = parts.map(|part| part.iter().collect::<String>());
    parts
        .map(|part| part.parse().map_or((part, 0), |number| (String::new(), number)))
        .collect()
}
