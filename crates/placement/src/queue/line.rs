//! The line of one kind: which of the runs that wait for the same nodes may have a placeholder now.

use super::{Answer, NEW_AT_ONCE, Name, Position, Stage, TRIED_AT_ONCE, Waiting};
use crate::attempts::Before;
use crate::node::NodeFacts;
use crate::resources::Resources;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// A node that stays free for this time does not wait for older runs: the longest back-off of the scheduler is ten seconds.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
/// A new leader finds a run of this age without a placeholder only if an earlier leader kept the run in line.
const CREATED_WITHIN: Duration = Duration::from_secs(10);
/// The free nodes are observed at most this often.
const OBSERVED_EVERY: Duration = Duration::from_secs(1);
/// The most sizes that are compared with the size of a run. With fewer sizes, more runs have a placeholder.
const MOST_SIZES: usize = 16;

type Namespaces = HashSet<String>;

/// The waiting runs of one kind.
#[derive(Debug, Default)]
pub(super) struct Line {
    runs: BTreeMap<Position, (Name, Waiting)>,
    /// The runs for which an autoscaler promises a node.
    promised: BTreeSet<Position>,
    /// No autoscaler answers.
    is_silent: bool,
    /// The sizes for which an autoscaler adds no node, by namespace: a policy may give each namespace nodes of its own.
    refused: HashMap<String, Sizes>,
    /// The free nodes by name, as last observed.
    free: HashMap<String, FreeNode>,
    observed_at: Option<Timestamp>,
    /// The runs whose placeholders left a node.
    passed: BTreeSet<Position>,
}

/// A node without a run.
#[derive(Debug)]
struct FreeNode {
    since: Timestamp,
    /// The sizes of the runs whose placeholders left the node, by namespace.
    left_by: HashMap<String, Sizes>,
}

impl Line {
    /// An empty line.
    pub(super) fn new(is_silent: bool) -> Self {
        Self {
            is_silent,
            ..Self::default()
        }
    }

    /// The number of free nodes that the line observes.
    pub(super) fn observed(&self) -> usize {
        self.free.len()
    }

    /// Why the run may not have a placeholder now. The line observes as many free nodes as there is room for.
    pub(super) fn before(
        &mut self,
        position: Position,
        now: Timestamp,
        room: usize,
        full: &Namespaces,
        free: impl FnOnce() -> Vec<Arc<NodeFacts>>,
    ) -> Option<Before> {
        let ((namespace, _), run) = self.runs.get(&position)?.clone();
        let ahead = self.older(position, full).count();
        let may_wait = ahead > 0 && self.is_closed_for(&namespace, &run);
        let waits = may_wait && !self.is_turn(position, (&namespace, &run), now, room, full, free);
        waits.then_some(Before::Waiting { ahead })
    }

    /// Continues the line of an earlier leader.
    pub(super) fn inherit(&mut self, now: Timestamp, full: &Namespaces) {
        let is_old = |position: &Position| position.0.is_some_and(|at| age(at, now) >= CREATED_WITHIN);
        let mut runs = self.runs.iter().filter(|(_, run)| !has_no_room(run, full));
        let oldest = runs.next().map(|(_, (_, run))| run.placeholder);
        let is_full = oldest == Some(Stage::Unschedulable);
        let was_in_line = runs.any(|(at, (_, run))| run.placeholder == Stage::Missing && is_old(at));
        let is_unanswered = self.promised.is_empty() && self.refused.is_empty();
        self.is_silent |= is_full && was_in_line && is_unanswered;
    }

    /// Whether the line may be closed for a run.
    fn is_closed(&self) -> bool {
        self.promised.is_empty() && (self.is_silent || !self.refused.is_empty())
    }

    /// Whether the run has to wait for its turn: an autoscaler would not add a node for the run.
    fn is_closed_for(&self, namespace: &str, run: &Waiting) -> bool {
        let refused = self.refused.get(namespace);
        let is_refused = refused.is_some_and(|sizes| sizes.has_at_most(&run.size));
        self.promised.is_empty() && (self.is_silent || is_refused)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs whose turn may have changed.
    pub(super) fn record(&mut self, position: Position, name: Name, run: Waiting) -> Vec<Name> {
        self.promised.remove(&position);
        let is_promised = !self.promised.is_empty();
        let has_changed = match run.answer {
            Answer::Pending => false,
            Answer::Refusal | Answer::Silence if is_promised => false,
            Answer::Refusal => self.refused.entry(name.0.clone()).or_default().add(&run.size),
            Answer::Silence => !std::mem::replace(&mut self.is_silent, true),
            Answer::Promise => {
                let was_closed = std::mem::take(&mut self.is_silent) || !self.refused.is_empty();
                self.refused.clear();
                self.promised.insert(position);
                was_closed
            }
        };
        if run.placeholder == Stage::Missing {
            self.passed.remove(&position);
        }
        let known = self.runs.remove(&position).map(|(_, known)| known.size);
        self.runs.insert(position, (name, run.with_known_size(known)));
        if has_changed {
            self.runs.values().map(|(name, _)| name.clone()).collect()
        } else {
            Vec::new()
        }
    }

    /// Removes a run, which may have this node now.
    pub(super) fn remove(&mut self, position: Position, node: Option<&str>) {
        node.map(|node| self.free.remove(node));
        self.runs.remove(&position);
        self.promised.remove(&position);
        self.passed.remove(&position);
    }

    /// The oldest runs without a placeholder, except those for which an older run that requests no more is unschedulable.
    pub(super) fn next(&self, full: &Namespaces) -> Vec<Name> {
        if !self.is_closed() {
            return Vec::new();
        }
        let mut tried = Sizes::default();
        let may_go = |((namespace, _), run): &&(Name, Waiting)| {
            let may_find_a_node = !tried.has_at_most(&run.size);
            tried.add_tried(run);
            self.is_closed_for(namespace, run) && run.placeholder == Stage::Missing && may_find_a_node
        };
        let runs = self.runs.values().filter(|run| !has_no_room(run, full));
        let next = runs.filter(may_go).take(NEW_AT_ONCE);
        next.map(|(name, _)| name.clone()).collect()
    }

    fn is_turn(
        &mut self,
        position: Position,
        (namespace, run): (&str, &Waiting),
        now: Timestamp,
        room: usize,
        full: &Namespaces,
        free: impl FnOnce() -> Vec<Arc<NodeFacts>>,
    ) -> bool {
        let (mut tried, mut tried_here) = (Sizes::default(), Sizes::default());
        for (_, ((other, _), older)) in self.older(position, full) {
            tried.add_tried(older);
            if other == namespace {
                tried_here.add_tried(older);
            }
        }
        match run.placeholder {
            Stage::New => true,
            Stage::Unschedulable => {
                let older = self.older(position, full);
                let with_placeholder = older.filter(|(_, (_, it))| it.placeholder != Stage::Missing);
                with_placeholder.take(TRIED_AT_ONCE).count() < TRIED_AT_ONCE
                    || !tried_here.has_at_most(&run.size)
            }
            Stage::Missing => {
                let finds_none = tried_here.has_at_most(&run.size);
                let is_current = self.observed_at.is_some_and(|at| age(at, now) < OBSERVED_EVERY);
                if finds_none && is_current {
                    return false;
                }
                let free = free();
                if !is_current {
                    self.observe(&free[..room.min(free.len())], now);
                }
                let may_find_a_node = !tried.has_at_most(&run.size);
                let is_left = |node: &Arc<NodeFacts>| self.is_left_for(namespace, run, node, now);
                !finds_none
                    && (free.iter().any(is_left)
                        || may_find_a_node && self.has_free_node(position, run, full, free))
            }
        }
    }

    fn older(
        &self,
        position: Position,
        full: &Namespaces,
    ) -> impl Iterator<Item = (&Position, &(Name, Waiting))> {
        let older = self.runs.range(..position);
        older.filter(|(_, run)| !has_no_room(run, full))
    }

    /// Whether a node is left that is large enough, after each older run has taken one.
    fn has_free_node(
        &self,
        position: Position,
        run: &Waiting,
        full: &Namespaces,
        mut free: Vec<Arc<NodeFacts>>,
    ) -> bool {
        let (mut tried, mut new) = (Sizes::default(), 0);
        for (at, (_, older)) in self.older(position, full) {
            match older.placeholder {
                Stage::New | Stage::Unschedulable if self.passed.contains(at) => {}
                Stage::Unschedulable => free.retain(|node| !fits(&older.size, node)),
                Stage::Missing if tried.has_at_most(&older.size) => {}
                Stage::Missing | Stage::New => {
                    let taken = free.iter().position(|node| fits(&older.size, node));
                    new += usize::from(taken.is_some() || older.placeholder == Stage::New);
                    taken.map(|taken| free.remove(taken));
                }
            }
            tried.add_tried(older);
            if new >= NEW_AT_ONCE {
                return false;
            }
        }
        free.iter().any(|node| fits(&run.size, node))
    }

    /// Records since when nodes are free. A placeholder that left a node is not expected to take another: something else keeps it from
    /// nodes, which must not keep other runs, also of other namespaces, from them.
    fn observe(&mut self, free: &[Arc<NodeFacts>], now: Timestamp) {
        let mut before = std::mem::take(&mut self.free);
        let known = free.iter().map(|node| {
            let new = || FreeNode {
                since: now,
                left_by: HashMap::new(),
            };
            (node.name.clone(), before.remove(&node.name).unwrap_or_else(new))
        });
        self.free = known.collect();
        self.observed_at = Some(now);
        let with_placeholder = self
            .runs
            .iter()
            .filter(|(_, (_, run))| run.placeholder != Stage::Missing);
        for (at, ((namespace, _), run)) in with_placeholder {
            for node in free.iter().filter(|node| fits(&run.size, node)) {
                let known = self.free.get_mut(&node.name).filter(|it| it.is_left(now));
                if let Some(known) = known {
                    known.left_by.entry(namespace.clone()).or_default().add(&run.size);
                    self.passed.insert(*at);
                }
            }
        }
    }

    /// Whether older runs do not take this node, and the run may: no run of its namespace that asked for no more left the node.
    fn is_left_for(&self, namespace: &str, run: &Waiting, node: &NodeFacts, now: Timestamp) -> bool {
        let known = self.free.get(&node.name).filter(|it| it.is_left(now));
        let may_take = |it: &FreeNode| {
            let sizes = it.left_by.get(namespace);
            sizes.is_none_or(|sizes| !sizes.has_at_most(&run.size))
        };
        known.is_some_and(may_take) && fits(&run.size, node)
    }
}

impl FreeNode {
    /// Whether the node has been free for so long that the runs in line do not take it.
    fn is_left(&self, now: Timestamp) -> bool {
        age(self.since, now) >= TAKEN_WITHIN
    }
}

/// The smallest sizes of several runs. A size that requests at least as much as a stored size is not stored.
#[derive(Debug, Default)]
struct Sizes(Vec<Resources>);

impl Sizes {
    /// Returns whether the size is new.
    fn add(&mut self, size: &Resources) -> bool {
        let is_new = self.0.len() < MOST_SIZES && !self.has_at_most(size);
        if is_new {
            self.0.push(size.clone());
        }
        is_new
    }

    /// Adds the size of a run that found no node.
    fn add_tried(&mut self, run: &Waiting) {
        if run.placeholder == Stage::Unschedulable {
            self.add(&run.size);
        }
    }

    /// Whether a size is at most this size: what found no node for that size finds none for this size.
    fn has_at_most(&self, wanted: &Resources) -> bool {
        self.0.iter().any(|size| size.beyond(wanted).next().is_none())
    }
}

/// Whether the run has no placeholder, and a quota of its namespace has no room for one.
fn has_no_room(((namespace, _), run): &(Name, Waiting), full: &Namespaces) -> bool {
    run.placeholder == Stage::Missing && full.contains(namespace)
}

fn fits(size: &Resources, node: &NodeFacts) -> bool {
    size.beyond(&node.allocatable).next().is_none()
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
