//! `version`: the versions of this program and of the installation. Pure.

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::DynamicObject;
use serde::Serialize;
use std::collections::BTreeMap;

/// The label that a release sets on each object.
const LABEL: &str = "app.kubernetes.io/version";

/// The versions of all parts.
#[derive(Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) client: String,
    /// `None` if the controller is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<Installed>,
    /// The webhook, the policies, or both. Empty if neither is installed.
    pub(crate) admission: Vec<Installed>,
}

/// A part in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Installed {
    /// How objects are admitted: `webhook` or `policies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mechanism: Option<&'static str>,
    /// `None` if the manifests are not those of a release.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

/// The version of this program, in the form of the label.
pub(crate) fn client() -> String {
    format!("v{}", env!("CARGO_PKG_VERSION"))
}

impl Installed {
    pub(crate) fn controller(deployment: &Deployment) -> Self {
        Self {
            mechanism: None,
            version: version(deployment.metadata.labels.as_ref()),
            image: image(deployment),
        }
    }

    pub(crate) fn webhook(deployment: &Deployment) -> Self {
        Self {
            mechanism: Some("webhook"),
            ..Self::controller(deployment)
        }
    }

    pub(crate) fn policies(policy: &DynamicObject) -> Self {
        Self {
            mechanism: Some("policies"),
            version: version(policy.metadata.labels.as_ref()),
            image: None,
        }
    }

    fn text(&self) -> String {
        let mechanism = self.mechanism.map(|name| format!(" ({name})"));
        let version = self.version.as_deref().unwrap_or("unknown");
        let image = self.image.iter().filter(|_| self.version.is_none());
        let image: String = image.map(|image| format!(", image {image}")).collect();
        format!("{version}{}{image}", mechanism.unwrap_or_default())
    }
}

fn version(labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    labels?.get(LABEL).cloned()
}

fn image(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

/// A line for each part.
pub(crate) fn text(versions: &Versions) -> String {
    let installed = |parts: &[Installed]| match parts {
        [] => "not installed".to_owned(),
        parts => parts.iter().map(Installed::text).collect::<Vec<_>>().join("; "),
    };
    format!(
        "{}Controller   {}\nAdmission    {}\n",
        client_text(),
        installed(versions.controller.as_slice()),
        installed(&versions.admission)
    )
}

/// The line of this program.
pub(crate) fn client_text() -> String {
    format!("Client       {}\n", client())
}
