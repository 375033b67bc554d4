//! Complete messages of the versions that `messages` names, each with all predicates that are true for it.

use super::*;

/// The name of a predicate, and the predicate.
type Meaning = (&'static str, fn(&str) -> bool);
/// A message, and the names of the predicates that are true for it.
type Row = (&'static str, &'static [&'static str]);

const MEANINGS: [Meaning; 19] = [
    ("lacks its group", lacks_its_group),
    ("lacks its volume", lacks_its_volume),
    ("waits for its volume", waits_for_its_volume),
    ("kept away", is_kept_away),
    ("short of room", is_short_of_room),
    ("without an object", is_without_an_object),
    ("below a limit", |message| !least_amounts(message).is_empty()),
    ("above a limit", |message| !greatest_amounts(message).is_empty()),
    ("denied", is_denied),
    ("webhook down", is_webhook_down),
    ("over quota", is_over_quota),
    ("without a quota of terms", lacks_quota_of_terms),
    ("namespace ending", is_namespace_ending),
    ("right missing", is_right_missing),
    ("guard failed", is_guard_failed),
    ("precondition failed", is_precondition_failed),
    ("PipelineRun unknown", is_pipeline_run_unknown),
    ("promises a node", promises_node),
    ("node removed", is_node_removed),
];

const SCHEDULER: &[Row] = &[
    (
        "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/2 nodes are available: 2 \
         Preemption is not helpful for scheduling.",
        &["waits for its volume"],
    ),
    (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are \
         available: 3 Preemption is not helpful for scheduling.",
        &["lacks its group", "short of room"],
    ),
    (
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules. preemption: 0/3 nodes are available: 3 \
         Preemption is not helpful for scheduling.",
        &["lacks its group"],
    ),
    (
        "0/4 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity, 3 node(s) didn't match pod \
         affinity rules. preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        &["lacks its group", "lacks its volume"],
    ),
    (
        "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules. preemption: 0/2 nodes are available: 2 No \
         preemption victims found for incoming pod.",
        &["kept away", "short of room"],
    ),
    (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No preemption \
         victims found for incoming pod.",
        &["short of room"],
    ),
    (
        "0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: 1 No preemption victims found for \
         incoming pod.",
        &["short of room"],
    ),
    (
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are \
         available: 1 No preemption victims found for incoming pod.",
        &["short of room"],
    ),
    // The anti-affinity is that of a pod on the node, and not of this pod.
    (
        "0/2 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, 1 node(s) had untolerated \
         taint(s). preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        &[],
    ),
    (
        "0/2 nodes are available: 1 node(s) didn't find available persistent volumes to bind, 1 node(s) didn't match Pod's \
         node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
        &["lacks its volume"],
    ),
    (
        "0/2 nodes are available: 2 node(s) had no available volume zone. preemption: 0/2 nodes are available: 2 Preemption \
         is not helpful for scheduling.",
        &["lacks its volume"],
    ),
];

const REJECTED_PODS: &[Row] = &[
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: error looking up service account ci/builder: serviceaccount "builder" not found"#,
        &["without an object"],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: no PriorityClass with name urgent was found"#,
        &["without an object"],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: pod rejected: RuntimeClass "gvisor" not found"#,
        &["without an object"],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: error looking up service account ci/builder: etcdserver: request timed out"#,
        &[],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"#,
        &[],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: minimum cpu usage per Container is 100m, but request is 50m"#,
        &["below a limit"],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: [maximum cpu usage per Pod is 30m, but limit is 50m, maximum memory usage per Pod is 1Mi, but limit is 104857600]"#,
        &["above a limit"],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: [minimum memory usage per Pod is 1Gi.  No request is specified, maximum cpu usage per Pod is 30m, but limit is 50m]"#,
        &["below a limit", "above a limit"],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000"#,
        &[],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: pods "a-0" is forbidden: exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"#,
        &["over quota"],
    ),
    (
        "create Pod a-0 in StatefulSet a failed error: insufficient quota to match these scopes: [{CrossNamespacePodAffinity Exists \
         []}]",
        &["without a quota of terms"],
    ),
    (
        "create Pod a-0 in StatefulSet a failed error: insufficient quota to match these scopes: [{PriorityClass In [high]}]",
        &[],
    ),
    (
        r#"create Pod a-0 in StatefulSet a failed error: admission webhook "policy.example.com" denied the request: label team not found"#,
        &["denied"],
    ),
];

const API_SERVER: &[Row] = &[
    (
        r#"admission webhook "policy.example.com" denied the request without explanation"#,
        &["denied"],
    ),
    (
        r#"statefulsets.apps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"#,
        &["denied"],
    ),
    (
        r#"Internal error occurred: failed calling webhook "policy.example.com": failed to call webhook: Post "https://policy.example.svc:443/?timeout=10s": dial tcp 10.96.0.1:443: connect: connection refused"#,
        &["webhook down"],
    ),
    (
        r#"pods "x" is forbidden: failed quota: few: must specify cpu for: placeholder"#,
        &[],
    ),
    (
        r#"statefulsets.apps "x" is forbidden: unable to create new content in namespace ci because it is being terminated"#,
        &["namespace ending"],
    ),
    (
        r#"pods is forbidden: User "jo" cannot list resource "pods" in API group "" in the namespace "ci""#,
        &["right missing"],
    ),
    (
        "the server rejected our request due to an error in our request",
        &["guard failed"],
    ),
    (
        r#"admission webhook "policy.example.com" denied the request: the server rejected our request due to an error in our request"#,
        &["denied"],
    ),
    (
        r#"PipelineRun.tekton.dev "x" is invalid: metadata.uid: Invalid value: "2b5a": field is immutable"#,
        &["guard failed"],
    ),
    (
        r#"PipelineRun.tekton.dev "x" is invalid: metadata.labels: Invalid value: "-": a valid label must be an empty string"#,
        &[],
    ),
    (
        r#"Operation cannot be fulfilled on statefulsets.apps "x": the UID in the precondition (91c4) does not match the UID in record (2b5a). The object might have been deleted and then recreated"#,
        &["precondition failed"],
    ),
    (
        r#"Operation cannot be fulfilled on statefulsets.apps "x": StorageError: invalid object, Code: 4, Key: /statefulsets/ci/x, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 91c4, UID in object meta: 2b5a"#,
        &["precondition failed"],
    ),
    (
        r#"Operation cannot be fulfilled on statefulsets.apps "x": the object has been modified; please apply your changes to the latest version and try again"#,
        &[],
    ),
    (
        "Resource kind tekton.dev/v1, Kind=PipelineRun not found. There can be a delay between when \
         CustomResourceDefinitions are created and when they are available.",
        &["PipelineRun unknown"],
    ),
    (r#"pipelineruns.tekton.dev "x" not found"#, &[]),
    ("etcdserver: request timed out", &[]),
];

const AUTOSCALERS: &[Row] = &[
    (
        "pod triggered scale-up: [{large 0->1 (max: 9)}]",
        &["promises a node"],
    ),
    (
        "Pod should schedule on: nodeclaim/default-8hsw2, node/ip-10-0-3-7",
        &["promises a node"],
    ),
    // The scheduler also uses these reasons.
    (
        "pod didn't trigger scale-up: 1 Insufficient cpu, 1 max node group size reached",
        &["short of room"],
    ),
    (
        r#"Failed to schedule pod, no instance type has enough resources, requirements=karpenter.sh/nodepool In [default], resources={"cpu":"64","pods":"1"}"#,
        &[],
    ),
    ("nodes removed by cluster autoscaler", &["node removed"]),
    ("marked the node as toBeDeleted/unschedulable", &[]),
    ("", &[]),
];

#[test]
fn each_message_matches_exactly_the_expected_predicates() {
    for (message, expected) in [SCHEDULER, REJECTED_PODS, API_SERVER, AUTOSCALERS].concat() {
        let meant = MEANINGS.iter().filter(|(_, is_meant)| is_meant(message));
        let meant: Vec<_> = meant.map(|(name, _)| *name).collect();
        assert_eq!(meant, expected, "{message}");
    }
}

#[test]
fn an_event_of_an_autoscaler_is_recognized_by_its_reason_or_by_karpenter_as_reporter() {
    let table = [
        ("cluster-autoscaler", "TriggeredScaleUp", true),
        ("cluster-autoscaler", "NotTriggerScaleUp", true),
        ("karpenter", "Nominated", true),
        ("karpenter", "NoCompatibleInstanceTypes", true),
        ("karpenter", "FailedScheduling", true),
        ("default-scheduler", "FailedScheduling", false),
        ("cluster-autoscaler", "ScaledUpGroup", false),
        ("kubelet", "Started", false),
    ];
    for (reporter, reason, expected) in table {
        assert_eq!(
            is_of_autoscaler(reporter, reason),
            expected,
            "{reporter}: {reason}"
        );
    }
}
