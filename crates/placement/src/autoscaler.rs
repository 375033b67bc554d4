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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_by_karpenter_is_told_from_the_schedulers_by_its_reporter() {
        assert!(answers("cluster-autoscaler", "NotTriggerScaleUp"));
        assert!(answers("karpenter", "FailedScheduling"));
        assert!(!answers("default-scheduler", "FailedScheduling"));
        assert!(!answers("kubelet", "Started"));
    }
}
