//! What a user is told on the run, in words: what happened, why, and what to do about it. Pure.

use crate::moves;
use crate::reason::{Note, Reason, note};
use crate::refusal::{Cause, Refused};
use crate::write::Effect;
use placement::keys;
use placement::names::RunKey;
use placement::node::NodeOffer;
use placement::placeholder::size::Ignored;
use placement::plan::{Decision, Enrolment, Message, Observation, Plan, Question, ReleaseCause, Wait, Write};
use placement::requests::Operation;
use placement::run::{Run, SpecStatus};
use placement::strategy::{IsolateFrom, Scope, Strategy};
use std::time::Duration;

/// What there is to tell about a plan, and about what came of it.
pub(crate) fn notes(seen: &Observation, plan: &Plan, result: &Result<Effect, Refused>) -> Vec<Note> {
    let mut notes: Vec<_> = plan.note.as_ref().map(ignored).into_iter().collect();
    notes.extend(before(seen, &plan.decision));
    match (&plan.decision, result) {
        (Decision::Write(write), Ok(Effect::Written)) => notes.extend(written(seen, write)),
        (_, Ok(_)) => {}
        (_, Err(refused)) => notes.extend(not_written(refused)),
    }
    notes
}

/// What is so whether or not the step succeeds.
fn before(seen: &Observation, decision: &Decision) -> Option<Note> {
    match decision {
        Decision::Wait(wait) => waiting(seen, wait),
        Decision::Count(Question::Claims) | Decision::Write(Write::CreatePlaceholder(_)) => {
            is_held(&seen.run).then(|| held(seen))
        }
        Decision::Leave(_) | Decision::Count(_) | Decision::Write(_) => None,
    }
}

fn waiting(seen: &Observation, wait: &Wait) -> Option<Note> {
    match wait {
        Wait::Steady => None,
        Wait::LabelledTooLate => Some(too_late()),
        Wait::Node {
            unschedulable,
            largest,
        } => Some(for_node(seen, unschedulable.as_deref()?, largest.as_ref())),
        Wait::Tasks { cause, pod, live: _ } => moves::awaits_tasks(seen, *cause, pod.as_deref()),
        Wait::Fit {
            pod,
            asks,
            message,
            largest,
        } => Some(moves::no_node_fits(pod, asks, message, largest.as_ref())),
    }
}

fn written(seen: &Observation, write: &Write) -> Vec<Note> {
    let run = &seen.run;
    match write {
        Write::Enrol(_) if !run.is_held_by_us() => vec![enrolled(run)],
        Write::CreatePlaceholder(_) => vec![created(run)],
        Write::Nudge => no_pod(seen).into_iter().collect(),
        Write::Release {
            cause,
            enrolment,
            node,
        } => released(seen, *cause, *enrolment, node.as_deref()),
        Write::RecordNode { node } => vec![moves::arrived(run, node)],
        Write::MoveOff { cause, pod, set: _ } => vec![moves::moves_off(seen, *cause, pod.as_deref())],
        Write::StartOver { cause, set: _ } => vec![moves::starts_over(seen, *cause)],
        Write::DeletePlaceholder { .. } if !run.deleting => vec![cleaned_up(seen)],
        Write::LeavePod { .. } => vec![reserved(seen)],
        Write::DeletePlaceholder { .. }
        | Write::AdoptPod { .. }
        | Write::Enrol(_)
        | Write::Withdraw
        | Write::WakeTasks { .. }
        | Write::Follow { .. }
        | Write::Shrink { .. }
        | Write::RecreateSmall { .. }
        | Write::Unpin { .. } => Vec::new(),
    }
}

fn not_written(refused: &Refused) -> Option<Note> {
    match refused.operation {
        Operation::Release => Some(release_refused(refused)),
        Operation::Placeholder | Operation::Claims => Some(placeholder_refused(refused)),
        Operation::Enrol | Operation::RecordNode => Some(enrol_refused(refused)),
        Operation::CleanUp => Some(clean_up_refused(refused)),
        Operation::Change | Operation::Shrink | Operation::Wake | Operation::Assistants => {
            Some(moves::refused(refused))
        }
        Operation::Sync | Operation::Lookup | Operation::Count => None,
    }
}

fn is_held(run: &Run) -> bool {
    run.hold && run.status == SpecStatus::Pending
}

fn held(seen: &Observation) -> Note {
    let start = seen
        .run
        .released_at
        .map_or("its creation", |_| "whoever held it before let it go");
    let text = format!(
        "Held by pod-affinity (spec.status is {}) until its placeholder has a node, so that all its pods can share \
         that node. The hold ends by itself, at the latest {} after {start}.",
        keys::PENDING,
        seconds(seen.config.hold_deadline),
    );
    note(Reason::Held, text)
}

fn enrolled(run: &Run) -> Note {
    let text = if run.status == SpecStatus::Pending {
        "Enrolled; somebody other than pod-affinity holds this run (spec.status was set before, or Kueue queues it). \
         Its placeholder is made when they release it."
    } else {
        "Enrolled while it was already released: its placeholder is made now, and its pods will share one node."
    };
    note(Reason::Enrolled, text.to_owned())
}

fn created(run: &Run) -> Note {
    let name = run.key.placeholder();
    if run.node.is_none() {
        let text =
            format!("Created the placeholder {name}; the node it is scheduled to will be this run's node.");
        return note(Reason::PlaceholderCreated, text);
    }
    let text = format!(
        "The placeholder {name} was gone and is made again; it returns to the node where this run's pods are. \
         If this keeps happening, look for what deletes or evicts it."
    );
    note(Reason::PlaceholderReturned, text)
}

fn no_pod(seen: &Observation) -> Option<Note> {
    let Message(complaint) = seen.complaint.as_ref()?;
    let complaint = complaint.as_deref()?;
    let text = format!(
        "The placeholder's pod cannot be created: {complaint}. This run stays held meanwhile, and it is tried again \
         every few seconds; raise the quota or relax the policy that is named here."
    );
    Some(note(Reason::PlaceholderRefused, text))
}

fn for_node(seen: &Observation, message: &str, largest: Option<&NodeOffer>) -> Note {
    let reserve = largest
        .filter(|offer| !offer.fits())
        .map(|offer| format!(" No node has what its reserve asks for; the nearest, {offer}."))
        .unwrap_or_default();
    let autoscaler = seen
        .autoscaler
        .as_ref()
        .and_then(|Message(answer)| answer.as_ref());
    let autoscaler = autoscaler
        .map(|words| format!(" The autoscaler says: {words}."))
        .unwrap_or_default();
    let RunKey { namespace, name, .. } = &seen.run.key;
    let message = message.trim_end_matches('.');
    let text = format!(
        "No node for this run yet. The scheduler says of its placeholder: {message}.{autoscaler}{reserve} The run starts \
         by itself when another run leaves a node that fits, or such a node is added. To speed that up, add one, delete \
         finished runs that reserve one (isolateAlways), or ask for less in this run's podTemplate. \
         `kubectl pod-affinity explain -n {namespace} {name}` says what speaks against each node."
    );
    note(Reason::WaitingForNode, text)
}

/// What is told beside whatever is done.
fn ignored(ignored: &Ignored) -> Note {
    let text = format!("{ignored}. It is taken as absent; correct it before you create the run again.");
    note(Reason::ReserveIgnored, text)
}

fn released(
    seen: &Observation,
    cause: ReleaseCause,
    enrolment: Option<Enrolment>,
    node: Option<&str>,
) -> Vec<Note> {
    let assigned = node.map(|node| assigned(node, enrolment));
    let text = match cause {
        ReleaseCause::NodeFound => "Released: the node is there, and Tekton may start the tasks.",
        ReleaseCause::PlaceholderCreated => {
            "Released as soon as its placeholder existed (release-when: created); its pods wait for the node."
        }
        ReleaseCause::Deadline => {
            "Released without a node; its pods still share the one that the first of them gets."
        }
        ReleaseCause::OptedOut => {
            "Released: it is not opted in any more. Its pods are placed as if it never was."
        }
    };
    let late = (cause == ReleaseCause::Deadline).then(|| deadline(seen));
    assigned
        .into_iter()
        .chain(late)
        .chain([note(Reason::Released, text.to_owned())])
        .collect()
}

fn assigned(node: &str, enrolment: Option<Enrolment>) -> Note {
    let company = enrolment.map(company).unwrap_or_default();
    note(
        Reason::NodeAssigned,
        format!("All pods of this run go to node {node}{company}."),
    )
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
    format!("; {whom}{whence} are let onto it {until} ({strategy})")
}

fn deadline(seen: &Observation) -> Note {
    let why = seen.pod.as_ref().and_then(|pod| pod.unschedulable.as_ref());
    let text = format!(
        "The hold reached hold-deadline ({}) without a node{}. The run is released all the same; add room for it, \
         or raise hold-deadline if nodes take longer to come.",
        seconds(seen.config.hold_deadline),
        why.map(|why| format!(": {}", why.message)).unwrap_or_default(),
    );
    note(Reason::HoldDeadlineExceeded, text)
}

fn too_late() -> Note {
    let text = format!(
        "The label {} came after the first task had started, so pods of this run may already be on several nodes; \
         nothing is changed. Set the label when the run is created.",
        keys::OPT_IN
    );
    note(Reason::LabelledTooLate, text)
}

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

fn release_refused(refused: &Refused) -> Note {
    let advice = match refused.cause() {
        Cause::Denied => {
            "Usual cause: Tekton's configuration or version changed while this run was held, so that Tekton now takes \
             the release for a change of the spec. Create the run anew if this lasts."
        }
        Cause::WebhookDown => "Tekton's webhook has to be reachable for a run to start; look at its pods.",
        Cause::Forbidden => {
            "The controller's ClusterRole seems incomplete; apply the release's manifests again."
        }
        _ => "Nothing needs to be done unless this lasts.",
    };
    note(
        Reason::ReleaseRefused,
        format!(
            "This run could not be released yet and is tried again: {}. {advice}",
            refused.fault
        ),
    )
}

fn placeholder_refused(refused: &Refused) -> Note {
    let advice = match refused.cause() {
        Cause::Quota => "Raise the ResourceQuota of this namespace or remove what uses it up.",
        Cause::Denied => {
            "An admission policy of this cluster does not let the placeholder in; exempt it or adapt it."
        }
        Cause::Invalid => {
            "Something that the placeholder takes over from this run's podTemplate is not valid there."
        }
        Cause::Forbidden => {
            "The controller's ClusterRole seems incomplete; apply the release's manifests again."
        }
        _ => "Nothing needs to be done unless this lasts.",
    };
    note(
        Reason::PlaceholderRefused,
        format!(
            "The placeholder could not be made yet and is tried again: {}. {advice}",
            refused.fault
        ),
    )
}

fn enrol_refused(refused: &Refused) -> Note {
    note(
        Reason::EnrolRefused,
        format!(
            "This run could not be labelled yet and is tried again: {}.",
            refused.fault
        ),
    )
}

fn clean_up_refused(refused: &Refused) -> Note {
    note(
        Reason::CleanUpRefused,
        format!(
            "What pod-affinity made for this run could not be removed yet and is tried again: {}.",
            refused.fault
        ),
    )
}

fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        minutes if minutes >= 60 && minutes % 60 == 0 => format!("{}m", minutes / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
#[path = "notes_tests.rs"]
mod tests;
