//! The differences that a labelled run may have from the same run without the label: it waits for its node, and ends a few
//! seconds later. More time is allowed only if the tasks cannot share a node, the node is lost, or a quota counts the
//! placeholder; then by the duration of this detour, and only if the run reports the reason.

use super::HOLD_DEADLINE;
use super::condition::Condition;
use super::pair::Pair;
use super::result::RunResult;
use testbed::Kubernetes;

/// How much later a labelled run may end without a reason. Times of runs are whole seconds.
const FEW_SECONDS: i64 = 10;
/// How long a run may be held while a node is free for it. On a slow machine, this is extended by the time by which the
/// control run exceeds its usual duration `CONTROL`.
const HOLD: i64 = 5;
const CONTROL: i64 = 10;
/// Times are ignored on a machine on which the control run takes as long.
const TOO_SLOW: i64 = 2 * CONTROL;
/// The scheduler's longest backoff before it retries an unschedulable pod.
const BACKOFF: i64 = 10;
/// Duration of a move: a pod may be unschedulable for `move-after`, 10 s by default, and the scheduler tries the pod again
/// afterwards. The pause before the second move is as long, and twice as long before the third move.
const MOVE: i64 = 15;
/// Duration of a move without patience: the node of the run cannot become fit for the waiting pod.
const MOVE_AT_ONCE: i64 = 3;
/// A scheduler before 1.36 does not retry a pod whose labels were changed. The placeholder requeues the pod after this time.
const REQUEUE: i64 = 15;
/// Duration after a quota rejected a task's pod: the placeholder is deleted at once, and Tekton is told to try again. The
/// quota may still count the placeholder then; the second try is 10 s after the first.
const ROOM: i64 = 15;
/// The controller reads why a placeholder has no pod after 2 s, and again up to 5 s later.
const PLACEHOLDER_READ: i64 = 5;
/// The control plane deletes the pods of an out-of-service node every 20 s.
const POD_DELETION: i64 = 20;
/// Without a leader, no run is released for this time. Two further waits extend a hold: for room in a quota, and for a slow
/// machine, by the duration of the control run.
const LEASE: i64 = 15;
/// Duration of the start of one more pod.
const START: i64 = 3;

/// The circumstances of all pairs that are compared at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// Durations of the control run in seconds, beside the variants without the label and beside the labelled variants.
    pub(super) controls: [i64; 2],
    /// Whether a controller lost its lease meanwhile: then no controller acts for a quarter of a minute.
    pub(super) lost_lease: bool,
    pub(super) kubernetes: Kubernetes,
}

impl Circumstances {
    /// How much slower the machine is than it was beside the variants without the label.
    fn slower(&self) -> i64 {
        let [before, now] = self.controls;
        (now - before).max(0)
    }

    /// How much longer than usual runs last now.
    fn delayed(&self) -> i64 {
        let [_, now] = self.controls;
        (now - CONTROL).max(0)
    }

    fn longest_hold(&self) -> i64 {
        HOLD + self.delayed()
    }

    fn requeue_delay(&self) -> i64 {
        if self.kubernetes < Kubernetes::V1_36 {
            REQUEUE
        } else {
            0
        }
    }

    /// Whether times, and events that depend on times, are compared.
    pub(super) fn are_calm(&self) -> bool {
        !self.lost_lease && self.controls.iter().all(|control| *control < TOO_SLOW)
    }

    /// The violation of the labelled variant, if there is one.
    pub(super) fn complaint(&self, pair: &Pair, plain: &RunResult, labelled: &RunResult) -> Option<String> {
        let otherwise = (plain.state != labelled.state).then(|| "it ended in another state".to_owned());
        if !self.are_calm() {
            return otherwise.or_else(|| self.overdue(labelled));
        }
        otherwise
            .or_else(|| unexplained(pair, labelled))
            .or_else(|| too_many_moves(pair, labelled))
            .or_else(|| self.held_too_long(pair, labelled))
            .or_else(|| self.late(pair, plain, labelled))
    }

    /// The hold deadline applies on any machine.
    fn overdue(&self, labelled: &RunResult) -> Option<String> {
        let [_, now] = self.controls;
        let (held, longest) = (labelled.held, HOLD_DEADLINE + LEASE + ROOM + now);
        (held > longest).then(|| format!("it was held for {held} s, and not {longest} s at most"))
    }

    fn held_too_long(&self, pair: &Pair, labelled: &RunResult) -> Option<String> {
        let (held, longest) = (labelled.held, self.longest_hold());
        let idle = held - may_wait(pair, labelled);
        let says_why = ["WaitingForNode", "PlaceholderRefused"]
            .iter()
            .any(|why| labelled.reports(why) > 0);
        if idle > longest {
            Some(format!("it was held for {idle} s while nodes were free"))
        } else if held > longest && !says_why {
            Some(format!("it was held for {held} s, and reports no reason"))
        } else {
            None
        }
    }

    /// How many seconds later the run ended, without the allowed wait for its node.
    pub(super) fn later(&self, pair: &Pair, plain: &RunResult, labelled: &RunResult) -> i64 {
        let waited = labelled.held.min(may_wait(pair, labelled) + self.delayed());
        labelled.total - waited - plain.total - self.slower()
    }

    /// Whether the run waited or ended later than a run without a special condition.
    pub(super) fn is_notable(&self, pair: &Pair, plain: &RunResult, labelled: &RunResult) -> bool {
        labelled.held > HOLD || self.later(pair, plain, labelled) > FEW_SECONDS
    }

    fn late(&self, pair: &Pair, plain: &RunResult, labelled: &RunResult) -> Option<String> {
        let later = self.later(pair, plain, labelled);
        let too_late = later - self.allowed_delay(pair, labelled);
        let says_why = ["MovedOff", "NodeUnfit", "WaitingForRoom", "MadeRoom"]
            .iter()
            .any(|why| labelled.reports(why) > 0);
        if too_late > FEW_SECONDS {
            Some(format!("it ended {too_late} s later than it may"))
        } else if later > FEW_SECONDS && !says_why {
            Some(format!("it ended {later} s later, and reports no reason"))
        } else {
            None
        }
    }

    /// Allowed duration of the run's detours, in seconds.
    fn allowed_delay(&self, pair: &Pair, labelled: &RunResult) -> i64 {
        let moves = labelled.reports("MovedOff");
        let requeue = moves * self.requeue_delay();
        requeue
            + match pair.condition {
                Condition::LargeTasks | Condition::TaskElsewhere => moves * MOVE + one_after_another(pair),
                Condition::Preempted => moves * MOVE,
                Condition::AlternatingZones => moves * MOVE_AT_ONCE,
                Condition::NodeDies => POD_DELETION,
                _ if !pair.more.is_empty() => moves * MOVE + pauses(moves) + one_after_another(pair),
                _ if pair.condition.has_quota_of_pods() => labelled.refused * ROOM,
                _ => 0,
            }
    }
}

/// How long the run may be held while nodes are free.
fn may_wait(pair: &Pair, labelled: &RunResult) -> i64 {
    match pair.condition {
        Condition::NodeTaken => labelled.obstructed + BACKOFF,
        condition if condition.has_pod_refused() => PLACEHOLDER_READ,
        _ if pair.condition.may_lack_placeholder() => HOLD_DEADLINE,
        _ if pair.is_recreated() => labelled.reports("MovedOff") * MOVE,
        _ => 0,
    }
}

/// An event of the run without a cause in the pair.
fn unexplained(pair: &Pair, labelled: &RunResult) -> Option<String> {
    let condition = pair.condition;
    let is_explained = |reason: &str| match reason {
        "MovedOff" if pair.is_recreated() => true,
        "MovedOff" | "NodeUnfit" | "WaitingForRoom" | "NoNodeFits" => {
            pair.is_apart() || condition.loses_its_node()
        }
        "MadeRoom" => condition.has_quota_of_pods() || condition == Condition::QuotaOfSets,
        "MoveRefused" | "ReleaseRefused" | "EnrolRefused" | "CleanUpRefused" | "AffinityRelaxed"
        | "FieldIgnored" => false,
        "IsolationNarrowed" => condition == Condition::QuotaOfTerms,
        "HoldDeadlineExceeded" => condition.may_lack_placeholder(),
        "PlaceholderRefused" => condition.may_lack_placeholder() || condition.has_pod_refused(),
        "LabelledTooLate" => condition == Condition::LabelledByPipeline,
        _ => true,
    };
    let mut reasons = labelled.reported.keys();
    let unexplained = reasons.find(|reason| !is_explained(reason))?;
    Some(format!("it reports {unexplained} without a cause"))
}

fn too_many_moves(pair: &Pair, labelled: &RunResult) -> Option<String> {
    let (moves, most) = (labelled.reports("MovedOff"), pair.most_moves());
    (moves > most).then(|| format!("it moved {moves} times, and not {most} times at most"))
}

/// Pauses before the moves after the second one: each is twice as long as the one before.
fn pauses(moves: i64) -> i64 {
    (2..moves).map(|before| BACKOFF << (before - 1)).sum()
}

/// Duration of tasks that run at the same time without the label, and one after another with it.
fn one_after_another(pair: &Pair) -> i64 {
    let others = i64::try_from(pair.at_once()).unwrap() - 1;
    let seconds = i64::try_from(pair.lasting.as_secs()).unwrap();
    others * (seconds + START)
}

#[cfg(test)]
mod tests;
