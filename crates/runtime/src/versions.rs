//! Checks the versions of the API server and Tekton. An unsupported version is logged once, at the start.

use crate::api::read;
use crate::tekton_namespace::TektonNamespace;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use placement::supported::{KUBERNETES, Supported, TEKTON, numbers};
use std::future::pending;

/// Tekton grants every user read access to this ConfigMap, so the `ClusterRole` of pod-affinity needs no rule for the ConfigMap.
const TEKTON_INFO: &str = "pipelines-info";

/// Logs a warning if this release was not tested with the version of Kubernetes or Tekton. Never returns.
pub async fn check(client: Client, tekton_namespace: TektonNamespace) {
    warn(&KUBERNETES, kubernetes(&client).await);
    warn(&TEKTON, tekton(&client, &tekton_namespace.await).await);
    pending::<()>().await;
}

fn warn(supported: &Supported, version: Option<String>) {
    if let Some(version) = version
        && let Some(complaint) = supported.complaint(&version)
    {
        tracing::warn!(version, "{} {}", complaint.sentence, complaint.remedy);
    }
}

async fn kubernetes(client: &Client) -> Option<String> {
    let info = read(KUBERNETES.name, || client.apiserver_version()).await;
    info.map(|info| info.git_version)
}

async fn tekton(client: &Client, namespace: &str) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let info = read(TEKTON.name, || maps.get_opt(TEKTON_INFO)).await??;
    // A development build has no version.
    info.data?
        .remove("version")
        .filter(|version| numbers(version).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tekton_namespace::DEFAULT;
    use serde_json::json;
    use testing::FakeApi;

    const INFO: &str = "/api/v1/namespaces/tekton-pipelines/configmaps/pipelines-info";

    fn server() -> FakeApi {
        let api = FakeApi::new();
        let version = json!({
            "major": "1", "minor": "30", "gitVersion": "v1.30.1", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        api.put("/version", version);
        api.put(INFO, json!({"data": {"version": "v1.8.0"}}));
        api
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_is_read_until_the_api_server_responds() {
        let api = server();
        for _ in 0..2 {
            api.script_failure(503, "ServiceUnavailable", "later");
        }
        assert_eq!(kubernetes(&api.client()).await.as_deref(), Some("v1.30.1"));
        assert_eq!(api.calls().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_of_tekton_is_in_its_configmap() {
        assert_eq!(
            tekton(&server().client(), DEFAULT).await.as_deref(),
            Some("v1.8.0")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_forbidden_version_and_a_missing_configmap_are_read_once() {
        let api = server();
        api.script_failure(403, "Forbidden", "no");
        api.script_failure(403, "Forbidden", "no");
        api.script_failure(404, "NotFound", "no");
        assert_eq!(kubernetes(&api.client()).await, None);
        for _ in 0..2 {
            assert_eq!(tekton(&api.client(), DEFAULT).await, None);
        }
        assert_eq!(api.calls().len(), 3);
    }
}
