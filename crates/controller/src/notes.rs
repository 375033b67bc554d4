//! What a user is told on the run, in words: what happened, why, and what they can do. Pure.

use crate::act::Effect;
use crate::moves;
use crate::observe::Seen;
use crate::reason::Reason;
use crate::refusal::{Cause, Refused, Step};
use placement::keys;
use placement::names::RunKey;
use placement::node::NodeOffer;
use placement::placeholder::size::Ignored;
use placement::plan::{Action, Enrolment, ReleaseCause};
use placement::run::{Run, SpecStatus};
use placement::strategy::{IsolateFrom, Scope, Strategy};
use std::time::Duration;

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Note {
    pub(crate) reason: Reason,
    pub(crate) text: String,
}

/// What there is to tell after a step.
pub(crate) fn notes(run: &Run, seen: &Seen, action: &Action, result: &Result<Effect, Refused>) -> Vec<Note> {
    let mut notes: Vec<_> = before(run, seen, action).into_iter().collect();
    match result {
        Ok(Effect::Written) => notes.extend(written(run, seen, action)),
        Ok(Effect::Nudged { complaint }) => notes.extend(complaint.as_deref().map(no_pod)),
        Ok(Effect::Nothing | Effect::Overtaken | Effect::ResizeRefused) => {}
        Err(refused) => notes.extend(not_written(refused)),
    }
    notes
}

/// What is so whether or not the step succeeds.
fn before(run: &Run, seen: &Seen, action: &Action) -> Option<Note> {
    match action {
        Action::CreatePlaceholder(_) if is_held(run) => Some(held(run, seen)),
        Action::LabelledTooLate => Some(too_late()),
        Action::AwaitNode {
            unschedulable,
            largest,
        } => unschedulable
            .as_deref()
            .map(|message| waiting(run, seen, message, largest.as_ref())),
        Action::AwaitTasks { cause, pod, live: _ } => moves::awaits_tasks(seen, *cause, pod.as_deref()),
        Action::AwaitFit {
            pod,
            asks,
            message,
            largest,
        } => Some(moves::no_node_fits(pod, asks, message, largest.as_ref())),
        Action::CreatePlaceholder(_)
        | Action::Leave(_)
        | Action::Steady
        | Action::Enrol(_)
        | Action::Withdraw
        | Action::NudgePlaceholder
        | Action::Release { .. }
        | Action::RecordNode { .. }
        | Action::CountPods
        | Action::LetGo { .. }
        | Action::WakeTasks { .. }
        | Action::Follow { .. }
        | Action::Shrink { .. }
        | Action::RecreateSmall { .. }
        | Action::Unpin { .. }
        | Action::StartOver { .. }
        | Action::DeletePlaceholder { .. }
        | Action::AdoptPod { .. }
        | Action::LeavePod { .. } => None,
    }
}

fn written(run: &Run, seen: &Seen, action: &Action) -> Vec<Note> {
    match action {
        Action::Enrol(_) if !run.is_held_by_us() => vec![enrolled(run)],
        Action::CreatePlaceholder(_) => vec![created(run)],
        Action::Release {
            cause,
            enrolment,
            node,
        } => released(seen, *cause, *enrolment, node.as_deref()),
        Action::RecordNode { node } => vec![moves::arrived(run, node)],
        Action::LetGo { cause, pod, set: _ } => vec![moves::lets_go(seen, *cause, pod.as_deref())],
        Action::StartOver { cause, set: _ } => vec![moves::starts_over(seen, *cause)],
        Action::DeletePlaceholder { .. } if !run.deleting => vec![cleaned_up(seen)],
        Action::LeavePod { .. } => vec![reserved(seen)],
        Action::DeletePlaceholder { .. }
        | Action::AdoptPod { .. }
        | Action::Leave(_)
        | Action::Steady
        | Action::LabelledTooLate
        | Action::Enrol(_)
        | Action::Withdraw
        | Action::NudgePlaceholder
        | Action::AwaitNode { .. }
        | Action::CountPods
        | Action::AwaitTasks { .. }
        | Action::AwaitFit { .. }
        | Action::WakeTasks { .. }
        | Action::Follow { .. }
        | Action::Shrink { .. }
        | Action::RecreateSmall { .. }
        | Action::Unpin { .. } => Vec::new(),
    }
}

fn not_written(refused: &Refused) -> Option<Note> {
    match refused.step {
        Step::Release => Some(release_refused(refused)),
        Step::Placeholder | Step::Claims => Some(placeholder_refused(refused)),
        Step::Enrol | Step::RecordNode => Some(enrol_refused(refused)),
        Step::CleanUp => Some(clean_up_refused(refused)),
        Step::Count | Step::Change | Step::Shrink | Step::Wake | Step::Assistants => {
            Some(moves::refused(refused))
        }
        Step::Sync | Step::Lookup => None,
    }
}

fn is_held(run: &Run) -> bool {
    run.hold && run.status == SpecStatus::Pending
}

pub(crate) fn note(reason: Reason, text: String) -> Note {
    Note { reason, text }
}

fn held(run: &Run, seen: &Seen) -> Note {
    let start = run
        .let_go
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

fn no_pod(complaint: &str) -> Note {
    let text = format!(
        "The placeholder's pod cannot be created: {complaint}. This run stays held meanwhile, and it is tried again \
         every few seconds; raise the quota or relax the policy that is named here."
    );
    note(Reason::PlaceholderRefused, text)
}

fn waiting(run: &Run, seen: &Seen, message: &str, largest: Option<&NodeOffer>) -> Note {
    let reserve = largest
        .filter(|offer| !offer.fits())
        .map(|offer| format!(" No node has what its reserve asks for; the nearest, {offer}."))
        .unwrap_or_default();
    let autoscaler = seen
        .autoscaler
        .as_ref()
        .map(|words| format!(" The autoscaler says: {words}."))
        .unwrap_or_default();
    let RunKey { namespace, name, .. } = &run.key;
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
pub(crate) fn ignored(ignored: &Ignored) -> Note {
    let text = format!("{ignored}. It is taken as absent; correct it before you create the run again.");
    note(Reason::ReserveIgnored, text)
}

fn released(seen: &Seen, cause: ReleaseCause, enrolment: Option<Enrolment>, node: Option<&str>) -> Vec<Note> {
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

fn deadline(seen: &Seen) -> Note {
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

fn cleaned_up(seen: &Seen) -> Note {
    let freed = seen
        .node_name()
        .map(|node| format!("; node {node} is free for other runs"))
        .unwrap_or_default();
    note(Reason::CleanedUp, format!("The placeholder is deleted{freed}."))
}

fn reserved(seen: &Seen) -> Note {
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
