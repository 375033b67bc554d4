//! What a labelled run may do otherwise than the same run without the label: wait for its node, and end a few seconds later.
//! More only where its own tasks cannot share a node, or the node is taken away, or a quota counts the placeholder; then by
//! what each of these takes, and the run says so.

use super::HOLD_DEADLINE;
use super::ended::Ended;
use super::pair::Pair;
use super::twist::Twist;
use testbed::Kubernetes;

/// How much later a labelled run may end for nothing in particular. Times of runs are whole seconds.
const FEW_SECONDS: i64 = 10;
/// How long a run may be held while there is a node for it. On a machine that is slow just now, longer by as much as the control
/// takes longer than it usually does.
const HOLD: i64 = 5;
const CONTROL: i64 = 10;
/// A machine on which the control takes so long is too slow to tell anything about times.
const STALLED: i64 = 2 * CONTROL;
/// The longest that a scheduler waits before it tries a pod again that found no node.
const BACKOFF: i64 = 10;
/// A move: a pod is given `move-after` to find room where it is, 10 s by default, and the scheduler tries it again after that.
/// The pause before the next move is as long, and before a third one twice as long.
const MOVE: i64 = 15;
/// A scheduler before 1.36 does not look at a pod again that is labelled, so that the placeholder wakes it after this time.
const ASLEEP: i64 = 15;
/// A task that a quota refused: the placeholder goes at once, and Tekton is told to try again. The quota may count the placeholder
/// still; the second try is 10 s after the first.
const ROOM: i64 = 15;
/// The controller asks why a placeholder has no pod when it should have had one for 2 s, or 5 s later.
const QUESTION: i64 = 5;
/// The control plane looks every 20 s whether pods are on a node that is out of service.
const COLLECTION: i64 = 20;
/// Without a leader, no run is released for so long. Two more waits end a hold later: for a place in a quota, and for a slow
/// machine, which takes as long as the control.
const LEASE: i64 = 15;
/// What the start of one more pod takes.
const START: i64 = 3;

/// What holds for all pairs that are compared at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// How many seconds the control took, beside the first halves of the pairs and beside those with the label.
    pub(super) controls: [i64; 2],
    /// A controller could not renew its lease meanwhile: then none decides anything for a quarter of a minute.
    pub(super) lost_lease: bool,
    pub(super) kubernetes: Kubernetes,
}

impl Circumstances {
    /// So much slower than beside the first halves is the machine.
    fn slower(&self) -> i64 {
        let [before, now] = self.controls;
        (now - before).max(0)
    }

    fn longest_hold(&self) -> i64 {
        let [_, now] = self.controls;
        HOLD + (now - CONTROL).max(0)
    }

    fn asleep(&self) -> i64 {
        if self.kubernetes < Kubernetes::V1_36 {
            ASLEEP
        } else {
            0
        }
    }

    /// Whether times tell anything, and what is reported because of them.
    pub(super) fn are_calm(&self) -> bool {
        !self.lost_lease && self.controls.iter().all(|control| *control < STALLED)
    }

    /// What is wrong with the labelled one of a pair, if anything is.
    pub(super) fn complaint(&self, pair: &Pair, plain: &Ended, labelled: &Ended) -> Option<String> {
        let otherwise = (plain.state != labelled.state).then(|| "it ended otherwise".to_owned());
        if !self.are_calm() {
            return otherwise.or_else(|| self.overdue(labelled));
        }
        otherwise
            .or_else(|| needless(pair, labelled))
            .or_else(|| restless(pair, labelled))
            .or_else(|| self.held_too_long(pair, labelled))
            .or_else(|| self.late(pair, plain, labelled))
    }

    /// The deadline of its hold is kept on any machine.
    fn overdue(&self, labelled: &Ended) -> Option<String> {
        let [_, now] = self.controls;
        let (held, longest) = (labelled.held, HOLD_DEADLINE + LEASE + ROOM + now);
        (held > longest).then(|| format!("it was held for {held} s, and not {longest} s at most"))
    }

    fn held_too_long(&self, pair: &Pair, labelled: &Ended) -> Option<String> {
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

    /// By so many seconds it ended later, beside the wait for its node.
    pub(super) fn later(&self, pair: &Pair, plain: &Ended, labelled: &Ended) -> i64 {
        let waited = labelled.held.min(may_wait(pair, labelled));
        labelled.total - waited - plain.total - self.slower()
    }

    /// Whether it waited or ended later than a run does that is as any other.
    pub(super) fn is_notable(&self, pair: &Pair, plain: &Ended, labelled: &Ended) -> bool {
        labelled.held > HOLD || self.later(pair, plain, labelled) > FEW_SECONDS
    }

    fn late(&self, pair: &Pair, plain: &Ended, labelled: &Ended) -> Option<String> {
        let later = self.later(pair, plain, labelled);
        let too_late = later - self.detours(pair, labelled);
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

    /// What its detours may take, in seconds.
    fn detours(&self, pair: &Pair, labelled: &Ended) -> i64 {
        let moves = labelled.reports("MovedOff");
        let asleep = moves * self.asleep();
        asleep
            + match pair.twist {
                Twist::LargeTasks | Twist::TaskElsewhere => moves * MOVE + one_after_another(pair),
                Twist::Preempted => moves * MOVE,
                Twist::NodeDies => COLLECTION,
                _ if pair.twist.has_quota_of_pods() => labelled.refused * ROOM,
                _ => 0,
            }
    }
}

/// For how long the run may be held while there are nodes that no run uses.
fn may_wait(pair: &Pair, labelled: &Ended) -> i64 {
    match pair.twist {
        Twist::NodeTaken => labelled.obstructed + BACKOFF,
        twist if twist.has_pod_refused() => QUESTION,
        _ if pair.twist.may_lack_placeholder() => HOLD_DEADLINE,
        _ => 0,
    }
}

/// Something that it reports, and that nothing about it explains.
fn needless(pair: &Pair, labelled: &Ended) -> Option<String> {
    let twist = pair.twist;
    let is_explained = |reason: &str| match reason {
        "MovedOff" | "NodeUnfit" | "WaitingForRoom" | "NoNodeFits" => {
            twist.is_apart() || twist.loses_its_node()
        }
        "MadeRoom" => twist.has_quota_of_pods() || twist == Twist::QuotaOfSets,
        "MoveRefused" | "ReleaseRefused" | "EnrolRefused" | "CleanUpRefused" | "AffinityRelaxed" => false,
        "HoldDeadlineExceeded" => twist.may_lack_placeholder(),
        "PlaceholderRefused" => twist.may_lack_placeholder() || twist.has_pod_refused(),
        "LabelledTooLate" => twist == Twist::LabelledByPipeline,
        _ => true,
    };
    let mut reasons = labelled.reported.keys();
    let needless = reasons.find(|reason| !is_explained(reason))?;
    Some(format!("it reports {needless} for no reason"))
}

fn restless(pair: &Pair, labelled: &Ended) -> Option<String> {
    let (moves, most) = (labelled.reports("MovedOff"), pair.twist.most_moves());
    (moves > most).then(|| format!("it moved {moves} times, and not {most} times at most"))
}

/// Tasks that run at the same time without the label.
fn one_after_another(pair: &Pair) -> i64 {
    let others = i64::try_from(pair.at_once()).unwrap() - 1;
    let seconds = i64::try_from(pair.lasting.as_secs()).unwrap();
    others * (seconds + START)
}

#[cfg(test)]
mod tests;
