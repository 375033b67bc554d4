//! What the Deployments among some manifests say of their processes. The testbed starts these itself, but as they say.

use serde_json::Value;

/// Arguments of each process, and the image of placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Deployments {
    pub(crate) webhook: Vec<String>,
    pub(crate) controller: Vec<String>,
    pub(crate) placeholder_image: String,
}

/// Stands for an image that is not built. No node pulls it; the name only has to be a valid one.
const IMAGE: &str = "testbed.invalid/pod-affinity";
const UNBUILT: &str = "ko://";

impl Deployments {
    pub(crate) fn of(objects: &[Value]) -> Self {
        let controller = container(objects, "pod-affinity-controller");
        Self {
            webhook: arguments(container(objects, "pod-affinity-webhook"), "webhook"),
            controller: arguments(controller, "controller"),
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

fn arguments(container: Option<&Value>, otherwise: &str) -> Vec<String> {
    let said = container.and_then(|container| container["args"].as_array());
    said.map_or_else(
        || vec![otherwise.to_owned()],
        |args| args.iter().filter_map(Value::as_str).map(String::from).collect(),
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn controller(image: &str) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": {"name": "pod-affinity-controller"},
            "spec": {"template": {"spec": {"containers": [{
                "args": ["controller", "--certificates=external"],
                "env": [{"name": "POD_AFFINITY_IMAGE", "value": image}],
            }]}}},
        })
    }

    #[test]
    fn a_process_is_started_as_its_deployment_says() {
        let said = Deployments::of(&[controller("registry/pod-affinity@sha256:0")]);
        assert_eq!(said.controller, ["controller", "--certificates=external"]);
        assert_eq!(said.placeholder_image, "registry/pod-affinity@sha256:0");
        assert_eq!(said.webhook, ["webhook"]);
    }

    #[test]
    fn an_image_that_is_not_built_has_a_stand_in() {
        let said = Deployments::of(&[controller("ko://pod-affinity")]);
        assert_eq!(said.placeholder_image, IMAGE);
    }
}
