//! Held by whom and since when, and what ended it.

use crate::events::Told;
use crate::facts::Facts;
use crate::report::Chapter;
use crate::state::State;
use crate::words::{after, age, between, lasting, span};
use placement::config::ReleaseWhen;
use placement::keys;
use std::time::Duration;

/// Held, and by whom.
pub(super) fn chapter(facts: &Facts) -> Option<Chapter> {
    let text = match facts.state() {
        State::Held | State::WaitingForNode => by_us(facts),
        State::HeldElsewhere => elsewhere(facts),
        State::Running | State::Moving | State::Done | State::Reserved | State::Ending => past(facts)?,
        State::Declined
        | State::TooLate
        | State::Invalid
        | State::Nested
        | State::ManagedElsewhere
        | State::Unlabelled => return None,
    };
    Some(Chapter::new("Held", text))
}

fn by_us(facts: &Facts) -> String {
    let config = facts.config();
    let since = facts.view.run.held_since().unwrap_or(facts.now);
    let until = match config.release_when {
        ReleaseWhen::Scheduled => "until its placeholder has a node",
        ReleaseWhen::Created => "until its placeholder exists",
    };
    let deadline = config.hold_deadline;
    let end = after(since, deadline);
    let limit = if end > facts.now {
        let left = span(between(facts.now, end));
        format!(
            "{until}; at the latest in {left} (hold-deadline {})",
            span(deadline)
        )
    } else {
        format!(
            "which is longer than hold-deadline ({}): no controller releases it",
            span(deadline)
        )
    };
    let key = &facts.view.run.key;
    format!(
        "by pod-affinity for {}, {limit}. To keep it Pending until you release it: `kubectl annotate pipelinerun -n {} {} {}-`.",
        lasting(since, facts.now),
        key.namespace,
        key.name,
        keys::HOLD
    )
}

fn elsewhere(facts: &Facts) -> String {
    match &facts.view.queue {
        Some(queue) => format!(
            "by Kueue (queue {queue:?}), which releases it when its workload is admitted. pod-affinity has enrolled it, \
             and creates its placeholder then."
        ),
        None => {
            "by another holder: spec.status was PipelineRunPending when the run was created, and that holder \
                 releases it. Then pod-affinity holds it until its placeholder has a node."
                .to_owned()
        }
    }
}

/// How long the hold was is in the events only, and these are kept for an hour or so.
fn past(facts: &Facts) -> Option<String> {
    let held = facts.event("Held");
    let released = facts.event("Released");
    // Whom somebody else held first was enrolled meanwhile, and told so.
    let late = facts.event("Enrolled").and(held).map(|held| held.at);
    let since = late.or(facts.view.run.created)?;
    match (held, released) {
        (_, Some(released)) => Some(format!("by pod-affinity for {}.", lasting(since, released.at))),
        (Some(held), None) => Some(format!("by pod-affinity, {} ago.", age(held.at, facts.now))),
        (None, None) => None,
    }
}

/// When and why it was released.
pub(super) fn released(facts: &Facts) -> Option<Chapter> {
    let text = match facts.state() {
        State::Held | State::WaitingForNode | State::HeldElsewhere => "not yet.".to_owned(),
        State::Running | State::Moving | State::Done | State::Reserved | State::Ending => {
            by_event(facts).or_else(|| by_start(facts))?
        }
        State::Declined
        | State::TooLate
        | State::Invalid
        | State::Nested
        | State::ManagedElsewhere
        | State::Unlabelled => return None,
    };
    Some(Chapter::new("Released", text))
}

fn by_event(facts: &Facts) -> Option<String> {
    let released = facts.event("Released")?;
    let ago = age(released.at, facts.now);
    let late = facts.event("HoldDeadlineExceeded").map(told);
    Some(format!("{ago} ago. {}", late.unwrap_or_else(|| told(released))))
}

fn told(event: &Told) -> String {
    let text = event.text.strip_prefix("Released: ").unwrap_or(&event.text);
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

fn by_start(facts: &Facts) -> Option<String> {
    let started = facts.view.started?;
    let waited = facts.view.run.created.map(|created| between(created, started));
    let waited = waited.filter(|waited| *waited > Duration::ZERO).map(span);
    let after = waited
        .map(|waited| format!(", {waited} after its creation"))
        .unwrap_or_default();
    Some(format!(
        "Tekton started it {} ago{after}.",
        age(started, facts.now)
    ))
}
