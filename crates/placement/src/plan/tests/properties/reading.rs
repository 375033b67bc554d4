//! How the properties read an observation, apart from the rules' own reading of it.

use super::super::*;
use crate::requests::{Object, Request, Verb};
use json_patch::PatchOperation;
use serde_json::Value;

pub(super) fn decision(seen: &Observation) -> Decision {
    plan(seen).decision
}

/// What is planned with each outcome of a count.
pub(super) fn counted(seen: &Observation) -> [Decision; 3] {
    let with = |census| {
        decision(&Observation {
            census,
            ..seen.clone()
        })
    };
    let census = |live| {
        Some(Census {
            live,
            quiet_since: None,
        })
    };
    [with(None), with(census(0)), with(census(1))]
}

pub(super) fn is_opted_in(seen: &Observation) -> bool {
    let label = matches!(seen.run.opt_in.as_deref(), Some("true" | "isolateAlways"));
    label && seen.run.key.namespace == "ns"
}

/// Tekton runs it, and it is not at its end.
pub(super) fn goes_on(seen: &Observation) -> bool {
    let run = &seen.run;
    !run.child && !run.managed_elsewhere && !run.done && !run.deleting
}

/// Ours to look after.
pub(super) fn is_alive(seen: &Observation) -> bool {
    let run = &seen.run;
    let ours = run.is_held_by_us() || run.status != SpecStatus::Pending && run.is_enrolled();
    ours && is_opted_in(seen) && goes_on(seen)
}

/// Opted out, and a node of it may have been given up: what it left behind there is brought back first.
pub(super) fn is_leaving(seen: &Observation) -> bool {
    let gave_up = usable_set(seen).is_some_and(|set| set.left.is_some());
    gave_up && !is_opted_in(seen) && goes_on(seen) && !seen.run.is_held_by_us()
}

pub(super) fn usable_set(seen: &Observation) -> Option<&Placeholder> {
    seen.set.as_ref().filter(|set| set.owned && !set.deleting)
}

pub(super) fn lacks_its_group(pod: &WaitingPod) -> bool {
    let verdict = pod.unschedulable.as_ref();
    verdict.is_some_and(|verdict| verdict.message == ELSEWHERE)
}

/// A task of this run has no pod because of a quota, and it is known which.
pub(super) fn is_refused(seen: &Observation) -> bool {
    let tasks = seen.refused.as_ref().filter(|_| seen.refusal.is_some());
    tasks.is_some_and(|tasks| !tasks.is_empty())
}

/// The placeholder of a run that runs makes room in a quota, or did so a moment ago.
pub(super) fn keeps_away(seen: &Observation) -> bool {
    let pause = seen.yields.pause(Repeated::PAUSE);
    let is_over = |last| seen.now.duration_since(last) >= pause.try_into().unwrap();
    let asks = seen.refusal.is_some() && seen.refused.is_none();
    !seen.run.is_held_by_us() && (asks || is_refused(seen) || !seen.yields.last.is_none_or(is_over))
}

/// At no replicas, its old pod gone or going, and nobody waits.
pub(super) fn may_come_back(seen: &Observation) -> bool {
    let away = usable_set(seen).is_some_and(|set| set.replicas <= 0);
    away && is_alive(seen) && seen.waiting.is_empty() && seen.pod.as_ref().is_none_or(|pod| pod.ending)
}

/// Tekton creates StatefulSets for this run when it starts, and a quota has no room for them that can be freed, or has not been read.
pub(super) fn needs_a_place(seen: &Observation) -> bool {
    let can_be_freed = match &seen.short_of {
        None => true,
        Some(short_of) => short_of.text().is_some() && seen.in_the_way.is_some(),
    };
    is_opted_in(seen) && seen.set.is_none() && seen.run.assistants() > 0 && can_be_freed
}

pub(super) fn frees_a_place(decision: &Decision) -> bool {
    matches!(
        decision,
        Decision::Count(Question::Places)
            | Decision::Wait(Wait::Places { .. })
            | Decision::Write(Write::FreePlace { .. })
    )
}

pub(super) fn is_answered(seen: &Observation, question: Question) -> bool {
    match question {
        Question::Tasks => seen.census.is_some(),
        Question::Refused => seen.refused.is_some(),
        Question::Claims => seen.claims.is_some(),
        Question::Labels => seen.copied_labels.is_some(),
        Question::Need => seen.need.is_some(),
        Question::Places => seen.short_of.is_some(),
        Question::Stints => seen.stints.is_some(),
        Question::Assistants => seen.assistants.is_some(),
        Question::Complaint => seen.complaint.is_some(),
        Question::Autoscaler => seen.autoscaler.is_some(),
    }
}

/// The answers that a write rests on.
pub(super) fn rests_on(seen: &Observation, write: &Write) -> Vec<Question> {
    let (run, config) = (&seen.run, &seen.config);
    let creates = [
        (Question::Places, true),
        (Question::Claims, !run.claims.is_empty()),
        (Question::Labels, !config.placeholder_copied_labels.is_empty()),
        (
            Question::Need,
            run.is_held_by_us() && size::is_automatic(run, config),
        ),
    ];
    match write {
        Write::CreatePlaceholder(_) => {
            let asked = creates.into_iter().filter(|(_, matters)| *matters);
            asked.map(|(question, _)| question).collect()
        }
        Write::FreePlace { .. } => vec![Question::Places],
        Write::MoveOff { .. } => vec![Question::Tasks],
        Write::MakeRoom { .. } | Write::RetryTasks { .. } => vec![Question::Refused],
        Write::WakeTasks { .. } | Write::Follow { .. } => vec![Question::Assistants],
        Write::Nudge | Write::AskWithinLimits { .. } => vec![Question::Complaint],
        Write::GiveUpReserve { .. } => vec![Question::Autoscaler],
        Write::Enrol(_)
        | Write::DateHold
        | Write::Withdraw
        | Write::Release { .. }
        | Write::RecordNode { .. }
        | Write::Shrink { .. }
        | Write::RecreateSmall { .. }
        | Write::Unpin { .. }
        | Write::StartOver { .. }
        | Write::DeletePlaceholder { .. }
        | Write::AdoptPod { .. }
        | Write::LeavePod { .. } => Vec::new(),
    }
}

/// Whether a request changes nothing but the object that was seen, or one that is still of this run.
pub(super) fn names_what_was_seen(seen: &Observation, request: &Request) -> bool {
    let uid = match &request.object {
        Object::Run => Some(seen.run.key.uid.as_str()),
        Object::Set => seen.set.as_ref().map(|set| set.uid.as_str()),
        Object::Pod => seen.pod.as_ref().map(|pod| pod.uid.as_str()),
        Object::OtherSet(_) => Some("another-set-uid"),
        Object::OtherPod(_) | Object::TaskRun(_) => Some("assistant-uid"),
    };
    let is_it = |found: &Value| uid.is_some() && found.as_str() == uid;
    let tests = |operation: &PatchOperation| match operation {
        PatchOperation::Test(test) => match test.path.to_string().as_str() {
            "/metadata/uid" => is_it(&test.value),
            "/metadata/labels/pod-affinity.tekton.dev~1group" => test.value == seen.run.key.uid,
            _ => false,
        },
        _ => false,
    };
    match &request.verb {
        Verb::Apply(set) => {
            let owners = set.metadata.owner_references.iter().flatten();
            owners.map(|owner| &owner.uid).eq([&seen.run.key.uid])
        }
        Verb::Json(patch) => patch.iter().any(tests),
        Verb::Merge(body) | Verb::Strategic(body) | Verb::Resize(body) => is_it(&body["metadata"]["uid"]),
        Verb::Delete { uid: found, .. } => uid == Some(found),
    }
}
