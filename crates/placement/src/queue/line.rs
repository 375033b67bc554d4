//! The line of one kind: which of the runs that wait for the same nodes may have a placeholder now.

use super::{Answer, NEW_AT_ONCE, Name, Position, Stage, TRIED_AT_ONCE, Waiting};
use crate::attempts::Before;
use crate::node::NodeFacts;
use crate::resources::Resources;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A free node that no older run took in this time does not wait for these runs: the longest back-off of the scheduler is ten
/// seconds.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);
/// A new leader finds a run of this age without a placeholder only if an earlier leader kept the run in line.
const CREATED_WITHIN: Duration = Duration::from_secs(10);

/// The waiting runs of one kind.
#[derive(Debug, Default)]
pub(super) struct Line {
    runs: BTreeMap<Position, (Name, Waiting)>,
    /// The runs for which an autoscaler promises a node.
    promised: BTreeSet<Position>,
    is_closed: bool,
    /// Since when a free node is large enough for the oldest run, and no run got a node.
    stuck_since: Option<Timestamp>,
}

impl Line {
    /// An empty line. A closed line holds runs back.
    pub(super) fn new(is_closed: bool) -> Self {
        Self {
            is_closed,
            ..Self::default()
        }
    }

    /// Why the run may not have a placeholder now.
    pub(super) fn before(
        &mut self,
        position: Position,
        now: Timestamp,
        free: impl FnOnce() -> Vec<NodeFacts>,
    ) -> Option<Before> {
        if !self.is_closed {
            return None;
        }
        let ahead = self.older(position).count();
        (ahead > 0 && !self.is_turn(position, now, free)).then_some(Before::Waiting { ahead })
    }

    /// Continues the line of an earlier leader.
    pub(super) fn inherit(&mut self, now: Timestamp) {
        let is_old = |position: &Position| position.0.is_some_and(|at| age(at, now) >= CREATED_WITHIN);
        let mut runs = self.runs.iter();
        let oldest = runs.next().map(|(_, (_, run))| run.placeholder);
        let is_full = oldest == Some(Stage::Unschedulable);
        let was_in_line = runs.any(|(at, (_, run))| run.placeholder == Stage::Missing && is_old(at));
        self.is_closed |= is_full && was_in_line && self.promised.is_empty();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs whose turn may have changed, because the line opened or closed.
    pub(super) fn record(&mut self, position: Position, name: Name, run: Waiting) -> Vec<Name> {
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
        self.runs.insert(position, (name, run));
        if self.is_closed == was_closed {
            Vec::new()
        } else {
            self.runs.values().map(|(name, _)| name.clone()).collect()
        }
    }

    /// Removes a run. Returns the runs whose turn may have come.
    pub(super) fn remove(&mut self, position: Position) -> Vec<Name> {
        self.runs.remove(&position);
        self.promised.remove(&position);
        self.stuck_since = None;
        self.next()
    }

    /// The oldest runs without a placeholder that no other run shows to find no node.
    pub(super) fn next(&self) -> Vec<Name> {
        let mut tried = Tried::default();
        let may_go = |(_, run): &&(Name, Waiting)| {
            let may_find_a_node = !tried.shows_no_node_for(run);
            tried.add(run);
            self.is_closed && run.placeholder == Stage::Missing && may_find_a_node
        };
        let next = self.runs.values().filter(may_go).take(NEW_AT_ONCE);
        next.map(|(name, _)| name.clone()).collect()
    }

    fn is_turn(&mut self, position: Position, now: Timestamp, free: impl FnOnce() -> Vec<NodeFacts>) -> bool {
        let Some((_, run)) = self.runs.get(&position).cloned() else {
            return true;
        };
        let mut tried = Tried::default();
        self.older(position).for_each(|older| tried.add(older));
        match run.placeholder {
            Stage::New => true,
            Stage::Unschedulable => {
                let with_placeholder = self.older(position).filter(|it| it.placeholder != Stage::Missing);
                with_placeholder.take(TRIED_AT_ONCE).count() < TRIED_AT_ONCE || !tried.shows_no_node_for(&run)
            }
            Stage::Missing => {
                !tried.shows_no_node_for(&run) && self.has_free_node(position, &run, now, free())
            }
        }
    }

    fn older(&self, position: Position) -> impl Iterator<Item = &Waiting> {
        self.runs.range(..position).map(|(_, (_, older))| older)
    }

    /// Whether a node is left that is large enough, after each older run has taken one.
    fn has_free_node(
        &mut self,
        position: Position,
        run: &Waiting,
        now: Timestamp,
        mut free: Vec<NodeFacts>,
    ) -> bool {
        if !self.is_patient(now, &free) {
            return free.iter().any(|node| fits(&run.size, node));
        }
        let (mut tried, mut new) = (Tried::default(), 0);
        for older in self.older(position) {
            match older.placeholder {
                Stage::Unschedulable => free.retain(|node| !fits(&older.size, node)),
                Stage::Missing if tried.shows_no_node_for(older) => {}
                Stage::Missing | Stage::New => {
                    let taken = free.iter().position(|node| fits(&older.size, node));
                    new += usize::from(taken.is_some() || older.placeholder == Stage::New);
                    taken.map(|taken| free.remove(taken));
                }
            }
            tried.add(older);
            if new >= NEW_AT_ONCE {
                return false;
            }
        }
        free.iter().any(|node| fits(&run.size, node))
    }

    /// Whether the older runs may still take the free nodes. If no run gets a node in time, something else keeps the oldest run
    /// from the nodes, which must not keep other runs, also of other namespaces, from them.
    fn is_patient(&mut self, now: Timestamp, free: &[NodeFacts]) -> bool {
        let oldest = self.runs.values().next();
        let is_stuck = oldest.is_some_and(|(_, run)| free.iter().any(|node| fits(&run.size, node)));
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
