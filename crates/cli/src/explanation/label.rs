//! The opt-in label, and the strategy that follows from it.

use super::report::Section;
use crate::facts::Facts;
use crate::state::State;
use placement::keys;
use placement::notes::other_runs;
use placement::opt_in::OptIn;
use placement::reserve::AUTOMATIC;

pub(super) fn section(facts: &Facts) -> Section {
    Section::new("Label", text(facts))
}

fn text(facts: &Facts) -> String {
    let run = &facts.view.run;
    let namespace = &run.key.namespace;
    let value = run.opt_in.as_deref().unwrap_or_default();
    let label = keys::OPT_IN;
    match (facts.state(), OptIn::parse(run.opt_in.as_deref())) {
        (State::Nested, _) => {
            let parent = facts.view.parent.as_ref();
            let parent =
                parent.map_or_else(|| "Another run".to_owned(), |name| format!("PipelineRun {name}"));
            format!(
                "{parent} started this run. This run uses the node of {parent}, is not held, and has no placeholder."
            )
        }
        (State::ManagedElsewhere, _) => {
            "spec.managedBy names another controller than Tekton, so pod-affinity ignores this run."
                .to_owned()
        }
        (_, Err(unknown)) => format!("{unknown}. pod-affinity ignores this run."),
        (_, Ok(OptIn::Absent)) => format!(
            "none ({label} is not there): pod-affinity ignores this run, and the scheduler places its pods on any nodes."
        ),
        (_, Ok(OptIn::Declined)) => format!("{label} is \"false\": pod-affinity ignores this run."),
        (State::Declined, Ok(_)) => format!("pod-affinity ignores all runs of namespace {namespace}."),
        (State::TooLate, Ok(_)) => format!(
            "{label} is {value:?}, but the run started before pod-affinity could hold it. Pods of this run may already be on \
             several nodes, so pod-affinity changes nothing."
        ),
        (_, Ok(OptIn::Default)) => meaning(facts, &format!("{label} is {value:?}, {}", by_default(facts))),
        (_, Ok(OptIn::Chosen(strategy))) => meaning(facts, &format!("{label} is {strategy}")),
    }
}

fn by_default(facts: &Facts) -> String {
    let origin = match (facts.view.run.is_enrolled(), &facts.config) {
        (true, _) => "the default strategy; when the run was labelled, that was",
        (false, Ok(_)) => "the default strategy, which is",
        (false, Err(_)) => "the default strategy; unless the configuration names another, that is",
    };
    format!("{origin} {}", facts.enrolment().strategy)
}

fn meaning(facts: &Facts, label: &str) -> String {
    let other_runs = other_runs(facts.enrolment());
    let reserve = reserve(facts).unwrap_or_default();
    let origin = if facts.view.by_namespace {
        let namespace = &facts.view.run.key.namespace;
        format!(" The run got this label from Namespace {namespace} when it was created.")
    } else {
        String::new()
    };
    format!("{label}: all pods on one node{other_runs}.{reserve}{origin}")
}

/// The event has the size of an automatic reserve, and its source.
fn reserve(facts: &Facts) -> Option<String> {
    let chosen = facts.event("ReserveChosen").map(|told| format!(" {}", told.text));
    chosen.or_else(|| match facts.view.run.reserve.as_deref()? {
        AUTOMATIC => Some(format!(
            " Its reserve is automatic ({}); no event has its size.",
            keys::RESERVE
        )),
        reserve => Some(format!(
            " Its node must have {reserve} free when it is chosen ({}).",
            keys::RESERVE
        )),
    })
}
