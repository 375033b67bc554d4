//! What a timeline shows: lanes of nodes, bars of runs, segments of phases. It has times and no pixels. Pure.

use crate::state::State;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// From when until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// What happened where, between two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    pub(crate) window: Span,
    /// Which runs these are, for the title.
    pub(crate) about: String,
    pub(crate) lanes: Vec<Lane>,
    /// What could not be read.
    pub(crate) missing: Vec<String>,
}

/// Where runs are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// They have no node.
    Nowhere,
    Node(String),
    /// They have or had one, and nothing says which.
    Unknown,
}

/// The runs of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) place: Place,
    /// When the place was there, as far as that is known.
    pub(crate) life: Span,
    /// What is to be said behind its name.
    pub(crate) remark: Option<&'static str>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) bars: Vec<Bar>,
}

/// The stay of a run in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) who: Who,
    pub(crate) span: Span,
    pub(crate) segments: Vec<Segment>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) notes: Vec<String>,
}

/// The run of a bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// What its bars are called: with the namespace if there are several.
    pub(crate) label: String,
    pub(crate) standing: Standing,
    pub(crate) strategy: Option<String>,
    pub(crate) state: State,
    pub(crate) succeeded: Option<bool>,
}

/// Whether pod-affinity placed the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Labelled,
    /// It follows another run.
    Nested,
    Unlabelled,
}

/// A part of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) phase: Phase,
    pub(crate) span: Span,
}

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    Waiting,
    Running,
    Reserved,
    Unknown,
}

/// A task of a run, while the run is in the place of its bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) failed: bool,
}

/// Something that happened at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) at: Timestamp,
    pub(crate) kind: MarkKind,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkKind {
    Left,
    Arrived,
    NodeAdded,
    NodeRemoved,
}

impl Span {
    /// Never negative: the clocks of two machines differ.
    pub(crate) fn new(from: Timestamp, to: Timestamp) -> Self {
        Self {
            from,
            to: to.max(from),
        }
    }

    /// The part within another span, if they meet.
    pub(crate) fn within(self, other: Self) -> Option<Self> {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        (from <= to).then_some(Self { from, to })
    }

    /// The part within another span, if that takes any time.
    pub(crate) fn shared(self, other: Self) -> Option<Self> {
        self.within(other).filter(|span| span.from < span.to)
    }

    pub(crate) fn length(self) -> SignedDuration {
        self.to.duration_since(self.from)
    }

    pub(crate) fn has(self, at: Timestamp) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

impl Phase {
    pub(crate) const ALL: [Self; 5] = [
        Self::Held,
        Self::Waiting,
        Self::Running,
        Self::Reserved,
        Self::Unknown,
    ];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Waiting => "waiting for a node",
            Self::Running => "running",
            Self::Reserved => "reserved after the end",
            Self::Unknown => "unknown",
        }
    }
}

impl Place {
    /// What its lane is called.
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Nowhere => "without a node",
            Self::Node(name) => name,
            Self::Unknown => "node unknown",
        }
    }
}

impl Lane {
    /// Its title and what is to be said behind it.
    pub(crate) fn heading(&self) -> String {
        let remark = self.remark.map(|remark| format!(" ({remark})"));
        format!("{}{}", self.place.title(), remark.unwrap_or_default())
    }
}

impl Bar {
    /// A bar of one segment, with nothing else to say.
    pub(crate) fn plain(who: &Who, segment: Segment) -> Self {
        Self {
            who: who.clone(),
            span: segment.span,
            segments: vec![segment],
            tasks: Vec::new(),
            marks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Which run this is.
    pub(crate) fn run(&self) -> (&str, &str) {
        (&self.who.namespace, &self.who.name)
    }

    /// The part within the window, if there is one.
    pub(crate) fn clipped(&self, window: Span) -> Option<Self> {
        let span = self.span.within(window)?;
        let segments = self.segments.iter().filter_map(|it| {
            Some(Segment {
                span: it.span.within(window)?,
                ..*it
            })
        });
        let tasks = self.tasks.iter().filter_map(|it| {
            Some(Task {
                span: it.span.within(window)?,
                ..it.clone()
            })
        });
        let early = (self.span.from < window.from).then(|| "began before this window".to_owned());
        Some(Self {
            who: self.who.clone(),
            span,
            segments: segments.collect(),
            tasks: tasks.collect(),
            marks: within(&self.marks, window),
            notes: self.notes.iter().cloned().chain(early).collect(),
        })
    }
}

/// The marks that lie in the window.
pub(crate) fn within(marks: &[Mark], window: Span) -> Vec<Mark> {
    let inside = marks.iter().filter(|mark| window.has(mark.at));
    inside.cloned().collect()
}

impl Timeline {
    pub(crate) fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.lanes.iter().flat_map(|lane| &lane.bars)
    }

    /// How many runs have bars.
    pub(crate) fn runs(&self) -> usize {
        self.bars().map(Bar::run).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bars().next().is_none()
    }
}
