//! `version`.

use super::{notes, printed};
use crate::args::VersionArgs;
use crate::client::Cluster;
use crate::doctor::manifests::{self, CONTROLLER};
use crate::doctor::read::admission_kind;
use crate::output;
use crate::requests::{RequestResult, Server};
use crate::version::{Installed, Versions, client, client_text, text};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DynamicObject;
use runtime::install;
use serde_json::json;
use std::process::ExitCode;
use tokio::join;

/// Prints the version of this program without a request.
pub(super) fn of_client(args: &VersionArgs) -> ExitCode {
    let version = json!({"client": client()});
    printed(&output::prose(args.output, &version, client_text))
}

/// Prints all versions. If the API server does not answer, the version of this program is printed before the error.
pub(super) async fn version(cluster: &Cluster, args: &VersionArgs) -> RequestResult<ExitCode> {
    match read(&cluster.server, &args.install_namespace).await {
        Ok(versions) => Ok(printed(&output::prose(args.output, &versions, || {
            text(&versions)
        }))),
        Err(error) => {
            of_client(args);
            Err(error)
        }
    }
}

async fn read(server: &Server, namespace: &str) -> RequestResult<Versions> {
    let deployments = server.within::<Deployment>(namespace);
    let (controller, webhook, policy) = join!(
        deployments.get(CONTROLLER),
        deployments.get(install::WEBHOOK_SERVICE),
        policy(server, namespace)
    );
    notes(policy.as_ref().err());
    let webhook = webhook?.as_ref().map(Installed::webhook);
    let policies = policy.ok().flatten().as_ref().map(Installed::policies);
    Ok(Versions {
        client: client(),
        controller: controller?.as_ref().map(Installed::controller),
        admission: webhook.into_iter().chain(policies).collect(),
    })
}

/// One policy stands for all, because they are installed together. An API server without policies has none.
async fn policy(server: &Server, namespace: &str) -> RequestResult<Option<DynamicObject>> {
    match manifests::policies(namespace).first() {
        Some(release) => {
            let policies = server.cluster_of(&admission_kind(&release.kind));
            policies.get(&release.metadata.name).await
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::{AsCluster, FakeApi};
    use placement::keys;
    use serde_json::Value;

    /// The label of a release.
    fn labels(version: &str) -> Value {
        json!({"app.kubernetes.io/version": version})
    }

    fn install(api: &FakeApi, name: &str, labels: &Value) {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}", keys::NAMESPACE);
        let pod = json!({"containers": [{"name": "main", "image": "registry/x@sha256:1"}]});
        let spec = json!({"selector": {}, "template": {"spec": pod}});
        api.put(&path, json!({"metadata": {"labels": labels}, "spec": spec}));
    }

    fn install_policies(api: &FakeApi, labels: &Value) {
        for release in manifests::policies(keys::NAMESPACE) {
            let (plural, name) = (admission_kind(&release.kind).plural, release.metadata.name);
            let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/{name}");
            api.put(&path, json!({"metadata": {"labels": labels}}));
        }
    }

    async fn installed(api: &FakeApi) -> String {
        let versions = read(&api.cluster().server, keys::NAMESPACE).await.unwrap();
        let text = text(&versions);
        text.strip_prefix(&client_text()).unwrap().to_owned()
    }

    #[tokio::test]
    async fn the_controller_and_the_webhook_have_the_versions_of_their_labels() {
        let api = FakeApi::new();
        install(&api, CONTROLLER, &labels("v1.2.3"));
        install(&api, install::WEBHOOK_SERVICE, &labels("v1.2.2"));
        let expected = "Controller   v1.2.3\nAdmission    v1.2.2 (webhook)\n";
        assert_eq!(installed(&api).await, expected);
    }

    #[tokio::test]
    async fn without_a_release_the_image_is_named() {
        let api = FakeApi::new();
        install(&api, CONTROLLER, &json!({}));
        install_policies(&api, &json!({}));
        let expected = "Controller   unknown, image registry/x@sha256:1\nAdmission    unknown (policies)\n";
        assert_eq!(installed(&api).await, expected);
    }

    #[tokio::test]
    async fn webhook_and_policies_are_both_named_and_a_missing_right_hides_only_the_policies() {
        let api = FakeApi::new();
        install(&api, install::WEBHOOK_SERVICE, &labels("v1"));
        install_policies(&api, &labels("v2"));
        let expected = "Controller   not installed\nAdmission    v1 (webhook); v2 (policies)\n";
        assert_eq!(installed(&api).await, expected);
        api.forbid("mutatingadmissionpolicies");
        assert!(installed(&api).await.ends_with("Admission    v1 (webhook)\n"));
    }

    #[tokio::test]
    async fn without_a_right_to_deployments_there_is_no_answer() {
        let api = FakeApi::new();
        api.forbid("deployments");
        let error = read(&api.cluster().server, keys::NAMESPACE).await.unwrap_err();
        assert!(error.to_string().contains("get deployments.apps"), "{error}");
    }
}
