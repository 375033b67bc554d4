//! The sizes of clusters and work, and the variants that are scheduled on each size.

use super::shapes::TermsShape;
use testbed::Kubernetes;

const USUAL: [TermsShape; 4] = [
    TermsShape::None,
    TermsShape::InTree,
    TermsShape::Ours,
    TermsShape::OursNamespace,
];
const TRIED: [TermsShape; 3] = [
    TermsShape::NodeNameToo,
    TermsShape::NodeNameApart,
    TermsShape::NodeNameOnly,
];
const GATED: [TermsShape; 2] = [TermsShape::InTree, TermsShape::Ours];
/// A feature gate of the scheduler, and the first version that has it: alpha, off by default.
const FAST_PATH: (&str, Kubernetes) = ("InterPodAffinityHostnameFastPath", Kubernetes::V1_37);

#[derive(Clone, Copy)]
pub(super) struct ClusterSize {
    pub(super) nodes: usize,
    pub(super) runs: usize,
    /// Measure also the shapes that were tried.
    tried: bool,
    /// Measure some shapes also with the scheduler's fast path.
    gated: bool,
}

/// A shape, and whether the scheduler's fast path is on.
#[derive(Clone, Copy)]
pub(super) struct SchedulerVariant {
    pub(super) shape: TermsShape,
    fast_path: bool,
}

impl SchedulerVariant {
    pub(super) fn name(self) -> String {
        let option = if self.fast_path { ", fast path" } else { "" };
        format!("{}{option}", self.shape.name())
    }

    /// The scheduler's argument.
    pub(super) fn feature_gates(self) -> Option<String> {
        let (gate, _) = FAST_PATH;
        self.fast_path.then(|| format!("--feature-gates={gate}=true"))
    }
}

/// 100 nodes have no room for 300 runs.
pub(super) const SIZES: [ClusterSize; 4] = [
    size(100, 80, false, false),
    size(1000, 300, true, true),
    size(1000, 900, true, false),
    size(5000, 1000, false, false),
];
pub(super) const QUICK: [ClusterSize; 1] = [size(30, 20, true, true)];

const fn size(nodes: usize, runs: usize, tried: bool, gated: bool) -> ClusterSize {
    ClusterSize {
        nodes,
        runs,
        tried,
        gated,
    }
}

impl ClusterSize {
    pub(super) fn variants(self, kubernetes: Kubernetes) -> Vec<SchedulerVariant> {
        let (_, since) = FAST_PATH;
        let with = |fast_path| move |shape| SchedulerVariant { shape, fast_path };
        let tried = TRIED.into_iter().filter(|_| self.tried);
        let gated = GATED.into_iter().filter(|_| self.gated && kubernetes >= since);
        let usual = USUAL.into_iter().chain(tried).map(with(false));
        usual.chain(gated.map(with(true))).collect()
    }
}
