//! Event texts for a run: what happened, why, and what the user can do. Pure.

use crate::api_error::StepError;
use crate::moves;
use crate::reason::{Note, Reason, note};
use crate::refusals;
use crate::reserves;
use crate::write::Effect;
use placement::keys;
use placement::names::RunKey;
use placement::node::NodeOffer;
use placement::placeholder::size::InvalidReserve;
use placement::plan::{Decision, Event, Observation, Plan, Read, ReleaseCause, Step, Wait};
use placement::run::{HeldFrom, Run, SpecStatus};
use placement::strategy::{Enrolment, IsolateFrom, Scope, Strategy};
use std::time::Duration;

/// The notes about a plan and its result.
pub(crate) fn notes(seen: &Observation, plan: &Plan, result: &Result<Effect, StepError>) -> Vec<Note> {
    let mut notes: Vec<_> = plan.note.as_ref().map(ignored).into_iter().collect();
    notes.extend(seen.relaxed.then(relaxed));
    notes.extend(before(seen, &plan.decision));
    match (&plan.decision, result) {
        (Decision::Act(step), Ok(Effect::Written)) => {
            notes.extend(step.event.iter().flat_map(|event| done(seen, event)));
        }
        (_, Ok(_)) => {}
        (_, Err(refused)) => notes.extend(refusals::of(refused)),
    }
    notes
}

/// The notes that are true whether or not the step succeeds.
fn before(seen: &Observation, decision: &Decision) -> Vec<Note> {
    let held = || seen.run.is_held_by_us().then(|| held(seen));
    let notes = match decision {
        Decision::Wait(wait @ Wait::Places { .. }) => [held(), waiting(seen, wait)],
        Decision::Wait(wait) => [waiting(seen, wait), None],
        Decision::Read(Read::Creation | Read::Quota)
        | Decision::Act(Step {
            event: Some(Event::Created(_)),
            ..
        }) => [held(), None],
        Decision::Ignore(_) | Decision::Read(_) | Decision::Act(_) => [None, None],
    };
    notes.into_iter().flatten().collect()
}

fn waiting(seen: &Observation, wait: &Wait) -> Option<Note> {
    match wait {
        Wait::Settled
        | Wait::OldStatefulSet
        | Wait::PodEnd
        | Wait::Scheduler
        | Wait::Pause
        | Wait::OlderRuns { is_rejected: false }
        | Wait::Assistants => None,
        Wait::LabelledTooLate => Some(too_late()),
        Wait::Node {
            unschedulable,
            autoscaler,
            largest,
        } => Some(for_node(
            &seen.run,
            unschedulable.as_deref()?,
            autoscaler.as_deref(),
            largest.as_ref(),
        )),
        Wait::OlderRuns { is_rejected: true } => Some(refusals::older_runs_first(&seen.run)),
        Wait::Places { quota } => Some(refusals::no_place(&seen.run, quota)),
        Wait::Tasks { cause, pod, live: _ } => moves::awaits_tasks(seen, *cause, pod.as_deref()),
        Wait::Volume { cause, pod, claim } => Some(moves::is_tied(seen, *cause, pod.as_deref(), claim)),
        Wait::Fit {
            pod,
            requests: asks,
            message,
            largest,
        } => Some(moves::no_node_fits(pod, asks, message, largest.as_ref())),
    }
}

fn done(seen: &Observation, event: &Event) -> Vec<Note> {
    let run = &seen.run;
    match event {
        Event::Enrolled => vec![enrolled(run)],
        Event::Created(need) => {
            let chosen = need.as_ref().map(|need| reserves::chosen(seen, need));
            chosen.into_iter().chain(returned(run)).collect()
        }
        Event::ReserveGivenUp { nearest } => vec![reserves::given_up(seen, nearest.as_ref())],
        Event::PodMissing { message } => refusals::no_pod(run, message.as_deref()).into_iter().collect(),
        Event::SizedWithinLimits { message } => vec![refusals::within_limits(message)],
        Event::Released {
            cause,
            enrolment,
            node,
            message,
        } => {
            let goes = node.as_deref().zip(*enrolment);
            released(seen, *cause, goes, message.as_deref().unwrap_or_default())
        }
        Event::NodeRecorded { node } => vec![moves::arrived(run, node)],
        Event::MovedOff {
            cause,
            pod,
            starts_over: false,
        } => vec![moves::moves_off(seen, *cause, pod.as_deref())],
        Event::MovedOff { cause, .. } => vec![moves::starts_over(seen, *cause)],
        Event::PlaceFreed { name, quota } => vec![refusals::frees_place(name, quota)],
        Event::MadeRoom { tasks } => vec![moves::makes_room(tasks)],
        Event::CleanedUp => vec![cleaned_up(seen)],
        Event::NodeKept => vec![reserved(seen)],
    }
}

fn held(seen: &Observation) -> Note {
    let start = match seen.run.held_from {
        HeldFrom::Creation => "its creation",
        HeldFrom::Release(_) | HeldFrom::UndatedRelease => "its previous holder released it",
    };
    let text = format!(
        "Held by pod-affinity (spec.status is {}) until its placeholder {} has a node, so that all its pods can share \
         that node. The hold ends at the latest {} after {start}.",
        keys::PENDING,
        seen.run.key.placeholder(),
        seconds(seen.config.hold_deadline),
    );
    note(Reason::Held, text)
}

fn enrolled(run: &Run) -> Note {
    let text = if run.status == SpecStatus::Pending {
        "Enrolled. Another holder holds this run (spec.status was already set, or Kueue queues it). The controller \
         creates the placeholder when that holder releases it."
    } else {
        "Enrolled after it was released: the controller creates its placeholder now, and its pods will share one node."
    };
    note(Reason::Enrolled, text.to_owned())
}

/// Only for a recreated placeholder: the notes about hold and enrolment announce the first placeholder of a run.
fn returned(run: &Run) -> Option<Note> {
    run.node.as_ref()?;
    let text = format!(
        "The placeholder {} was lost; the controller recreated it, and it returns to the node of this run's pods. \
         If this happens often, find out what deletes or evicts it.",
        run.key.placeholder()
    );
    Some(note(Reason::PlaceholderReturned, text))
}

fn for_node(run: &Run, message: &str, autoscaler: Option<&str>, largest: Option<&NodeOffer>) -> Note {
    let reserve = largest
        .filter(|offer| !offer.fits())
        .map(|offer| format!(" No node has what its reserve asks for; the nearest, {offer}."))
        .unwrap_or_default();
    let autoscaler = autoscaler
        .map(|words| format!(" The autoscaler reports: {words}."))
        .unwrap_or_default();
    let RunKey { namespace, name, .. } = &run.key;
    let message = message.trim_end_matches('.');
    let text = format!(
        "No node for this run yet. The scheduler reports for its placeholder: {message}.{autoscaler}{reserve} The run starts \
         when another run leaves a node that fits, or when such a node is added. To speed that up, add one, delete \
         finished runs that reserve one (isolateAlways), or ask for less in this run's podTemplate. \
         `kubectl pod-affinity explain -n {namespace} {name}` lists the reasons for each node."
    );
    note(Reason::WaitingForNode, text)
}

/// The run's reserve annotation is malformed, so the controller ignores the annotation. The note accompanies any step.
fn ignored(ignored: &InvalidReserve) -> Note {
    let text = format!("{ignored}. It is taken as absent; correct it before you create the run again.");
    note(Reason::ReserveIgnored, text)
}

fn released(
    seen: &Observation,
    cause: ReleaseCause,
    goes: Option<(&str, Enrolment)>,
    message: &str,
) -> Vec<Note> {
    let text = match (cause, goes) {
        (ReleaseCause::PlaceholderImpossible, _) => refusals::impossible(message),
        (ReleaseCause::NodeFound | ReleaseCause::PlaceholderCreated | ReleaseCause::Deadline, Some(goes)) => {
            format!("Released: all pods of this run go to {}.", place(goes))
        }
        (ReleaseCause::NodeFound | ReleaseCause::PlaceholderCreated, None) => {
            "Released as soon as its placeholder existed (release-when: created); its pods wait for the node."
                .to_owned()
        }
        (ReleaseCause::Deadline, None) => {
            "Released without a node; its pods will share the node that the first of them gets.".to_owned()
        }
        (ReleaseCause::OptedOut, _) => {
            "Released: the label was removed or opts out. Its pods are scheduled as for an unlabelled run."
                .to_owned()
        }
    };
    let late = (cause == ReleaseCause::Deadline).then(|| deadline(seen));
    late.into_iter().chain([note(Reason::Released, text)]).collect()
}

/// The node, and which other runs may use the node.
fn place((node, enrolment): (&str, Enrolment)) -> String {
    format!("node {node}{}", company(enrolment))
}

fn company(Enrolment { strategy, isolation }: Enrolment) -> String {
    let until = match strategy {
        Strategy::ColocateAlways => {
            return ", which it may share with other runs (colocateAlways)".to_owned();
        }
        Strategy::ColocateCompleted => "until it is done",
        Strategy::IsolateAlways => "until it is deleted",
    };
    let whom = match isolation.from {
        IsolateFrom::All => "no other PipelineRun's pods",
        IsolateFrom::Enrolled => "no other enrolled PipelineRun's pods",
    };
    let whence = match isolation.scope {
        Scope::Cluster => "",
        Scope::Namespace => " of this namespace",
    };
    format!("; {whom}{whence} can use it {until} ({strategy})")
}

fn deadline(seen: &Observation) -> Note {
    let why = seen.pod.as_ref().and_then(|pod| pod.unschedulable.as_ref());
    let text = format!(
        "The hold reached hold-deadline ({}) without a node{}. The run is released without a node; add nodes, \
         or raise hold-deadline if new nodes take longer.",
        seconds(seen.config.hold_deadline),
        why.map(|why| format!(": {}", why.message)).unwrap_or_default(),
    );
    note(Reason::HoldDeadlineExceeded, text)
}

fn relaxed() -> Note {
    let text = "Pods of this run came with a required podAffinity to other pods, and no node can satisfy both that and the \
                run's own: pod-affinity made theirs preferred. It does not come from the run itself; usual sources are \
                default-pod-template in Tekton's ConfigMap config-defaults, and admission policies.";
    note(Reason::AffinityRelaxed, text.to_owned())
}

fn too_late() -> Note {
    let text = format!(
        "This run started before pod-affinity could hold it, so its pods may already be on several nodes; nothing is \
         changed. Set the label {} on the run itself, when it is created: one on its Pipeline comes too late.",
        keys::OPT_IN
    );
    note(Reason::LabelledTooLate, text)
}

/// Only for a run that continues without a placeholder: deleting the placeholder of a done run emits no event.
fn cleaned_up(seen: &Observation) -> Note {
    let freed = seen
        .node_name()
        .map(|node| format!("; node {node} is free for other runs"))
        .unwrap_or_default();
    note(Reason::CleanedUp, format!("The placeholder is deleted{freed}."))
}

fn reserved(seen: &Observation) -> Note {
    let node = seen.node_name().unwrap_or("of this run");
    let text = format!(
        "The run is done; node {node} stays reserved for it (isolateAlways) until the PipelineRun is deleted or an \
         autoscaler removes the node."
    );
    note(Reason::CleanedUp, text)
}

fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        minutes if minutes >= 60 && minutes % 60 == 0 => format!("{}m", minutes / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests;
