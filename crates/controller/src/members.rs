//! What is a run's, as label selectors.

use placement::names::RunKey;
use placement::{keys, opt_in};

/// The pods that have to be with their run, of all groups: neither placeholders nor Tekton's assistants, which follow,
/// nor those of tasks that opted out.
pub(crate) fn tasks() -> String {
    tasks_in(keys::GROUP)
}

/// The same of one run.
pub(crate) fn tasks_of(run: &RunKey) -> String {
    tasks_in(&format!("{}={}", keys::GROUP, run.uid))
}

/// What Tekton keeps on the node of a run that mounts a claim.
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
