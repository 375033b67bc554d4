//! The view of pods for all watches and lists, and the label selectors of a run's pods. A task's pod has kilobytes of scripts, so the
//! decoder keeps only the fields that decisions read, up to a limit.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, NodeAffinity, Pod, PodSpec, ResourceRequirements, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use placement::bounded::Fields;
use placement::names::RunKey;
use placement::node::selector::NodeRequirements;
use placement::plan::Unschedulable;
use placement::resources::Resources;
use placement::{keys, opt_in};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The reason that a kubelet reports for a resize that it will never perform.
const INFEASIBLE: &str = "Infeasible";

/// The pod of a placeholder, of a task or of an affinity assistant.
#[derive(kube::Resource, Clone, Debug, Default, Deserialize)]
#[resource(inherit = Pod)]
#[serde(default)]
pub(crate) struct PodView {
    #[serde(deserialize_with = "tekton::metadata::read")]
    pub(crate) metadata: ObjectMeta,
    #[serde(deserialize_with = "spec")]
    pub(crate) spec: Spec,
    #[serde(deserialize_with = "status")]
    pub(crate) status: Status,
}

/// The most bytes of JSON that are kept of the spec of a pod, and of its status. The cache keeps tolerations of waiting pods.
const BYTES: usize = 16 << 10;

static SPEC: Fields = Fields::Object(&[
    ("nodeName", Fields::Always),
    ("nodeSelector", Fields::Any),
    ("containers", CONTAINERS),
    ("initContainers", CONTAINERS),
    ("overhead", Fields::Any),
    ("resources", RESOURCES),
    ("tolerations", Fields::Any),
    ("affinity", Fields::Object(&[("nodeAffinity", Fields::Any)])),
    (
        "volumes",
        Fields::Matching(
            &Fields::Object(&[
                (
                    "persistentVolumeClaim",
                    Fields::Object(&[("claimName", Fields::Scalar)]),
                ),
                ("image", Fields::Object(&[("reference", Fields::Scalar)])),
            ]),
            |volume| volume["persistentVolumeClaim"].is_object() || volume["image"].is_object(),
        ),
    ),
]);

const CONTAINERS: Fields = Fields::List(&Fields::Object(&[
    ("name", Fields::Scalar),
    ("resources", RESOURCES),
    ("restartPolicy", Fields::Scalar),
]));

const RESOURCES: Fields = Fields::Object(&[("requests", Fields::Any), ("limits", Fields::Any)]);

static STATUS: Fields = Fields::Object(&[
    ("phase", Fields::Scalar),
    ("startTime", Fields::Scalar),
    (
        "conditions",
        Fields::List(&Fields::Object(&[
            ("type", Fields::Scalar),
            ("status", Fields::Scalar),
            ("reason", Fields::Scalar),
            ("message", Fields::Any),
            ("lastTransitionTime", Fields::Scalar),
        ])),
    ),
    (
        "containerStatuses",
        Fields::List(&Fields::Object(&[(
            "state",
            Fields::Object(&[("terminated", Fields::Object(&[("finishedAt", Fields::Scalar)]))]),
        )])),
    ),
]);

fn spec<'de, D: Deserializer<'de>>(from: D) -> Result<Spec, D::Error> {
    SPEC.decode_as(BYTES, from)
}

fn status<'de, D: Deserializer<'de>>(from: D) -> Result<Status, D::Error> {
    STATUS.decode_as(BYTES, from)
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Spec {
    node_name: Option<String>,
    containers: Vec<ContainerView>,
    init_containers: Vec<ContainerView>,
    overhead: Option<BTreeMap<String, Quantity>>,
    resources: Option<ResourceRequirements>,
    pub(crate) tolerations: Vec<Toleration>,
    node_selector: BTreeMap<String, String>,
    affinity: AffinityView,
    volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AffinityView {
    node_affinity: Option<NodeAffinity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerView {
    name: String,
    resources: Option<ResourceRequirements>,
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Volume {
    persistent_volume_claim: Option<Claim>,
    image: Option<Image>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Claim {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Image {
    reference: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Status {
    phase: Option<String>,
    start_time: Option<Time>,
    conditions: Vec<Condition>,
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: Option<String>,
    message: Option<String>,
    last_transition_time: Option<Time>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    finished_at: Option<Time>,
}

impl PodView {
    /// The node that the pod is bound to.
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// Whether the pod's phase is final.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// The resource requests of the whole pod.
    pub(crate) fn asks(&self) -> Resources {
        let containers = |views: &[ContainerView]| views.iter().map(Container::from).collect();
        Resources::from_pod_spec(&PodSpec {
            containers: containers(&self.spec.containers),
            init_containers: Some(containers(&self.spec.init_containers)),
            overhead: self.spec.overhead.clone(),
            resources: self.spec.resources.clone(),
            ..PodSpec::default()
        })
    }

    /// The resource requests of one container.
    pub(crate) fn container_requests(&self, name: &str) -> Resources {
        let mut containers = self.spec.containers.iter();
        let container = containers.find(|container| container.name == name);
        let requests = container.and_then(|container| container.resources.as_ref()?.requests.as_ref());
        requests.map(Resources::from_quantities).unwrap_or_default()
    }

    /// The labels and the node affinity that the pod requires of its node.
    pub(crate) fn node_requirements(&self) -> NodeRequirements {
        NodeRequirements::new(
            self.spec.node_selector.clone(),
            self.spec.affinity.node_affinity.clone(),
        )
    }

    pub(crate) fn node_affinity(&self) -> NodeAffinity {
        self.spec.affinity.node_affinity.clone().unwrap_or_default()
    }

    /// Names of the PVCs that the pod mounts.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        let claims = self.spec.volumes.iter();
        claims.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
    }

    /// The images of the pod's image volumes.
    pub(crate) fn images(&self) -> impl Iterator<Item = &str> {
        let volumes = self.spec.volumes.iter();
        volumes.filter_map(|volume| Some(volume.image.as_ref()?.reference.as_str()))
    }

    /// The scheduler's message that no node fits the pod, and since when.
    pub(crate) fn unschedulable(&self) -> Option<Unschedulable> {
        let condition = self.condition("PodScheduled").filter(|it| it.status == "False")?;
        let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
        Some(Unschedulable::from_condition(reason, message, condition.since()))
    }

    /// Whether the kubelet will never perform the requested resize.
    pub(crate) fn cannot_be_resized(&self) -> bool {
        let pending = self.condition("PodResizePending");
        pending.and_then(|condition| condition.reason.as_deref()) == Some(INFEASIBLE)
    }

    /// Since when the pod has been bound to its node.
    pub(crate) fn bound_since(&self) -> Option<Timestamp> {
        let bound = self.condition("PodScheduled").filter(|it| it.status == "True");
        let started = self.status.start_time.as_ref().map(|time| time.0);
        bound.and_then(Condition::since).or(started)
    }

    /// When each container ended; `None` for a container that has not ended.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Option<Timestamp>> {
        let containers = self.status.container_statuses.iter();
        containers.map(|container| Some(container.state.terminated.as_ref()?.finished_at.as_ref()?.0))
    }

    fn condition(&self, type_: &str) -> Option<&Condition> {
        let mut conditions = self.status.conditions.iter();
        conditions.find(|condition| condition.type_ == type_)
    }
}

impl Condition {
    fn since(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref().map(|time| time.0)
    }
}

impl From<&ContainerView> for Container {
    fn from(view: &ContainerView) -> Self {
        Self {
            resources: view.resources.clone(),
            restart_policy: view.restart_policy.clone(),
            ..Self::default()
        }
    }
}

/// Selects the task pods of all groups. Excludes placeholders, pods of tasks that opted out, and Tekton's affinity assistants,
/// which follow the group.
pub(crate) fn tasks() -> String {
    tasks_in(keys::GROUP)
}

/// Selects the task pods of one run's group.
pub(crate) fn tasks_of(run: &RunKey) -> String {
    tasks_in(&format!("{}={}", keys::GROUP, run.uid))
}

/// Selects the affinity assistants that Tekton creates for the run's PVCs.
pub(crate) fn assistants_of(run: &RunKey) -> String {
    format!(
        "{}={},{}={}",
        keys::GROUP,
        run.uid,
        keys::COMPONENT,
        keys::ASSISTANT
    )
}

fn tasks_in(group: &str) -> String {
    format!(
        "{group},{} notin ({},{}),{}!={}",
        keys::COMPONENT,
        keys::PLACEHOLDER,
        keys::ASSISTANT,
        keys::OPT_IN,
        opt_in::DECLINED,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_pod_of_any_size_takes_little_memory() {
        let many = |entry: &Value| json!(vec![entry; 20_000]);
        let toleration = many(&json!({"operator": "Exists"}));
        let document = json!({
            "metadata": {"name": "p"},
            "spec": {
                "nodeName": "n1",
                "tolerations": toleration,
                "volumes": many(&json!({"persistentVolumeClaim": {"claimName": "c"}})),
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": many(&json!({}))}}},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
        });
        let text = document.to_string();
        let mut pod = None;
        let used = allocation_counter::measure(|| pod = serde_json::from_str::<PodView>(&text).ok());
        let pod = pod.unwrap();
        assert_eq!(
            (pod.node(), pod.asks().to_string().as_str()),
            (Some("n1"), "cpu=1")
        );
        assert!(pod.spec.tolerations.is_empty() && pod.claims().next().is_none());
        assert!(used.bytes_max < 1 << 20, "{}", used.bytes_max);
    }

    #[test]
    fn a_pod_over_the_limit_of_bytes_keeps_its_node() {
        let claim = "x".repeat(253);
        let volumes =
            vec![format!(r#"{{"persistentVolumeClaim":{{"claimName":"{claim}"}}}}"#); 100].join(",");
        let text = format!(r#"{{"spec":{{"volumes":[{volumes}],"nodeName":"n1"}}}}"#);
        let pod: PodView = serde_json::from_str(&text).unwrap();
        assert_eq!(pod.node(), Some("n1"));
    }

    #[test]
    fn the_view_of_a_pod_has_the_same_requests_as_the_type_of_kubernetes() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let document = json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "step", "image": "i", "resources": asks("1")}, {"name": "plain"}],
                "initContainers": [
                    {"name": "sidecar", "restartPolicy": "Always", "resources": asks("2")},
                    {"name": "prepare", "resources": asks("4")},
                ],
                "overhead": {"cpu": "500m"},
                "resources": {"requests": {"memory": "1Gi"}},
            },
        });
        let whole: Pod = serde_json::from_value(document.clone()).unwrap();
        let read: PodView = serde_json::from_value(document).unwrap();
        assert_eq!(read.asks(), Resources::from_pod_spec(&whole.spec.unwrap()));
        assert_eq!(read.asks().to_string(), "cpu=6500m, memory=1Gi");
    }
}
