//! The queue of held runs: which of them may have a placeholder now.
//!
//! First, the run needs a slot within the caps of the configuration (`slots.rs`). Then, the run waits for older runs of its kind.
//!
//! The scheduler does not keep the order of waiting pods: a pod that was tried often waits longer for its next attempt. So while
//! a pool is full, only the oldest runs of a kind have a placeholder. Runs are of one kind if the same nodes are possible for
//! them; runs of different kinds do not wait for each other.
//!
//! An autoscaler adds nodes only for pods that exist. So a run waits in line only if no autoscaler adds a node for it: an
//! autoscaler refused a run of the namespace that asks for no more, or none answered within [`ANSWER_WITHIN`]. As soon as an
//! autoscaler promises a node to a run of the kind, all runs of the kind have placeholders again.
//!
//! The rules of a line (`line.rs`):
//!
//! 1. The oldest run of the kind may have a placeholder.
//! 2. A run has to wait if an older run that asks for no more found no node: that run shows that no node is free.
//! 3. Otherwise a run may have a placeholder if a free node is left after each older run has taken one. An older run that found
//!    no node has no use for a node that is too small for it.
//! 4. A node that stays free for 15 seconds does not wait for older runs, unless a run of the same namespace that asked for no more
//!    left the node. Runs whose placeholders left such a node are not expected to take another.
//! 5. A placeholder that exists is deleted only if it found no node, if [`TRIED_AT_ONCE`] older runs have one, and if one of them
//!    is of the same namespace and asks for no more.
//!
//! Rules 4 and 5 are by namespace because a policy may give the pods of each namespace nodes of their own.
//!
//! While a quota of a namespace has no room for placeholders, no run waits for a run of this namespace that has no placeholder.

use crate::attempts::Before;
use crate::caps::Caps;
use crate::config::Config;
use crate::node::NodeFacts;
use crate::node::selector::NodeRequirements;
use crate::placeholder::{node_selector, tolerations_with};
use crate::resources::Resources;
use crate::run::Run;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

mod line;
mod slots;

use line::Line;
use slots::Slots;

/// The time in which an autoscaler answers a pod that found no node, and the controller reads the answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The most placeholders of a kind in line that are new at the same time, while nodes are free for them.
const NEW_AT_ONCE: usize = 10;
/// The most placeholders of a kind in line that found no node: one less is the limit of how many younger runs can overtake a run.
const TRIED_AT_ONCE: usize = 3;

/// The most free nodes that all lines observe together: a user may create a kind, and so a line, with each run. Rule 4 does not apply to
/// other nodes.
const MOST_OBSERVED: usize = 100_000;

/// What decides which nodes are possible for a run, apart from their size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind(String);

/// The active runs.
#[derive(Debug, Default)]
pub struct Queue {
    slots: Slots,
    lines: HashMap<Kind, Line>,
    /// The namespaces whose quotas have no room for placeholders.
    full: HashSet<String>,
    places: HashMap<String, Place>,
    next: u64,
    /// No autoscaler of this cluster has answered, and one placeholder has waited long enough for an answer.
    is_silent: bool,
}

/// The place of a run in the queue.
#[derive(Clone, Debug)]
struct Place {
    position: Position,
    /// The line in which the run waits.
    kind: Option<Kind>,
}

/// Namespace and name of a run.
pub type Name = (String, String);

/// The order of runs: by creation time, which has a precision of one second, then by the time at which the controller observed
/// the run.
type Position = (Option<Timestamp>, u64);

/// A run that is not done, or whose placeholder exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// UID of the run.
    pub uid: String,
    /// Namespace and name of the run.
    pub name: Name,
    /// When the run was created.
    pub created: Option<Timestamp>,
    /// The run has a placeholder, or has started.
    pub has_slot: bool,
    /// The node of the placeholder.
    pub node: Option<String>,
    /// The kind whose nodes the run waits for, and the result of its placeholder so far. `None` if the run has a node, or if its turn
    /// does not depend on other runs.
    pub waits: Option<(Kind, Waiting)>,
}

/// A held run without a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// What its placeholder requests.
    pub size: Resources,
    /// `size` lacks the automatic reserve, which the controller reads before it creates the placeholder.
    pub is_estimate: bool,
    /// Its placeholder.
    pub placeholder: Stage,
    /// What autoscalers answered to its placeholder.
    pub answer: Answer,
}

/// The placeholder of a run without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// There is none.
    Missing,
    /// The scheduler has not tried the placeholder.
    New,
    /// The scheduler found no node for the placeholder.
    Unschedulable,
}

/// What autoscalers answered to a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing yet.
    Pending,
    /// An autoscaler adds a node, or knows a node.
    Promise,
    /// An autoscaler adds no node.
    Refusal,
    /// No autoscaler answered in time.
    Silence,
}

impl Waiting {
    /// The run with the size of its earlier placeholder, if only a placeholder shows the size.
    fn with_known_size(self, known: Option<Resources>) -> Self {
        match known {
            Some(known) if self.is_estimate => Self {
                size: self.size.or_more(known),
                ..self
            },
            Some(_) | None => self,
        }
    }
}

impl Kind {
    /// The kind of all runs for which this text is the same.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl Queue {
    /// Sets the active caps.
    pub fn set_caps(&mut self, caps: &Caps) {
        self.slots.set_caps(caps);
    }

    /// Sets whether a quota of the namespace has no room for placeholders. Returns the runs whose turn may have come.
    pub fn set_full(&mut self, namespace: &str, is_full: bool) -> Vec<Name> {
        let has_changed = if is_full {
            self.full.insert(namespace.to_owned())
        } else {
            self.full.remove(namespace)
        };
        if has_changed { self.next() } else { Vec::new() }
    }

    /// Adds or updates a run. Returns the runs whose turn may have changed.
    pub fn record(&mut self, run: Member) -> Vec<Name> {
        let position = self.place(&run);
        self.slots.record(position, &run.name, run.has_slot);
        let kind = run.waits.as_ref().map(|(kind, _)| kind);
        let mut changed = self.leave_line(&run.uid, kind, run.node.as_deref());
        if let Some((kind, waiting)) = run.waits {
            changed.extend(self.join_line(position, kind, run.name, waiting));
        }
        changed
    }

    /// Removes a run that is done or not labelled any more. Returns the runs whose turn may have come.
    pub fn remove(&mut self, uid: &str) -> Vec<Name> {
        let mut next = self.leave_line(uid, None, None);
        if let Some(place) = self.places.remove(uid) {
            next.extend(self.slots.remove(place.position));
        }
        next
    }

    /// Removes runs that were deleted. Returns the runs whose turn may have come.
    pub fn forget(&mut self, is_gone: impl Fn(&str) -> bool) -> Vec<Name> {
        let uids = self.places.keys().filter(|uid| is_gone(uid));
        let gone: Vec<_> = uids.cloned().collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// The runs whose turn may have come, because a node may be free.
    pub fn next(&self) -> Vec<Name> {
        let lines = self.lines.values();
        lines.flat_map(|line| line.next(&self.full)).collect()
    }

    /// Why the run may not have a placeholder now. `free` are the nodes that no run has and that are possible for the kind.
    pub fn before(
        &mut self,
        uid: &str,
        now: Timestamp,
        free: impl FnOnce() -> Vec<Arc<NodeFacts>>,
    ) -> Option<Before> {
        let Place { position, kind } = self.places.get(uid)?.clone();
        if let Some(over_cap) = self.slots.take(position) {
            self.leave_line(uid, None, None);
            return Some(Before::OverCap(over_cap));
        }
        let kind = kind?;
        let others = self.lines.iter().filter(|(other, _)| **other != kind);
        let observed: usize = others.map(|(_, line)| line.observed()).sum();
        let room = MOST_OBSERVED.saturating_sub(observed);
        let line = self.lines.get_mut(&kind)?;
        line.before(position, now, room, &self.full, free)
    }

    fn place(&mut self, run: &Member) -> Position {
        let next = self.next;
        let place = self.places.entry(run.uid.clone()).or_insert_with(|| {
            self.next += 1;
            Place {
                position: (run.created, next),
                kind: None,
            }
        });
        place.position
    }

    fn join_line(&mut self, position: Position, kind: Kind, name: Name, waiting: Waiting) -> Vec<Name> {
        self.hear(waiting.answer);
        let is_silent = self.is_silent;
        let line = self.lines.entry(kind).or_insert_with(|| Line::new(is_silent));
        line.record(position, name, waiting)
    }

    /// Removes the run, which may have this node now, from its line, unless the line is of this kind.
    fn leave_line(&mut self, uid: &str, except: Option<&Kind>, node: Option<&str>) -> Vec<Name> {
        let Some(place) = self.places.get_mut(uid) else {
            return Vec::new();
        };
        let (position, left) = (place.position, place.kind.take());
        place.kind = except.cloned();
        let Some(left) = left.filter(|left| Some(left) != except) else {
            return Vec::new();
        };
        let Some(line) = self.lines.get_mut(&left) else {
            return Vec::new();
        };
        line.remove(position, node);
        let next = line.next(&self.full);
        if line.is_empty() {
            self.lines.remove(&left);
        }
        next
    }

    /// Continues the lines of an earlier leader, after each waiting run was recorded.
    pub fn inherit(&mut self, now: Timestamp) {
        for line in self.lines.values_mut() {
            line.inherit(now, &self.full);
        }
    }

    fn hear(&mut self, answer: Answer) {
        match answer {
            Answer::Pending => {}
            Answer::Silence => self.is_silent = true,
            Answer::Promise | Answer::Refusal => self.is_silent = false,
        }
    }
}

/// The labels and the node affinity that the placeholder of the run requires of its node.
pub(crate) fn required_of_node(run: &Run, config: &Config) -> NodeRequirements {
    let affinity = run.template.affinity.as_ref();
    let affinity = affinity.and_then(|it| it.node_affinity.clone());
    NodeRequirements::new(node_selector(&run.template, config), affinity)
}

/// Whether a node is possible for the placeholder of the run, apart from what other pods use.
pub fn possible_nodes(run: &Run, config: &Config) -> impl Fn(&NodeFacts) -> bool {
    let required = required_of_node(run, config);
    let tolerations = tolerations_with(run, &config.placeholder_tolerations);
    move |node| required.allow(node, &tolerations)
}

#[cfg(test)]
mod tests;
