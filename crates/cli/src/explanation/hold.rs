//! The hold: its holder, its duration, and its end.

use super::report::Section;
use crate::events::RunEvent;
use crate::facts::Facts;
use crate::state::State;
use crate::words::{after, age, between, lasting, span};
use placement::config::ReleaseWhen;
use placement::keys;
use placement::run::HeldFrom;
use std::time::Duration;

pub(super) fn section(facts: &Facts) -> Option<Section> {
    let text = match facts.state() {
        State::Held | State::WaitingForNode => by_us(facts),
        State::HeldElsewhere => elsewhere(facts),
        state if state.was_released() => past(facts)?,
        _ => return None,
    };
    Some(Section::new("Held", text))
}

fn by_us(facts: &Facts) -> String {
    let config = facts.config();
    if facts.view.run.held_from == HeldFrom::OverCap {
        let said = facts.event("OverCap").map(|event| format!(" {}", event.text));
        return format!(
            "by pod-affinity, because a cap has no room for the run; hold-deadline does not count meanwhile.{}",
            said.unwrap_or_default()
        );
    }
    let since = facts.view.run.held_since().unwrap_or(facts.now);
    let until = match config.release_when {
        ReleaseWhen::Scheduled => "until its placeholder has a node",
        ReleaseWhen::Created => "until its placeholder exists",
    };
    let deadline = span(config.hold_deadline);
    let end = after(since, config.hold_deadline);
    let limit = match &facts.config {
        Err(_) => format!("{until}; at the latest until hold-deadline, which could not be read"),
        Ok(_) if end > facts.now => {
            let left = span(between(facts.now, end));
            format!("{until}; at the latest in {left} (hold-deadline {deadline})")
        }
        Ok(_) => format!("which is longer than hold-deadline ({deadline}): no controller releases it"),
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

/// Only events have the duration of a past hold. A cluster keeps events for about an hour.
fn past(facts: &Facts) -> Option<String> {
    let held = facts.event("Held");
    let released = facts.event("Released");
    // A run that another holder held first was enrolled meanwhile, and has an event about that.
    let late = facts.event("Enrolled").and(held).map(|held| held.at);
    let since = late.or(facts.view.run.created)?;
    match (held, released) {
        (_, Some(released)) => Some(format!("by pod-affinity for {}.", lasting(since, released.at))),
        (Some(held), None) => Some(format!("by pod-affinity, {} ago.", age(held.at, facts.now))),
        (None, None) => None,
    }
}

/// When and why the run was released.
pub(super) fn released(facts: &Facts) -> Option<Section> {
    let text = match facts.state() {
        State::Held | State::WaitingForNode | State::HeldElsewhere => "not yet.".to_owned(),
        state if state.was_released() => by_event(facts).or_else(|| by_start(facts))?,
        _ => return None,
    };
    Some(Section::new("Released", text))
}

fn by_event(facts: &Facts) -> Option<String> {
    let released = facts.event("Released")?;
    let ago = age(released.at, facts.now);
    let late = facts.event("HoldDeadlineExceeded").map(sentence);
    Some(format!(
        "{ago} ago. {}",
        late.unwrap_or_else(|| sentence(released))
    ))
}

fn sentence(event: &RunEvent) -> String {
    let text = event.text.strip_prefix("Released: ").unwrap_or(&event.text);
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

fn by_start(facts: &Facts) -> Option<String> {
    let started = facts.view.started?;
    let waited = facts.view.run.created.map(|created| between(created, started));
    let waited = waited.filter(|waited| *waited > Duration::ZERO);
    let after = waited.map(|waited| format!(", {} after its creation", span(waited)));
    let ago = age(started, facts.now);
    Some(format!(
        "Tekton started it {ago} ago{}.",
        after.unwrap_or_default()
    ))
}
