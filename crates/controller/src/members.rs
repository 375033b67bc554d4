//! Label selectors for the pods of a run.

use placement::names::RunKey;
use placement::{keys, opt_in};

/// Selects the task pods of all groups. Excludes placeholders, pods of tasks that opted out, and Tekton's affinity assistants,
/// which follow the group.
pub(crate) fn tasks() -> String {
    tasks_in(keys::GROUP)
}

/// Selects the task pods of one run's group.
pub(crate) fn tasks_of(run: &RunKey) -> String {
    tasks_in(&format!("{}={}", keys::GROUP, run.uid))
}

/// Selects the affinity assistants that Tekton creates for the run's PVCs.
pub(crate) fn assistants_of(run: &RunKey) -> String {
    format!(
        "{}={},{}={}",
        keys::GROUP,
        run.uid,
        keys::COMPONENT,
        keys::ASSISTANT
    )
}

fn tasks_in(group: &str) -> String {
    format!(
        "{group},{} notin ({},{}),{}!={}",
        keys::COMPONENT,
        keys::PLACEHOLDER,
        keys::ASSISTANT,
        keys::OPT_IN,
        opt_in::DECLINED,
    )
}
