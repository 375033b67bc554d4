//! The story of one run, told from what was seen of it: each chapter a file. Pure.

mod help;
mod hold;
mod label;
mod place;
mod room;
mod summary;
mod tasks;
mod unfit;

use crate::events::Told;
use crate::facts::Facts;
use crate::report::{Chapter, Story};
use crate::words::{age, quoted};

/// Reasons of our events that have a chapter of their own, or say nothing that another chapter does not.
const TOLD_ELSEWHERE: [&str; 9] = [
    "Held",
    "Enrolled",
    "PlaceholderCreated",
    "WaitingForNode",
    "NodeAssigned",
    "Released",
    "LabelledTooLate",
    "CleanedUp",
    "HoldDeadlineExceeded",
];

/// Tells the story.
pub(crate) fn story(facts: &Facts) -> Story {
    let chapters = [
        Some(label::chapter(facts)),
        hold::chapter(facts),
        place::placeholder(facts),
        place::node(facts),
        place::autoscaler(facts),
        hold::released(facts),
        tasks::chapter(facts),
        outcome(facts),
        trouble(facts),
        unseen(facts),
    ];
    Story {
        summary: summary::summary(facts),
        help: help::help(facts),
        not_read: gaps(facts),
        chapters: chapters.into_iter().flatten().collect(),
    }
}

fn outcome(facts: &Facts) -> Option<Chapter> {
    let (well, reason) = facts.view.verdict.as_ref()?;
    let when = facts
        .view
        .ended
        .map(|ended| format!(" {} ago", age(ended, facts.now)))
        .unwrap_or_default();
    let text = match (well, reason.as_str()) {
        (true, _) => format!("succeeded{when}."),
        (false, "") => format!("failed{when}."),
        (false, reason) => format!("did not succeed{when}: {reason}."),
    };
    Some(Chapter::new("Outcome", text))
}

/// What pod-affinity tried in vain, and moves, each in its last words.
fn last_events(facts: &Facts) -> Vec<&Told> {
    let told = facts.told.as_deref().unwrap_or_default();
    let ours = told
        .iter()
        .filter(|event| event.about == facts.uid() && event.is_ours());
    let mut last: Vec<&Told> = Vec::new();
    for event in ours.filter(|event| !TOLD_ELSEWHERE.contains(&event.reason.as_str())) {
        last.retain(|earlier| earlier.reason != event.reason || earlier.at > event.at);
        if !last.iter().any(|it| it.reason == event.reason) {
            last.push(event);
        }
    }
    last.sort_by_key(|event| event.at);
    last
}

fn trouble(facts: &Facts) -> Option<Chapter> {
    let last = last_events(facts);
    let details = last.iter().map(|event| {
        format!(
            "{} ago, {}: {}",
            age(event.at, facts.now),
            event.reason,
            event.text
        )
    });
    let details: Vec<_> = details.collect();
    (!details.is_empty()).then(|| Chapter::new("Events", "of pod-affinity on the run:").details(details))
}

fn gaps(facts: &Facts) -> Vec<String> {
    facts.gaps().iter().map(ToString::to_string).collect()
}

fn unseen(facts: &Facts) -> Option<Chapter> {
    let gaps = gaps(facts);
    (!gaps.is_empty()).then(|| Chapter::new("Not read", "so the output above is incomplete:").details(gaps))
}

/// `The scheduler reports: "..."`.
fn reports(who: &str, text: &str) -> String {
    format!("{who} reports: {}.", quoted(text))
}

#[cfg(test)]
mod tests;
