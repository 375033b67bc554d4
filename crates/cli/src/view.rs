//! The fields of PipelineRuns and pods that this tool reads.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::ObjectMeta;
use placement::keys;
use placement::names::RunKey;
use placement::opt_in::DECLINED;
use placement::plan::Unschedulable;
use placement::run::Run;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A PipelineRun with all its fields. The tool patches it, and never writes it as a whole.
#[derive(kube::Resource, Clone, Debug, Default, Serialize, Deserialize)]
#[resource(inherit = tekton::PipelineRun)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PipelineRun {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

/// A run as the rules see it, and the fields that only this tool prints.
#[derive(Clone, Debug)]
pub(crate) struct RunView {
    pub(crate) run: Run,
    pub(crate) queue: Option<String>,
    /// The run got its label from its Namespace when it was created.
    pub(crate) by_namespace: bool,
    /// The run that started this one.
    pub(crate) parent: Option<String>,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    /// The annotation with the time until which the node is kept after the run.
    pub(crate) kept_until: Option<String>,
    /// Whether the run succeeded, and the reason, when it is done.
    pub(crate) verdict: Option<(bool, String)>,
}

impl RunView {
    /// Reads a run; `None` without name or UID. Objects from the API server always have both.
    pub(crate) fn of(object: &PipelineRun) -> Option<Self> {
        let typed: tekton::PipelineRun = serde_json::to_value(object)
            .and_then(serde_json::from_value)
            .ok()?;
        let labels = object.metadata.labels.as_ref();
        Some(Self {
            run: typed.run()?,
            queue: labels
                .and_then(|labels| labels.get(keys::KUEUE_QUEUE_NAME))
                .cloned(),
            by_namespace: is_by_namespace(&object.metadata),
            parent: parent(&object.metadata),
            started: time(&object.status, "startTime"),
            ended: time(&object.status, "completionTime"),
            kept_until: annotation(&object.metadata, keys::KEPT_UNTIL).map(str::to_owned),
            verdict: verdict(&object.status),
        })
    }
}

fn is_by_namespace(metadata: &ObjectMeta) -> bool {
    annotation(metadata, keys::OPTED_IN_BY) == Some(keys::BY_NAMESPACE)
}

/// The run that started a nested run. The owner may be a custom task of that run, and Tekton's label then names the run.
fn parent(metadata: &ObjectMeta) -> Option<String> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let named =
        || label(metadata, keys::TEKTON_PIPELINE_RUN).filter(|name| metadata.name.as_deref() != Some(*name));
    let is_run = owner.kind == "PipelineRun";
    is_run
        .then_some(owner.name.as_str())
        .or_else(named)
        .map(str::to_owned)
}

fn time(status: &Value, field: &str) -> Option<Timestamp> {
    status[field].as_str()?.parse().ok()
}

fn verdict(status: &Value) -> Option<(bool, String)> {
    let conditions = status["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == "Succeeded")?;
    let reason = condition["reason"].as_str().unwrap_or_default().to_owned();
    match condition["status"].as_str() {
        Some("True") => Some((true, reason)),
        Some("False") => Some((false, reason)),
        _ => None,
    }
}

/// The StatefulSet and the pod of a run's placeholder, if they exist.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlaceholderObjects<'a> {
    pub(crate) set: Option<&'a StatefulSet>,
    pub(crate) pod: Option<&'a Pod>,
}

impl<'a> PlaceholderObjects<'a> {
    /// The node of the placeholder's pod.
    pub(crate) fn node(&self) -> Option<&'a str> {
        self.pod.and_then(node)
    }
}

/// A label of an object.
pub(crate) fn label<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of an object.
pub(crate) fn annotation<'a>(meta: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// When an object was created.
pub(crate) fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

/// `namespace/name`.
pub(crate) fn full_name(meta: &ObjectMeta) -> String {
    format!(
        "{}/{}",
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default()
    )
}

/// The node that a pod is bound to.
pub(crate) fn node(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()?
        .node_name
        .as_deref()
        .filter(|name| !name.is_empty())
}

/// The pod has not ended.
pub(crate) fn is_live(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed")
}

/// The phase; a pod without a phase is Pending.
pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// The scheduler's message while it finds no node.
pub(crate) fn unschedulable(pod: &Pod) -> Option<&str> {
    let condition = unscheduled(pod)?;
    condition.message.as_deref().or(condition.reason.as_deref())
}

/// The condition of a pod for which the scheduler finds no node. A task that is gated waits for another component.
pub(crate) fn unscheduled(pod: &Pod) -> Option<&PodCondition> {
    let is_gated = |it: &PodCondition| it.reason.as_deref() == Some(Unschedulable::GATED);
    scheduled(pod, "False").filter(|it| is_placeholder(pod) || !is_gated(it))
}

/// The condition `PodScheduled`, if it has this status.
pub(crate) fn scheduled<'a>(pod: &'a Pod, status: &str) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_deref()?;
    let is_it = |it: &&PodCondition| it.type_ == "PodScheduled" && it.status == status;
    conditions.iter().find(is_it)
}

/// The pod is a run's placeholder.
pub(crate) fn is_placeholder(pod: &Pod) -> bool {
    label(&pod.metadata, keys::COMPONENT) == Some(keys::PLACEHOLDER)
        && label(&pod.metadata, keys::APP) == Some(keys::APP_NAME)
}

/// The pod keeps its node after a run.
pub(crate) fn is_kept_node(pod: &Pod) -> bool {
    label(&pod.metadata, keys::COMPONENT) == Some(keys::KEPT_NODE)
        && label(&pod.metadata, keys::APP) == Some(keys::APP_NAME)
}

/// The pod is an affinity assistant of Tekton.
pub(crate) fn is_assistant(pod: &Pod) -> bool {
    label(&pod.metadata, keys::COMPONENT) == Some(keys::ASSISTANT)
}

/// The task of the pod opted out, so the pod can be on any node.
pub(crate) fn is_opted_out(pod: &Pod) -> bool {
    label(&pod.metadata, keys::OPT_IN) == Some(DECLINED)
}

/// The pod of a task that the affinity requires on the node of this run.
pub(crate) fn is_member(pod: &Pod, run: &RunKey) -> bool {
    label(&pod.metadata, keys::GROUP) == Some(run.uid.as_str())
        && !(is_placeholder(pod) || is_assistant(pod) || is_opted_out(pod))
}

/// The name of a pod's task.
pub(crate) fn task_name(pod: &Pod) -> &str {
    let name = label(&pod.metadata, "tekton.dev/pipelineTask").or(pod.metadata.name.as_deref());
    name.unwrap_or_default()
}

/// The PVCs that a pod mounts.
pub(crate) fn claims(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// When the last container of the pod ended.
pub(crate) fn ended_at(pod: &Pod) -> Option<Timestamp> {
    let containers = pod.status.as_ref()?.container_statuses.iter().flatten();
    let ends = containers.filter_map(|it| it.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    ends.map(|time| time.0).max()
}

/// The pod is the placeholder of a done run with isolateAlways: the run itself owns the pod.
pub(crate) fn is_reservation(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    is_placeholder(pod) && owners.iter().any(|owner| owner.kind == "PipelineRun")
}
