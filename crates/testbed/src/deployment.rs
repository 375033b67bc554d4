//! Reads the processes of an installation from its Deployments, and prepares the Deployments for the testbed.
//!
//! The testbed starts the processes itself, with the arguments and variables of the Deployments. The Deployments are applied only on request:
//! KWOK then simulates their pods on a dedicated node.

use crate::error::Result;
use crate::kwok::Nodes;
use crate::testbed::{READY, Testbed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Taint;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

/// Arguments of each process, variables of the controller, and the image of the placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Deployments {
    /// `None` if admission policies replace the webhook.
    pub(crate) webhook: Option<Vec<String>>,
    pub(crate) controller: Vec<String>,
    /// Variables with a value. Others refer to fields of the pod.
    pub(crate) variables: Vec<(String, String)>,
    pub(crate) placeholder_image: String,
}

/// Replaces an image that is not built. No node pulls the image; only the name must be valid.
const IMAGE: &str = "testbed.invalid/pod-affinity";
const UNBUILT: &str = "ko://";
/// Kinds that are applied only with [`crate::Options::deployments`].
const WORKLOADS: [&str; 2] = ["Deployment", "PodDisruptionBudget"];
/// The node of pod-affinity's own pods. As in many clusters, its taint keeps all other pods off.
const NODE: &str = "control-plane";
const ROLE: &str = "node-role.kubernetes.io/control-plane";

impl Deployments {
    pub(crate) fn from_objects(objects: &[Value]) -> Self {
        let controller = container(objects, "pod-affinity-controller");
        Self {
            webhook: container(objects, "pod-affinity-webhook").map(arguments),
            controller: controller.map_or_else(|| vec!["controller".to_owned()], arguments),
            variables: controller.map(variables).unwrap_or_default(),
            placeholder_image: placeholder_image(controller),
        }
    }
}

fn container<'a>(objects: &'a [Value], name: &str) -> Option<&'a Value> {
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == name)?;
    deployment.pointer("/spec/template/spec/containers/0")
}

fn arguments(container: &Value) -> Vec<String> {
    let said = container["args"].as_array().into_iter().flatten();
    said.filter_map(Value::as_str).map(String::from).collect()
}

fn variables(container: &Value) -> Vec<(String, String)> {
    let variables = container["env"].as_array().into_iter().flatten();
    let values =
        variables.filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)));
    values
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn placeholder_image(container: Option<&Value>) -> String {
    let variables = container.and_then(|container| container["env"].as_array());
    let image = variables
        .into_iter()
        .flatten()
        .find(|variable| variable["name"] == "POD_AFFINITY_IMAGE")
        .and_then(|variable| variable["value"].as_str());
    image
        .filter(|image| !image.starts_with(UNBUILT))
        .unwrap_or(IMAGE)
        .to_owned()
}

/// The objects that the testbed applies. With Deployments, a node for their pods is added, with this version of the kubelet.
pub(crate) fn to_apply(mut objects: Vec<Value>, deployments: bool, kubelet_version: &str) -> Vec<Value> {
    if !deployments {
        objects.retain(|object| !WORKLOADS.iter().any(|kind| object["kind"] == *kind));
        return objects;
    }
    objects.iter_mut().for_each(place);
    objects.insert(0, node(kubelet_version));
    objects
}

/// Assigns the pods of a Deployment to our node, and sets a valid image name.
fn place(object: &mut Value) {
    if object["kind"] != "Deployment" {
        return;
    }
    name_images(object);
    let pod = &mut object["spec"]["template"]["spec"];
    pod["nodeSelector"][ROLE] = json!("");
    pod["tolerations"] = json!([{"key": ROLE, "operator": "Exists", "effect": "NoSchedule"}]);
}

/// Replaces image names everywhere, also in the environment, which has the image of the placeholders.
fn name_images(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(UNBUILT) => IMAGE.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(name_images),
        Value::Object(fields) => fields.values_mut().for_each(name_images),
        _ => {}
    }
}

fn node(kubelet_version: &str) -> Value {
    let mut nodes = Nodes::new(NODE, 1).size("1", "2Gi").label(ROLE, "");
    nodes.taints.push(Taint {
        key: ROLE.into(),
        effect: "NoSchedule".into(),
        ..Taint::default()
    });
    nodes.manifest(NODE, kubelet_version)
}

impl Testbed {
    /// Waits until all replicas of pod-affinity's Deployments are available.
    pub(crate) async fn deployments_are_available(&self, namespace: &str) -> Result<()> {
        let api: Api<Deployment> = Api::namespaced(self.client().await?, namespace);
        self.until("pod-affinity's Deployments to be available", READY, async || {
            let listed = api.list(&ListParams::default()).await;
            let listed = listed.map_err(|error| error.to_string())?;
            match listed.items.iter().find(|it| !is_available(it)) {
                None => Ok(()),
                Some(waiting) => Err(format!("{}: {:?}", waiting.name_any(), waiting.status)),
            }
        })
        .await
    }
}

fn is_available(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let status = deployment.status.as_ref();
    wanted.is_some() && status.and_then(|status| status.available_replicas) == wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(image: &str) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {"name": "pod-affinity-controller"},
            "spec": {"template": {"spec": {"containers": [{
                "args": ["controller", "--certificates=none"],
                "env": [
                    {"name": "POD_AFFINITY_IMAGE", "value": image},
                    {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                ],
            }]}}},
        })
    }

    #[test]
    fn a_process_is_started_as_its_deployment_says() {
        let said = Deployments::from_objects(&[controller("registry/pod-affinity@sha256:0")]);
        assert_eq!(said.controller, ["controller", "--certificates=none"]);
        let image = "registry/pod-affinity@sha256:0".to_owned();
        assert_eq!(said.placeholder_image, image);
        assert_eq!(said.variables, [("POD_AFFINITY_IMAGE".to_owned(), image)]);
        assert_eq!(said.webhook, None, "there is no such Deployment");
    }

    #[test]
    fn an_image_that_is_not_built_is_replaced_by_a_valid_name() {
        let said = Deployments::from_objects(&[controller("ko://pod-affinity")]);
        assert_eq!(said.placeholder_image, IMAGE);
    }

    fn installation() -> Vec<Value> {
        vec![
            json!({"kind": "Service", "metadata": {"name": "pod-affinity-webhook"}}),
            controller("ko://pod-affinity"),
            json!({"kind": "PodDisruptionBudget", "metadata": {"name": "pod-affinity-webhook"}}),
        ]
    }

    const VERSION: &str = "v1.36.3";

    #[test]
    fn deployments_and_their_node_are_applied_only_on_request() {
        let kinds = |deployments| -> Vec<_> {
            let objects = to_apply(installation(), deployments, VERSION);
            objects.iter().map(|object| object["kind"].clone()).collect()
        };
        assert_eq!(kinds(false), ["Service"]);
        assert_eq!(
            kinds(true),
            ["Node", "Service", "Deployment", "PodDisruptionBudget"]
        );
    }

    #[test]
    fn the_pods_of_a_deployment_have_a_node_that_other_pods_do_not_tolerate() {
        let objects = to_apply(installation(), true, VERSION);
        let (node, pod) = (&objects[0], &objects[2]["spec"]["template"]["spec"]);
        assert_eq!(pod["nodeSelector"][ROLE], node["metadata"]["labels"][ROLE]);
        assert_eq!(pod["tolerations"][0]["key"], node["spec"]["taints"][0]["key"]);
        assert_eq!(pod["containers"][0]["env"][0]["value"], IMAGE);
    }
}
