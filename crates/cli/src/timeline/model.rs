//! The content of a timeline, without pixels: lanes of nodes, bars of runs, segments of phases.

use crate::state::State;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeSet;

/// A time with a start and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

/// The content of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timeline {
    pub(crate) window: Span,
    /// The selection of runs, for the title.
    pub(crate) about: String,
    pub(crate) lanes: Vec<Lane>,
    /// The lists that could not be read.
    pub(crate) missing: Vec<String>,
}

/// Where a run is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The run has no node.
    Nowhere,
    Node(String),
    /// The run has or had a node whose name is not known.
    Unknown,
}

/// The runs of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) place: Place,
    /// When the node existed, as far as this is known.
    pub(crate) life: Span,
    /// A text behind the name of the node.
    pub(crate) remark: Option<&'static str>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) bars: Vec<Bar>,
}

/// A run, while it is in a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) run: RunInfo,
    pub(crate) span: Span,
    pub(crate) segments: Vec<Segment>,
    pub(crate) tasks: Vec<TaskSpan>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) notes: Vec<String>,
}

/// The run of a bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The name in the picture, with the namespace if the picture shows several namespaces.
    pub(crate) label: String,
    pub(crate) enrollment: Enrollment,
    pub(crate) strategy: Option<String>,
    pub(crate) state: State,
    pub(crate) succeeded: Option<bool>,
}

/// Whether pod-affinity places the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Enrollment {
    Labelled,
    /// Another run started the run, and both have one node.
    Nested,
    Unlabelled,
}

/// A part of a bar in which the run is in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) phase: Phase,
    pub(crate) span: Span,
}

/// A phase in the life of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    Waiting,
    Running,
    /// After the end of the run, only this run can use the node.
    Reserved,
    /// After the end of the run, every pod can use the node.
    Kept,
    Unknown,
}

/// A task of a run, while the run is in the place of the bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskSpan {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) failed: bool,
}

/// An event at a moment.
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
    /// An end before the start becomes the start: the clocks of two machines differ.
    pub(crate) fn new(from: Timestamp, to: Timestamp) -> Self {
        let to = to.max(from);
        Self { from, to }
    }

    /// The common part of two spans, which may be a moment.
    pub(crate) fn within(self, other: Self) -> Option<Self> {
        let (from, to) = (self.from.max(other.from), self.to.min(other.to));
        (from <= to).then_some(Self { from, to })
    }

    pub(crate) fn length(self) -> SignedDuration {
        self.to.duration_since(self.from)
    }

    pub(crate) fn has(self, at: Timestamp) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

impl Phase {
    pub(crate) const ALL: [Self; 6] = [
        Self::Held,
        Self::Waiting,
        Self::Running,
        Self::Reserved,
        Self::Kept,
        Self::Unknown,
    ];

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Waiting => "waiting for a node",
            Self::Running => "running",
            Self::Reserved => "reserved after the end",
            Self::Kept => "kept after the end",
            Self::Unknown => "unknown",
        }
    }
}

impl Place {
    /// The title of the lane.
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Nowhere => "without a node",
            Self::Node(name) => name,
            Self::Unknown => "node unknown",
        }
    }

    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Node(name) => Some(name),
            Self::Nowhere | Self::Unknown => None,
        }
    }
}

impl Lane {
    /// The title with the remark.
    pub(crate) fn heading(&self) -> String {
        let remark = self.remark.map(|remark| format!(" ({remark})"));
        format!("{}{}", self.place.title(), remark.unwrap_or_default())
    }
}

impl Bar {
    /// A bar of one segment, without tasks, marks and notes.
    pub(crate) fn plain(run: &RunInfo, phase: Phase, span: Span) -> Self {
        Self {
            run: run.clone(),
            span,
            segments: vec![Segment { phase, span }],
            tasks: Vec::new(),
            marks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The namespace and the name of the run.
    pub(crate) fn key(&self) -> (&str, &str) {
        (&self.run.namespace, &self.run.name)
    }

    /// The part within the window; `None` if the bar is outside.
    pub(crate) fn clipped(mut self, window: Span) -> Option<Self> {
        let is_cut = self.span.from < window.from;
        self.span = self.span.within(window)?;
        let clip = |span: &mut Span| span.within(window).map(|part| *span = part).is_some();
        self.segments.retain_mut(|it| clip(&mut it.span));
        self.tasks.retain_mut(|it| clip(&mut it.span));
        self.marks.retain(|mark| window.has(mark.at));
        self.notes
            .extend(is_cut.then(|| "began before this window".to_owned()));
        Some(self)
    }
}

impl Timeline {
    pub(crate) fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.lanes.iter().flat_map(|lane| &lane.bars)
    }

    /// The number of runs with bars.
    pub(crate) fn runs(&self) -> usize {
        self.bars().map(Bar::key).collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bars().next().is_none()
    }
}
