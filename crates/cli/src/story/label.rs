//! Labelled how, and what that came to.

use crate::facts::Facts;
use crate::report::Chapter;
use crate::state::State;
use placement::keys;
use placement::opt_in::OptIn;
use placement::reserve::AUTOMATIC;
use placement::strategy::{IsolateFrom, Isolation, Scope, Strategy};

pub(super) fn chapter(facts: &Facts) -> Chapter {
    Chapter::new("Label", text(facts))
}

fn text(facts: &Facts) -> String {
    let value = facts.view.run.opt_in.as_deref();
    match (facts.state(), OptIn::parse(value)) {
        (State::Nested, _) => nested(facts),
        (State::ManagedElsewhere, _) => managed_elsewhere(),
        (_, Err(unknown)) => format!("{unknown}. pod-affinity ignores this run."),
        (_, Ok(OptIn::Absent)) => absent(),
        (_, Ok(OptIn::Declined)) => declined(),
        (State::TooLate, Ok(OptIn::Default | OptIn::Chosen(_))) => too_late(value),
        (_, Ok(OptIn::Default)) => meaning(facts, &by_default(value, facts)) + &origin(facts),
        (_, Ok(OptIn::Chosen(strategy))) => {
            meaning(facts, &format!("{} is {strategy}", keys::OPT_IN)) + &origin(facts)
        }
    }
}

/// Where the label came from, if not from whoever created the run.
fn origin(facts: &Facts) -> String {
    if !facts.view.by_namespace {
        return String::new();
    }
    let namespace = &facts.view.run.key.namespace;
    format!(" The run got this label from Namespace {namespace} when it was created.")
}

fn nested(facts: &Facts) -> String {
    format!(
        "PipelineRun {} started this one, which follows it to its node: it is neither held nor given a placeholder of \
         its own.",
        facts.view.parent.as_deref().unwrap_or_default()
    )
}

fn managed_elsewhere() -> String {
    "spec.managedBy names another controller than Tekton, so pod-affinity ignores this run.".to_owned()
}

fn absent() -> String {
    format!(
        "none ({} is not there): pod-affinity ignores this run, and the scheduler places its pods on any nodes.",
        keys::OPT_IN
    )
}

fn declined() -> String {
    format!("{} is \"false\": pod-affinity ignores this run.", keys::OPT_IN)
}

fn too_late(value: Option<&str>) -> String {
    format!(
        "{} is {:?}, but the run started before pod-affinity could hold it. Pods of this run may already be on several \
         nodes, so pod-affinity changes nothing.",
        keys::OPT_IN,
        value.unwrap_or_default()
    )
}

fn by_default(value: Option<&str>, facts: &Facts) -> String {
    let origin = match (facts.view.run.is_enrolled(), &facts.config) {
        (true, _) => "the default strategy; when the run was labelled, that was",
        (false, Ok(_)) => "the default strategy, which is",
        (false, Err(_)) => "the default strategy; unless the configuration names another, that is",
    };
    let strategy = facts.strategy();
    format!(
        "{} is {:?}, {origin} {strategy}",
        keys::OPT_IN,
        value.unwrap_or_default()
    )
}

fn meaning(facts: &Facts, said: &str) -> String {
    let (strategy, isolation) = (facts.strategy(), facts.isolation());
    let reserve = reserve(facts).unwrap_or_default();
    format!("{said}: {}.{reserve}", company(strategy, isolation))
}

/// Of an automatic one, the event tells how much it came to, and why.
fn reserve(facts: &Facts) -> Option<String> {
    let chosen = facts.event("ReserveChosen").map(|told| format!(" {}", told.text));
    chosen.or_else(|| match facts.view.run.reserve.as_deref()? {
        AUTOMATIC => Some(format!(
            " Its reserve is automatic ({}); no event says how much it came to.",
            keys::RESERVE
        )),
        reserve => Some(format!(
            " Its node must have {reserve} free when it is chosen ({}).",
            keys::RESERVE
        )),
    })
}

fn company(strategy: Strategy, isolation: Isolation) -> String {
    let whom = match isolation.from {
        IsolateFrom::All => "no other run",
        IsolateFrom::Enrolled => "no other labelled run",
    };
    let whence = match isolation.scope {
        Scope::Cluster => "",
        Scope::Namespace => " of this namespace",
    };
    match strategy {
        Strategy::ColocateAlways => "all pods on one node, which other runs may share".to_owned(),
        Strategy::ColocateCompleted => {
            format!("all pods on one node, which {whom}{whence} uses until this one is done")
        }
        Strategy::IsolateAlways => {
            format!("all pods on one node, which {whom}{whence} uses until this PipelineRun is deleted")
        }
    }
}
