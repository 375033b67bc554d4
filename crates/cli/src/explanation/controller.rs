//! The controller's state of the run and its next step.

use super::IN_OTHER_SECTIONS;
use super::report::Section;
use crate::events::RunEvent;
use crate::facts::Facts;
use crate::plan::Planned;
use crate::words::span;
use placement::notes::{self, Note};
use placement::plan::{self, Decision, Plan, Read, Wait};

pub(super) fn section(facts: &Facts) -> Option<Section> {
    Some(Section::new("Controller", text(facts)?).details(notes(facts)))
}

/// The state and the next step; `None` for a run that the controller ignores.
pub(crate) fn text(facts: &Facts) -> Option<String> {
    let Some(Planned { seen, plan }) = Planned::new(facts) else {
        return facts.state().is_active().then(not_known);
    };
    let next = match &plan.decision {
        Decision::Ignore(_) => return None,
        Decision::Wait(wait) => format!("{}{}.", waits(wait), time_left(&plan)),
        Decision::Act(step) => format!(
            "Next step: {}. A pause may come first.",
            step.name.replace('_', " ")
        ),
        Decision::Read(read) => format!(
            "The next step depends on {}, which could not be read.",
            group(*read)
        ),
    };
    let state: &str = plan::State::from_observation(&seen).into();
    Some(format!("in state {state}. {next}"))
}

fn not_known() -> String {
    "in a state that is not known, because the placeholder or the nodes could not be read.".to_owned()
}

/// The events that the controller emits about the state, and about its next step when that succeeds.
fn notes(facts: &Facts) -> Vec<String> {
    let Some(Planned { seen, plan }) = Planned::new(facts) else {
        return Vec::new();
    };
    let text = |note: &Note| format!("{}: {}", note.reason, note.text);
    let state = notes::of_state(&seen, &plan);
    let state = state
        .iter()
        .filter(|note| !IN_OTHER_SECTIONS.contains(&note.reason.into()));
    let event = match &plan.decision {
        Decision::Act(step) => step.event.as_ref(),
        Decision::Ignore(_) | Decision::Wait(_) | Decision::Read(_) => None,
    };
    let step = event
        .map(|event| notes::of_event(&seen, event))
        .unwrap_or_default();
    let step = step.iter().map(|note| format!("then {}", text(note)));
    state.map(text).chain(step).collect()
}

/// Whether the section has the text of this event already.
pub(super) fn is_shown(facts: &Facts, event: &RunEvent) -> bool {
    notes(facts).contains(&format!("{}: {}", event.reason, event.text))
}

fn waits(wait: &Wait) -> &'static str {
    match wait {
        Wait::Settled => "Nothing to do",
        Wait::LabelledTooLate => "Nothing is done, because the run started before it was held",
        Wait::Node { .. } => "Waits for a node",
        Wait::OldStatefulSet => "Waits for the end of a StatefulSet that has the placeholder's name",
        Wait::PodEnd => "Waits for the end of the placeholder's pod",
        Wait::Scheduler => "Waits for the scheduler to place the run's pods",
        Wait::Pause => "Pauses before the next attempt",
        Wait::Assistants => "Waits for nodes for Tekton's affinity assistants",
        Wait::OlderRuns(_) => "Waits for other runs, which come first",
        Wait::Places { .. } => "Waits for room in a quota",
        Wait::Tasks { .. } => "Waits for the end of the run's tasks on the node",
        Wait::Volume { .. } => "Stays on the only node that can use a volume of the run",
        Wait::Fit { .. } => "Waits for a node that fits",
    }
}

fn time_left(plan: &Plan) -> String {
    match (&plan.decision, plan.again) {
        (Decision::Wait(Wait::Scheduler | Wait::Pause), Some(left)) => {
            format!(", for {} at most", span(left))
        }
        _ => String::new(),
    }
}

fn group(read: Read) -> &'static str {
    match read {
        Read::Creation | Read::Quota => "the quotas of the namespace",
        Read::Tasks => "the volumes of the run",
        Read::Assistants | Read::Usage => "the run's pods",
        Read::RejectedTasks => "the run's TaskRuns",
    }
}
