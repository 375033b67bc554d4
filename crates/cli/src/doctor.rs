//! `doctor`: whether the installation is healthy, and with `--pre` whether pod-affinity can be installed.
//!
//! [`read`] reads the API server, and nothing else does. A check is a pure function from the [`Snapshot`] to findings.

mod admission;
mod certificate;
mod finding;
mod image_pull;
mod installation;
pub(crate) mod manifests;
mod namespaces;
mod placeholder;
mod platform;
mod pre;
pub(crate) mod read;
mod rights;
mod runs;
mod trial;

pub(crate) use finding::{Finding, Level, is_at_least, text};
pub(crate) use pre::findings as pre_findings;

use crate::admission::{Admission, Mechanism};
use crate::requests::RequestResult;
use crate::view::RunView;
use finding::CheckResult;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, LimitRange, Namespace, Node, Pod, ResourceQuota, Secret};
use kube::ResourceExt;
use placement::config::Config;
use runtime::certs::publish::injector;
use runtime::install;

/// The objects from which `doctor` makes its findings.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) now: Timestamp,
    pub(crate) installation: Installation,
    pub(crate) lease: RequestResult<Option<Lease>>,
    /// The Lease was renewed between two reads.
    pub(crate) renewed: bool,
    pub(crate) secret: RequestResult<Option<Secret>>,
    pub(crate) config: RequestResult<Option<ConfigMap>>,
    pub(crate) trial: trial::Trial,
    pub(crate) rights: RequestResult<Vec<rights::Review>>,
    pub(crate) runs: RequestResult<Vec<RunView>>,
    pub(crate) sets: RequestResult<Vec<StatefulSet>>,
    /// The pods of placeholders.
    pub(crate) placeholders: RequestResult<Vec<Pod>>,
    /// Pending pods of tasks of enrolled runs.
    pub(crate) waiting: RequestResult<Vec<Pod>>,
    pub(crate) quotas: RequestResult<Vec<ResourceQuota>>,
    pub(crate) limits: RequestResult<Vec<LimitRange>>,
    /// The Namespaces with the opt-in label.
    pub(crate) namespaces: RequestResult<Vec<Namespace>>,
    /// Read only if the configuration has `pull-images`.
    pub(crate) nodes: Option<RequestResult<Vec<Node>>>,
}

/// The objects that exist once in the cluster. `doctor` reads them with and without `--pre`.
#[derive(Clone, Debug)]
pub(crate) struct Installation {
    pub(crate) platform: Platform,
    /// The namespace in which pod-affinity is or will be installed.
    pub(crate) namespace: String,
    pub(crate) found: RequestResult<Option<Namespace>>,
    pub(crate) deployments: RequestResult<Vec<Deployment>>,
    pub(crate) admission: Admission,
}

/// Kubernetes and Tekton.
#[derive(Clone, Debug)]
pub(crate) struct Platform {
    pub(crate) kubernetes: RequestResult<String>,
    /// Whether the API server serves the kind `PipelineRun`.
    pub(crate) serves_runs: RequestResult<()>,
    /// Whether the API server serves the kind `MutatingAdmissionPolicy`.
    pub(crate) serves_policies: RequestResult<()>,
    pub(crate) tekton_namespace: String,
    pub(crate) tekton: RequestResult<Option<ConfigMap>>,
    pub(crate) flags: RequestResult<Option<ConfigMap>>,
}

impl Installation {
    /// Whether another tool, such as cert-manager, issues the webhook's certificate.
    fn has_external_certificates(&self) -> bool {
        let mut configurations = self.admission.configurations();
        self.has_option("POD_AFFINITY_CERTIFICATES", "--certificates", |value| {
            value == "external"
        }) || configurations.any(|(_, found)| injector(found).is_some())
    }

    /// Whether the webhook serves a certificate from mounted files, and not from the Secret.
    fn mounts_certificate(&self) -> bool {
        self.has_option("POD_AFFINITY_TLS_CERT_FILE", "--tls-cert-file", |_| true)
    }

    /// Whether a container of a Deployment has such a value of an option, as a variable or as a flag.
    fn has_option(&self, variable: &str, flag: &str, is_such: impl Fn(&str) -> bool) -> bool {
        let deployments = self.deployments.iter().flatten();
        let specs = deployments.filter_map(|it| it.spec.as_ref()?.template.spec.as_ref());
        let mut containers = specs.flat_map(|spec| &spec.containers);
        containers.any(|container| {
            let variables = container.env.iter().flatten().filter(|it| it.name == variable);
            let flags = container.args.iter().flatten();
            let flags = flags.filter_map(|it| it.strip_prefix(flag)?.strip_prefix('='));
            let mut values = variables.filter_map(|it| it.value.as_deref()).chain(flags);
            values.any(&is_such)
        })
    }
}

impl Snapshot {
    /// The mechanism that is installed; the webhook if neither is. If the user may not read the objects of admission, an installation
    /// without the webhook's Deployment has policies.
    fn mechanism(&self) -> Mechanism {
        let Installation {
            admission,
            deployments,
            ..
        } = &self.installation;
        let is_webhook = |deployment: &Deployment| deployment.name_any() == install::WEBHOOK_SERVICE;
        let lacks_webhook = matches!(deployments, Ok(found) if !found.iter().any(is_webhook));
        admission
            .mechanism()
            .unwrap_or(if admission.is_unread() && lacks_webhook {
                Mechanism::Policies
            } else {
                Mechanism::Webhook
            })
    }

    /// The active configuration, or the defaults if it is unknown.
    fn config(&self) -> Config {
        config_of(&self.config)
    }

    /// The active configuration. `None` if the ConfigMap is unread, or invalid: then the controller uses an earlier version.
    fn known_config(&self) -> Option<Config> {
        known_config_of(&self.config)
    }
}

/// The defaults if the ConfigMap is absent, unread or invalid.
fn config_of(map: &RequestResult<Option<ConfigMap>>) -> Config {
    known_config_of(map).unwrap_or_default()
}

fn known_config_of(map: &RequestResult<Option<ConfigMap>>) -> Option<Config> {
    let map = map.as_ref().ok()?.as_ref();
    let data = map.and_then(|map| map.data.clone()).unwrap_or_default();
    Config::parse(&data).ok()
}

/// The findings on an installation, check by check.
pub(crate) fn findings(snapshot: &Snapshot) -> Vec<Finding> {
    let checks: [fn(&Snapshot) -> CheckResult; 15] = [
        |it| Ok(platform::versions(&it.installation.platform)),
        installation::deployments,
        installation::leader,
        installation::configuration,
        |it| Ok(admission::policies(it)),
        |it| Ok(admission::webhooks(it)),
        certificate::certificate,
        |it| Ok(trial::findings(it)),
        rights::service_accounts,
        |it| platform::flags(&it.installation.platform),
        namespaces::labels,
        namespaces::quotas,
        namespaces::limits,
        image_pull::image_pull,
        runs::runs,
    ];
    let findings = checks.iter().map(|check| check(snapshot));
    findings
        .flat_map(|found| found.unwrap_or_else(|unread| vec![unread]))
        .collect()
}

#[cfg(test)]
mod tests;
