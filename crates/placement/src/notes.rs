//! Event texts for a run: what happened, why, and what the user can do.
//!
//! The controller emits these events; the command line tool prints the same texts.

mod moves;
mod placeholder;
mod queue;
mod reason;
mod reserves;

use crate::attempts::Before;
use crate::bounded::{BYTES, ENTRIES};
use crate::coschedule::{Coschedule, FEATURE_FLAGS};
use crate::cross_namespace_quota::TermsRejected;
use crate::keys;
use crate::names::RunKey;
use crate::node::NodeOffer;
use crate::placeholder::size::{InvalidReserve, invalid_reserve};
use crate::plan::{Decision, Event, Observation, Plan, Read, ReleaseCause, State, Step, Wait};
use crate::run::{HeldFrom, Run, SpecStatus};
use crate::strategy::{Enrolment, IsolateFrom, Scope, Strategy};
pub use moves::time_left;
pub use placeholder::POLICY_REMEDY;
pub use queue::is_about_line;
pub use reason::{Manner, Note, Reason, Repeat, note};
use std::time::Duration;

/// The notes that are true whether or not the step succeeds.
pub fn of_state(observed: &Observation, plan: &Plan) -> Vec<Note> {
    let ignored = invalid_reserve(&observed.run).filter(|_| State::from_observation(observed).is_held());
    let mut notes: Vec<_> = ignored.as_ref().map(reserve_ignored).into_iter().collect();
    notes.extend(observed.relaxed.then(relaxed));
    notes.extend(observed.run.over_limit.map(field_ignored));
    let coschedule = observed.cluster.coschedule;
    notes.extend(coschedule.places_pods().then(|| tekton_places_pods(coschedule)));
    notes.extend(of_decision(observed, &plan.decision));
    notes
}

fn of_decision(observed: &Observation, decision: &Decision) -> Vec<Note> {
    let held = || observed.run.is_held_by_us().then(|| held(observed));
    let notes = match decision {
        Decision::Wait(wait @ Wait::Places { .. }) => [held(), waiting(observed, wait)],
        Decision::Wait(wait) => [waiting(observed, wait), None],
        Decision::Read(Read::Creation | Read::Quota)
        | Decision::Act(Step {
            event: Some(Event::Created(_)),
            ..
        }) => [held(), None],
        Decision::Ignore(_) | Decision::Read(_) | Decision::Act(_) => [None, None],
    };
    notes.into_iter().flatten().collect()
}

fn waiting(observed: &Observation, wait: &Wait) -> Option<Note> {
    match wait {
        Wait::Settled
        | Wait::OldStatefulSet
        | Wait::PodEnd
        | Wait::Scheduler
        | Wait::Pause
        | Wait::OlderRuns(Before::Starting)
        | Wait::Assistants => None,
        Wait::LabelledTooLate => Some(too_late()),
        Wait::Node {
            unschedulable,
            autoscaler,
            largest,
        } => Some(for_node(
            &observed.run,
            unschedulable.as_deref()?,
            autoscaler.as_deref(),
            largest.as_ref(),
        )),
        Wait::OlderRuns(Before::Rejected) => Some(placeholder::older_runs_first(&observed.run)),
        Wait::OlderRuns(Before::Waiting { ahead }) => Some(queue::in_line(observed, *ahead)),
        Wait::OlderRuns(Before::OverCap(over_cap)) => Some(queue::over_cap(observed, *over_cap)),
        Wait::Places { quota } => Some(placeholder::no_place(&observed.run, quota)),
        Wait::Tasks { cause, pod, live: _ } => moves::awaits_tasks(observed, *cause, pod.as_deref()),
        Wait::Volume { cause, pod, claim } => Some(moves::is_tied(observed, *cause, pod.as_deref(), claim)),
        Wait::Fit {
            pod,
            requests,
            message,
            largest,
        } => Some(moves::no_node_fits(pod, requests, message, largest.as_ref())),
    }
}

/// The TaskRun of the pod that waits while this note is reported. The timeout of the TaskRun continues meanwhile.
pub fn waiting_task_run<'a>(
    observed: &'a Observation,
    decision: &Decision,
    reason: Reason,
) -> Option<&'a str> {
    let pod = match decision {
        Decision::Wait(Wait::Tasks { pod, .. } | Wait::Volume { pod, .. }) => pod.as_deref(),
        Decision::Wait(Wait::Fit { pod, .. }) => Some(pod.as_str()),
        Decision::Wait(_) | Decision::Ignore(_) | Decision::Read(_) | Decision::Act(_) => None,
    };
    let is_about_pod = matches!(
        reason,
        Reason::WaitingForRoom | Reason::NodeUnfit | Reason::NoNodeFits
    );
    let pod = pod.filter(|_| is_about_pod)?;
    let waiting = observed.waiting.iter().find(|waiting| waiting.name == pod);
    waiting?.task_run.as_deref()
}

/// The notes about a step that has succeeded.
pub fn of_event(observed: &Observation, event: &Event) -> Vec<Note> {
    let run = &observed.run;
    match event {
        Event::Enrolled => [Some(enrolled(run)), narrowed(observed)]
            .into_iter()
            .flatten()
            .collect(),
        Event::Created(need) => {
            let chosen = need.as_ref().map(|need| reserves::chosen(observed, need));
            [chosen, returned(run), narrowed(observed)]
                .into_iter()
                .flatten()
                .collect()
        }
        Event::ReserveGivenUp { nearest } => vec![reserves::given_up(observed, nearest.as_ref())],
        Event::ReserveOverQuota { message } => vec![reserves::over_quota(message)],
        Event::PodMissing { message } => placeholder::no_pod(run, message.as_deref()).into_iter().collect(),
        Event::SizedWithinLimits { message } => vec![placeholder::within_limits(message)],
        Event::Released {
            cause,
            enrolment,
            node,
            message,
        } => {
            let goes = node.as_deref().zip(*enrolment);
            released(observed, *cause, goes, message.as_deref().unwrap_or_default())
        }
        Event::NodeRecorded { node } => vec![moves::arrived(run, node)],
        Event::MovedOff {
            cause,
            pod,
            starts_over: false,
        } => vec![moves::moves_off(observed, *cause, pod.as_deref())],
        Event::MovedOff { cause, .. } => vec![moves::starts_over(observed, *cause)],
        Event::PlacesFreed { names, quota } => vec![placeholder::frees_places(names, quota)],
        Event::MadeRoom { tasks } => vec![moves::makes_room(tasks)],
        Event::CleanedUp => vec![cleaned_up(observed)],
        Event::NodeKept => vec![reserved(observed)],
    }
}

fn held(observed: &Observation) -> Note {
    let start = match observed.run.held_from {
        HeldFrom::Creation => "its creation",
        HeldFrom::Release(_) | HeldFrom::UndatedRelease => "its hold began",
        HeldFrom::OverCap => "a cap has room for it",
    };
    let text = format!(
        "Held by pod-affinity (spec.status is {}) until its placeholder {} has a node, so that all its pods can share \
         that node. The hold ends at the latest {} after {start}.",
        keys::PENDING,
        observed.run.key.placeholder(),
        seconds(observed.config.hold_deadline),
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
         when a node that fits becomes free or is added. To start it earlier, add a node, delete finished runs that reserve \
         a node (isolateAlways), or request less in this run's podTemplate. \
         `kubectl pod-affinity explain -n {namespace} {name}` lists the reasons for each node."
    );
    note(Reason::WaitingForNode, text)
}

/// The run's reserve annotation is malformed, so the controller ignores the annotation. The note accompanies any step.
fn reserve_ignored(ignored: &InvalidReserve) -> Note {
    let text = format!("{ignored}. It is taken as absent; correct it before you create the run again.");
    note(Reason::ReserveIgnored, text)
}

fn released(
    observed: &Observation,
    cause: ReleaseCause,
    goes: Option<(&str, Enrolment)>,
    message: &str,
) -> Vec<Note> {
    let text = match (cause, goes) {
        (ReleaseCause::PlaceholderImpossible, _) if observed.messages.invalid_template.is_some() => {
            placeholder::invalid_template(message)
        }
        (ReleaseCause::PlaceholderImpossible, _) => placeholder::impossible(message),
        (ReleaseCause::NodeFound | ReleaseCause::PlaceholderCreated | ReleaseCause::Deadline, Some(goes)) => {
            format!(
                "Released: all pods of this run go to {}{}.",
                place(goes),
                start(observed, goes.0)
            )
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
    let late = (cause == ReleaseCause::Deadline).then(|| placeholder::deadline(observed));
    late.into_iter().chain([note(Reason::Released, text)]).collect()
}

/// The node, and which other runs may use the node.
fn place((node, enrolment): (&str, Enrolment)) -> String {
    format!("node {node}{}", other_runs(enrolment))
}

/// Whether the start on this node is warm, if the run prefers warm nodes.
fn start(observed: &Observation, node: &str) -> String {
    let reason = observed
        .warm_nodes()
        .map(|warm_nodes| format!("; {}", warm_nodes.reason(node)));
    reason.unwrap_or_default()
}

/// The rest of a sentence about a node: which other runs may use it, and for how long not.
pub fn other_runs(Enrolment { strategy, isolation }: Enrolment) -> String {
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

fn field_ignored(name: &str) -> Note {
    let text = format!(
        "pod-affinity ignores the field {name} of this run, because the field is over a limit: a list may have {ENTRIES} entries, and a \
         podTemplate {} KiB. Without the field, the placeholder may get a node that the tasks cannot use; the run then moves to another \
         node.",
        BYTES >> 10
    );
    note(Reason::FieldIgnored, text)
}

fn tekton_places_pods(mode: Coschedule) -> Note {
    let text = format!(
        "Tekton's feature flag coschedule is {mode}: Tekton also binds the pods of each run to a node, and its affinity assistant and the \
         placeholder of this run may get different nodes, where the tasks of this run cannot start. Set coschedule to workspaces in the \
         ConfigMap {FEATURE_FLAGS} of Tekton, or remove the label of pod-affinity."
    );
    note(Reason::TektonPlacesPods, text)
}

/// The isolation of the run is resolved now, and is narrower than configured.
fn narrowed(observed: &Observation) -> Option<Note> {
    let (rejected_by, remedy) = match observed.narrowing()? {
        TermsRejected::BecauseOf(quota) => (
            format!("the ResourceQuota {quota} has the scope CrossNamespacePodAffinity and"),
            "Raise the quota by the number of pods of labelled runs at a time",
        ),
        TermsRejected::WithoutQuota => (
            "the namespace has no ResourceQuota with the scope CrossNamespacePodAffinity, and the API server"
                .to_owned(),
            "Create such a quota",
        ),
    };
    let text = format!(
        "This run is isolated from runs of its own namespace only: {rejected_by} rejects pods with affinity terms across namespaces. \
         Pods of runs in other namespaces can share the node of this run, unless these runs are isolated. {remedy}, or set \
         isolation-scope to namespace in the configuration of pod-affinity."
    );
    Some(note(Reason::IsolationNarrowed, text))
}

fn relaxed() -> Note {
    let text = "Pods of this run were created with a required podAffinity to other pods. No node satisfies that and the \
                podAffinity of the run, so pod-affinity made the former preferred. It is not in the PipelineRun; usual \
                sources are default-pod-template in Tekton's ConfigMap config-defaults, and admission policies.";
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
fn cleaned_up(observed: &Observation) -> Note {
    let freed = observed
        .node_name()
        .map(|node| format!("; node {node} is free for other runs"))
        .unwrap_or_default();
    note(Reason::CleanedUp, format!("The placeholder is deleted{freed}."))
}

fn reserved(observed: &Observation) -> Note {
    let node = observed.node_name().unwrap_or("of this run");
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
mod tests {
    use super::*;
    use crate::strategy::Isolation;

    #[test]
    fn the_message_names_the_other_runs_that_may_use_the_node() {
        let text = |strategy, isolation| place(("n1", Enrolment { strategy, isolation }));
        let everywhere = Isolation::default();
        let narrow = Isolation {
            scope: Scope::Namespace,
            from: IsolateFrom::Enrolled,
        };
        assert!(text(Strategy::ColocateAlways, everywhere).contains("may share"));
        assert!(text(Strategy::ColocateCompleted, everywhere).contains("until it is done"));
        assert!(text(Strategy::IsolateAlways, everywhere).contains("until it is deleted"));
        assert!(
            text(Strategy::IsolateAlways, narrow).contains("enrolled PipelineRun's pods of this namespace")
        );
    }

    #[test]
    fn a_duration_of_whole_minutes_is_in_minutes() {
        assert_eq!(seconds(Duration::from_mins(10)), "10m");
        assert_eq!(seconds(Duration::from_secs(90)), "90s");
        assert_eq!(seconds(Duration::ZERO), "0s");
    }
}
