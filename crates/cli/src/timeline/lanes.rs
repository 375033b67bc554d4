//! Sorts bars into lanes, and says of each node when it was added and removed. Pure.

use super::gather::Facts;
use super::model::{Bar, Lane, Mark, MarkKind, Place, Span, within};
use crate::view::created;
use jiff::Timestamp;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};

/// What was seen of the nodes. Where nodes cannot be read, none is said to be gone.
pub(crate) struct Nodes<'a> {
    created: Option<BTreeMap<String, Option<Timestamp>>>,
    ends: BTreeMap<&'a str, BTreeSet<Timestamp>>,
}

impl<'a> Nodes<'a> {
    pub(crate) fn of(facts: &'a Facts) -> Self {
        let nodes = facts.nodes.as_ref().ok();
        let created = nodes.map(|nodes| {
            let all = nodes
                .iter()
                .map(|node| (node.name_any(), created(&node.metadata)));
            all.collect()
        });
        let mut ends: BTreeMap<&str, BTreeSet<Timestamp>> = BTreeMap::new();
        for end in facts.node_ends.iter().flatten() {
            ends.entry(&end.node).or_default().insert(end.at);
        }
        Self { created, ends }
    }

    /// Those that were added or removed in this time, whether a run was on them or not.
    pub(crate) fn changed(&self, window: Span) -> Vec<String> {
        let added = self.created.iter().flatten();
        let added = added.filter(|(_, at)| at.is_some_and(|at| window.has(at)));
        let removed = self
            .ends
            .iter()
            .filter(|(_, ends)| ends.iter().any(|at| window.has(*at)));
        let removed = removed.map(|(name, _)| (*name).to_owned());
        added.map(|(name, _)| name.clone()).chain(removed).collect()
    }

    fn is_gone(&self, name: &str) -> bool {
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

    /// A node of the same name may have been there before: bars then tell when.
    fn life(&self, name: &str, bars: &[Bar], window: Span) -> Span {
        let first = bars.iter().map(|bar| bar.span.from).min();
        let last = bars.iter().map(|bar| bar.span.to).max();
        let created = self.created(name).unwrap_or(window.from);
        let removed = self.ends(name).last().filter(|_| self.is_gone(name));
        let from = created.max(window.from).min(first.unwrap_or(window.to));
        let to = removed.unwrap_or(window.to).min(window.to);
        Span::new(from.min(window.to), to.max(last.unwrap_or(window.from)))
    }

    fn marks(&self, name: &str) -> Vec<Mark> {
        let added = self.created(name).map(|at| Mark {
            at,
            kind: MarkKind::NodeAdded,
            text: format!("Node {name} was added."),
        });
        let removed = self.ends(name).map(|at| Mark {
            at,
            kind: MarkKind::NodeRemoved,
            text: format!("Node {name} was removed."),
        });
        added.into_iter().chain(removed).collect()
    }

    fn remark(&self, name: &str) -> Option<&'static str> {
        match (self.is_gone(name), self.ends(name).next()) {
            (true, Some(_)) => Some("removed"),
            (true, None) => Some("removed, time unknown"),
            (false, _) => None,
        }
    }
}

/// The lanes of these bars and of these nodes: runs without a node first, then the nodes by name.
pub(crate) fn lanes(
    bars: Vec<(Place, Bar)>,
    names: Vec<String>,
    nodes: &Nodes<'_>,
    window: Span,
) -> Vec<Lane> {
    let mut places: BTreeMap<Place, Vec<Bar>> = BTreeMap::new();
    for name in names {
        places.entry(Place::Node(name)).or_default();
    }
    for (place, bar) in bars {
        if let Some(bar) = bar.clipped(window) {
            places.entry(place).or_default().push(bar);
        }
    }
    let mut lanes: Vec<_> = places
        .into_iter()
        .map(|(place, bars)| lane(place, bars, nodes, window))
        .collect();
    lanes.sort_by_key(|lane| order(&lane.place));
    lanes
}

fn lane(place: Place, mut bars: Vec<Bar>, nodes: &Nodes<'_>, window: Span) -> Lane {
    bars.sort_by(|one, other| {
        let key = |bar: &Bar| (bar.span.from, bar.who.label.clone());
        key(one).cmp(&key(other))
    });
    let Place::Node(name) = &place else {
        return Lane {
            place,
            life: window,
            remark: None,
            marks: Vec::new(),
            bars,
        };
    };
    Lane {
        life: nodes.life(name, &bars, window),
        remark: nodes.remark(name),
        marks: within(&nodes.marks(name), window),
        place,
        bars,
    }
}

/// `node-2` comes before `node-10`.
fn order(place: &Place) -> (u8, Vec<(String, u64)>) {
    match place {
        Place::Nowhere => (0, Vec::new()),
        Place::Node(name) => (1, natural(name)),
        Place::Unknown => (2, Vec::new()),
    }
}

fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for letter in name.chars() {
        match parts.last_mut() {
            Some((_, digits)) if letter.is_ascii_digit() => digits.push(letter),
            Some((text, digits)) if digits.is_empty() => text.push(letter),
            Some(_) | None if letter.is_ascii_digit() => parts.push((String::new(), letter.into())),
            Some(_) | None => parts.push((letter.into(), String::new())),
        }
    }
    let parts = parts.into_iter();
    parts
        .map(|(text, digits)| (text, digits.parse().unwrap_or(u64::MAX)))
        .collect()
}
