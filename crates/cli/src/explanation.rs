//! The explanation of one run, from the objects that were read: one file for each section of the text. Pure.

mod controller;
mod help;
mod hold;
mod label;
mod place;
mod report;
mod running;
mod summary;
mod tasks;

use crate::events::RunEvent;
use crate::facts::Facts;
use crate::words::{age, quoted};
pub(crate) use controller::text as controller_text;
pub(crate) use report::Explanation;
use report::Section;

/// Reasons of pod-affinity's events whose contents are in other sections.
const IN_OTHER_SECTIONS: [&str; 9] = [
    "Held",
    "OverCap",
    "Enrolled",
    "WaitingForNode",
    "NodeAssigned",
    "Released",
    "LabelledTooLate",
    "CleanedUp",
    "HoldDeadlineExceeded",
];

/// Explains a run.
pub(crate) fn explain(facts: &Facts) -> Explanation {
    let sections = [
        Some(label::section(facts)),
        hold::section(facts),
        place::placeholder(facts),
        place::in_line(facts),
        place::node(facts),
        place::autoscaler(facts),
        hold::released(facts),
        tasks::section(facts),
        controller::section(facts),
        outcome(facts),
        events(facts),
        not_read(facts),
    ];
    Explanation {
        summary: summary::summary(facts),
        help: help::help(facts),
        not_read: errors(facts),
        sections: sections.into_iter().flatten().collect(),
    }
}

fn outcome(facts: &Facts) -> Option<Section> {
    let (succeeded, reason) = facts.view.verdict.as_ref()?;
    let ended = facts
        .view
        .ended
        .map(|ended| format!(" {} ago", age(ended, facts.now)));
    let when = ended.unwrap_or_default();
    let text = match (succeeded, reason.as_str()) {
        (true, _) => format!("succeeded{when}."),
        (false, "") => format!("failed{when}."),
        (false, reason) => format!("did not succeed{when}: {reason}."),
    };
    Some(Section::new("Outcome", text))
}

/// Moves, and failed attempts of pod-affinity: the last event of each reason.
fn last_events(facts: &Facts) -> Vec<&RunEvent> {
    let events = facts.events.as_deref().unwrap_or_default().iter();
    let ours = events.filter(|event| event.about == facts.uid() && event.is_ours());
    let mut last: Vec<&RunEvent> = Vec::new();
    for event in ours.filter(|event| !IN_OTHER_SECTIONS.contains(&event.reason.as_str())) {
        last.retain(|earlier| earlier.reason != event.reason || earlier.at > event.at);
        if !last.iter().any(|it| it.reason == event.reason) {
            last.push(event);
        }
    }
    last.sort_by_key(|event| event.at);
    last
}

fn events(facts: &Facts) -> Option<Section> {
    let last = last_events(facts).into_iter();
    let last = last.filter(|event| !controller::is_shown(facts, event));
    let ago = |event: &RunEvent| age(event.at, facts.now);
    let lines = last.map(|event| format!("{} ago, {}: {}", ago(event), event.reason, event.text));
    Section::list("Events", "of pod-affinity on the run:", lines)
}

fn errors(facts: &Facts) -> Vec<String> {
    facts.errors().iter().map(ToString::to_string).collect()
}

fn not_read(facts: &Facts) -> Option<Section> {
    let text = "so the output above is incomplete:";
    Section::list("Not read", text, errors(facts).into_iter())
}

/// `The scheduler reports: "..."`.
fn reports(reporter: &str, text: &str) -> String {
    format!("{reporter} reports: {}.", quoted(text))
}

#[cfg(test)]
mod tests;
