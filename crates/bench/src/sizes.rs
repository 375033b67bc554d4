//! Sizes of clusters whose scheduling is measured, and the ways in which it is.

use crate::shapes::Shape;
use testbed::Kubernetes;

pub(crate) const SIDE_BY_SIDE: [Shape; 4] = [Shape::None, Shape::InTree, Shape::Ours, Shape::OursNamespace];
const TRIED: [Shape; 3] = [Shape::Keys, Shape::ApartByPlaceholder, Shape::ToPlaceholder];
const GATED: [Shape; 2] = [Shape::InTree, Shape::Ours];
/// A feature gate of the scheduler, alpha and off since this version.
const FAST_PATH: (&str, Kubernetes) = ("InterPodAffinityHostnameFastPath", Kubernetes::V1_37);

/// A size of cluster and work.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) nodes: usize,
    pub(crate) runs: usize,
    /// The shapes that were tried too.
    tried: bool,
    /// Some shapes with the scheduler's fast path too.
    gated: bool,
}

/// How a turn is scheduled.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub(crate) shape: Shape,
    fast_path: bool,
}

impl Way {
    fn usual(shape: Shape) -> Self {
        let fast_path = false;
        Self { shape, fast_path }
    }

    fn gated(shape: Shape) -> Self {
        let fast_path = true;
        Self { shape, fast_path }
    }

    /// Pods of another shape, scheduled likewise.
    pub(crate) fn with(self, shape: Shape) -> Self {
        Self { shape, ..self }
    }

    pub(crate) fn name(self) -> String {
        let gate = if self.fast_path {
            ", with the fast path"
        } else {
            ""
        };
        format!("{}{gate}", self.shape.name())
    }

    pub(crate) fn gates(self) -> Option<String> {
        let (gate, _) = FAST_PATH;
        self.fast_path.then(|| format!("--feature-gates={gate}=true"))
    }
}

/// Growth with nodes is seen at 80 runs, growth with runs at 1000 nodes. 100 nodes have no room for 300 runs.
pub(crate) const SIZES: [Size; 7] = [
    size(100, 80),
    size(1000, 80),
    size(1000, 300).with_tried().with_gated(),
    size(1000, 900),
    size(5000, 80),
    size(5000, 300).with_gated(),
    size(5000, 1000),
];
pub(crate) const QUICK: [Size; 1] = [size(30, 20).with_tried().with_gated()];

pub(crate) const fn size(nodes: usize, runs: usize) -> Size {
    let (tried, gated) = (false, false);
    Size {
        nodes,
        runs,
        tried,
        gated,
    }
}

impl Size {
    pub(crate) const fn with_tried(mut self) -> Self {
        self.tried = true;
        self
    }

    pub(crate) const fn with_gated(mut self) -> Self {
        self.gated = true;
        self
    }

    pub(crate) fn ways(self, kubernetes: Kubernetes) -> Vec<Way> {
        let (_, since) = FAST_PATH;
        let tried = TRIED.into_iter().filter(|_| self.tried);
        let gated = GATED.into_iter().filter(|_| self.gated && kubernetes >= since);
        let usual = SIDE_BY_SIDE.into_iter().chain(tried).map(Way::usual);
        usual.chain(gated.map(Way::gated)).collect()
    }
}
