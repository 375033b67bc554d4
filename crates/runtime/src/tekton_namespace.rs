//! Finds the namespace of Tekton Pipelines. The custom resource definition of PipelineRuns names the namespace: the API server converts
//! versions of PipelineRuns at a Service of Tekton.

use crate::api::read;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use serde::Deserialize;

/// The namespace in Tekton's own manifests.
pub const DEFAULT: &str = "tekton-pipelines";
/// The name of the definition.
pub const DEFINITION: &str = "pipelineruns.tekton.dev";

/// The definition of PipelineRuns, with the one field that this module reads. The schema is large.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = CustomResourceDefinition)]
pub struct RunDefinition {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    conversion: Option<Conversion>,
}

#[derive(Clone, Debug, Deserialize)]
struct Conversion {
    webhook: Option<Webhook>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Webhook {
    client_config: Option<ClientConfig>,
}

#[derive(Clone, Debug, Deserialize)]
struct ClientConfig {
    service: Option<Service>,
}

#[derive(Clone, Debug, Deserialize)]
struct Service {
    namespace: String,
}

impl RunDefinition {
    /// The namespace of Tekton's webhook.
    pub fn namespace(self) -> Option<String> {
        let webhook = self.spec.conversion?.webhook?;
        Some(webhook.client_config?.service?.namespace)
    }
}

/// The namespace of Tekton, read once for all tasks that await the namespace.
pub type TektonNamespace = Shared<BoxFuture<'static, String>>;

/// Waits until the definition exists: Tekton may be installed later. Without the right to read the definition, and with a definition
/// that names no Service, the namespace is [`DEFAULT`].
pub fn find(client: Client) -> TektonNamespace {
    read_definition(client).boxed().shared()
}

async fn read_definition(client: Client) -> String {
    let definitions: Api<RunDefinition> = Api::all(client);
    let definition = read(DEFINITION, || definitions.get(DEFINITION)).await;
    definition
        .and_then(RunDefinition::namespace)
        .unwrap_or_else(|| DEFAULT.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use testing::FakeApi;

    const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/pipelineruns.tekton.dev";

    async fn found(conversion: &Value) -> String {
        let api = FakeApi::new();
        api.put(
            PATH,
            json!({"metadata": {"name": DEFINITION}, "spec": {"conversion": conversion, "group": "tekton.dev"}}),
        );
        find(api.client()).await
    }

    #[tokio::test]
    async fn the_service_that_converts_runs_is_in_the_namespace_of_tekton() {
        let service = json!({"name": "tekton-pipelines-webhook", "namespace": "openshift-pipelines"});
        let converted = json!({"strategy": "Webhook", "webhook": {"clientConfig": {"service": service}}});
        assert_eq!(found(&converted).await, "openshift-pipelines");
    }

    #[tokio::test]
    async fn a_definition_without_a_service_means_the_default_namespace() {
        assert_eq!(found(&json!({"strategy": "None"})).await, DEFAULT);
        let elsewhere =
            json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://tekton.example"}}});
        assert_eq!(found(&elsewhere).await, DEFAULT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_api_server_and_a_missing_definition_are_retried_and_a_missing_right_is_not() {
        let api = FakeApi::new();
        api.script_failure(503, "ServiceUnavailable", "later");
        api.script_failure(404, "NotFound", "Tekton is not installed yet");
        api.script_failure(403, "Forbidden", "no");
        assert_eq!(find(api.client()).await, DEFAULT);
        assert_eq!(api.calls().len(), 3);
    }
}
