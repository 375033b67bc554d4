//! `doctor --pre`: whether pod-affinity can be installed in this cluster, and by this user.

use super::finding::{Check, CheckResult, Finding};
use super::installation::INSTALLATION;
use super::placeholder::{self, PlaceholderTrial};
use super::rights::{Review, missing};
use super::{Installation, platform};
use crate::admission::{Admission, Mechanism};
use crate::requests::RequestResult;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;

const RIGHTS: Check = Check("your rights");

/// The objects that are read before an installation.
#[derive(Clone, Debug)]
pub(crate) struct PreSnapshot {
    pub(crate) installation: Installation,
    /// The user's rights to the objects of the manifests.
    pub(crate) creates: RequestResult<Vec<Review>>,
    /// The user's rights that the manifests give to ServiceAccounts.
    pub(crate) grants: RequestResult<Vec<Review>>,
    pub(crate) placeholder: PlaceholderTrial,
}

/// The findings before an installation.
pub(crate) fn findings(pre: &PreSnapshot) -> Vec<Finding> {
    let platform = &pre.installation.platform;
    let admission = &pre.installation.admission;
    let flags = platform::flags(platform).unwrap_or_else(|unread| vec![unread]);
    let place = place(&pre.installation).unwrap_or_else(|only| vec![only]);
    let mechanism = match admission.mechanism() {
        None => platform::recommendation(platform),
        Some(Mechanism::Webhook | Mechanism::Both) => INSTALLATION.ok("The webhook is installed."),
        Some(Mechanism::Policies) => INSTALLATION.ok("Admission policies are installed."),
    };
    let creates = rights(
        &pre.creates,
        "You may create and update all objects of the manifests.",
        "which `kubectl apply` of the manifests needs",
    );
    let grants = rights(
        &pre.grants,
        "You may give pod-affinity's ServiceAccounts their rights.",
        "and Kubernetes does not let you grant rights that you do not have",
    );
    let mut findings = platform::versions(platform);
    findings.extend(flags);
    findings.extend(admission.errors().map(|error| INSTALLATION.unread(error)));
    findings.extend(elsewhere(&pre.installation));
    findings.extend(place);
    findings.extend([mechanism, creates, grants]);
    findings.extend(placeholder::findings(&pre.placeholder));
    findings
}

/// The namespace and its Deployments.
fn place(installation: &Installation) -> CheckResult {
    let Installation {
        namespace,
        found,
        deployments,
        ..
    } = installation;
    let found = INSTALLATION.read(found)?;
    let deployments = INSTALLATION.read(deployments)?;
    let is_deleted = found
        .as_ref()
        .is_some_and(|it| it.metadata.deletion_timestamp.is_some());
    Ok(vec![if is_deleted {
        INSTALLATION.bad(
            format!("Namespace {namespace} is being deleted: the API server creates nothing in it."),
            format!("Wait for it: `kubectl wait --for=delete namespace/{namespace}`."),
        )
    } else if deployments.is_empty() {
        INSTALLATION.ok(format!("No Deployment is in namespace {namespace} yet."))
    } else {
        INSTALLATION.ok(format!(
            "There are Deployments in namespace {namespace}: applying the manifests upgrades what is installed."
        ))
    }])
}

/// Webhook configurations and policies have fixed names, so a second installation would replace those of the first.
fn elsewhere(installation: &Installation) -> Vec<Finding> {
    let Admission {
        webhooks: _,
        policies,
    } = &installation.admission;
    let webhooks = installation.admission.configurations();
    let webhooks = webhooks.filter_map(|(name, found)| Some((name, service_namespace(found)?)));
    let policies = policies.iter().filter_map(|it| {
        let found = it.found.as_ref().ok()?.as_ref()?;
        let namespace = found["spec"]["paramRef"]["namespace"].as_str()?;
        Some((it.release.metadata.name.as_str(), namespace))
    });
    let objects = webhooks.chain(policies);
    let others = objects.filter(|(_, namespace)| *namespace != installation.namespace);
    let findings = others.map(|(name, namespace)| {
        INSTALLATION.bad(
            format!(
                "{name} belongs to namespace {namespace}: pod-affinity is installed there, and a cluster can have it only \
                 once."
            ),
            "Upgrade that installation, or uninstall it first.",
        )
    });
    findings.collect()
}

fn service_namespace(found: &MutatingWebhookConfiguration) -> Option<&str> {
    let mut webhooks = found.webhooks.iter().flatten();
    let service = webhooks.find_map(|it| it.client_config.service.as_ref())?;
    Some(&service.namespace)
}

fn rights(reviews: &RequestResult<Vec<Review>>, well: &str, reason: &str) -> Finding {
    match reviews.as_ref().map(missing) {
        Err(error) => RIGHTS.unread(error),
        Ok(None) => RIGHTS.ok(well),
        Ok(Some(rights)) => RIGHTS.bad(
            format!("You may not {rights}, {reason}."),
            "Have a cluster administrator install pod-affinity.",
        ),
    }
}

#[cfg(test)]
mod tests;
