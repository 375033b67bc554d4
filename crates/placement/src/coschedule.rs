//! Tekton's feature flag `coschedule`.

use std::collections::BTreeMap;
use strum::{Display, EnumString};

/// The ConfigMap of Tekton's feature flags.
pub const FEATURE_FLAGS: &str = "feature-flags";

/// A mode of the flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString)]
#[strum(serialize_all = "kebab-case", ascii_case_insensitive)]
pub enum Coschedule {
    /// Tekton's default: an affinity assistant for each PVC of a run.
    #[default]
    Workspaces,
    /// No affinity assistants.
    Disabled,
    /// Tekton binds all pods of each run to one node, which several runs can share.
    #[strum(serialize = "pipelineruns")]
    PipelineRuns,
    /// Tekton binds all pods of each run to one node, which no other run of its namespace uses.
    #[strum(serialize = "isolate-pipelinerun")]
    IsolatePipelineRun,
}

impl Coschedule {
    /// The mode in the data of Tekton's ConfigMap.
    pub fn from_flags(flags: &BTreeMap<String, String>) -> Self {
        let mode = flags.get("coschedule").and_then(|mode| mode.parse().ok());
        mode.unwrap_or_default()
    }

    /// Whether Tekton itself places the pods of all runs.
    pub fn places_pods(self) -> bool {
        match self {
            Self::PipelineRuns | Self::IsolatePipelineRun => true,
            Self::Workspaces | Self::Disabled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_modes_place_the_pods_of_all_runs() {
        let mode =
            |value: &str| Coschedule::from_flags(&BTreeMap::from([("coschedule".into(), value.into())]));
        for (value, expected, places_pods) in [
            ("pipelineruns", Coschedule::PipelineRuns, true),
            ("Isolate-PipelineRun", Coschedule::IsolatePipelineRun, true),
            ("workspaces", Coschedule::Workspaces, false),
            ("disabled", Coschedule::Disabled, false),
            ("", Coschedule::Workspaces, false),
        ] {
            assert_eq!((mode(value), mode(value).places_pods()), (expected, places_pods));
        }
        assert_eq!(Coschedule::from_flags(&BTreeMap::new()), Coschedule::Workspaces);
        assert_eq!(Coschedule::IsolatePipelineRun.to_string(), "isolate-pipelinerun");
    }
}
