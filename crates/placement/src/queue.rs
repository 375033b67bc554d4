//! The queue of held runs that wait for a node: which of them may have a placeholder now.
//!
//! The scheduler does not keep the order of waiting pods: a pod that was tried often waits longer for its next attempt. So while
//! a pool is full, only the oldest runs of a kind have a placeholder. Runs are of one kind if the same nodes are possible for
//! them; runs of different kinds do not wait for each other.
//!
//! An autoscaler adds nodes only for pods that exist. So a kind is in line only if no autoscaler adds a node for it: an
//! autoscaler refused, or none answered within [`ANSWER_WITHIN`]. As soon as an autoscaler promises a node, all runs of the kind
//! have placeholders again.
//!
//! 1. A run may have a placeholder if its kind is not in line, or if the run is the oldest of its kind.
//! 2. A run has to wait if an older run that asks for no more found no node: that run shows that no node is free.
//! 3. Otherwise a run may have a placeholder if a free node is left after each older run has taken one. An older run that found
//!    no node has no use for a node that is too small for it.
//! 4. A placeholder that exists is deleted only if it found no node, and if [`AT_ONCE`] older runs have one.

use crate::node::selector::NodeRequirements;
use crate::node::{NodeFacts, NodeState, state};
use crate::resources::Resources;
use crate::run::Run;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// The time in which an autoscaler answers a pod that found no node, and the controller reads the answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The most placeholders of a kind that are new at the same time, and the most that wait for a node while the kind is in line. It is
/// also the limit of how many younger runs can overtake a run in line.
pub const AT_ONCE: usize = 3;
/// A free node that an older run could not use in this time does not wait for that run: the longest back-off of the scheduler
/// is ten seconds.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
/// A new leader finds a run of this age without a placeholder only if an earlier leader kept the run in line.
const CREATED_WITHIN: Duration = Duration::from_secs(10);

/// What decides which nodes are possible for a run, apart from their size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind(String);

/// The waiting runs of all kinds.
#[derive(Debug, Default)]
pub struct Queue {
    lines: HashMap<Kind, Line>,
    places: HashMap<String, (Kind, Position)>,
    next: u64,
    /// No autoscaler of this cluster has answered, and one placeholder has waited long enough for an answer.
    is_silent: bool,
}

/// Namespace and name of a run.
pub type Name = (String, String);

/// The order of runs: by creation time, which has a precision of one second, then by the time at which the controller observed
/// the run.
type Position = (Option<Timestamp>, u64);

/// The waiting runs of one kind.
#[derive(Debug, Default)]
struct Line {
    runs: BTreeMap<Position, Waiting>,
    /// The runs for which an autoscaler promises a node.
    promised: BTreeSet<Position>,
    is_closed: bool,
    /// Since when a free node is large enough for the oldest run, which finds no node.
    stuck_since: Option<Timestamp>,
}

/// A held run without a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// UID of the run.
    pub uid: String,
    /// Namespace and name of the run.
    pub name: Name,
    /// When the run was created.
    pub created: Option<Timestamp>,
    /// What its placeholder requests.
    pub size: Resources,
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

impl Kind {
    /// The kind of all runs for which this text is the same.
    pub fn new(text: String) -> Self {
        Self(text)
    }
}

impl Queue {
    /// Adds or updates a run. Returns the runs whose turn may have changed.
    pub fn record(&mut self, kind: &Kind, run: Waiting) -> Vec<Name> {
        let mut changed = Vec::new();
        if self.places.get(&run.uid).is_some_and(|(at, _)| at != kind) {
            changed = self.remove(&run.uid);
        }
        self.hear(run.answer);
        let next = self.next;
        let place = self.places.entry(run.uid.clone()).or_insert_with(|| {
            self.next += 1;
            (kind.clone(), (run.created, next))
        });
        let position = place.1;
        let is_silent = self.is_silent;
        let line = self.lines.entry(kind.clone()).or_insert_with(|| Line {
            is_closed: is_silent,
            ..Line::default()
        });
        changed.extend(line.record(position, run));
        changed
    }

    /// Removes a run that has a node, or waits for none. Returns the runs whose turn may have come.
    pub fn remove(&mut self, uid: &str) -> Vec<Name> {
        let Some((kind, position)) = self.places.remove(uid) else {
            return Vec::new();
        };
        let Some(line) = self.lines.get_mut(&kind) else {
            return Vec::new();
        };
        line.runs.remove(&position);
        line.promised.remove(&position);
        line.stuck_since = None;
        let next = line.next();
        if line.runs.is_empty() {
            self.lines.remove(&kind);
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
        self.lines.values().flat_map(Line::next).collect()
    }

    /// Whether the run may not have a placeholder now, and how many older runs of its kind wait. `free` are the nodes that no
    /// run has and that are possible for the kind.
    pub fn ahead(
        &mut self,
        uid: &str,
        now: Timestamp,
        free: impl FnOnce() -> Vec<NodeFacts>,
    ) -> Option<usize> {
        let (kind, position) = self.places.get(uid)?;
        let line = self.lines.get_mut(kind).filter(|line| line.is_closed)?;
        let ahead = line.runs.range(..position).count();
        (ahead > 0 && !line.is_turn(*position, now, free)).then_some(ahead)
    }

    /// Continues the lines of an earlier leader, after each waiting run was recorded.
    pub fn inherit(&mut self, now: Timestamp) {
        for line in self.lines.values_mut() {
            let is_old = |run: &Waiting| run.created.is_some_and(|at| age(at, now) >= CREATED_WITHIN);
            let mut runs = line.runs.values();
            let is_full = runs
                .next()
                .is_some_and(|run| run.placeholder == Stage::Unschedulable);
            let was_in_line = runs.any(|run| run.placeholder == Stage::Missing && is_old(run));
            line.is_closed |= is_full && was_in_line && line.promised.is_empty();
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

impl Line {
    /// Returns the runs whose turn may have changed, because the line opened or closed.
    fn record(&mut self, position: Position, run: Waiting) -> Vec<Name> {
        let was_closed = self.is_closed;
        match run.answer {
            Answer::Promise => {
                self.promised.insert(position);
            }
            Answer::Pending | Answer::Refusal | Answer::Silence => {
                self.promised.remove(&position);
            }
        }
        let is_refused = matches!(run.answer, Answer::Refusal | Answer::Silence);
        self.is_closed = self.promised.is_empty() && (self.is_closed || is_refused);
        self.runs.insert(position, run);
        if self.is_closed == was_closed {
            Vec::new()
        } else {
            self.runs.values().map(|run| run.name.clone()).collect()
        }
    }

    /// The oldest runs without a placeholder that no other run shows to find no node.
    fn next(&self) -> Vec<Name> {
        let mut tried = Tried::default();
        let waits = |run: &&Waiting| {
            let proves_nothing = !tried.shows_no_node_for(run);
            tried.add(run);
            self.is_closed && run.placeholder == Stage::Missing && proves_nothing
        };
        let next = self.runs.values().filter(waits).take(AT_ONCE);
        next.map(|run| run.name.clone()).collect()
    }

    fn is_turn(&mut self, position: Position, now: Timestamp, free: impl FnOnce() -> Vec<NodeFacts>) -> bool {
        let Some(run) = self.runs.get(&position).cloned() else {
            return true;
        };
        let mut tried = Tried::default();
        self.older(position).for_each(|older| tried.add(older));
        match run.placeholder {
            Stage::New => true,
            Stage::Unschedulable => {
                let with_placeholder = self.older(position).filter(|it| it.placeholder != Stage::Missing);
                with_placeholder.take(AT_ONCE).count() < AT_ONCE || !tried.shows_no_node_for(&run)
            }
            Stage::Missing => {
                !tried.shows_no_node_for(&run) && self.has_free_node(position, &run, now, free())
            }
        }
    }

    fn older(&self, position: Position) -> impl Iterator<Item = &Waiting> {
        self.runs.range(..position).map(|(_, older)| older)
    }

    /// Whether a node is left that is large enough, after each older run has taken one.
    fn has_free_node(
        &mut self,
        position: Position,
        run: &Waiting,
        now: Timestamp,
        mut free: Vec<NodeFacts>,
    ) -> bool {
        let is_patient = self.is_patient(now, &free);
        let (mut tried, mut new) = (Tried::default(), 0);
        for older in self.older(position) {
            match older.placeholder {
                Stage::Unschedulable if is_patient => free.retain(|node| !fits(&older.size, node)),
                Stage::Missing if tried.shows_no_node_for(older) => {}
                Stage::Unschedulable => {}
                Stage::Missing | Stage::New => {
                    let taken = free.iter().position(|node| fits(&older.size, node));
                    new += usize::from(taken.is_some() || older.placeholder == Stage::New);
                    taken.map(|taken| free.remove(taken));
                }
            }
            tried.add(older);
            if new >= AT_ONCE {
                return false;
            }
        }
        free.iter().any(|node| fits(&run.size, node))
    }

    /// Whether the oldest run may still get a free node that is large enough. If the run does not get the node in time, the
    /// node lacks something else, and a run that asks for less may use it.
    fn is_patient(&mut self, now: Timestamp, free: &[NodeFacts]) -> bool {
        let oldest = self.runs.values().next();
        let is_stuck = oldest.is_some_and(|run| {
            run.placeholder == Stage::Unschedulable && free.iter().any(|node| fits(&run.size, node))
        });
        self.stuck_since = is_stuck.then_some(self.stuck_since.unwrap_or(now));
        self.stuck_since
            .is_none_or(|since| age(since, now) < TAKEN_WITHIN)
    }
}

/// The sizes of runs that found no node.
#[derive(Default)]
struct Tried(Vec<Resources>);

impl Tried {
    fn add(&mut self, run: &Waiting) {
        if run.placeholder == Stage::Unschedulable && !self.shows_no_node_for(run) {
            self.0.push(run.size.clone());
        }
    }

    /// A run that asks for no more than this run found no node, so this run finds no node either.
    fn shows_no_node_for(&self, run: &Waiting) -> bool {
        self.0.iter().any(|size| size.beyond(&run.size).next().is_none())
    }
}

fn fits(size: &Resources, node: &NodeFacts) -> bool {
    size.beyond(&node.allocatable).next().is_none()
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Whether the node is possible for the run, apart from what other pods use.
pub fn is_possible(run: &Run, node: &NodeFacts) -> bool {
    let template = &run.template;
    let affinity = template.affinity.as_ref().and_then(|it| it.node_affinity.clone());
    let required = NodeRequirements::new(template.node_selector.clone(), affinity);
    state(Some(node), &template.tolerations) == NodeState::Usable && required.are_met_by(node)
}

#[cfg(test)]
mod tests;
