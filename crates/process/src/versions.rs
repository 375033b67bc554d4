//! Checks the versions of the API server and Tekton. An unsupported version is logged once, at the start.

use crate::api;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Error, Result};
use placement::supported::{KUBERNETES, Supported, TEKTON, numbers};
use std::future::pending;
use std::time::Duration;
use tokio::time::sleep;

/// Pause between two attempts to read a version. Other parts of the process log connection errors.
const PAUSE: Duration = Duration::from_secs(5);
/// Tekton's default namespace. Tekton in another product may have another namespace; its version is then not checked.
const TEKTON_NAMESPACE: &str = "tekton-pipelines";
/// Tekton grants every user read access to this ConfigMap, so the `ClusterRole` of pod-affinity needs no rule for the ConfigMap.
const TEKTON_INFO: &str = "pipelines-info";

/// Logs a warning if this release was not tested with the version of Kubernetes or Tekton. Never returns.
pub async fn judge(client: Client) {
    warn(&KUBERNETES, kubernetes(&client).await);
    warn(&TEKTON, tekton(&client).await);
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
    let info = answer(KUBERNETES.name, || client.apiserver_version()).await;
    info.map(|info| info.git_version)
}

async fn tekton(client: &Client) -> Option<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), TEKTON_NAMESPACE);
    let info = answer(TEKTON.name, || maps.get(TEKTON_INFO)).await?;
    // A development build has no version.
    info.data?
        .remove("version")
        .filter(|version| numbers(version).is_some())
}

/// Retries until the API server responds. `None` if the request is forbidden (some hardened clusters) or finds no object.
async fn answer<T, F: Future<Output = Result<T>>>(whose: &str, ask: impl Fn() -> F) -> Option<T> {
    loop {
        match ask().await {
            Ok(info) => return Some(info),
            Err(Error::Api(status)) if status.is_forbidden() || status.is_not_found() => return None,
            Err(error) => tracing::debug!(
                whose,
                error = api::error_text(&error),
                "a version could not be read"
            ),
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::{Response, StatusCode};
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// A server that fails for as many times as are asked for, and then answers.
    fn server(failure: StatusCode, failures: usize) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            let fails = count.fetch_add(1, Relaxed) < failures;
            let response = match request.uri().path() {
                _ if fails => failed(failure),
                "/version" => version(),
                "/api/v1/namespaces/tekton-pipelines/configmaps/pipelines-info" => info(),
                other => panic!("{other}"),
            };
            async move { Ok::<_, Infallible>(response) }
        };
        (Client::new(tower::service_fn(answer), "ns"), asked)
    }

    fn version() -> Response<Body> {
        let info = json!({
            "major": "1", "minor": "30", "gitVersion": "v1.30.1", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
        });
        Response::new(Body::from(info.to_string()))
    }

    fn info() -> Response<Body> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"version": "v1.8.0"}});
        Response::new(Body::from(map.to_string()))
    }

    fn failed(code: StatusCode) -> Response<Body> {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "message": "no",
            "reason": code.canonical_reason().unwrap_or_default().replace(' ', ""),
        });
        let mut response = Response::new(Body::from(status.to_string()));
        *response.status_mut() = code;
        response
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_is_read_again_until_the_api_server_answers() {
        let (client, asked) = server(StatusCode::SERVICE_UNAVAILABLE, 2);
        assert_eq!(kubernetes(&client).await.as_deref(), Some("v1.30.1"));
        assert_eq!(asked.load(Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn tektons_version_is_that_of_its_configmap() {
        let (client, _) = server(StatusCode::SERVICE_UNAVAILABLE, 1);
        assert_eq!(tekton(&client).await.as_deref(), Some("v1.8.0"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_not_asked_for_again_where_it_is_forbidden_or_not_there() {
        for code in [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND] {
            let (client, asked) = server(code, 2);
            assert_eq!(kubernetes(&client).await, None);
            assert_eq!(tekton(&client).await, None);
            assert_eq!(asked.load(Relaxed), 2);
        }
    }
}
