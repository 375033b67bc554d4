//! What cluster-autoscaler and Karpenter say to a pod that waits, told from all other events about it.

/// Reasons of events by which an autoscaler answers.
const ANSWERS: [&str; 4] = [
    "TriggeredScaleUp",
    "NotTriggerScaleUp",
    "Nominated",
    "NoCompatibleInstanceTypes",
];

/// Whether an event about a pod, by its reporter and its reason, is an autoscaler's answer.
pub fn answers(reporter: &str, reason: &str) -> bool {
    ANSWERS.contains(&reason) || (reporter.contains("karpenter") && reason == "FailedScheduling")
}

/// Whether an answer says that a node is coming, or is there: by the words of `TriggeredScaleUp` and of `Nominated`.
pub fn promises(answer: &str) -> bool {
    ["triggered scale-up", "should schedule on"]
        .iter()
        .any(|words| answer.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_told_from_a_refusal_by_its_words() {
        assert!(promises("pod triggered scale-up: [{large 0->1 (max: 9)}]"));
        assert!(promises("Pod should schedule on: nodeclaim/default-x"));
        assert!(!promises("pod didn't trigger scale-up: 1 Insufficient cpu"));
        assert!(!promises(
            "Failed to schedule pod, no instance type satisfied resources"
        ));
    }

    #[test]
    fn an_answer_is_recognized_by_its_reason() {
        assert!(answers("cluster-autoscaler", "TriggeredScaleUp"));
        assert!(answers("cluster-autoscaler", "NotTriggerScaleUp"));
        assert!(answers("karpenter", "Nominated"));
        assert!(answers("karpenter", "NoCompatibleInstanceTypes"));
        assert!(!answers("cluster-autoscaler", "ScaledUpGroup"));
    }

    #[test]
    fn a_refusal_by_karpenter_is_told_from_the_schedulers_by_its_reporter() {
        assert!(answers("karpenter", "FailedScheduling"));
        assert!(!answers("default-scheduler", "FailedScheduling"));
        assert!(!answers("kubelet", "Started"));
    }
}
