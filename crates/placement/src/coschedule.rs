//! Tekton's feature flag `coschedule`.

use std::collections::BTreeMap;
use strum::{Display, EnumString};

/// The ConfigMap of Tekton's feature flags.
pub const FEATURE_FLAGS: &str = "feature-flags";

/// A mode of the flag in which Tekton binds all pods of each run to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "kebab-case", ascii_case_insensitive)]
pub enum PlacingMode {
    /// Nodes are shared by several runs.
    #[strum(serialize = "pipelineruns")]
    PipelineRuns,
    /// A node is used by one run of the namespace.
    #[strum(serialize = "isolate-pipelinerun")]
    IsolatePipelineRun,
}

impl PlacingMode {
    /// The mode in the data of Tekton's ConfigMap; `None` for `workspaces`, which is the default, and for `disabled`.
    pub fn from_flags(flags: &BTreeMap<String, String>) -> Option<Self> {
        flags.get("coschedule")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_modes_place_the_pods_of_all_runs() {
        let mode =
            |value: &str| PlacingMode::from_flags(&BTreeMap::from([("coschedule".into(), value.into())]));
        assert_eq!(mode("pipelineruns"), Some(PlacingMode::PipelineRuns));
        assert_eq!(mode("Isolate-PipelineRun"), Some(PlacingMode::IsolatePipelineRun));
        for value in ["workspaces", "disabled", ""] {
            assert_eq!(mode(value), None);
        }
        assert_eq!(PlacingMode::from_flags(&BTreeMap::new()), None);
        assert_eq!(PlacingMode::IsolatePipelineRun.to_string(), "isolate-pipelinerun");
    }
}
