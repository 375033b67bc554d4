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
