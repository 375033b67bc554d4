//! What messages of other programs mean. All matching on the English text of other programs is in this file, because a
//! new version of a program can change its text.
//!
//! Texts of kube-scheduler and kube-apiserver were read in Kubernetes 1.33.1, 1.36.3 and 1.37.2, which have the same texts;
//! those of the autoscalers in cluster-autoscaler 1.33.0 and Karpenter 1.14.1. Each function names the file. `tests` has
//! complete messages of these versions.

use std::collections::BTreeMap;

// The scheduler, in the condition `PodScheduled` of a pod: nodes counted by reason, without their names.

/// The required podAffinity of the pod to its group excludes these nodes.
///
/// kube-scheduler: `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`
pub(crate) fn lacks_its_group(message: &str) -> bool {
    message.contains("didn't match pod affinity rules")
}

/// A volume that the pod mounts cannot be used, or cannot be created, on these nodes.
///
/// kube-scheduler: in `pkg/scheduler/framework/plugins`, `volumebinding/binder.go`, `volumezone/volume_zone.go`
pub(crate) fn lacks_its_volume(message: &str) -> bool {
    let reasons = [
        "didn't match PersistentVolume's node affinity",
        "didn't find available persistent volumes to bind",
        "had no available volume zone",
    ];
    reasons.iter().any(|words| message.contains(words))
}

/// A PVC of the pod is not bound yet, so the scheduler looks at no node.
///
/// kube-scheduler: `pkg/scheduler/framework/plugins/volumebinding/volume_binding.go`
pub(crate) fn waits_for_its_volume(message: &str) -> bool {
    message.contains("pod has unbound immediate PersistentVolumeClaims")
}

/// A required podAntiAffinity excludes these nodes.
///
/// kube-scheduler: `pkg/scheduler/framework/plugins/interpodaffinity/filtering.go`
pub(crate) fn is_kept_away(message: &str) -> bool {
    message.contains("didn't match pod anti-affinity rules")
}

/// The pod may fit on these nodes when other pods end.
///
/// kube-scheduler: `pkg/scheduler/framework/plugins/noderesources/fit.go`, `plugins/nodeports/node_ports.go`
pub(crate) fn is_short_of_room(message: &str) -> bool {
    let room = ["Insufficient", "Too many pods", "didn't have free ports"];
    is_kept_away(message) || room.iter().any(|words| message.contains(words))
}

/// The pod waits for a node of its volumes, and not for room. The message counts nodes by reason and names no node: if the
/// message does not mention room, the node of the run has room.
pub(crate) fn is_about_volumes_alone(message: &str) -> bool {
    lacks_its_volume(message) && !is_short_of_room(message)
}

// The API server about a pod, in the event `FailedCreate` of a StatefulSet.

/// The pod refers to an object that does not exist.
///
/// kube-apiserver: `plugin/pkg/admission/serviceaccount/admission.go`, `priority/admission.go`, `runtimeclass/admission.go`
pub(crate) fn is_without_an_object(message: &str) -> bool {
    let named = ["error looking up service account", "pod rejected: RuntimeClass"];
    let is_named = named.iter().any(|words| message.contains(words));
    (is_named && message.contains("not found")) || message.contains("no PriorityClass with name")
}

/// The node selector or the tolerations of the pod conflict with the annotations of the namespace.
///
/// kube-apiserver: `plugin/pkg/admission/podnodeselector/admission.go`, `podtolerationrestriction/admission.go`
pub(crate) fn conflicts_with_namespace(message: &str) -> bool {
    [
        "pod node label selector conflicts with its namespace node label selector",
        "pod node label selector labels conflict with its namespace whitelist",
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its",
    ]
    .iter()
    .any(|words| message.contains(words))
}

/// The least amounts that a `LimitRange` allows, by resource, if the pod asks for less.
///
/// kube-apiserver: `plugin/pkg/admission/limitranger/admission.go`
pub(crate) fn least_amounts(message: &str) -> BTreeMap<String, String> {
    amounts("minimum ", message)
}

/// The greatest amounts that a `LimitRange` allows, by resource, if the pod asks for more.
///
/// kube-apiserver: `plugin/pkg/admission/limitranger/admission.go`
pub(crate) fn greatest_amounts(message: &str) -> BTreeMap<String, String> {
    amounts("maximum ", message)
}

/// Such as `minimum cpu usage per Container is 100m, but request is 50m`.
fn amounts(bound: &str, message: &str) -> BTreeMap<String, String> {
    let amount = |rest: &str| {
        let (resource, rest) = rest.split_once(" usage per ")?;
        let (_, amount) = rest.split_once(" is ")?;
        let end = amount.find([',', '.', ' ', ']']).unwrap_or(amount.len());
        Some((resource.to_owned(), amount[..end].to_owned()))
    };
    message.split(bound).skip(1).filter_map(amount).collect()
}

// The API server about a request.

/// An admission webhook or policy denied the request.
///
/// kube-apiserver: in `k8s.io/apiserver/pkg/admission/plugin`, `webhook/errors/statuserror.go`,
/// `policy/validating/dispatcher.go` and `policy/generic/policy_dispatcher.go`
pub fn is_denied(message: &str) -> bool {
    message.contains("denied the request") || message.contains("denied request")
}

/// The API server could not call an admission webhook.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/util/webhook/error.go`
pub fn is_webhook_down(message: &str) -> bool {
    message.contains("failed calling webhook")
}

/// A ResourceQuota has no room.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`
pub fn is_over_quota(message: &str) -> bool {
    message.contains("exceeded quota")
}

/// The API server requires a ResourceQuota for pods with affinity terms across namespaces, and the namespace has none.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`
pub fn lacks_quota_of_terms(message: &str) -> bool {
    message.contains("insufficient quota to match these scopes: [{CrossNamespacePodAffinity ")
}

/// The quota that rejected a pod, and the amounts of the resources that are short, by resource.
pub(crate) struct QuotaFigures {
    /// Name of the quota.
    pub(crate) quota: String,
    /// Requested, used, and limited.
    pub(crate) amounts: [BTreeMap<String, String>; 3],
}

/// Such as `exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3`.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`
pub(crate) fn quota_figures(message: &str) -> Option<QuotaFigures> {
    let (_, figures) = message.split_once("exceeded quota: ")?;
    let (quota, figures) = figures.split_once(", requested: ")?;
    let (requested, figures) = figures.split_once(", used: ")?;
    let (used, limited) = figures.split_once(", limited: ")?;
    let amounts = |text: &str| {
        let pairs = text.split(',').filter_map(|pair| pair.trim().split_once('='));
        pairs
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
            .collect()
    };
    Some(QuotaFigures {
        quota: quota.to_owned(),
        amounts: [requested, used, limited].map(amounts),
    })
}

/// The namespace is being deleted.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go`
pub fn is_namespace_ending(message: &str) -> bool {
    message.contains("because it is being terminated")
}

/// The authorizer, and not admission, rejects the request: both answer 403.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go`
pub fn is_right_missing(message: &str) -> bool {
    message.contains("User \"") && message.contains("cannot ")
}

/// A `test` or `remove` of a JSON patch failed, or a merge patch names the UID of another object. The first message is so
/// general that no webhook and no validation has the same.
///
/// kube-apiserver: `k8s.io/apimachinery/pkg/api/errors/errors.go`, `pkg/api/validation/objectmeta.go`
pub fn is_guard_failed(message: &str) -> bool {
    message.starts_with("the server rejected our request due to an error in our request")
        || message.contains("metadata.uid")
}

/// A delete names the UID of another object.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/registry/rest/delete.go`, `pkg/storage/interfaces.go`
pub fn is_precondition_failed(message: &str) -> bool {
    message.contains("precondition")
}

/// The API server has not read the definition of PipelineRuns yet, so it cannot evaluate policies for them.
///
/// kube-apiserver: `k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go`
pub fn is_pipeline_run_unknown(message: &str) -> bool {
    message.contains("Kind=PipelineRun not found")
}

// The autoscalers, in events.

/// An event about a pod, by its reporter and its reason, is an autoscaler's answer to the pod.
///
/// cluster-autoscaler: `processors/status/eventing_scale_up_processor.go`; Karpenter: `pkg/events/reason.go` (here,
/// `NoCompatibleInstanceTypes` is about a `NodePool`)
pub fn is_of_autoscaler(reporter: &str, reason: &str) -> bool {
    let reasons = [
        "TriggeredScaleUp",
        "NotTriggerScaleUp",
        "Nominated",
        "NoCompatibleInstanceTypes",
    ];
    reasons.contains(&reason) || (reporter.contains("karpenter") && reason == "FailedScheduling")
}

/// A node is there, or will be, for the pod.
///
/// cluster-autoscaler: `processors/status/eventing_scale_up_processor.go`; Karpenter:
/// `pkg/controllers/provisioning/scheduling/events.go`
pub(crate) fn promises_node(answer: &str) -> bool {
    answer.contains("triggered scale-up") || answer.contains("should schedule on")
}

/// The autoscaler removed the node. Other events with the reason `ScaleDown` say that a node is to be removed.
///
/// cluster-autoscaler: `core/scaledown/actuation/delete_in_batch.go`
pub fn is_node_removed(message: &str) -> bool {
    message.contains("removed")
}

#[cfg(test)]
mod tests;
